"""What is decided by looking at the machine."""

import os
from types import SimpleNamespace

import pytest
import torch
from applications import composed

from aiayn.errors import ConfigError
from aiayn.hardware import choose_device, choose_hardware, tokens_per_device
from aiayn.training.checks import check_size
from aiayn.training.trainer import NCCL_GRACE, _strategy

FILES = ("data=files", "data.train=x", "data.val=x")


@pytest.mark.parametrize(
    ("gigabytes", "options", "expected"),
    [
        (None, (), 16_384),
        (8, (), 4_096),
        (15.8, (), 8_192),
        (24, (), 16_384),
        (39.6, (), 32_768),
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
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "")
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=gigabytes * 1_000_000_000)
    )
    assert tokens_per_device(composed(*FILES, *options)) == expected


@pytest.mark.parametrize("who", ["training", "translation"])
def test_attention_in_cudnn_is_off_on_a_gpu_for_whoever_uses_it(who, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        torch.backends.cuda.enable_cudnn_sdp(True)
        if who == "training":
            assert choose_hardware(composed(*FILES).trainer)["accelerator"] == "gpu"
        else:
            assert choose_device("auto").type == "cuda"
        assert not torch.backends.cuda.cudnn_sdp_enabled()
        assert os.environ["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def test_memory_settings_of_the_user_are_kept(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:99")
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    choose_device("gpu")
    assert "PYTORCH_ALLOC_CONF" not in os.environ


@pytest.mark.parametrize(("accelerator", "more"), [("gpu", NCCL_GRACE), ("cpu", 0)])
def test_nccl_waits_longer_than_the_ranks_wait_for_each_other(accelerator, more):
    strategy = _strategy(composed(*FILES, "trainer.devices=2", "trainer.timeout=70").trainer, accelerator)
    assert strategy._timeout.total_seconds() == 70 + more


def test_a_model_that_a_gpu_cannot_train_is_refused_before_it_is_built(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=900_000_000))
    config = composed(*FILES, "model=base", "data.vocab_size=37000")
    check_size(config.model, 37_000)  # 63 M parameters
    with pytest.raises(ConfigError, match=r"take 1 GB with gradients and Adam's moments, and this GPU has 1;"):
        check_size(config.model, 37_000, "gpu")
