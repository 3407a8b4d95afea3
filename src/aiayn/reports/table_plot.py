"""Table 3 as a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aiayn.reports.drawing import new_figure, save_figure
from aiayn.reports.tables import changes_against_base, noise_of_base

MEASURED, PUBLISHED = "#1f77b4", "0.45"


def draw_table_3(records: Sequence[Mapping[str, Any]], path: Path) -> None:
    """What each row changes against base, in perplexity and in BLEU: measured as discs, published as rings.

    A grey band is what chance changes, where base was run with several seeds. Writes a PNG. Rows that were not run have
    rings only. Raises ResourceError where it cannot be written.
    """
    changes = changes_against_base(records)
    rows = list(dict.fromkeys(change["row"] for change in changes))
    figure = new_figure(10, 1.4 + 0.27 * len(rows), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axis, key, title in zip(panels, ("ppl", "bleu"), ("perplexity", "BLEU"), strict=True):
        axis.axvline(0, color="0.8", linewidth=1)
        if noise := noise_of_base(records).get(key):
            axis.axvspan(-noise, noise, color="0.93", zorder=0)
        for change in changes:
            place = rows.index(change["row"])
            measured, published = change[key], change[f"paper_{key}"]
            if measured is not None:
                axis.plot([published, measured], [place, place], color="0.85", linewidth=1, zorder=1)
                axis.plot(measured, place, "o", color=MEASURED, markersize=6)
            axis.plot(published, place, "o", color=PUBLISHED, markerfacecolor="none", markersize=6)
        axis.set_title(f"{title}: change against base")
        axis.grid(axis="x", alpha=0.3)
    panels[0].set_yticks(range(len(rows)), rows)
    panels[0].invert_yaxis()
    panels[0].plot([], [], "o", color=MEASURED, label="measured")
    panels[0].plot([], [], "o", color=PUBLISHED, markerfacecolor="none", label="paper")
    panels[0].legend()
    save_figure(figure, path)
