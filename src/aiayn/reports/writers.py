"""Tables as plain text, Markdown, LaTeX (booktabs) and CSV."""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from aiayn.reports.table import Style, Table, plain

TEXT = Style()
MARKDOWN = Style(escape=lambda text: text.replace("|", "\\|"), strong=lambda cell: f"**{cell}**")
SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "±": r"$\pm$"}
SPECIAL |= {character: f"\\{character}" for character in "&%$#_{}"} | {"<": "$<$", ">": "$>$", "\u00a0": "~"}
SPECIAL["|"] = r"\textbar{}"
SPECIAL |= {character: f"{{{character}}}" for character in "[]*"}  # after the end of a row these would be its options


def text(tables: Sequence[Table]) -> str:
    """Returns the tables with aligned columns; significant differences have a star."""
    return _pages(tables, lambda table: _aligned(table), heading="{}\n{}")


def markdown(tables: Sequence[Table]) -> str:
    """Returns the tables as Markdown whose columns line up as plain text, too; significant differences are bold."""
    return _pages(tables, _grid, heading="## {}")


def latex(tables: Sequence[Table]) -> str:
    """Returns a table environment each, for the package booktabs; significant differences are bold."""
    return "\n\n".join(["% \\usepackage{booktabs}", *map(_environment, tables)]) + "\n"


def as_csv(tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Returns all records, one line each, under the columns of all tables; the first names the table."""
    rows = [{"table": name} | plain(dict(record)) for name, records in tables.items() for record in records]
    file = io.StringIO()
    writer = csv.DictWriter(
        file, list(dict.fromkeys(key for row in rows for key in row)) or ["table"], lineterminator="\n"
    )
    writer.writeheader()
    for row in rows:
        writer.writerow({key: "; ".join(map(str, v)) if isinstance(v, list) else v for key, v in row.items()})
    return file.getvalue()


def as_json(tables: Mapping[str, Any]) -> str:
    """Returns the records of all tables, and whatever else stands beside them, as plain values."""
    found = {
        name: [plain(one) if isinstance(one, dict) else one for one in value] if isinstance(value, list) else value
        for name, value in tables.items()
    }
    return json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _pages(tables: Sequence[Table], write: Any, heading: str) -> str:
    parts = []
    for table in tables:
        if table.title:
            parts.append(heading.format(table.title, "=" * len(table.title)))
        parts += [*table.before, *([write(table)] if table.records else []), *table.after]
    return "\n\n".join(parts) + "\n"


def _aligned(table: Table) -> str:
    rows = [[column.title for column in table.columns], *table.cells(TEXT)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(table.columns))]
    numeric = [table.is_numeric(place) for place in range(len(widths))]
    lines = [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def _grid(table: Table) -> str:
    header = [MARKDOWN.escape(column.title) for column in table.columns]
    rows = table.cells(MARKDOWN)
    widths = [max(len(row[place]) for row in [header, *rows]) for place in range(len(header))]
    rules = ["-" * (width - 1) + (":" if table.is_numeric(n) else "-") for n, width in enumerate(widths)]
    lines = [header, rules, *rows]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def _environment(table: Table) -> str:
    style = Style(
        plus_minus=r" \pm ",
        escape=_escaped,
        number=_mathematics,
        strong=lambda cell: f"{{\\boldmath {cell}}}",
        missing="--",
    )
    places = "".join("r" if table.is_numeric(place) else "l" for place in range(len(table.columns)))
    header = " & ".join(column.latex or _escaped(column.title) for column in table.columns)
    lines, before = [], None
    for record, cells in zip(table.records, table.cells(style), strict=True):
        label = record.get(table.block) if table.block else None
        if lines and label != before:
            lines.append(r"\midrule")
        before = label
        lines.append(" & ".join(cells) + r" \\")
    notes = [f"% {line}".rstrip() for paragraph in (*table.before, *table.after) for line in paragraph.split("\n")]
    if not table.records:
        return "\n".join(notes)
    return "\n".join(
        [
            *notes,
            r"\begin{table}",
            r"\centering",
            f"\\caption{{{_escaped(table.title)}}}",
            f"\\begin{{tabular}}{{{places}}}",
            r"\toprule",
            header + r" \\",
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def _mathematics(cell: str) -> str:
    """Digits grouped by commas without the space of a list, a space before p, powers of ten."""
    cell = re.sub(r"e\+(\d+)", r" \\cdot 10^{\1}", cell)
    return f"${cell.replace(',', '{,}').replace('{,} ', ', ').replace(' p ', chr(92) + '; p' + chr(92) + ',')}$"


def _escaped(value: str) -> str:
    return "".join(SPECIAL.get(character, character) for character in re.sub(r"\s+", " ", value))
