"""Curves and histograms of a run, as SVG for report.html."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiayn.config.tasks import TASKS
from aiayn.reports.drawing import new_figure, render
from aiayn.runs.run_folder import Record, is_number, series

COLOURS = ("#2f6fb3", "#d9701a", "#3a8f3f", "#c43d45", "#1f8f8a", "#8a5aa8", "#9a7d0a", "#7d5a45")
TEXT, GRID = "#667085", "#dfe3e8"
# On a page its style sheet chooses the colours, for light and for dark screens.
VARIABLES = dict(zip(COLOURS, (f"var(--c{number})" for number in range(len(COLOURS))), strict=True))
VARIABLES |= {TEXT: "var(--dim)", GRID: "var(--line)"}
LARGEST = 1e30  # numbers beyond it are drawn as this one; matplotlib fails near the limits of float64
MAX_POINTS = 600  # drawn of a curve; more would be finer than the pixels
UNINTERESTING = ("train/epoch", "train/skipped_steps")  # no panel

Points = Sequence[tuple[float, float]]  # (step, value)


@dataclass(frozen=True)
class Panel:
    """Curves by name over the step; `rate` has an axis of its own on the right."""

    title: str
    curves: dict[str, Points]
    log_scale: bool = False
    rate: Points = ()
    bands: Mapping[str, Sequence[tuple[float, float, float]]] = field(default_factory=dict)  # (step, low, high)


def run_panels(records: list[Record]) -> list[Panel]:
    """Returns the panels of what was measured of a run: the usual ones, then every other series that was logged."""

    def panel(title: str, *keys: str, log_scale: bool = False, rate: str = "") -> Panel:
        curves = {key: series(records, key) for key in keys}
        return Panel(title, {key: points for key, points in curves.items() if points}, log_scale, series(records, rate))

    panels = [
        panel("loss per token (nats)", "train/loss", "val/loss", rate="train/lr"),
        panel("validation perplexity", "val/ppl", log_scale=True),
        *(panel(f"validation {names.val_title} (greedy)", names.val_metric) for names in TASKS.values()),
        panel("norm of the gradient", "train/grad_norm", log_scale=True),
        panel("target tokens per second", "perf/tokens_per_sec"),
        panel("model FLOPs utilisation (MFU)", "perf/mfu"),
    ]
    shown = {"train/lr", *UNINTERESTING, *(key for panel in panels for key in panel.curves)}
    panels += [panel(key, key) for key in logged(records) if key not in shown]
    return [panel for panel in panels if panel.curves]


def logged(records: list[Record]) -> list[str]:
    """Returns the keys of all series, in the order in which they first occur."""
    return list(dict.fromkeys(key for record in records for key in record if "/" in key))


def group_panel(title: str, log_scale: bool, key: str, groups: Mapping[str, Sequence[list[Record]]]) -> Panel:
    """Returns a series of several groups: the mean over each group's seeds, in a band from the lowest to the highest.

    `groups` holds the metrics of each seed by the name of the group. Only steps that all its seeds logged are drawn.
    """
    import pandas as pd

    curves, bands = {}, {}
    for name, seeds in groups.items():
        frame = pd.DataFrame([dict(series(records, key)) for records in seeds]).T.dropna()  # (steps, seeds)
        curves[name] = [*frame.mean(axis=1).items()]
        if len(seeds) > 1:
            bands[name] = [*zip(frame.index, frame.min(axis=1), frame.max(axis=1), strict=True)]
    return Panel(title, curves, log_scale, bands=bands)


def corpus_svgs(corpus: Record) -> tuple[str, str]:
    """Returns the lengths of sentences and the padding of micro-batches as SVG."""
    return _svg(0.83, lambda axis: _draw_lengths(axis, corpus)), _svg(0.83, lambda axis: _draw_padding(axis, corpus))


def panel_svg(panel: Panel, last_step: float) -> str:
    """Returns a panel as SVG for a page; all panels of a page reach to `last_step`."""

    def draw(axis: Any) -> None:
        _draw_panel(axis, panel)
        axis.set_xlim(0, max(min(last_step, LARGEST), 1))

    return _svg(0.72 if panel.rate else 0.83, draw)


def _draw_panel(axis: Any, panel: Panel) -> None:
    if panel.log_scale:
        axis.set_yscale("log", nonpositive="mask")
        _write_plainly(axis.yaxis)
    for number, (name, points) in enumerate(panel.curves.items()):
        steps, values = _drawable(points, panel.log_scale)
        colour, line = COLOURS[number % len(COLOURS)], ("-", "--", ":", "-.")[number // len(COLOURS) % 4]
        if band := panel.bands.get(name):
            lows, highs = (_drawable([(row[0], row[side]) for row in band], panel.log_scale) for side in (1, 2))
            if lows[0] == highs[0]:
                axis.fill_between(lows[0], lows[1], highs[1], color=colour, alpha=0.2, linewidth=0)
        marker = "o" if len(steps) <= 80 else ""
        axis.plot(steps, values, marker, linestyle=line, color=colour, markersize=3, linewidth=1.4, label=name)
    _style(axis, "step")
    if panel.rate:
        right = axis.twinx()
        right.plot(*_drawable(panel.rate, False), color=TEXT, linewidth=1, linestyle=":")
        _style(right, "", "learning rate (dotted)")
        right.grid(visible=False)


def _draw_lengths(axis: Any, corpus: Record) -> None:
    for number, (side, name) in enumerate((("src", "source"), ("tgt", "target"))):
        counts = _counts(corpus["lengths"][side])
        edges = [n - 0.5 for n in range(len(counts) + 1)]
        axis.stairs(counts, edges, fill=True, alpha=0.5, color=COLOURS[number], label=name)
    _style(axis, "subwords of a sentence", "sentences")


def _draw_padding(axis: Any, corpus: Record) -> None:
    counts = _counts(corpus["padding_of_parts"])
    width = 100 / len(counts)
    used = max((number for number, count in enumerate(counts, 1) if count), default=1)
    axis.stairs(counts[:used], [width * n for n in range(used + 1)], fill=True, alpha=0.5, color=COLOURS[0])
    _style(axis, "padding of a micro-batch (%)", "micro-batches")


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
    """Writes 1.6 and not 1.6 x 10^0 beside an axis, at the ticks that matplotlib chooses to label."""
    from matplotlib.ticker import LogFormatter

    class Plain(LogFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{x:g}" if super().__call__(x, pos) else ""

    logarithmic.set_major_formatter(Plain())
    logarithmic.set_minor_formatter(Plain(minor_thresholds=(2, 0.5)))


def _drawable(points: Points, log_scale: bool) -> tuple[list[float], list[float]]:
    """Returns steps and values within what can be drawn, evenly thinned to MAX_POINTS; the last one stays."""
    lowest = 1 / LARGEST if log_scale else -LARGEST
    kept = [(step, min(max(value, lowest), LARGEST)) for step, value in points if value > 0 or not log_scale]
    kept = kept[::-1][:: -(-len(kept) // MAX_POINTS) or 1][::-1]
    return [step for step, _ in kept], [value for _, value in kept]


def _svg(width: float, draw: Callable[[Any], None]) -> str:
    """Returns an <svg> element, transparent, in the page's colours, with ids that no other figure has."""
    figure = new_figure(5.4, 2.7)
    draw(figure.add_axes((0.12, 0.17, width, 0.78)))
    figure.patch.set_alpha(0)
    text = render(figure, "svg").decode()
    text = text[text.index("<svg") :]
    name = hashlib.sha256(text.encode()).hexdigest()[:8]
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, variable)
    return text
