"""What a table is, and how it is written: plain text, Markdown, LaTeX (booktabs), CSV and JSON."""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiayn.reports.differences import Difference, Sample, p_text
from aiayn.runs.run_folder import Record, is_number

NOT_RUN = "not run"


@dataclass(frozen=True)
class Column:
    """How the values under one key of the records are shown."""

    key: str
    title: str = ""  # as the key, unless given
    decimals: int | None = None  # of all its numbers; None: as many as the column needs
    spec: str | None = None  # a format() specification, instead of decimals

    @property
    def heading(self) -> str:
        return self.title or self.key


@dataclass
class Table:
    """A table with its title, the lines before and after it, and the name of its file."""

    title: str
    columns: Sequence[Column]
    records: Sequence[Record]
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    name: str = "table"
    folded: Sequence[Record] = ()  # more records, which CSV and JSON show, and a page in a fold

    @property
    def all_records(self) -> list[Record]:
        return [*self.records, *self.folded]

    @property
    def rest(self) -> "Table":
        """Return the folded records as a table of their own."""
        return Table(self.title, self.columns, self.folded)

    def cells(self, style: "Style") -> list[list[Any]]:
        """Return the cells as a writer shows them, row by row."""
        decimals = [(column, self._decimals(column)) for column in self.columns]
        return [
            [_cell(record, column, digits, style) for column, digits in decimals]
            for record in self.records
        ]

    def _decimals(self, column: Column) -> int:
        """Return the decimals of a column: its own, or two, or three significant digits of its
        smallest number.
        """
        if column.decimals is not None:
            return column.decimals
        values = [record.get(column.key) for record in self.records]
        numbers = [value.mean if isinstance(value, Sample) else value for value in values]
        sizes = [
            abs(number) for number in numbers if isinstance(number, float) and is_number(number)
        ]
        smallest = min((size for size in sizes if size), default=1.0)
        return 2 if smallest >= 0.1 else min(math.ceil(2 - math.log10(smallest)), 8)

    @property
    def numeric(self) -> list[bool]:
        """Return whether each column holds numbers, apart from cells that say why there is none."""
        return [self._is_numeric(column.key) for column in self.columns]

    def _is_numeric(self, key: str) -> bool:
        values = [record[key] for record in self.records if record.get(key) not in (None, NOT_RUN)]
        return bool(values) and not any(isinstance(value, (str, list)) for value in values)


@dataclass(frozen=True)
class Style:
    """What differs between the forms of a table."""

    plus_minus: str = " ± "
    escape: Callable[[str], Any] = lambda text: " ".join(text.split("\n"))
    number: Callable[[str], Any] = str  # around a cell of numbers
    strong: Callable[[Any], Any] = lambda cell: f"{cell}*"  # what is significant
    missing: str = "-"  # for None


def _cell(record: Record, column: Column, decimals: int, style: Style) -> Any:
    """Return the value of a record as it is shown; a mean of other than the record's n seeds says
    of how many.
    """
    value, n = record.get(column.key), record.get("n")
    if value is None:
        return style.missing
    if isinstance(value, Sample):
        spread = "" if value.sd is None else f"{style.plus_minus}{value.sd:,.{decimals}f}"
        seeds = "" if n in (None, value.n) else f" (n={value.n})"
        return style.number(f"{value.mean:,.{decimals}f}{spread}{seeds}")
    if isinstance(value, Difference):
        bounds = (
            ""
            if value.low is None
            else f" [{value.low:+,.{decimals}f}, {value.high:+,.{decimals}f}]"
        )
        p = "" if value.p_holm is None else f" p {p_text(value.p_holm)}"
        cell = style.number(f"{value.delta:+,.{decimals}f}{bounds}{p}")
        return style.strong(cell) if value.is_significant else cell
    if is_number(value):
        usual = "," if isinstance(value, int) else f",.{decimals}f"
        return style.number(format(value, column.spec or usual))
    text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
    return style.escape(text if isinstance(text, str) else str(text))


def notes_table(notes: Sequence[str]) -> list[Table]:
    """Return a table of nothing but these notes, as a list; an empty list without any."""
    return (
        [Table("Notes", [], [], ["\n".join(f"- {note}" for note in notes)], name="notes")]
        if notes
        else []
    )


def text(tables: Sequence[Table]) -> str:
    """Return the tables with aligned columns; significant differences have a star."""
    return _pages(tables, lambda table: _tabulated(table, Style(), "simple"), heading="{}\n{}")


def markdown(tables: Sequence[Table]) -> str:
    """Return the tables as Markdown whose columns line up as plain text, too; significant
    differences are bold.
    """
    style = Style(
        escape=lambda text: " ".join(text.split("\n")).replace("|", "\\|"), strong="**{}**".format
    )
    return _pages(tables, lambda table: _tabulated(table, style, "pipe"), heading="## {}")


def _pages(tables: Sequence[Table], write: Callable[[Table], str], heading: str) -> str:
    parts = []
    for table in tables:
        if table.title:
            parts.append(heading.format(table.title, "=" * len(table.title)))
        parts += [*table.before, *([write(table)] if table.records else []), *table.after]
        if table.folded:
            n_groups = len(table.all_records)
            parts.append(f"The best {len(table.records)} of {n_groups}; CSV and JSON list all.")
    return "\n\n".join(parts) + "\n"


def _tabulated(table: Table, style: Style, form: str) -> str:
    import tabulate

    tabulate.MIN_PADDING = 0  # no wider than the widest cell
    sides = ["right" if is_numeric else "left" for is_numeric in table.numeric]
    titles = [style.escape(column.heading) for column in table.columns]
    rendered = tabulate.tabulate(
        table.cells(style), titles, tablefmt=form, colalign=sides, disable_numparse=True
    )
    return "\n".join(line.rstrip() for line in rendered.split("\n"))


def latex(tables: Sequence[Table]) -> str:
    """Return a table environment each, for the package booktabs; significant differences are
    bold.
    """
    return "\n\n".join(["% \\usepackage{booktabs}", *map(_environment, tables)]) + "\n"


def _environment(table: Table) -> str:
    import pandas as pd

    notes = [
        f"% {line}".rstrip()
        for paragraph in (*table.before, *table.after)
        for line in paragraph.split("\n")
    ]
    if not table.records:
        return "\n".join(notes)
    style = Style(r" \pm ", _latex_text, _mathematics, r"{{\boldmath {}}}".format, missing="--")
    titles = [_latex_text(column.heading) for column in table.columns]
    sides = "".join("r" if is_numeric else "l" for is_numeric in table.numeric)
    frame = pd.DataFrame(table.cells(style), columns=titles)
    body = frame.to_latex(index=False, escape=False, column_format=sides)
    head = f"\\begin{{table}}\n\\centering\n\\caption{{{_latex_text(table.title)}}}\n"
    return "\n".join([*notes, f"{head}{body}\\end{{table}}"])


SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "±": r"$\pm$",
}
SPECIAL |= {character: f"\\{character}" for character in "&%$#_{}"} | {
    "<": "$<$",
    ">": "$>$",
    "\u00a0": "~",
}
# After a row's end these are its options
SPECIAL |= {"|": r"\textbar{}"} | {sign: f"{{{sign}}}" for sign in "[]*"}


def _mathematics(cell: str) -> str:
    """Write digits grouped by commas without the space of a list, a space before p, and powers of
    ten.
    """
    cell = re.sub(r"e\+(\d+)", r" \\cdot 10^{\1}", cell)
    cell = cell.replace(",", "{,}").replace("{,} ", ", ").replace(" p ", r"\; p\,")
    return f"${cell}$"


def _latex_text(value: str) -> str:
    return "".join(SPECIAL.get(character, character) for character in re.sub(r"\s+", " ", value))


def csv_text(table: Table) -> str:
    """Return one table: its columns, numbers to all digits, means and differences with their
    parts.
    """
    import pandas as pd

    rows = [plain_record(record) for record in table.all_records]
    known = {key for row in rows for key in row}
    endings = ("", "_sd", "_n", "_low", "_high", "_p", "_p_holm", "_significant")
    keys = [column.key + ending for column in table.columns for ending in endings]
    frame = pd.DataFrame(rows, columns=[key for key in keys if key in known], dtype=object)
    return frame.to_csv(index=False, lineterminator="\n")


def json_text(tables: Mapping[str, Any]) -> str:
    """Return the records of tables by name, and whatever else stands beside them, as plain
    values.
    """

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(element) for element in value]
        return plain_record(value, by_seed=True) if isinstance(value, dict) else value

    return (
        json.dumps(
            {name: plain(value) for name, value in tables.items()}, indent=2, ensure_ascii=False
        )
        + "\n"
    )


def plain_record(record: Record, by_seed: bool = False) -> Record:
    """Return a record of plain values: means, intervals and p-values under keys of their own."""
    plain: Record = {}
    for key, value in record.items():
        if isinstance(value, Sample):
            plain |= {key: value.mean, f"{key}_sd": value.sd, f"{key}_n": value.n}
            plain |= {f"{key}_by_seed": value.values} if by_seed else {}
        elif isinstance(value, Difference):
            plain |= {key: value.delta, f"{key}_low": value.low, f"{key}_high": value.high}
            plain |= {
                f"{key}_p": value.p,
                f"{key}_p_holm": value.p_holm,
                f"{key}_significant": value.is_significant,
            }
        else:
            plain[key] = value
    return plain
