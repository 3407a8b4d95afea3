"""Curves and histograms as inline SVG: a page holds them without any other file, and they follow its colours."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 520, 260
LEFT, RIGHT, TOP, BOTTOM = 58, 54, 14, 38
N_COLOURS = 8  # of the style sheet; further curves repeat them with other dashes
MAX_POINTS = 600  # more than the picture has pixels to show


@dataclass(frozen=True)
class Curve:
    name: str
    points: Sequence[tuple[float, float]]  # (step, value), in order
    faint: bool = False  # against a scale of its own, on the right


def line_chart(title: str, curves: Sequence[Curve], log_scale: bool = False) -> str:
    """A <figure> of values by step; nothing where there are no points.

    Values that are not finite are left out, and on a logarithmic scale those that are not above 0.
    """
    curves = [Curve(curve.name, _thinned(_drawable(curve.points, log_scale)), curve.faint) for curve in curves]
    curves = [curve for curve in curves if curve.points]
    main = [curve for curve in curves if not curve.faint]
    if not main:
        return ""
    steps = _Axis([step for curve in main for step, _ in curve.points], LEFT, WIDTH - RIGHT)
    values = _Axis([value for curve in main for _, value in curve.points], HEIGHT - BOTTOM, TOP, log_scale)
    parts = [_frame(steps, values, "step")]
    for number, curve in enumerate(main):
        parts.append(_curve(curve, number, steps, values))
    for curve in curves:
        if curve.faint:
            scale = _Axis([value for _, value in curve.points], HEIGHT - BOTTOM, TOP)
            parts.append(_curve(curve, None, steps, scale))
            parts += [
                f'<text class="tick faint" x="{WIDTH - RIGHT + 6}" y="{y + 4:.1f}">{label}</text>'
                for y, label in scale.ticks()
            ]
    return _figure(title, parts, _legend(curves))


def histogram(
    title: str, names: Sequence[str], counts: Sequence[Sequence[int]], unit: float = 1, label: str = ""
) -> str:
    """A <figure> of counts[i][n] over n * unit, one colour for every name."""
    longest = max(map(len, counts))
    steps = _Axis([0, longest * unit], LEFT, WIDTH - RIGHT)
    values = _Axis([0, max(max(row, default=0) for row in counts)], HEIGHT - BOTTOM, TOP)
    parts = [_frame(steps, values, label)]
    for number, row in enumerate(counts):
        corners = [f"M{steps.at(0):.1f},{values.at(0):.1f}"]
        for n, count in enumerate(row):
            corners.append(f"V{values.at(count):.1f}H{steps.at((n + 1) * unit):.1f}")
        corners.append(f"V{values.at(0):.1f}Z")
        parts.append(f'<path class="area c{number}" d="{"".join(corners)}"/>')
    return _figure(title, parts, _legend([Curve(name, ()) for name in names]))


class _Axis:
    """Maps values to a range of pixels, with round ticks."""

    def __init__(self, values: Sequence[float], start: float, stop: float, log_scale: bool = False):
        low, high = min(values), max(values)
        self.log_scale = log_scale
        if log_scale:
            low, high = math.log10(low), math.log10(high)
        if high - low <= 1e-9 * max(abs(high), abs(low)):
            margin = abs(high) * 0.1 or 1
            low, high = low - margin, high + margin
        self.low, self.high, self.start, self.stop = low, high, start, stop

    def at(self, value: float) -> float:
        if self.log_scale:
            value = math.log10(value)
        return self.start + (value - self.low) / (self.high - self.low) * (self.stop - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """(pixel, label)."""
        if self.log_scale:
            decades = range(math.floor(self.low), math.ceil(self.high) + 1)
            for factors in ((1,), (1, 2, 5), (1, 2, 3, 4, 5, 7)):
                marks = [factor * 10.0**decade for decade in decades for factor in factors]
                marks = [mark for mark in marks if self.low <= math.log10(mark) <= self.high]
                if len(marks) > 2:
                    return [(self.at(mark), _short(mark)) for mark in marks[:: -(-len(marks) // 7)]]
        low, high = (10**self.low, 10**self.high) if self.log_scale else (self.low, self.high)
        step = 10.0 ** math.floor(math.log10((high - low) / 4))
        step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
        marks = [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
        return [(self.at(mark), _short(mark)) for mark in marks]


def _curve(curve: Curve, number: int | None, steps: _Axis, values: _Axis) -> str:
    """number None: a faint curve."""
    places = [(steps.at(step), values.at(value)) for step, value in curve.points]
    line = "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in places)
    style = "faint" if number is None else f"c{number % N_COLOURS} d{number // N_COLOURS}"
    name = escape(curve.name)
    drawn = f'<path class="line {style}" d="{line}"><title>{name}</title></path>'
    if number is not None and len(places) <= 80:
        drawn += "".join(
            f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="2.5"><title>{name}, step {step:g}: {value:.4g}'
            "</title></circle>"
            for (x, y), (step, value) in zip(places, curve.points, strict=True)
        )
    return drawn


def _frame(steps: _Axis, values: _Axis, label: str) -> str:
    """Grid and ticks; `label` stands at the end of the lower axis."""
    parts = [f'<text class="tick" text-anchor="end" x="{WIDTH - RIGHT}" y="{HEIGHT - 7}">{escape(label)}</text>']
    for y, label in values.ticks():
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" text-anchor="end" x="{LEFT - 6}" y="{y + 4:.1f}">{label}</text>')
    for x, label in steps.ticks():
        parts.append(f'<text class="tick" text-anchor="middle" x="{x:.1f}" y="{HEIGHT - BOTTOM + 15}">{label}</text>')
    return "".join(parts)


def _figure(title: str, parts: Sequence[str], legend: str) -> str:
    return (
        f'<figure><figcaption>{escape(title)}{legend}</figcaption><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(title)}">{"".join(parts)}</svg></figure>'
    )


def _legend(curves: Sequence[Curve]) -> str:
    numbers = iter(range(len(curves)))
    styles = ["faint" if curve.faint else f"c{next(numbers) % N_COLOURS}" for curve in curves]
    return "".join(
        f' <span class="key {style}">{escape(curve.name)}</span>' for style, curve in zip(styles, curves, strict=True)
    )


def _drawable(points: Sequence[tuple[float, float]], log_scale: bool) -> list[tuple[float, float]]:
    return [(step, value) for step, value in points if math.isfinite(value) and (value > 0 or not log_scale)]


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most MAX_POINTS of them, evenly spread, the last one always there."""
    every = -(-len(points) // MAX_POINTS) if points else 1
    return points[::-1][::every][::-1]


def _short(value: float) -> str:
    for least, unit, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= least:
            return f"{value / unit:g}{letter}"
    return f"{round(value, 10):g}" if abs(value) >= 0.001 or value == 0 else f"{value:g}".replace("e-0", "e-")
