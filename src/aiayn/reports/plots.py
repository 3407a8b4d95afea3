"""Curves and histograms of a run, as SVG for report.html."""

import hashlib
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiayn.config.tasks import METRICS
from aiayn.reports.drawing import new_figure, render
from aiayn.runs.run_folder import Record, series

COLOURS = ("#2f6fb3", "#d9701a", "#3a8f3f", "#c43d45", "#1f8f8a", "#8a5aa8", "#9a7d0a", "#7d5a45")
LINES = ("-", "--", ":", "-.")
TEXT_COLOUR, GRID_COLOUR = "#667085", "#dfe3e8"
# On a page its style sheet chooses the colours, for light and for dark screens.
VARIABLES = dict(zip(COLOURS, (f"var(--c{number})" for number in range(len(COLOURS))), strict=True))
VARIABLES |= {TEXT_COLOUR: "var(--dim)", GRID_COLOUR: "var(--line)"}
# Numbers beyond it are drawn as this one; matplotlib fails near the limits of float64.
LARGEST = 1e30
MAX_POINTS = 600  # drawn of a curve; more would be finer than the pixels


@dataclass(frozen=True)
class Chart:
    """Series that share an axis, with a title in words and one sentence about them."""

    title: str
    about: str
    keys: tuple[str, ...]
    log_scale: bool = False


CHARTS = (
    Chart(
        "Loss",
        "Cross-entropy with label smoothing, in nats per target token.",
        ("train/loss", "val/loss"),
    ),
    Chart(
        "Validation perplexity",
        "Perplexity per subword of the references, without label smoothing; lower is better.",
        ("val/ppl",),
        log_scale=True,
    ),
    Chart("Validation BLEU", "sacreBLEU of greedy translations; higher is better.", ("val/bleu",)),
    Chart("Validation F1", "Bracket F1 of greedy parses, in per cent.", ("val/f1",)),
    Chart(
        "Validation accuracy",
        "Share of the references' subwords that are the model's first choice.",
        ("val/accuracy",),
    ),
    Chart(
        "Length ratio",
        "Length of greedy translations, divided by that of their references.",
        ("val/length_ratio",),
    ),
    Chart("Learning rate", "Step size of the optimizer.", ("train/lr",)),
    Chart(
        "Gradient norm",
        "Norm of the gradient over all parameters.",
        ("train/grad_norm",),
        log_scale=True,
    ),
    Chart(
        "Training speed",
        "Target tokens per second, all devices together.",
        ("perf/tokens_per_sec",),
    ),
    Chart(
        "Model FLOPs utilization (MFU)",
        "FLOPs of the model per second, divided by the peak rate of the devices.",
        ("perf/mfu",),
    ),
    Chart("Padding", "Share of padding in the positions of a step.", ("perf/padding",)),
    Chart("Peak memory", "Largest memory in use so far, in GB.", ("perf/memory_gb",)),
)
NOT_DRAWN = ("train/epoch", "train/skipped_steps")

Runs = Sequence[tuple[int, list[Record]]]  # seed and records of each


@dataclass(frozen=True)
class Panel:
    """A chart of curves by name: data frames over the steps with mean, min and max of the seeds."""

    title: str
    chart: Chart
    curves: Mapping[str, Any]


def panels(groups: Mapping[str, Runs]) -> list[Panel]:
    """Returns what was measured of groups: the usual panels, then every other series.

    One group has a curve for each series of a panel. Several have a panel for each series and a
    curve for each group: the mean over its seeds, in a band from the lowest to the highest, at the
    steps that all of them logged.
    """
    all_panels = []
    for chart in _charts(groups):
        if len(groups) == 1:
            [runs] = groups.values()
            curves = {key: _curve(runs, key) for key in chart.keys}
            logged = {key: curve for key, curve in curves.items() if len(curve)}
            all_panels.append(Panel(chart.title, chart, logged))
            continue
        for key in chart.keys:
            title = chart.title
            if len(chart.keys) > 1:
                title += " (training)" if key.startswith("train/") else " (validation)"
            curves = {name: _curve(runs, key) for name, runs in groups.items()}
            all_panels.append(Panel(title, chart, curves))
    return [panel for panel in all_panels if any(map(len, panel.curves.values()))]


def _charts(groups: Mapping[str, Runs]) -> list[Chart]:
    """Returns CHARTS, and one for each other series, such as those of extensions."""
    charts = {key: chart for chart in CHARTS for key in chart.keys}
    records = [record for runs in groups.values() for _, records in runs for record in records]
    for key in dict.fromkeys(key for record in records for key in record):
        _, slash, name = key.partition("/")
        if slash and key not in NOT_DRAWN:
            title = name.replace("_", " ").capitalize()
            charts.setdefault(key, Chart(title, f"Logged as {key}.", (key,)))
    return [*dict.fromkeys(charts.values())]


def _curve(runs: Runs, key: str) -> Any:
    import pandas as pd

    seeds = [seed for seed, _ in runs]
    measured: Any = pd.DataFrame([dict(series(records, key)) for _, records in runs], index=seeds)
    by_seed = measured.groupby(level=0).mean().T.dropna()  # (steps, seeds)
    return by_seed.agg(["mean", "min", "max"], axis=1)


def corpus_svgs(corpus: Record) -> tuple[str, str]:
    """Returns the lengths of sentences and the padding of micro-batches as SVG."""
    style = {"fill": True, "alpha": 0.5}
    lengths = _new_axis("subwords of a sentence", "sentences")
    for side, colour in zip(("src", "tgt"), COLOURS, strict=False):
        counts = corpus["lengths"][side]
        edges = [length - 0.5 for length in range(len(counts) + 1)]
        lengths.stairs(counts, edges, color=colour, **style)
    paddings = _new_axis("padding of a micro-batch (%)", "micro-batches")
    counts = corpus["padding_of_parts"]
    edges = [100 * number / len(counts) for number in range(len(counts) + 1)]
    last = max((number for number, count in enumerate(counts) if count), default=0)
    paddings.stairs(counts[: last + 1], edges[: last + 2], color=COLOURS[0], **style)
    return _svg(lengths), _svg(paddings)


def panel_svg(panel: Panel, last_step: int) -> str:
    """Returns a panel as SVG for a page; all panels of a page reach to `last_step`."""
    from matplotlib.ticker import AutoLocator, LogLocator

    metric = METRICS.get(panel.chart.keys[0])
    axis = _new_axis("step", metric.unit if metric else "")
    lowest = -LARGEST
    if panel.chart.log_scale:
        lowest = 1 / LARGEST
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_minor_formatter("")
    axis.yaxis.set_major_formatter("{x:g}")  # 20, not 2 x 10^1; no factor above the axis
    looks = itertools.cycle(itertools.product(LINES, COLOURS))
    for (line, colour), (name, curve) in zip(looks, panel.curves.items(), strict=False):
        if panel.chart.log_scale:
            curve = curve[curve["min"] > 0]
        every = math.ceil(len(curve) / MAX_POINTS) or 1
        curve = curve[::-every][::-1].clip(lowest, LARGEST)  # the last point stays
        style = {"color": colour, "linestyle": line, "linewidth": 1.4, "zorder": 3}
        style["marker"] = "o" if len(curve) <= 80 else ""
        style["markersize"] = 3 if len(curve) > 1 else 7  # no line leads to a point alone
        axis.plot(curve.index, curve["mean"], label=name, clip_on=False, **style)
        if (curve["min"] < curve["max"]).any():
            band = (curve.index, curve["min"], curve["max"])
            axis.fill_between(*band, color=colour, alpha=0.2, linewidth=0)
    low, high = axis.get_ylim()
    if high < 10 * low:  # too few of 1, 2, 5, 10
        axis.yaxis.set_major_locator(AutoLocator())
    axis.set_xlim(0, max(last_step, 1))
    return _svg(axis)


def _new_axis(xlabel: str, ylabel: str) -> Any:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    figure = new_figure(5.4, 2.7, facecolor="none")
    # The room on the left holds a label and ticks such as 0.008125.
    axis = figure.add_axes((0.17, 0.17, 0.78, 0.78), facecolor="none")
    axis.grid(color=GRID_COLOUR, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(which="both", color=GRID_COLOUR, labelcolor=TEXT_COLOUR, labelsize=9)
    axis.spines[:].set_color(GRID_COLOUR)
    axis.set_xlabel(xlabel, color=TEXT_COLOUR, fontsize=9)
    axis.set_ylabel(ylabel, color=TEXT_COLOUR, fontsize=9)
    axis.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))  # 20k
    return axis


def _svg(axis: Any) -> str:
    """Returns an <svg> element, transparent, in the page's colours, with ids that no other figure
    has.
    """
    text = render(axis.figure, "svg").decode()
    text = text[text.index("<svg") :]
    name = hashlib.sha256(text.encode()).hexdigest()[:8]
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, variable)
    return text
