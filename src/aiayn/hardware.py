"""Which device and precision to compute in, what the machine is, and how fast it multiplies."""

import os
import platform
import re
import shutil
import statistics
import time
import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

import psutil
import torch

from aiayn.config.rules import one_of
from aiayn.config.schema import Config
from aiayn.config.trainer import TrainerConfig, TrainingPrecision
from aiayn.errors import ConfigError
from aiayn.files import source_commit

# Tokens of a micro-batch by the GPU memory (bytes) that they need at least. A step of 25,000 tokens took 17 to 19 GB
# with big in bfloat16, 8 to 10 with base (docs/results/gpu.md).
TOKENS_BY_MEMORY = {39e9: 32_768, 21e9: 28_000, 11e9: 8_192, 0: 4_096}

WIDE = 512  # d_model, from which layers are compiled: less leaves a GPU waiting for its host, compiled or not
NARROW = 128  # d_model, up to which a training on a CPU takes few threads


def choose_device(accelerator: str) -> torch.device:
    """Returns the device for auto (a GPU where there is one), cpu or gpu. Raises ConfigError if it is not there."""
    one_of("accelerator", accelerator, ("auto", "cpu", "gpu"))
    gpus = torch.cuda.device_count()
    if accelerator == "gpu" and not gpus:
        raise ConfigError("accelerator=gpu: this machine has no GPU that torch can use; set accelerator=cpu")
    if gpus and accelerator != "cpu":
        _configure_cuda()
        return torch.device("cuda")
    return torch.device("cpu")


def _configure_cuda() -> None:
    """Sets torch's options for GPUs, before anything is computed on one."""
    # Masked attention in cuDNN costs tens of ms for every new shape, and its backward pass can give NaN.
    torch.backends.cuda.enable_cudnn_sdp(False)
    # Every batch has another shape, which fragments GPU memory unless segments can grow.
    if not os.environ.keys() & {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}:  # torch's name now, and before
        os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"


def visible_gpus() -> list[str]:
    """Returns what CUDA_VISIBLE_DEVICES calls the GPUs that this process may use."""
    count = torch.cuda.device_count()
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return (named or [str(number) for number in range(count)])[:count]


def has_own_gpu(settings: TrainerConfig) -> bool:
    """Whether every process of this machine sees one GPU only, its own: SLURM with --gpus-per-task=1."""
    return settings.devices > 1 and "SLURM_LOCALID" in os.environ and torch.cuda.device_count() == 1


class Hardware(NamedTuple):
    """Lightning's accelerator and precision of a training."""

    accelerator: str
    precision: TrainingPrecision


def keep_few_kernels() -> None:
    """Bounds the memory of kernels, which oneDNN compiles for every shape of a batch; it would keep the last 1,024.

    Has no effect once oneDNN has compiled a kernel, or if the variable is already set.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")


def choose_hardware(settings: TrainerConfig) -> Hardware:
    """Settles accelerator=auto and precision=auto.

    Raises ConfigError if there are too few GPUs, or none that the precision needs.
    """
    gpus = torch.cuda.device_count()
    accelerator = settings.accelerator
    if accelerator == "auto":
        accelerator = "gpu" if gpus else "cpu"
    if accelerator == "gpu" and gpus < settings.devices and not has_own_gpu(settings):
        raise ConfigError(
            f"trainer.devices={settings.devices}: this machine has {gpus} GPUs; lower trainer.devices, or set "
            "trainer.accelerator=cpu"
        )
    if accelerator == "gpu":
        _configure_cuda()
    else:
        keep_few_kernels()
    if settings.compile is True and accelerator == "gpu" and (missing := missing_for_compiling()):
        raise ConfigError(f"trainer.compile=true: there is no {missing}; install it, or set trainer.compile=auto")
    precision = settings.precision
    if precision == "tf32" and accelerator == "cpu":
        raise ConfigError("trainer.precision=tf32: float32 in tensor cores is for GPUs; on a CPU set 32-true")
    # Also back: an earlier training of this process may have chosen otherwise.
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    if precision == "tf32":
        precision = "32-true"
    if precision == "auto":
        precision = "bf16-mixed" if has_bfloat16(accelerator) else "32-true"
        # Tensor cores came with compute capability 7.0, bfloat16 in them with 8.0.
        if precision == "32-true" and accelerator == "gpu" and torch.cuda.get_device_capability() >= (7, 0):
            precision = "16-mixed"
    if precision == "16-mixed" and accelerator == "cpu":
        raise ConfigError("trainer.precision=16-mixed: float16 is for GPUs; on a CPU set bf16-mixed or 32-true")
    return Hardware(accelerator, cast(TrainingPrecision, precision))  # a rule of TrainerConfig


def missing_for_compiling() -> str | None:
    """Returns what torch.compile lacks on this machine's GPUs; None if nothing."""
    if find_spec("triton") is None:
        return "Triton, which comes with torch for CUDA"
    compilers = [os.environ.get("CC") or "cc", "gcc", "clang"]
    return None if any(map(shutil.which, compilers)) else "C compiler (gcc or clang)"


def why_not_compiled(config: Config, on_gpu: bool) -> str | None:
    """Returns why no layer is compiled; None if all are."""
    chosen = config.trainer.compile
    if chosen != "auto":
        return None if chosen else "trainer.compile=false"
    if not on_gpu:
        return "it is for GPUs"
    if config.model.parts:
        return "its model has parts of an extension"
    if config.model.d_model < WIDE:
        return "a narrow model waits longer for the compiler than it gains"
    missing = missing_for_compiling()
    return missing and f"there is no {missing}"


@contextmanager
def training_threads(d_model: int, hardware: Hardware) -> Iterator[int]:
    """Yields the number of threads of a training on a CPU: for a narrow model few, unless OMP_NUM_THREADS is set.

    Its products are small. In float32 two threads are faster, where they find idle cores; in bfloat16 they only wait.
    """
    before = torch.get_num_threads()
    if hardware.accelerator == "cpu" and d_model <= NARROW and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(2 if before >= 4 and not hardware.precision.startswith("bf16") else 1)
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def has_bfloat16(accelerator: str) -> bool:
    """Whether the hardware itself computes in bfloat16: emulation is slower than float32."""
    if accelerator == "gpu":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    is_supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)  # not in macOS' wheels
    return is_supported is not None and is_supported()


def tokens_per_device(config: Config) -> int:
    """Returns `data.max_tokens_per_device`; its default is 16,384, and on GPUs follows from the smallest one's memory.

    On 24 GB or more the paper's 25,000 tokens are one micro-batch; several devices share them anyway.
    """
    if config.data.max_tokens_per_device is not None:
        return config.data.max_tokens_per_device
    tokens = 16_384
    if choose_device(config.trainer.accelerator).type == "cuda":
        gpus = range(torch.cuda.device_count())
        memory = min(torch.cuda.get_device_properties(number).total_memory for number in gpus)
        fitting = next(tokens for least, tokens in TOKENS_BY_MEMORY.items() if memory >= least)
        tokens = fitting if config.trainer.world_size == 1 else min(tokens, fitting)
    return max(tokens, config.data.max_length + 1)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a GPU or the host is out of memory; for the host torch has no exception type."""
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
    """Returns what machine.json says of machine and program; neither the machine's name nor its user's."""
    on_gpu = device.type == "cuda"
    return {
        "devices": devices,
        "device": torch.cuda.get_device_name(device) if on_gpu else _processor(),
        "precision": precision,
        "matmul_tflops": round(matmul_rate(device, precision, torch.get_num_threads()) / 1e12, 4),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gb": round(machine_memory() / 1e9, 1),
        "gpu_memory_gb": round(torch.cuda.get_device_properties(device).total_memory / 1e9, 1) if on_gpu else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": source_commit(),
    }


@cache
def matmul_rate(device: torch.device, precision: str, threads: int) -> float:
    """Measures the FLOPs per second of one large matrix product: the 100 % of `perf/mfu`.

    Measured rather than looked up: tables of peak FLOPs miss new devices, CPUs, shared machines and power limits.
    In the training's precision, once per process (`threads` is a key of the cache): on a CPU the best of five; on a
    GPU, where one cold or small product stays far below the rate, the median of 20 large ones after a warm-up.
    """
    size = 8192 if device.type == "cuda" else 1024
    kinds = {"bf16-mixed": torch.bfloat16, "bf16-true": torch.bfloat16, "16-mixed": torch.float16}
    dtype = (kinds | {"64-true": torch.float64}).get(precision, torch.float32)
    # A separate generator, so that the training's random numbers do not change.
    generator = torch.Generator(device).manual_seed(0)
    matrix = torch.randn(size, size, device=device, generator=generator).to(dtype)
    if device.type == "cuda":
        return 2 * size**3 / gpu_seconds(lambda: torch.mm(matrix, matrix))
    first = timeit.timeit(lambda: torch.mm(matrix, matrix), number=1)  # also chooses a kernel
    repeats = 5 if first < 0.5 else 0  # seconds, as where a precision is emulated
    return 2 * size**3 / min([first, *timeit.repeat(lambda: torch.mm(matrix, matrix), number=1, repeat=repeats)])


def gpu_seconds(work: Callable[[], Any]) -> float:
    """Returns the median seconds that a GPU takes for `work`, by its own clock, of 20 after a warm-up of 0.3 s."""
    end = time.perf_counter() + 0.3
    while time.perf_counter() < end:
        work()
        torch.cuda.synchronize()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(21)]
    marks[0].record()
    for mark in marks[1:]:
        work()
        mark.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in pairwise(marks)) / 1000


def peak_memory(device: torch.device) -> float:
    """Returns the most bytes this process has held so far: GPU memory, or main memory on a CPU. Not on Windows."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if platform.system() == "Darwin" else peak * 1024


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    named = re.search(r"^model name\s*: (.*)$", cpuinfo.read_text("utf-8") if cpuinfo.exists() else "", re.MULTILINE)
    return named[1].strip() if named else platform.processor() or platform.machine()
