"""Curves and histograms of a run, as SVG for report.html."""

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiayn.config.tasks import METRICS
from aiayn.reports.drawing import new_figure, render
from aiayn.runs.run_folder import Record, is_number, series

COLOURS = ("#2f6fb3", "#d9701a", "#3a8f3f", "#c43d45", "#1f8f8a", "#8a5aa8", "#9a7d0a", "#7d5a45")
LINES = ("-", "--", ":", "-.")
TEXT, GRID = "#667085", "#dfe3e8"
# On a page its style sheet chooses the colours, for light and for dark screens.
VARIABLES = dict(zip(COLOURS, (f"var(--c{number})" for number in range(len(COLOURS))), strict=True))
VARIABLES |= {TEXT: "var(--dim)", GRID: "var(--line)"}
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
    Chart(
        "Gradient norm",
        "Norm of the gradient over all parameters.",
        ("train/grad_norm",),
        log_scale=True,
    ),
    Chart(
        "Training speed",
        "Target tokens that all devices train per second.",
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

Runs = Sequence[tuple[Any, list[Record]]]  # seed and records of each
Points = Sequence[tuple[float, float]]  # (step, value)


@dataclass(frozen=True)
class Curve:
    """Values over the step, in the band between the lowest and the highest of several seeds."""

    points: Points
    lowest: Points = ()
    highest: Points = ()


@dataclass(frozen=True)
class Panel:
    """Curves by name; `rate` has an axis of its own on the right."""

    title: str
    about: str
    log_scale: bool
    curves: Mapping[str, Curve]
    unit: str = ""
    rate: Points = ()


def panels(groups: Mapping[str, Runs]) -> list[Panel]:
    """Return what was measured of groups: the usual panels, then every other series.

    One group has a curve for each series of a panel. Several have a panel for each series and a
    curve for each group: the mean over its seeds, in a band from the lowest to the highest, at the
    steps that all of them logged.
    """
    charts = [*CHARTS, *_other_charts(groups)]
    if len(groups) == 1:
        [runs] = groups.values()
        all_panels = [_panel_of_series(chart, runs) for chart in charts]
    else:
        all_panels = [
            _panel_of_groups(chart, key, groups) for chart in charts for key in chart.keys
        ]
    return [panel for panel in all_panels if any(curve.points for curve in panel.curves.values())]


def _panel_of_series(chart: Chart, runs: Runs) -> Panel:
    curves = {key: _curve(runs, key) for key in chart.keys}
    logged = {key: curve for key, curve in curves.items() if curve.points}
    rate: Points = ()
    if "train/loss" in chart.keys:
        _, records = runs[0]
        rate = series(records, "train/lr")
    unit = _unit(chart.keys[0])
    return Panel(chart.title, chart.about, chart.log_scale, logged, unit, rate)


def _panel_of_groups(chart: Chart, key: str, groups: Mapping[str, Runs]) -> Panel:
    curves = {name: _curve(runs, key) for name, runs in groups.items()}
    title = chart.title
    if len(chart.keys) > 1:
        part = "training" if key.startswith("train/") else "validation"
        title += f" ({part})"
    return Panel(title, chart.about, chart.log_scale, curves, _unit(key))


def _unit(key: str) -> str:
    return METRICS[key].unit if key in METRICS else ""


def _other_charts(groups: Mapping[str, Runs]) -> list[Chart]:
    """Return a chart for each series that CHARTS lacks, such as those of extensions."""
    runs = [records for members in groups.values() for _, records in members]
    logged = dict.fromkeys(key for records in runs for record in records for key in record)
    charted = {key for chart in CHARTS for key in chart.keys} | {"train/lr", *NOT_DRAWN}
    charts = []
    for key in logged:
        if "/" in key and key not in charted:
            title = key.partition("/")[2].replace("_", " ").capitalize()
            charts.append(Chart(title, f"Logged as {key}.", (key,)))
    return charts


def _curve(runs: Runs, key: str) -> Curve:
    """Return the mean over seeds; a single seed, however often it ran, has no band."""
    seeds = [seed for seed, _ in runs]
    points_of_runs = [series(records, key) for _, records in runs]
    if len(set(seeds)) == 1:
        return Curve(points_of_runs[0])
    import pandas as pd

    frame: Any = pd.DataFrame(map(dict, points_of_runs), index=seeds)
    by_seed = frame.groupby(level=0, sort=False, dropna=False).mean()
    steps = by_seed.T.dropna()  # (steps, seeds)
    return Curve(
        points=[*steps.mean(axis=1).items()],
        lowest=[*steps.min(axis=1).items()],
        highest=[*steps.max(axis=1).items()],
    )


def corpus_svgs(corpus: Record) -> tuple[str, str]:
    """Return the lengths of sentences and the padding of micro-batches as SVG."""
    lengths = _new_axis()
    for side, colour in (("src", COLOURS[0]), ("tgt", COLOURS[1])):
        counts = _counts(corpus["lengths"][side])
        edges = [length - 0.5 for length in range(len(counts) + 1)]
        lengths.stairs(counts, edges, fill=True, alpha=0.5, color=colour)
    _style(lengths, "subwords of a sentence", "sentences")

    counts = _counts(corpus["padding_of_parts"])
    width = 100 / len(counts)
    while len(counts) > 1 and not counts[-1]:
        del counts[-1]
    edges = [width * number for number in range(len(counts) + 1)]
    paddings = _new_axis()
    paddings.stairs(counts, edges, fill=True, alpha=0.5, color=COLOURS[0])
    _style(paddings, "padding of a micro-batch (%)", "micro-batches")
    return _svg(lengths), _svg(paddings)


def panel_svg(panel: Panel, last_step: float) -> str:
    """Return a panel as SVG for a page; all panels of a page reach to `last_step`."""
    axis = _new_axis(0.72 if panel.rate else 0.83)
    if panel.log_scale:
        axis.set_yscale("log", nonpositive="mask")
        _write_plainly(axis.yaxis)
    for number, (name, curve) in enumerate(panel.curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        line = LINES[number // len(COLOURS) % len(LINES)]
        steps, lowest = _drawable(curve.lowest, panel.log_scale)
        other_steps, highest = _drawable(curve.highest, panel.log_scale)
        if steps and steps == other_steps:
            axis.fill_between(steps, lowest, highest, color=colour, alpha=0.2, linewidth=0)
        steps, values = _drawable(curve.points, panel.log_scale)
        marker = "o" if len(steps) <= 80 else ""
        style = {"linestyle": line, "linewidth": 1.4, "marker": marker, "markersize": 3}
        axis.plot(steps, values, color=colour, label=name, **style)
    _style(axis, "step", panel.unit)
    if panel.rate:
        right = axis.twinx()
        right.plot(*_drawable(panel.rate, False), color=TEXT, linewidth=1, linestyle=":")
        _style(right, "", "learning rate (dotted)")
        right.grid(visible=False)
    axis.set_xlim(0, max(min(last_step, LARGEST), 1))
    return _svg(axis)


def _counts(values: list[Any]) -> list[float]:
    return [min(value, LARGEST) for value in values if is_number(value) and value >= 0]


def _style(axis: Any, xlabel: str, ylabel: str = "") -> None:
    from matplotlib.ticker import EngFormatter

    axis.patch.set_alpha(0)
    axis.grid(color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(which="both", color=GRID, labelcolor=TEXT, labelsize=9)
    axis.spines[:].set_color(GRID)
    axis.set_xlabel(xlabel, color=TEXT, fontsize=9)
    axis.set_ylabel(ylabel, color=TEXT, fontsize=9)
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))  # 20k


def _write_plainly(logarithmic: Any) -> None:
    """Write 1.6 and not 1.6 x 10^0 beside an axis, at the ticks that matplotlib chooses to
    label.
    """
    from matplotlib.ticker import LogFormatter

    class Plain(LogFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{x:g}" if super().__call__(x, pos) else ""

    logarithmic.set_major_formatter(Plain())
    logarithmic.set_minor_formatter(Plain(minor_thresholds=(2, 0.5)))


def _drawable(points: Points, log_scale: bool) -> tuple[list[float], list[float]]:
    """Return steps and values within what can be drawn, evenly thinned to MAX_POINTS; the last one
    stays.
    """
    lowest = 1 / LARGEST if log_scale else -LARGEST
    drawable = [(step, value) for step, value in points if value > 0 or not log_scale]
    every = math.ceil(len(drawable) / MAX_POINTS) or 1
    thinned = drawable[::-every][::-1]
    steps = [step for step, _ in thinned]
    values = [min(max(value, lowest), LARGEST) for _, value in thinned]
    return steps, values


def _new_axis(width: float = 0.83) -> Any:
    return new_figure(5.4, 2.7).add_axes((0.12, 0.17, width, 0.78))


def _svg(axis: Any) -> str:
    """Return an <svg> element, transparent, in the page's colours, with ids that no other figure
    has.
    """
    axis.figure.patch.set_alpha(0)
    text = render(axis.figure, "svg").decode()
    text = text[text.index("<svg") :]
    name = hashlib.sha256(text.encode()).hexdigest()[:8]
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, variable)
    return text
