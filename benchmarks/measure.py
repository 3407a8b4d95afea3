"""How the benchmarks measure and report: side by side, after a warm-up, with the machine named."""

import contextlib
import importlib.metadata
import json
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from aiayn.files import atomic_write_text

LIBRARIES = ("torch", "pytorch-lightning", "transformers", "joeynmt", "ctranslate2", "tokenizers", "datasets", "numpy")

OURS = ("aiayn", "ours", "train.py", "evaluate.py", "to the first step")  # how rows begin that are not peers


class Apart:
    """Work in a process of its own, where no other library's threads and memory are in its way.

    There `build(*arguments)` makes what is to be done, with as many threads as torch has here. Calling it does it once,
    and adds the seconds of the processor, over all threads, to `cpu`. Raises ImportError where a library is missing.
    """

    def __init__(self, build: Callable[..., Callable[[], Any]], *arguments: Any):
        self.cpu: list[float] = []
        apart = multiprocessing.get_context("spawn")
        self.connection, there = apart.Pipe()
        self.process = apart.Process(
            target=_work_apart, args=(there, torch.get_num_threads(), build, arguments), daemon=True
        )
        self.process.start()
        there.close()
        if missing := self.connection.recv():
            raise missing

    def __call__(self) -> Any:
        self.connection.send("again")
        result, cpu = self.connection.recv()
        self.cpu.append(cpu)
        return result


def _work_apart(connection: Connection, threads: int, build: Callable[..., Callable[[], Any]], arguments: Any) -> None:
    torch.set_num_threads(threads)
    try:
        work = build(*arguments)
    except ImportError as error:
        connection.send(error)
        return
    connection.send(None)
    with contextlib.suppress(EOFError):  # the benchmark is over
        while connection.recv():
            start = time.process_time()
            result = work()
            synchronize()
            connection.send((result, time.process_time() - start))


def interleaved(runs: Mapping[str, Callable[[], Any]], rounds: int, warmup: int) -> dict[str, list[float]]:
    """Seconds of every run in every round, in turn: A B C, B C A, ... so that whatever else the machine does meets all.

    The first `warmup` rounds are not counted. On a GPU a run ends when its kernels have ended.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for turn in range(warmup + rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            synchronize()
            start = time.perf_counter()
            runs[name]()
            synchronize()
            if turn >= warmup:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def synchronize() -> None:
    """Waits until the GPU has done what it was told, where there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """The median, and the middle half of the measurements around it: {"median", "low", "high"}."""
    if len(seconds) == 1:
        return {"median": seconds[0], "low": seconds[0], "high": seconds[0]}
    low, median, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return {"median": median, "low": low, "high": high}


def machine() -> dict[str, Any]:
    """What the figures were measured on: processor, GPU, threads, load at the start, versions."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "versions": {name: version for name in LIBRARIES if (version := _version(name))},
    }


def report(name: str, rows: Sequence[Mapping[str, Any]], out: Path | None) -> None:
    """Prints the machine and the rows as a table (Markdown); with `out` also writes OUT/NAME.json.

    Rows are alike in their keys; numbers are printed with four digits that count.
    """
    where = machine()
    versions = ", ".join(f"{library} {version}" for library, version in where["versions"].items())
    print(f"{name}: {where['gpu'] or where['processor']}, {where['cores']} cores, {where['threads']} threads, ", end="")
    print(f"load {where['load']}; Python {where['python']}, {versions}")
    columns = list(rows[0])
    cells = [columns, *([_cell(row[column]) for column in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["| " + " | ".join(f"{c:>{w}}" for c, w in zip(line, widths, strict=True)) + " |" for line in cells]
    print("\n".join([lines[0], "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|", *lines[1:]]))
    if out:
        out.mkdir(parents=True, exist_ok=True)
        record = {"benchmark": name, "machine": where, "rows": list(map(dict, rows))}
        atomic_write_text(out / f"{name}.json", json.dumps(record, indent=1) + "\n")


def draw(
    path: Path, panels: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]], x_label: str, y_label: str
) -> None:
    """A picture (PNG) of log-log curves: {panel: {curve: (x, y)}}. Those named "~ ..." are references, drawn dashed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * len(panels), 3.8), dpi=80, layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (title, curves) in zip(axes, panels.items(), strict=True):
        for name, (x, y) in curves.items():
            style = {"color": "0.7", "linestyle": "--"} if name.startswith("~") else {"marker": "o", "markersize": 3}
            axis.loglog(x, y, label=name, linewidth=1.2, **style)
        axis.set(title=title, xlabel=x_label, ylabel=y_label)
        axis.xaxis.minorticks_off()
        axis.set_xticks(x, [f"{value:,}" for value in x], fontsize=7)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def draw_bars(path: Path, rows: Sequence[Mapping[str, Any]], name: str, figures: tuple[str, str, str]) -> None:
    """A picture (PNG) of one bar a row, the columns being what it is called, and its median, low and high end."""
    from matplotlib.figure import Figure

    names = [row[name] for row in rows]
    median, low, high = ([row[column] for row in rows] for column in figures)
    ends = [[m - a for m, a in zip(median, low, strict=True)], [b - m for m, b in zip(median, high, strict=True)]]
    figure = Figure(figsize=(7, 0.4 * len(rows) + 1), dpi=80, layout="constrained")
    axis = figure.subplots()
    colours = ["C0" if each.startswith(OURS) else "0.7" for each in names]
    axis.barh(names, median, height=0.6, color=colours, xerr=ends, error_kw={"lw": 1, "ecolor": "0.3"})
    for place, (value, end) in enumerate(zip(median, high, strict=True)):
        axis.annotate(_cell(float(value)), (end, place), (5, 0), textcoords="offset points", va="center", fontsize=8)
    axis.margins(x=0.12)
    axis.invert_yaxis()
    axis.set(xlabel=figures[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _version(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n")
    except OSError:
        return platform.processor()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())
