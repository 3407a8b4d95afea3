"""Differences from a baseline as a picture."""

from pathlib import Path
from typing import Any

from aiayn.reports.drawing import new_figure, save_figure
from aiayn.reports.intervals import Difference
from aiayn.reports.table import Column, Table
from aiayn.runs.run_folder import Record

MEASURED, SIGNIFICANT, PUBLISHED = "#1f77b4", "#c43d45", "0.45"


def draw_differences(table: Table, path: Path) -> bool:
    """Draws what each row changes against the baseline, a panel for each metric, and returns whether there is any.

    Discs with their 95 % intervals are measured, red where significant after correction; a row of the paper's has its
    change there as a ring. Writes a PNG. Raises ResourceError where it cannot be written.
    """
    columns = [column for column in table.columns if any(_is_change(record, column.key) for record in table.records)]
    rows = [record for record in table.records if any(_is_change(record, column.key) for column in columns)]
    if not rows:
        return False
    figure = new_figure(5 * len(columns), 1.4 + 0.27 * len(rows), layout="constrained")
    panels = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    for axis, column in zip(panels, columns, strict=True):
        axis.axvline(0, color="0.8", linewidth=1)
        for place, record in enumerate(rows):
            _draw_row(axis, place, record, column)
        name = column.title if column.title != "difference" else column.key
        axis.set_title(name)
        axis.grid(axis="x", alpha=0.3)
    panels[0].set_yticks(range(len(rows)), [str(record[table.columns[0].key]) for record in rows])
    panels[0].invert_yaxis()
    save_figure(figure, path)
    return True


def _is_change(record: Record, key: str) -> bool:
    return isinstance(record.get(key), Difference)


def _draw_row(axis: Any, place: int, record: Record, column: Column) -> None:
    difference = record.get(column.key)
    if not isinstance(difference, Difference):
        return
    colour = SIGNIFICANT if difference.survives else MEASURED
    if difference.low is not None and difference.high is not None:
        axis.plot([difference.low, difference.high], [place, place], color=colour, linewidth=1)
    axis.plot(difference.delta, place, "o", color=colour, markersize=5)
    published = record.get(f"paper_{column.key}")
    if published is not None:
        axis.plot(published, place, "o", color=PUBLISHED, markerfacecolor="none", markersize=6)
