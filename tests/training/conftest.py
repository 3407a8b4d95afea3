"""A run small enough to be repeated many times: 300 generated pairs, a model of 30 thousand
weights, 12 steps.
"""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from applications import TWELVE_STEPS, composed, reversed_digits, spare_the_pictures, text_in

from aiayn.config.schema import Config


def write(prefix: Path, count: int, seed: int) -> None:
    for lang, lines in zip(("en", "xx"), reversed_digits(count, seed, 1, 7), strict=True):
        with gzip.open(f"{prefix}.{lang}.gz", "wt", encoding="utf-8", newline="\n") as file:
            file.write("\n".join(lines) + "\n")


@pytest.fixture(scope="session")
def write_pairs():
    return write


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    """PREFIX folder of train, val and test files."""
    folder = tmp_path_factory.mktemp("digits")
    for seed, (split, count) in enumerate({"train": 300, "val": 21, "test": 17}.items()):
        write(folder / split, count, seed)
    return folder


@pytest.fixture(scope="session")
def config(corpus) -> Config:
    """Twelve steps over two and a half epochs, on one CPU, in float32. Change a copy of it."""
    unequal = (
        "model.n_layers=2",
        "model.d_model=24",
        "model.d_ff=40",
        "model.n_heads=3",
        "model.d_k=5",
        "model.d_v=7",
    )
    data = ("data.max_length_ratio=9", "data.vocab_size=290", "data.max_tokens_per_device=520")
    return composed(*TWELVE_STEPS, *text_in(corpus, "xx"), *unequal, *data, "name=run", "seed=3")


@pytest.fixture(autouse=True, scope="module")
def no_pictures() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        spare_the_pictures(patch)
        yield


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Bit-equality is per number of threads, and other libraries change it; a module's runs need it
    from the first.
    """
    torch.set_num_threads(1)
