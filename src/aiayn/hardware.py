"""Which device and precision to compute in, and what the machine is."""

import os
import platform
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, cast

import psutil
import torch

from aiayn.config.model import NARROW
from aiayn.config.rules import one_of
from aiayn.config.schema import Config
from aiayn.config.training import TrainerOptions, TrainingPrecision
from aiayn.errors import ConfigError, counted
from aiayn.files import cores, source_commit

# Tokens of a micro-batch by the GPU memory (bytes) that they need at least. A step of 25,000 tokens
# took 17 to 19 GB with big in bfloat16, 8 to 10 with base (docs/results/gpu.md).
TOKENS_BY_MEMORY = {39e9: 32_768, 21e9: 28_000, 11e9: 8_192, 0: 4_096}

# TFLOPs per second of dense products in 16 bits, accumulated in float32, and in float32 without
# tensor cores, by words of torch's name of the GPU; more words come first. TF32 has half of the
# first. From NVIDIA's data sheets.
PEAK_TFLOPS = {
    "B200": (2250.0, 75.0),
    "H200": (989.4, 66.9),
    "H100 PCIe": (756.4, 51.2),
    "H100 NVL": (835.5, 60.0),
    "H100": (989.4, 66.9),
    "A100": (311.9, 19.5),
    "A40": (149.7, 37.4),
    "A10": (125.0, 31.2),
    "L40S": (362.1, 91.6),
    "L4": (121.0, 30.3),
    "V100": (125.0, 15.7),
    "T4": (65.1, 8.1),
    "4090": (165.2, 82.6),
    "3090": (71.0, 35.6),
}

# The variables of a SLURM job that has GPUs. The first two list GPUs by their numbers, so that 0 is
# a GPU; the others count them.
LISTS_OF_SLURM = ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS")
COUNTS_OF_SLURM = (
    "SLURM_GPUS_ON_NODE",
    "SLURM_GPUS",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_TASK",
    "SLURM_GPUS_PER_SOCKET",
)


def choose_device(accelerator: str) -> torch.device:
    """Returns the device for auto (a GPU where there is one), cpu or gpu. Raises ConfigError if it
    is not there.
    """
    one_of("accelerator", accelerator, ("auto", "cpu", "gpu"))
    gpus = torch.cuda.device_count()
    if accelerator == "gpu" and not gpus:
        raise ConfigError(f"accelerator=gpu: {why_no_gpu()}, or set accelerator=cpu")
    device = torch.device("cuda" if gpus and accelerator != "cpu" else "cpu")
    _configure_libraries(device.type)
    return device


def _configure_libraries(device_type: str) -> None:
    """Sets options of torch and oneDNN, before anything is computed on a device of this type."""
    if device_type == "cpu":
        # oneDNN compiles kernels for every shape of a batch, and would keep the last 1,024.
        os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")
        return
    # Masked attention in cuDNN costs tens of ms for every new shape, and its backward pass can give
    # NaN.
    torch.backends.cuda.enable_cudnn_sdp(False)
    # Every batch has another shape, which fragments GPU memory unless segments can grow.
    if "PYTORCH_CUDA_ALLOC_CONF" not in os.environ:  # torch's former name
        os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")


def visible_gpus() -> list[str]:
    """Returns what CUDA_VISIBLE_DEVICES calls the GPUs that this process may use."""
    count = torch.cuda.device_count()
    named = re.findall(r"[^\s,]+", os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    return (named or [str(number) for number in range(count)])[:count]


def has_own_gpu(settings: TrainerOptions) -> bool:
    """Returns whether every process of this machine sees one GPU only, its own: SLURM with
    --gpus-per-task=1.
    """
    return settings.devices > 1 and "SLURM_LOCALID" in os.environ and torch.cuda.device_count() == 1


class Hardware(NamedTuple):
    """Lightning's accelerator and precision of a training."""

    accelerator: str
    precision: TrainingPrecision


def choose_hardware(settings: TrainerOptions) -> Hardware:
    """Resolves accelerator=auto and precision=auto.

    Raises ConfigError if there are too few GPUs, or none that the precision needs.
    """
    accelerator, precision = choose_accelerator(settings), settings.precision
    _configure_libraries("cuda" if accelerator == "gpu" else "cpu")
    if accelerator == "cpu" and precision in ("tf32", "16-mixed"):
        raise ConfigError(
            f"trainer.precision={precision}: needs a GPU; on a CPU set bf16-mixed or 32-true"
        )
    # Also back: an earlier training of this process may have chosen otherwise.
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    if precision == "tf32":
        precision = "32-true"
    elif precision == "auto" and has_bfloat16(accelerator):
        precision = "bf16-mixed"
    elif precision == "auto":
        # Tensor cores came with compute capability 7.0, bfloat16 in them with 8.0.
        has_cores = accelerator == "gpu" and torch.cuda.get_device_capability() >= (7, 0)
        precision = "16-mixed" if has_cores else "32-true"
    return Hardware(accelerator, cast(TrainingPrecision, precision))  # a rule of TrainerOptions


def choose_accelerator(settings: TrainerOptions) -> str:
    """Returns cpu or gpu. Training moves to CPUs without being told only where nothing speaks for a
    GPU: neither several devices nor a driver or a job that has GPUs. Makes no context on a GPU.

    Raises ConfigError if there are too few GPUs.
    """
    gpus, accelerator = torch.cuda.device_count(), settings.accelerator
    on_cpu = "set trainer.accelerator=cpu to train on CPUs"
    if accelerator == "auto" and not gpus:
        if settings.world_size > 1:
            several = "devices" if settings.devices > 1 else "num_nodes"
            raise ConfigError(
                f"trainer.{several}={getattr(settings, several)}: {why_no_gpu()}, or {on_cpu}, a "
                "process per device"
            )
        is_cpu_build = not (torch.version.cuda or torch.version.hip)
        signs = (
            ["this machine has an NVIDIA driver"] if is_cpu_build and has_nvidia_driver() else []
        )
        signs += [
            f"SLURM gave this job GPUs ({name}={value})"
            for name in (*LISTS_OF_SLURM, *COUNTS_OF_SLURM)
            if (value := os.environ.get(name)) and (value != "0" or name in LISTS_OF_SLURM)
        ]
        if signs:
            raise ConfigError(
                f"trainer.accelerator=auto: {signs[0]}, but {why_no_gpu()}, or {on_cpu}"
            )
        return "cpu"
    if accelerator == "cpu":
        return "cpu"
    if not gpus:
        raise ConfigError(f"trainer.accelerator=gpu: {why_no_gpu()}, or {on_cpu}")
    if gpus < settings.devices and not has_own_gpu(settings):
        raise ConfigError(
            f"trainer.devices={settings.devices}: this machine has {counted(gpus, 'GPU')}; lower "
            "trainer.devices, or set trainer.accelerator=cpu"
        )
    return "gpu"


def why_no_gpu() -> str:
    """Returns why torch has no GPU here, and what to do about it, where there is none."""
    if not (torch.version.cuda or torch.version.hip):
        return (
            f"torch {torch.__version__} is a build for CPUs; install the one for GPUs: make "
            "install TORCH=cuda"
        )
    if not has_nvidia_driver():
        return (
            "this machine has no NVIDIA driver; start on one with a GPU, where nvidia-smi lists it"
        )
    if (hidden := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return f"CUDA_VISIBLE_DEVICES={hidden} hides all GPUs; correct or unset it"
    return (
        "torch finds no GPU; see whether nvidia-smi lists one and its driver is as new as "
        "torch's CUDA"
    )


def has_nvidia_driver() -> bool:
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def missing_for_compiling() -> str | None:
    """Returns what torch.compile lacks on this machine's GPUs; None if nothing."""
    if find_spec("triton") is None:
        return "Triton, which comes with torch for CUDA"
    compilers = [os.environ.get("CC") or "cc", "gcc", "clang"]
    return None if any(map(shutil.which, compilers)) else "C compiler (gcc or clang)"


@contextmanager
def training_threads(d_model: int, hardware: Hardware) -> Iterator[int]:
    """Yields the number of threads of a training on a CPU: for a narrow model few, unless
    OMP_NUM_THREADS is set.

    Its products are small. In float32 two threads are faster, where they find idle cores; in
    bfloat16 they only wait.
    """
    n = default_threads = torch.get_num_threads()
    if hardware.accelerator == "cpu" and d_model <= NARROW and "OMP_NUM_THREADS" not in os.environ:
        n = 2 if default_threads >= 4 and not hardware.precision.startswith("bf16") else 1
    with threads(n):
        yield n


@contextmanager
def threads(n: int) -> Iterator[None]:
    """Lets torch compute with n threads on the CPU."""
    default_threads = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(default_threads)


def has_bfloat16(accelerator: str) -> bool:
    """Returns whether the hardware itself computes in bfloat16: emulation is slower than
    float32.
    """
    if accelerator == "gpu":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # Not in macOS' wheels
    return getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)()


def tokens_per_device(config: Config, packed: bool = False) -> int:
    """Returns `data.max_tokens_per_device`; its default is 16,384, on CPUs 4,096 for packed
    sentences, and on GPUs follows from the smallest one's memory.

    On 24 GB or more the paper's 25,000 tokens are one micro-batch; several devices share them
    anyway.
    """
    if config.data.max_tokens_per_device is not None:
        return config.data.max_tokens_per_device
    # More tokens at once make a CPU's products no faster, and take more memory.
    tokens = 4_096 if packed else 16_384
    if choose_accelerator(config.trainer) == "gpu":
        gpus = range(torch.cuda.device_count())
        memory = min(torch.cuda.get_device_properties(number).total_memory for number in gpus)
        fitting = next(tokens for least, tokens in TOKENS_BY_MEMORY.items() if memory >= least)
        tokens = fitting if config.trainer.world_size == 1 else min(tokens, fitting)
    return max(tokens, config.data.max_length + 1)


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether a GPU or the host is out of memory; for the host torch has no exception
    type.
    """
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )


def machine_memory() -> int:
    """Returns the bytes of main memory."""
    return psutil.virtual_memory().total


def gpu_memory() -> int:
    """Returns the bytes of the memory of the first GPU that this process may use."""
    return torch.cuda.get_device_properties(0).total_memory


def describe_machine(device: torch.device, precision: str, devices: int) -> dict[str, Any]:
    """Returns what machine.json says of machine and program; neither the machine's name nor its
    user's.
    """
    gpu = torch.cuda.get_device_properties(device) if device.type == "cuda" else None
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text("utf-8") if cpuinfo.exists() else ""
    named = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    processor = named[1].strip() if named else platform.processor() or platform.machine()
    return {
        "devices": devices,
        "device": gpu.name if gpu else processor,
        "precision": precision,
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "memory_gb": round(machine_memory() / 1e9, 1),
        "gpu_memory_gb": round(gpu.total_memory / 1e9, 1) if gpu else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": source_commit(),
    }


def peak_rate(device: torch.device, precision: str) -> float | None:
    """Returns the FLOPs per second that the maker states for a GPU, the 100 % of `perf/mfu`; None
    if it is not known.

    CPUs have none: their rate depends on what else runs. `benchmarks/gpu.py` measures the rate of
    other GPUs.
    """
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    words = set(re.split(r"[\s-]+", name))
    known = (
        rates
        for gpu, rates in PEAK_TFLOPS.items()
        if words.issuperset(gpu.split()) and "Laptop" not in words
    )
    rates = next(known, None)
    if rates is None or precision == "64-true":
        return None
    half, single = rates
    if precision.startswith(("16", "bf16")):
        return half * 1e12
    return (half / 2 if torch.get_float32_matmul_precision() == "high" else single) * 1e12


def peak_memory(device: torch.device) -> float:
    """Returns the most bytes this process has held so far: GPU memory, or main memory on a CPU. Not
    on Windows.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if platform.system() == "Darwin" else peak * 1024
