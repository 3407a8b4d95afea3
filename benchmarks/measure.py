"""What the benchmarks share: options, worker processes, timing in turns, tables and pictures."""

import argparse
import contextlib
import importlib.metadata
import json
import math
import multiprocessing
import os
import resource
import shlex
import statistics
import sys
import time
import timeit
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import torch

from aiayn.files import atomic_write
from aiayn.hardware import describe_machine

LIBRARIES = (
    "pytorch-lightning",
    "transformers",
    "joeynmt",
    "ctranslate2",
    "tokenizers",
    "datasets",
    "numpy",
)
KEPT = Path(__file__).resolve().parent / "results"  # what pages quote
Name = TypeVar("Name", bound=Hashable)  # of what is measured
OURS = ("aiayn", "ours")  # how the names of our own rows begin


def parse_options(
    doc: str,
    arguments: list[str] | None,
    positional: Mapping[str, Any] | None = None,
    **defaults: Any,
) -> argparse.Namespace:
    """Reads the command line: an option of the same type for every default, and --out for the
    folder of results.

    False becomes a flag, a list takes several values, None any text. Of `positional`, {name: "?" or
    None}, those with "?" may be left out. An option `threads` is applied to torch.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, nargs in (positional or {}).items():
        parser.add_argument(name, nargs=nargs)
    for name, default in (defaults | {"out": Path("outputs/benchmarks")}).items():
        settings: dict[str, Any] = {"default": default, "help": f"default: {default}"}
        if default is False:
            settings["action"] = "store_true"
        elif isinstance(default, list):
            settings |= {"nargs": "*", "type": type(default[0])}
        elif default is not None:
            settings["type"] = type(default)
        parser.add_argument(f"--{name.replace('_', '-')}", **settings)
    options = parser.parse_args(arguments)
    if "threads" in defaults:
        torch.set_num_threads(options.threads)
    return options


class Worker:
    """Repeats work in a process of its own, undisturbed by the threads and memory of other
    libraries.

    The process calls `work = build(*arguments)` once, with as many threads as torch has here, and
    `work()` whenever the worker is called. `cpu` collects processor seconds of every call, over all
    threads; `peak_mb` is the peak of memory beyond what imports took. Raises ImportError where a
    library is missing.
    """

    def __init__(self, build: Callable[..., Callable[[], Any]], *arguments: Any):
        self.cpu: list[float] = []
        self.peak_mb = 0.0
        self.process = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        self.process.submit(_build, torch.get_num_threads(), build, arguments).result()

    def __call__(self) -> Any:
        returned, cpu, self.peak_mb = self.process.submit(_work).result()
        self.cpu.append(cpu)
        return returned

    def close(self) -> None:
        """Ends the process."""
        self.process.shutdown()


_built: dict[str, Any] = {}  # one per worker process


def _build(threads: int, build: Callable[..., Callable[[], Any]], arguments: Any) -> None:
    torch.set_num_threads(threads)
    _built.update(mb_before=_peak_mb(), work=build(*arguments))


def _work() -> tuple[Any, float, float]:
    start = _cpu_seconds()
    returned = _built["work"]()
    synchronize()
    return returned, _cpu_seconds() - start, _peak_mb() - _built["mb_before"]


def _cpu_seconds() -> float:
    """Processor seconds of this process and of those that it started and that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def _peak_mb() -> float:
    """This process' own peak: that of `getrusage` begins with the peak of the process that started
    it.
    """
    lines = Path("/proc/self/status").read_text(encoding="utf-8").split("\n")
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def interleaved(
    runs: Mapping[Name, Callable[[], Any]],
    rounds: int,
    warmup: int = 1,
    end: float = math.inf,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[Name, list[float]]:
    """Returns the seconds of every run, by the clock, in every round after `warmup` rounds.

    Runs take turns, A B C, B C A, ..., so that disturbances from outside affect all of them. No run
    begins that would probably be going on when `time.monotonic()` is `end`: there may be fewer
    rounds, only that of the warm-up, or for a run none at all.
    """
    seconds: dict[Name, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for turn in range(warmup + rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            if time.monotonic() + max(seconds[name], default=0) > end:
                continue
            synchronize()
            start = clock()
            runs[name]()
            synchronize()
            seconds[name].append(clock() - start)
    return {
        name: values[min(warmup, len(values) - 1) :] for name, values in seconds.items() if values
    }


def synchronize() -> None:
    """Waits for the GPU, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def spread(values: Sequence[float]) -> dict[str, float]:
    """Returns the median, and the quartiles around it as low and high."""
    low, median, high = (
        statistics.quantiles(values, n=4, method="inclusive")
        if len(values) > 1
        else [values[0]] * 3
    )
    return {"median": median, "low": low, "high": high}


def report(
    name: str, rows: Sequence[Mapping[str, Any]], out: Path | None, precision: str = "32-true"
) -> None:
    """Prints the machine and a Markdown table of the rows, which have the same keys.

    Writes both with command and commit to OUT/NAME.json: `--out benchmarks/results` is what the
    pages quote, and takes nothing from a working tree with uncommitted changes.
    """
    machine = describe_machine(
        torch.device("cuda" if torch.cuda.is_available() else "cpu"), precision, 1
    )
    machine |= {"load": round(os.getloadavg()[0], 1)}
    for library in LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            machine[library] = importlib.metadata.version(library)
    print(
        f"{name}:",
        ", ".join(f"{key} {value}" for key, value in machine.items() if value is not None),
    )
    cells = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "| " + " | ".join(f"{c:>{w}}" for c, w in zip(line, widths, strict=True)) + " |"
        for line in cells
    ]
    print(
        "\n".join(
            [
                lines[0],
                "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|",
                *lines[1:],
            ]
        )
    )
    if out:
        if out.resolve() == KEPT and str(machine["commit"]).endswith("-dirty"):
            raise SystemExit(
                f"--out {out}: commit {machine['commit']} has uncommitted changes; commit them "
                "first"
            )
        out.mkdir(parents=True, exist_ok=True)
        origin = {"command": shlex.join(["python", *sys.argv]), "commit": machine.pop("commit")}
        record = {"benchmark": name, **origin, "machine": machine, "rows": list(map(dict, rows))}
        atomic_write(out / f"{name}.json", json.dumps(record, indent=1) + "\n")


def draw(
    path: Path,
    panels: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]],
    x_label: str,
    y_label: str,
) -> None:
    """Draws log-log curves {panel: {curve: (x, y)}}; those named "~ ..." are references, drawn
    dashed.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * len(panels), 3.8), dpi=80, layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (title, curves) in zip(axes, panels.items(), strict=True):
        for name, (x, y) in curves.items():
            style = (
                {"color": "0.7", "linestyle": "--"}
                if name.startswith("~")
                else {"marker": "o", "markersize": 3}
            )
            axis.loglog(x, y, label=name, linewidth=1.2, **style)
        axis.set(title=title, xlabel=x_label, ylabel=y_label)
        axis.xaxis.minorticks_off()
        axis.set_xticks(x, [f"{value:,}" for value in x], fontsize=7)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    figure.savefig(path)


def draw_bars(path: Path, rows: Sequence[Mapping[str, Any]], name: str, value: str) -> None:
    """Draws a bar for every row: its name, the column `value`, and the columns low and high as its
    error bar.
    """
    from matplotlib.figure import Figure

    names, values = ([row[column] for row in rows] for column in (name, value))
    errors = [[row[value] - row["low"] for row in rows], [row["high"] - row[value] for row in rows]]
    figure = Figure(figsize=(7, 0.4 * len(rows) + 1), dpi=80, layout="constrained")
    axis = figure.subplots()
    colours = ["C0" if name.startswith(OURS) else "0.7" for name in names]
    bars = axis.barh(
        names, values, height=0.6, color=colours, xerr=errors, error_kw={"lw": 1, "ecolor": "0.3"}
    )
    axis.bar_label(bars, map(_cell, values), padding=5, fontsize=8)
    axis.margins(x=0.12)
    axis.invert_yaxis()
    axis.set(xlabel=value)
    figure.savefig(path)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def gpu_seconds(work: Callable[[], Any]) -> float:
    """Returns the median seconds that a GPU takes for `work`, by its own clock, of 20 after a
    warm-up of 0.3 s.
    """
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


def matrix_rate(device: torch.device) -> float:
    """Measures the FLOPs per second of a large matrix product in bfloat16."""
    size = 8192 if device.type == "cuda" else 1024
    matrix = torch.randn(size, size, device=device).to(torch.bfloat16)

    def product() -> torch.Tensor:
        return torch.mm(matrix, matrix)

    return (
        2
        * size**3
        / (gpu_seconds(product) if device.type == "cuda" else min(timeit.repeat(product, number=1)))
    )
