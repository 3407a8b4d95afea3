"""What a run computes on, and how fast that is."""

import os
import platform
import resource
import time
from functools import cache
from pathlib import Path
from typing import Any

import torch

REPEATS = 5


def describe_machine(device: torch.device, precision: str, devices: int) -> dict[str, Any]:
    """The machine in words and numbers, without its name or its user's."""
    on_gpu = device.type == "cuda"
    return {
        "devices": devices,
        "device": torch.cuda.get_device_name(device) if on_gpu else _processor(),
        "precision": precision,
        "matmul_tflops": round(matmul_rate(device, precision, torch.get_num_threads()) / 1e12, 4),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "gpu_memory_gb": round(torch.cuda.get_device_properties(device).total_memory / 1e9, 1) if on_gpu else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


@cache
def matmul_rate(device: torch.device, precision: str, threads: int) -> float:
    """FLOPs a second of this device in one large matrix product, measured: what 100 % of `perf/mfu` means.

    Measured and not looked up, because a table lacks the next device, and no table knows processors, shared machines
    or power limits. The best of five, in the precision that the training multiplies in; once in a process.
    """
    size = 4096 if device.type == "cuda" else 1024
    dtype = torch.bfloat16 if precision == "bf16-mixed" else torch.float32
    # Numbers of its own source: the training's must not depend on this.
    generator = torch.Generator(device).manual_seed(0)
    matrix = torch.randn(size, size, device=device, generator=generator).to(dtype)
    torch.mm(matrix, matrix)  # the first product also chooses a kernel
    seconds = []
    for _ in range(REPEATS):
        _wait(device)
        start = time.perf_counter()
        torch.mm(matrix, matrix)
        _wait(device)
        seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds)


def peak_memory(device: torch.device) -> float:
    """Bytes that this process held at most: of the GPU's memory, or where there is none of the machine's."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if platform.system() == "Darwin" else peak * 1024


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n"):
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
