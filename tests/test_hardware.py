"""What is decided by looking at the machine."""

import os
from types import SimpleNamespace

import pytest
import pytorch_lightning as pl
import torch
from applications import composed
from pytorch_lightning.utilities import rank_zero_only

from aiayn import hardware
from aiayn.errors import ConfigError
from aiayn.hardware import (
    Hardware,
    choose_device,
    choose_hardware,
    has_own_gpu,
    is_out_of_memory,
    peak_rate,
    tokens_per_device,
    training_threads,
)
from aiayn.training.start import check_size
from aiayn.training.trainer import NCCL_GRACE, _strategy

FILES = ("data=files", "data.train=x", "data.val=x")


@pytest.mark.parametrize(
    ("gigabytes", "options", "expected"),
    [
        (None, (), 16_384),
        (8, (), 4_096),
        (15.8, (), 8_192),
        (24, (), 28_000),
        (39.6, (), 32_768),
        (80, (), 32_768),
        (80, ("trainer.accelerator=cpu",), 16_384),
        (80, ("trainer.devices=2",), 16_384),
        (80, ("trainer.num_nodes=2",), 16_384),
        (8, ("trainer.devices=2",), 4_096),
        (80, ("data.max_tokens_per_device=5000",), 5_000),
        (None, ("data.max_length=20000", "data.tokens_per_step=30000"), 20_001),
    ],
)
def test_a_device_takes_by_default_as_many_tokens_as_fit_its_memory(
    gigabytes, options, expected, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0 if gigabytes is None else 2)
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "")
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda device: SimpleNamespace(total_memory=gigabytes * 1_000_000_000),
    )
    assert tokens_per_device(composed(*FILES, *options)) == expected


@pytest.mark.parametrize(
    ("capability", "in_bfloat16", "precision"),
    [((6, 1), False, "32-true"), ((7, 5), False, "16-mixed"), ((8, 0), True, "bf16-mixed")],
)
def test_training_computes_in_what_the_tensor_cores_of_a_gpu_have(
    capability, in_bfloat16, precision, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: in_bfloat16)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", lambda enabled: None)
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "")
    assert choose_hardware(composed(*FILES).trainer).precision == precision
    set_to = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", set_to.append)
    assert (
        choose_hardware(composed(*FILES, "trainer.precision=tf32").trainer).precision == "32-true"
    )
    choose_hardware(composed(*FILES, "trainer.precision=32-true").trainer)
    assert set_to == ["high", "highest"]


@pytest.mark.parametrize(("given", "kept"), [(None, "128"), ("7", "7")])
def test_a_training_on_a_cpu_keeps_few_of_the_kernels_that_onednn_compiles_unless_told_otherwise(
    given, kept, monkeypatch
):
    name = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
    monkeypatch.setenv(name, given or "")
    if given is None:
        monkeypatch.delenv(name)
    choose_hardware(composed(*FILES, "trainer.accelerator=cpu").trainer)
    assert os.environ[name] == kept


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
            assert choose_hardware(composed(*FILES).trainer).accelerator == "gpu"
        else:
            assert choose_device("auto").type == "cuda"
        assert not torch.backends.cuda.cudnn_sdp_enabled()
        assert os.environ["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def test_processes_that_see_one_gpu_each_take_it_whatever_their_number_on_the_machine(monkeypatch):
    """As started by SLURM with --gpus-per-task=1; here the second of two on the second of two
    machines.
    """
    ours = {
        "SLURM_LOCALID": 1,
        "SLURM_PROCID": 3,
        "SLURM_NODEID": 1,
        "SLURM_NTASKS": 4,
        "SLURM_NTASKS_PER_NODE": 2,
    }
    settings = composed(
        *FILES, "trainer.devices=2", "trainer.num_nodes=2", "trainer.accelerator=gpu"
    ).trainer
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "")
    monkeypatch.setattr(rank_zero_only, "rank", 0)  # the Trainer sets it
    with pytest.raises(ConfigError, match=r"trainer\.devices=2: this machine has 1 GPU;"):
        choose_hardware(settings)
    for name, value in (
        ours | {"SLURM_JOB_NAME": "job", "SLURM_JOB_ID": 7, "SLURM_NODELIST": "n[1-2]"}
    ).items():
        monkeypatch.setenv(name, str(value))
    assert choose_hardware(settings).accelerator == "gpu"

    strategy = _strategy(settings, "gpu", has_own_gpu(settings))
    trainer = pl.Trainer(
        accelerator="gpu",
        devices=1,
        num_nodes=2,
        strategy=strategy,
        logger=False,
        enable_checkpointing=False,
    )
    assert (trainer.world_size, trainer.global_rank, trainer.num_devices) == (4, 3, 2)
    assert (strategy.root_device, strategy.determine_ddp_device_ids()) == (
        torch.device("cuda", 0),
        [0],
    )
    strategy.cluster_environment.validate_settings(trainer.num_devices, trainer.num_nodes)


def test_a_model_that_a_gpu_cannot_train_is_refused_before_it_is_built(monkeypatch):
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda device: SimpleNamespace(total_memory=900_000_000),
    )
    config = composed(*FILES, "model=base", "data.vocab_size=37000")
    check_size(config.model, 37_000)  # 63 M parameters
    with pytest.raises(
        ConfigError, match=r"take 1 GB with gradients and Adam's moments, and this GPU has 1;"
    ):
        check_size(config.model, 37_000, "gpu")


@pytest.mark.parametrize(
    ("cores", "d_model", "chosen", "environment", "expected"),
    [
        (4, 128, ("cpu", "bf16-mixed"), {}, 1),
        (4, 128, ("cpu", "32-true"), {}, 2),
        (3, 128, ("cpu", "32-true"), {}, 1),
        (4, 256, ("cpu", "bf16-mixed"), {}, 4),
        (4, 128, ("gpu", "bf16-mixed"), {}, 4),
        (4, 128, ("cpu", "bf16-mixed"), {"OMP_NUM_THREADS": "4"}, 4),
    ],
)
def test_a_narrow_model_trains_in_few_threads_unless_the_environment_says_how_many(
    cores, d_model, chosen, environment, expected, monkeypatch
):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(cores)
        with training_threads(d_model, Hardware(*chosen)) as threads:
            assert threads == torch.get_num_threads() == expected
        assert torch.get_num_threads() == cores
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("accelerator", "more"), [("gpu", NCCL_GRACE), ("cpu", 0)])
def test_nccl_waits_longer_than_the_ranks_wait_for_each_other(accelerator, more):
    strategy = _strategy(
        composed(*FILES, "trainer.devices=2", "trainer.timeout=70").trainer, accelerator
    )
    assert strategy._timeout.total_seconds() == 70 + more


def test_a_lack_of_memory_on_a_cpu_is_told_by_its_text():
    with pytest.raises(RuntimeError) as raised:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(raised.value)


@pytest.mark.parametrize(
    ("name", "precision", "teraflops"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16-mixed", 989.4),
        ("NVIDIA H100 PCIe", "bf16-mixed", 756.4),
        ("NVIDIA A100-SXM4-80GB", "16-mixed", 311.9),
        ("NVIDIA A100-SXM4-80GB", "32-true", 19.5),
        ("NVIDIA A10", "bf16-true", 125.0),
        ("Tesla T4", "16-mixed", 65.1),
        ("NVIDIA H200", "64-true", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "bf16-mixed", None),
        ("a GPU of tomorrow", "bf16-mixed", None),
    ],
)
def test_mfu_is_a_share_of_the_rate_that_the_maker_states_for_the_gpu_and_precision(
    name, precision, teraflops, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    rate = peak_rate(torch.device("cuda"), precision)
    assert rate == (teraflops and pytest.approx(teraflops * 1e12))
    assert peak_rate(torch.device("cpu"), precision) is None


def test_float32_in_tensor_cores_has_half_of_their_rate_in_16_bits(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    assert peak_rate(torch.device("cuda"), "32-true") == pytest.approx(494.7e12)


JOB = {"SLURM_JOB_GPUS": "0,1"}


@pytest.mark.parametrize(
    ("options", "cuda", "driver", "job", "refusal"),
    [
        (
            ("trainer.devices=8",),
            None,
            False,
            {},
            "trainer.devices=8: torch .* build for CPUs; .* TORCH=cuda",
        ),
        (
            ("trainer.devices=8",),
            "13.0",
            False,
            {},
            "trainer.devices=8: this machine has no NVIDIA driver",
        ),
        (
            ("trainer.num_nodes=2",),
            "13.0",
            True,
            {},
            "trainer.num_nodes=2: torch finds no GPU; see whether nvidia-smi",
        ),
        (
            (),
            None,
            True,
            {},
            "accelerator=auto: this machine has an NVIDIA driver, but torch .* build for CPUs",
        ),
        (
            (),
            None,
            False,
            JOB,
            "accelerator=auto: SLURM gave this job GPUs .SLURM_JOB_GPUS=0,1., but torch",
        ),
        ((), None, False, {"SLURM_JOB_GPUS": "0"}, "JOB_GPUS=0., but torch"),
        ((), None, False, {"SLURM_JOB_GPUS": ""}, None),
        ((), None, False, {"SLURM_GPUS_PER_TASK": "1"}, "GPUS_PER_TASK=1., but torch"),
        ((), "13.0", True, JOB, "JOB_GPUS=0,1., but torch finds no GPU"),
        ((), "13.0", False, JOB, "JOB_GPUS=0,1., but this machine has no NVIDIA driver"),
        ((), "13.0", True, {"CUDA_VISIBLE_DEVICES": ""}, None),
        ((), None, False, {"SLURM_GPUS_ON_NODE": "0"}, None),
        ((), None, False, {}, None),
        (
            ("trainer.accelerator=gpu",),
            None,
            False,
            {},
            "trainer.accelerator=gpu: torch .* build for CPUs",
        ),
        (
            ("trainer.accelerator=gpu",),
            "13.0",
            True,
            {"CUDA_VISIBLE_DEVICES": ""},
            "gpu: CUDA_VISIBLE_DEVICES= hides",
        ),
        (("trainer.devices=8", "trainer.accelerator=cpu"), None, True, JOB, None),
    ],
)
def test_a_training_that_asks_for_gpus_never_moves_to_cpus_by_itself(
    options, cuda, driver, job, refusal, monkeypatch
):
    for name in [name for name in os.environ if name.startswith(("SLURM_", "CUDA_"))]:
        monkeypatch.delenv(name)
    for name, value in job.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(hardware, "has_nvidia_driver", lambda: driver)
    settings = composed(*FILES, *options).trainer
    if refusal is None:
        assert choose_hardware(settings).accelerator == "cpu"
        return
    with pytest.raises(ConfigError, match=refusal) as refused:
        choose_hardware(settings)
    assert "set trainer.accelerator=cpu" in str(refused.value)
