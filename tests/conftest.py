"""What all tests share: one thread, reproducible examples, slow tests on request only, and configurations."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from hypothesis import settings

from aiayn.config import Config, ModelConfig
from aiayn.entry import checked, register

# Equality to the bit holds for one number of threads only, and small tensors are fastest on one.
torch.set_num_threads(1)

# What a shell starts in the background ignores Ctrl-C, and so do its children; the tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--slow"):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="takes minutes; --slow runs it"))


@pytest.fixture(autouse=True)
def _seed() -> None:
    """Random tensors are the same whichever tests ran before."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def tiny_config() -> ModelConfig:
    """A model in which no two sizes are equal, so that exchanged dimensions cannot go unnoticed."""
    return ModelConfig(
        n_layers=2,
        d_model=12,
        d_ff=20,
        n_heads=3,
        d_k=5,
        d_v=7,
        dropout=0.3,
        positions="sinusoidal",
        max_positions=64,
        attention_window=None,
    )


@pytest.fixture(scope="session")
def composed() -> Callable[..., Config]:
    """composed("model=big", ...): the configuration that `python train.py model=big ...` runs with."""

    def compose_train(*overrides: str) -> Config:
        register(Config)
        with initialize_config_dir(str(Path(__file__).parent.parent / "conf"), version_base="1.3"):
            return checked(compose("train", overrides=list(overrides)), Config)

    return compose_train
