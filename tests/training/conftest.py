"""A run small enough to be repeated many times: 300 generated pairs, a model of 30 thousand weights, 12 steps."""

import gzip
import random
from pathlib import Path

import pytest
import torch

from aiayn.config import Config, DataConfig, LoggerConfig, ModelConfig, OptimConfig, SearchConfig, TrainerConfig


def write(prefix: Path, count: int, seed: int) -> None:
    """Digits in words, and the same digits reversed in figures."""
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    rng = random.Random(seed)
    drawn = [[rng.randrange(10) for _ in range(rng.randint(1, 7))] for _ in range(count)]
    for lang, lines in (
        ("en", [" ".join(words[digit] for digit in digits) for digits in drawn]),
        ("xx", [" ".join(str(digit) for digit in reversed(digits)) for digits in drawn]),
    ):
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
    return Config(
        name="run",
        sweep=None,
        init_from=None,
        init_fingerprint=None,
        seed=3,
        debug=False,
        model=ModelConfig(
            n_layers=2,
            d_model=24,
            d_ff=40,
            n_heads=3,
            d_k=5,
            d_v=7,
            dropout=0.2,
            positions="sinusoidal",
            max_positions=90,
            attention_window=None,
        ),
        data=DataConfig(
            source="files",
            hub_path=None,
            hub_name=None,
            hub_revision=None,
            train=str(corpus / "train"),
            val=str(corpus / "val"),
            test=str(corpus / "test"),
            src_lang="en",
            tgt_lang="xx",
            folder=str(corpus / "prepared"),
            vocab_size=290,
            max_length=60,
            max_length_ratio=9.0,
            tokenizer_pairs=None,
            tokens_per_step=400,
            max_tokens_per_device=400,
            micro_batches=2,
            num_workers=0,
        ),
        optim=OptimConfig(warmup_steps=20, lr_scale=1.0, beta1=0.9, beta2=0.98, eps=1e-9, label_smoothing=0.1),
        trainer=TrainerConfig(
            max_steps=12,
            accelerator="cpu",
            devices=1,
            num_nodes=1,
            strategy="auto",
            precision="32-true",
            val_every=6,
            val_bleu_sentences=3,
            checkpoint_every=3,
            average_last=3,
            log_every=1,
            compile=False,
            max_skipped_steps=0,
            timeout=60,
        ),
        search=SearchConfig(beam_size=3, length_penalty=0.6, penalty="gnmt", max_extra_tokens=5, batch_tokens=500),
        logger=LoggerConfig(kind="none", project="aiayn", entity=None, group=None, mode="auto", upload=False),
    )


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Bit-equality is per number of threads, and other libraries change it; a module's runs need it from the first."""
    torch.set_num_threads(1)
