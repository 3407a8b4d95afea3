"""Pictures of what was measured."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def draw_learning_curve(records: Sequence[Mapping[str, float]], path: Path) -> None:
    """Loss with the learning rate, validation perplexity and validation BLEU, by step, from a run's metrics.

    Writes a PNG. Panels without measurements are left out.
    """
    panels = [
        (title, [key for key in keys if any(key in record for record in records)])
        for title, keys in (
            ("loss per token (nats)", ["train/loss", "val/loss"]),
            ("validation perplexity", ["val/ppl"]),
            ("validation BLEU (greedy)", ["val/bleu"]),
        )
    ]
    panels = [(title, keys) for title, keys in panels if keys]
    if not panels:
        return
    figure, axes = _figure(len(panels))
    for axis, (title, keys) in zip(axes, panels, strict=True):
        for key in keys:
            axis.plot(*_series(records, key), marker="" if key == "train/loss" else "o", markersize=3, label=key)
        axis.set_title(title)
        axis.set_xlabel("step")
        axis.grid(alpha=0.3)
        if keys[0] == "train/loss":
            rate = axis.twinx()
            rate.plot(*_series(records, "train/lr"), color="0.6", linewidth=1, linestyle=":")
            rate.set_ylabel("learning rate (dotted)", color="0.5")
            axis.legend(loc="upper center")
        if keys == ["val/ppl"]:
            axis.set_yscale("log")
    figure.savefig(path)


def _series(records: Sequence[Mapping[str, float]], key: str) -> tuple[list[float], list[float]]:
    points = [(record["step"], record[key]) for record in records if key in record]
    return [step for step, _ in points], [value for _, value in points]


def _figure(columns: int) -> tuple[Any, Any]:
    # Not pyplot: a figure of its own needs no display and leaves no state behind.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * columns, 3.6), layout="constrained", dpi=120)
    return figure, figure.subplots(1, columns, squeeze=False)[0]
