"""Tables and JSON lines as documents: the texts of one language fill the empty fields of another.

A table says in its first line which column has which language:

    en,de,note                      en,de,note
    a red cat,,plural               a red cat,eine rote Katze,plural

An object of JSON has its texts by language, `{"en": "a red cat"}`, or has them in `translation`.
"""

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from aiayn.apps.documents.markup import Pieces
from aiayn.data.tables import SEPARATOR_LINE, header_columns, is_quoted, table_delimiter
from aiayn.data.text_files import SURROGATE
from aiayn.errors import DataError, counted

if TYPE_CHECKING:
    from aiayn.apps.documents.document import Document


def table_pieces(document: "Document") -> Pieces:
    """Fills the empty cells of the target language's column from the source's column."""
    path, (src, tgt) = document.path, document.langs
    separator = re.match(rf"(?:[ \t\r]*\n)*{SEPARATOR_LINE.pattern}\n", document.text)
    start = separator[0] if separator else ""
    table = document.text[len(start) :]
    first = [written for written in table.split("\n", 100)[:100] if written.strip()]
    delimiter = separator[1] if separator else table_delimiter(path, "".join(first[:1]))
    by_rules = delimiter != "\t" or is_quoted(first)
    pieces: Pieces = [start]
    columns, width, line = None, 0, 1 + start.count("\n")
    for row in _rows(table, delimiter, by_rules):
        values = [_unquoted(raw) if by_rules else raw for raw, _ in row]
        text = ""
        if not any(map(str.strip, values)):
            pass  # as it is, before the heads as well
        elif columns is None:
            columns, width = header_columns(path, values, src, tgt), len(row)
            if columns is None:
                remedy = (
                    "add --tsv N to translate column N and keep the others, or "
                    if delimiter == "\t"
                    else ""
                )
                raise DataError(
                    f"{path}: the columns are not named {src} and {tgt}; {remedy}write {src} and "
                    f"{tgt} as their heads"
                )
        elif len(row) != width:
            raise DataError(
                f"{path}: line {line} has {counted(len(row), 'column')} instead of {width}; "
                "correct it"
            )
        elif not values[columns[1]].strip():
            text = values[columns[0]].replace("\n", " ")
        cells: list[Pieces] = [[raw] for raw, _ in row]
        if columns and text.strip():
            is_source_quoted = row[columns[0]][0].startswith('"')
            cells[columns[1]] = _cell(document, text, delimiter, by_rules, is_source_quoted)
        for cell, (raw, end) in zip(cells, row, strict=True):
            pieces += [*cell, end]
            line += raw.count("\n") + end.count("\n")
    return pieces


def _cell(
    document: "Document", text: str, delimiter: str, by_rules: bool, is_source_quoted: bool
) -> Pieces:
    """Returns the cell for the translation of a text, written as its table writes cells."""
    if not by_rules:
        return document.field(text, lambda cell: re.sub(r"[\t\n\r]", " ", cell))
    if document.markup or is_source_quoted:
        return ['"', *document.field(text, lambda cell: cell.replace('"', '""')), '"']
    return document.field(text, lambda cell: _quoted_if_needed(cell, delimiter))


def _rows(text: str, delimiter: str, by_rules: bool) -> Iterator[list[tuple[str, str]]]:
    """Yields rows of cells as they are written, each with the delimiter or line end after it."""
    if by_rules:
        cells = re.compile(
            rf'( *"(?:[^"]|"")*"[^{delimiter}\r\n]*|[^{delimiter}\r\n]*)({delimiter}|\r?\n|\r|\Z)'
        )
    else:
        cells = re.compile(r"([^\t\n]*?)(\t|\r?\n|\Z)")
    row: list[tuple[str, str]] = []
    for cell_match in cells.finditer(text):
        raw, end = cell_match.groups()
        if row or raw or end:
            row.append((raw, end))
        if row and end != delimiter:
            yield row
            row = []


def _quoted_if_needed(cell: str, delimiter: str) -> str:
    doubled = cell.replace('"', '""')
    return f'"{doubled}"' if re.search(rf'["\r\n{delimiter}]', cell) else cell


def _unquoted(raw: str) -> str:
    raw = raw.lstrip(" ")  # as for training
    if raw[:1] != '"':
        return raw
    inside, _, tail = raw[1:].rpartition('"')
    return inside.replace('""', '"') + tail


def json_lines_pieces(document: "Document") -> Pieces:
    """Translates each object that lacks the target language's text, into its place or the last."""
    src, tgt = document.langs
    pieces: Pieces = []
    record = f'a JSON object with a text, {{"{src}": "..."}}'
    has_texts = False
    for number, line in enumerate(document.text.split("\n"), 1):
        pieces.append("\n" * (number > 1))
        if not line.strip():
            pieces.append(line)
            continue
        text_and_span = _json_field(line, src, tgt, f"{document.path}: line {number}")
        if text_and_span is None:
            document.leave("line", f"left unchanged, not {record}", number)
            pieces.append(line)
            continue
        has_texts = True
        text, (start, stop) = text_and_span
        if line[start:stop].strip(' \t"') not in ("", "null"):  # it has a translation
            pieces.append(line)
            continue
        if SURROGATE.search(text):
            raise DataError(f"{document.path}: line {number} contains a lone surrogate; correct it")
        name = f", {json.dumps(tgt)}: " if start == stop else ""
        pieces += [f'{line[:start]}{name}"', *document.field(text, _in_json), f'"{line[stop:]}']
    if document.left and not has_texts:
        [[first, *_]] = document.left.values()
        raise DataError(f"{document.path}: line {first} is not {record}; correct it")
    return pieces


def _json_field(
    line: str, src_lang: str, tgt_lang: str, where: str
) -> tuple[str, tuple[int, int]] | None:
    """Returns the text of one language in a JSON object, and where in the line that of the other is
    or belongs.

    Returns None if a line does not have the first. Raises DataError if it is not JSON.
    """
    # Numbers are not read, because Python has not all of them.
    decoder = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str)

    def members(start: int) -> dict[str, tuple[Any, int, int]]:
        """Returns the values of an object that begins here, and where they are; of equal names the
        last counts.
        """
        values_by_name, end = {}, start + 1
        while line[start := _after_blanks(line, end)] != "}":
            name, end = decoder.raw_decode(line, start)
            start = _after_blanks(line, end)
            value, end = decoder.raw_decode(line, start)
            values_by_name[name] = value, start, end
        return values_by_name

    try:
        record = decoder.decode(line)
    except (ValueError, RecursionError):
        raise DataError(f"{where} is not JSON; correct it") from None
    if not isinstance(record, dict):
        return None
    try:
        fields = members(line.index("{"))
        if "translation" in fields:
            fields = members(fields["translation"][1])
        text, start, _ = fields[src_lang]
    except (ValueError, RecursionError, KeyError, IndexError):
        return None
    last = max(end for _, _, end in fields.values())
    return (text, fields.get(tgt_lang, (None, last, last))[1:]) if line[start] == '"' else None


def _after_blanks(line: str, start: int) -> int:
    """Returns where the next name or value of an object begins, or the object ends."""
    while line[start] in " \t\n\r,:":
        start += 1
    return start


def _in_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
