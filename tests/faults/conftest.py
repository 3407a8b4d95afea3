"""One text, one undisturbed run, to which all others are compared, and runs that were killed."""

import shutil
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from faults import harness

from aiayn.config.schema import Config
from aiayn.training.module import TranslationModule


@pytest.fixture(scope="session")
def text(tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    return harness.write_splits(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="session")
def config(text, tmp_path_factory) -> Config:
    config = harness.configured(text)
    harness.warm_up(config, tmp_path_factory.mktemp("warm"))
    return config


@pytest.fixture(scope="session")
def unbroken(config, tmp_path_factory) -> Path:
    """The run's folder."""
    outputs = tmp_path_factory.mktemp("unbroken")
    end = harness.train(config, outputs)
    assert end.code == 0, end.said
    return outputs / "run"


@pytest.fixture(scope="session")
def kill(config, tmp_path_factory) -> Callable[[int], Path]:
    @cache
    def kill(call: int) -> Path:
        outputs = tmp_path_factory.mktemp("killed")
        end = harness.train(
            config, outputs, harness.dies_at(TranslationModule, "training_step", call)
        )
        assert end.code == -signal.SIGKILL, end.said
        return outputs / "run"

    return kill


@pytest.fixture
def killed_at(kill, tmp_path) -> Callable[[int], Path]:
    """A copy, in tmp_path, of the run that was killed before the given call of `training_step`."""
    return lambda call: shutil.copytree(kill(call), tmp_path / "run")
