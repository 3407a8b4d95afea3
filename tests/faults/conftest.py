"""One text and one undisturbed run, to which all others are compared."""

from pathlib import Path

import pytest
import torch
from faults import harness

from aiayn.config import Config


@pytest.fixture(scope="session")
def text(tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    return harness.write_splits(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="session")
def config(text) -> Config:
    return harness.configured(text)


@pytest.fixture(scope="session")
def unbroken(config, tmp_path_factory) -> Path:
    """The run's folder."""
    outputs = tmp_path_factory.mktemp("unbroken")
    end = harness.train(config, outputs)
    assert end.code == 0, end.said
    return outputs / "run"
