"""What a table is: records with plain values, and columns that say how each is shown. `writers` formats it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard

from aiayn.reports.intervals import LEVEL, Difference, Sample
from aiayn.runs.run_folder import Record, is_number

NOT_RUN = "not run"


class Link(NamedTuple):
    """A cell that leads to another file, where the page can."""

    target: str
    text: str


@dataclass(frozen=True)
class Column:
    """How the values under one key of the records are shown."""

    key: str
    title: str
    digits: int | None = None  # decimals of all its numbers; None: as many as the column needs
    sign: bool = False  # + before positive numbers
    missing: str = "-"  # for None
    latex: str | None = None  # the title in LaTeX
    spec: str | None = None  # a format() specification, instead of digits and sign


@dataclass
class Table:
    """A table with its title, the lines before and after it, and the key of the records whose change draws a rule."""

    title: str
    columns: Sequence[Column]
    records: Sequence[Record]
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    block: str | None = None

    def cells(self, style: "Style") -> list[list[Any]]:
        """Returns the cells as a writer shows them, row by row."""
        digits = [column_digits(column, self.records) for column in self.columns]
        return [
            [_cell(record.get(c.key), c, number, style) for c, number in zip(self.columns, digits, strict=True)]
            for record in self.records
        ]

    def is_numeric(self, place: int) -> bool:
        """Whether a column holds numbers, apart from cells that say why there is none."""
        key = self.columns[place].key
        values = [value for record in self.records if (value := record.get(key)) not in (None, NOT_RUN)]
        return bool(values) and not any(isinstance(value, (str, list, Link)) for value in values)


@dataclass(frozen=True)
class Style:
    """What differs between the forms of a table."""

    plus_minus: str = " ± "
    escape: Callable[[str], Any] = str
    number: Callable[[str], Any] = str  # around a cell of numbers
    strong: Callable[[Any], Any] = lambda cell: f"{cell}*"  # what is significant
    link: Callable[[Link], Any] | None = None  # None: its text
    missing: str | None = None  # instead of a column's own "-"


def _cell(value: Any, column: Column, digits: int, style: Style) -> Any:
    if value is None:
        missing = style.missing if style.missing is not None and column.missing == "-" else column.missing
        return style.escape(missing)
    if isinstance(value, Link):
        return style.link(value) if style.link else style.escape(value.text)
    if isinstance(value, Sample):
        spread = "" if value.sd is None else f"{style.plus_minus}{value.sd:,.{digits}f}"
        return style.number(f"{value.mean:,.{digits}f}{spread}")
    if isinstance(value, Difference):
        cell = style.number(f"{value.delta:+,.{digits}f}" + _claim(value, digits))
        return style.strong(cell) if value.survives else cell
    if is_number(value) and column.spec is not None:
        return style.number(format(value, column.spec))
    if is_number(value):
        sign = "+" if column.sign else ""
        return style.number(f"{value:{sign},}" if isinstance(value, int) else f"{value:{sign},.{digits}f}")
    if isinstance(value, (list, tuple)):
        return style.escape(", ".join(map(str, value)))
    return style.escape(str(value)) if isinstance(value, str) else value


def _claim(value: Difference, digits: int) -> str:
    if value.low is None or value.high is None:
        return ""
    interval = f" [{value.low:+,.{digits}f}, {value.high:+,.{digits}f}]"
    return interval if value.p_holm is None else f"{interval} p {p_text(value.p_holm)}"


def p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 2 * LEVEL else f"{p:.2f}"


def column_digits(column: Column, records: Sequence[Record]) -> int:
    """Returns the decimals of a column: its own, or two, or three significant digits of its smallest number."""
    if column.digits is not None:
        return column.digits
    values = [record.get(column.key) for record in records]
    sizes = [abs(value.mean if isinstance(value, Sample) else value) for value in values if _is_real(value)]
    smallest = min((size for size in sizes if size), default=1.0)
    digits = 2
    while smallest * 10**digits < 100 and smallest < 0.1 and digits < 8:
        digits += 1
    return digits


def _is_real(value: Any) -> TypeGuard[Sample | float]:
    return isinstance(value, Sample) or (is_number(value) and not isinstance(value, int))


def plain(record: Record) -> Record:
    """Returns a record for JSON and CSV: means, intervals and p-values under keys of their own."""
    found: Record = {}
    for key, value in record.items():
        if isinstance(value, Sample):
            found |= {key: value.mean, f"{key}_sd": value.sd, f"{key}_n": value.n, f"{key}_by_seed": [*value.values]}
        elif isinstance(value, Difference):
            found |= {key: value.delta, f"{key}_low": value.low, f"{key}_high": value.high}
            found |= {f"{key}_p": value.p, f"{key}_p_holm": value.p_holm, f"{key}_significant": value.survives}
        else:
            found[key] = value.text if isinstance(value, Link) else value
    return found
