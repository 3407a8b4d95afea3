"""What is decided by looking at the machine."""

from types import SimpleNamespace

import pytest
import torch
from applications import composed

from aiayn.hardware import tokens_per_device

FILES = ("data=files", "data.train=x", "data.val=x")


@pytest.mark.parametrize(
    ("gigabytes", "options", "expected"),
    [
        (None, (), 16_384),
        (24, (), 16_384),
        (80, (), 32_768),
        (80, ("trainer.accelerator=cpu",), 16_384),
        (80, ("trainer.devices=2",), 16_384),
        (80, ("trainer.num_nodes=2",), 16_384),
        (80, ("data.max_tokens_per_device=5000",), 5_000),
        (None, ("data.max_length=20000", "data.tokens_per_step=30000"), 20_001),
    ],
)
def test_a_device_takes_by_default_as_many_tokens_as_fit_its_memory(gigabytes, options, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0 if gigabytes is None else 2)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=gigabytes * 1_000_000_000)
    )
    assert tokens_per_device(composed(*FILES, *options)) == expected
