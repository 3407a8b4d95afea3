"""What a table is, and how it is written: plain text, Markdown, LaTeX (booktabs), CSV and JSON."""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiayn.errors import without_controls
from aiayn.reports.differences import Difference, Sample, p_text
from aiayn.runs.run_folder import Record, is_number

NOT_RUN = "not run"


@dataclass(frozen=True)
class Column:
    """How the values under one key of the records are shown."""

    key: str
    title: str = ""  # empty: the key
    decimals: int | None = None  # None: as many as a number needs
    spec: str | None = None  # a format() specification, instead of decimals

    @property
    def heading(self) -> str:
        return self.title or self.key


COLUMN = Column("value")


@dataclass
class Table:
    """A table with its title, the lines before and after it, and the name of its file."""

    title: str
    columns: Sequence[Column]
    records: Sequence[Record]
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    name: str = "table"
    selected: Sequence[Record] | None = None  # by default all; CSV and JSON have all

    @property
    def shown(self) -> Sequence[Record]:
        """Returns the records that text and pages show."""
        return self.records if self.selected is None else self.selected

    def cells(self, style: "Style", records: Sequence[Record]) -> list[list[Any]]:
        """Returns the cells of these records as a writer shows them."""
        return [[_cell(record, column, style) for column in self.columns] for record in records]

    @property
    def numeric(self) -> list[bool]:
        """Returns whether each column holds numbers and nothing else."""
        are_numeric = []
        for column in self.columns:
            types = {type(record.get(column.key)) for record in self.records} - {type(None)}
            are_numeric.append(bool(types) and not any(issubclass(cls, str) for cls in types))
        return are_numeric


@dataclass(frozen=True)
class Style:
    """What differs between the forms of a table."""

    plus_minus: str = " ± "
    escape: Callable[[str], Any] = str
    number: Callable[[str], Any] = str  # around a cell of numbers
    strong: Callable[[Any], Any] = lambda cell: f"{cell}*"  # around a significant difference
    missing: str = "-"  # for None


def _cell(record: Record, column: Column, style: Style) -> Any:
    """Returns the value of a record as it is shown; a mean over another number of seeds than the
    record's n names that number.
    """
    value = record.get(column.key)
    if value is None:
        return style.missing
    if isinstance(value, Sample):
        decimals = _decimals(value.mean, column)
        spread = "" if value.sd is None else f"{style.plus_minus}{value.sd:,.{decimals}f}"
        seeds = "" if record.get("n", value.n) == value.n else f" (n={value.n})"
        return style.number(f"{value.mean:,.{decimals}f}{spread}{seeds}")
    if isinstance(value, Difference):
        decimals = _decimals(value.delta, column)
        text = f"{value.delta:+,.{decimals}f}"
        if value.low is not None:
            text += f" [{value.low:+,.{decimals}f}, {value.high:+,.{decimals}f}]"
        if value.p_holm is not None:
            text += f" p {p_text(value.p_holm)}"
        cell = style.number(text)
        return style.strong(cell) if value.is_significant else cell
    if is_number(value):
        return style.number(shown(value, column))
    text = value if isinstance(value, str) else str(value)
    # A page's links stay of their class, which says that they are HTML
    return style.escape(type(text)(without_controls(text.replace("\n", " "))))


def shown(value: Any, column: Column = COLUMN) -> str:
    """Returns a value as it is shown; a number with the decimals of a column."""
    if not is_number(value):
        return str(value)
    usual = "," if isinstance(value, int) else f",.{_decimals(value, column)}f"
    return format(value, column.spec or usual)


def _decimals(number: float, column: Column) -> int:
    """Returns the decimals of the column, or two, or those of three significant digits."""
    if column.decimals is not None:
        return column.decimals
    size = abs(number)
    return 2 if size >= 0.1 or not size else min(math.ceil(2 - math.log10(size)), 8)


def notes_table(notes: Sequence[str]) -> list[Table]:
    """Returns a table of nothing but these notes, as a list; an empty list without any."""
    text = "\n".join(f"- {note}" for note in notes)
    return [Table("Notes", [], [], [text])] if notes else []


def text(tables: Sequence[Table]) -> str:
    """Returns the tables with aligned columns; significant differences have a star."""
    return _tabulated(tables, Style(), "simple", heading="{}\n{}")


def markdown(tables: Sequence[Table]) -> str:
    """Returns the tables as Markdown whose columns line up as plain text, too; significant
    differences are bold.
    """
    style = Style(escape=lambda text: text.replace("|", "\\|"), strong="**{}**".format)
    return _tabulated(tables, style, "pipe", heading="## {}")


def _tabulated(tables: Sequence[Table], style: Style, form: str, heading: str) -> str:
    import tabulate

    tabulate.MIN_PADDING = 0  # no wider than the widest cell
    parts = []
    for table in tables:
        if table.title:
            parts.append(heading.format(table.title, "=" * len(table.title)))
        parts += table.before
        if table.shown:
            sides = ["right" if is_numeric else "left" for is_numeric in table.numeric]
            titles = [style.escape(column.heading) for column in table.columns]
            cells = table.cells(style, table.shown)
            grid = tabulate.tabulate(
                cells, titles, tablefmt=form, colalign=sides, disable_numparse=True
            )
            parts.append("\n".join(line.rstrip() for line in grid.split("\n")))
        parts += table.after
    return _printable("\n\n".join(parts) + "\n")


def _printable(text: str) -> str:
    """Escapes what somebody else's run may hold to control the terminal."""
    return "\n".join(map(without_controls, text.split("\n")))


def latex(tables: Sequence[Table]) -> str:
    """Returns a table environment each, for the package booktabs; significant differences are
    bold.
    """
    import pandas as pd

    style = Style(r" \pm ", _latex_text, _mathematics, r"{{\boldmath {}}}".format, missing="--")
    parts = ["% \\usepackage{booktabs}"]
    for table in tables:
        notes = "\n".join([*table.before, *table.after])
        environment = [f"% {line}".rstrip() for line in notes.split("\n") if notes]
        if table.shown:
            titles = [_latex_text(column.heading) for column in table.columns]
            sides = "".join("r" if is_numeric else "l" for is_numeric in table.numeric)
            frame = pd.DataFrame(table.cells(style, table.shown), columns=titles)
            environment.append(
                frame.style.hide(axis="index").to_latex(
                    hrules=True,
                    position_float="centering",
                    caption=_latex_text(table.title),
                    column_format=sides,
                )
            )
        parts.append("\n".join(environment).rstrip("\n"))
    return _printable("\n\n".join(parts) + "\n")


def _mathematics(cell: str) -> str:
    """Writes digits grouped by commas without the space of a list, a space before p, and powers of
    ten.
    """
    cell = re.sub(r"e\+(\d+)", r" \\cdot 10^{\1}", cell)
    cell = cell.replace(",", "{,}").replace("{,} ", ", ").replace(" p ", r"\; p\,")
    return f"${cell}$"


def _latex_text(text: str) -> str:
    from tabulate import LATEX_ESCAPE_RULES

    rules = LATEX_ESCAPE_RULES | {"–": "--", "±": r"$\pm$", "|": r"\textbar{}"}
    rules |= {sign: f"{{{sign}}}" for sign in "[]*"}  # after a row's end these are its options
    return " ".join(text.split()).translate(str.maketrans(rules))


def csv_text(table: Table) -> str:
    """Returns one table: its columns, numbers to all digits, means and differences with their
    parts.
    """
    import pandas as pd

    rows = [_plain(record) for record in table.records]
    known = {key for row in rows for key in row}
    endings = ("", "_sd", "_n", "_low", "_high", "_p", "_p_holm", "_significant")
    keys = [column.key + ending for column in table.columns for ending in endings]
    frame = pd.DataFrame(rows, columns=[key for key in keys if key in known], dtype=object)
    return frame.to_csv(index=False, lineterminator="\n")


def json_text(tables: Sequence[Table], notes: Sequence[str] | None = None) -> str:
    """Returns the records of tables by name, and the notes about their runs, as plain values."""
    content: Record = {table.name: [*map(_plain, table.records)] for table in tables}
    if notes is not None:
        content["notes"] = [*map(without_controls, notes)]
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _plain(record: Record) -> Record:
    """Returns a record of plain values: means, intervals and p-values under keys of their own."""
    plain: Record = {}
    for key, value in record.items():
        if isinstance(value, Sample):
            parts = {"": value.mean, "_sd": value.sd, "_n": value.n, "_by_seed": value.values}
        elif isinstance(value, Difference):
            parts = {"": value.delta, "_low": value.low, "_high": value.high}
            parts |= {"_p": value.p, "_p_holm": value.p_holm, "_significant": value.is_significant}
        else:
            parts = {"": without_controls(value) if isinstance(value, str) else value}
        plain |= {key + ending: part for ending, part in parts.items()}
    return plain
