"""What is translated: lines of a file or of standard input, a column, fields of JSON objects, or units of a translation
memory; and how the translations are written in the same format."""

import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from aiayn.cli.output import FILE_LINES
from aiayn.errors import DataError

STREAM_BYTES = 1 << 17  # translated at once from a stream: up to 2,000 lines or so


@dataclass(frozen=True)
class Chunk:
    """Lines that are translated together, and a function from their translations to output lines."""

    lines: list[str]
    written: Callable[[list[str]], Iterable[str]]


def plain(lines: list[str]) -> Chunk:
    return Chunk(lines, lambda translations: translations)


def file_chunks(lines: list[str]) -> Iterator[Chunk]:
    """The lines of a file."""
    for start in range(0, len(lines), FILE_LINES):
        yield plain(lines[start : start + FILE_LINES])


def stream_chunks() -> Iterator[Chunk]:
    """The whole lines read so far from standard input, so that output starts before the input ends."""
    from aiayn.data.text_files import MAX_LINE_BYTES

    pending, done = b"", 0
    reader = sys.stdin.buffer
    assert isinstance(reader, io.BufferedIOBase)
    while block := reader.read1(STREAM_BYTES):
        *lines, pending = (pending + block).split(b"\n")
        if lines:
            yield plain(_decoded(lines, done))
            done += len(lines)
        if len(pending) > 2 * MAX_LINE_BYTES:  # too long, whatever follows: the error for it is raised now
            _decoded([pending], done)
    if pending:
        yield plain(_decoded([pending], done))


def _decoded(lines: list[bytes], done: int) -> list[str]:
    """Decodes lines after the first `done` lines, as `read_lines` does for files."""
    from aiayn.data.text_files import decode

    if not done:
        lines = [lines[0].removeprefix(b"\xef\xbb\xbf"), *lines[1:]]
    return [decode(line.removesuffix(b"\r"), "standard input", number) for number, line in enumerate(lines, done + 1)]


def prompted_chunks(greeting: str) -> Iterator[Chunk]:
    """Lines typed on a terminal, one at a time."""
    import readline  # noqa: F401  (gives `input` its arrow keys)

    print(greeting, file=sys.stderr)
    while True:
        try:
            yield plain([input("> ")])
        except EOFError:
            print()
            return


def column_chunks(chunks: Iterable[Chunk], column: int) -> Iterator[Chunk]:
    """Column `column` (from 1) of tab-separated lines; the other columns and blank lines stay.

    Raises DataError for a line that is not blank and has too few columns.
    """
    done = 0
    for chunk in chunks:
        rows = [line.split("\t") if line else [] for line in chunk.lines]
        for number, row in enumerate(rows, done + 1):
            if 0 < len(row) < column:
                raise DataError(f"line {number} has {len(row)} columns: --tsv {column} needs {column}; correct it")
        done += len(rows)
        yield _rows_chunk(rows, column - 1, column - 1)


def _rows_chunk(rows: list[list[str]], src: int, tgt: int) -> Chunk:
    """Column `src` of rows, whose translations go to column `tgt`, both from 0; rows without columns are blank."""

    def written(translations: list[str]) -> Iterator[str]:
        for row, text in zip(rows, translations, strict=True):
            new = text.replace("\t", " ")
            yield "\t".join([*row[:tgt], new, *row[tgt + 1 :]]) if row else ""

    return Chunk([row[src] if row else "" for row in rows], written)


def table_chunks(path: Path, langs: tuple[str, str]) -> Iterator[Chunk]:
    """A table whose first line names the columns of both languages: the second is translated from the first."""
    from aiayn.data.pair_files import header_columns
    from aiayn.data.text_files import read_lines

    header, *lines = read_lines(path) or [""]
    columns = header_columns(path, header.split("\t"), *langs)
    if columns is None:
        raise DataError(
            f"{path}: columns with tabs between them: add --tsv N to translate column N and keep the others, or write "
            f"{langs[0]} and {langs[1]} over the columns"
        )
    yield Chunk([], lambda _: [header])
    rows = [line.split("\t") if line else [] for line in lines]
    width = header.count("\t") + 1
    for number, row in enumerate(rows, 2):
        if row and len(row) != width:
            raise DataError(f"{path}: line {number} has {len(row)} columns instead of {width}; correct it")
    for start in range(0, len(rows), FILE_LINES):
        yield _rows_chunk(rows[start : start + FILE_LINES], *columns)


def json_chunks(path: Path, langs: tuple[str, str]) -> Iterator[Chunk]:
    """JSON lines: the text of the source language is translated, and added as a field of the target language."""
    from aiayn.data.pair_files import json_record, records

    src_lang, tgt_lang = langs
    lines = records(path)
    while found := list(islice(lines, FILE_LINES)):
        parsed = []
        for number, line in found:
            record = json_record(line, (src_lang,))
            if record is None and (line is None or line.strip()):
                raise DataError(
                    f'{path}: line {number} is no JSON object with a text, {{"{src_lang}": "..."}}; correct it'
                )
            parsed.append(record)
        yield _json_chunk(parsed, tgt_lang)


def _json_chunk(parsed: list[tuple[dict, list[str]] | None], tgt_lang: str) -> Chunk:
    def written(translations: list[str]) -> Iterator[str]:
        for one, text in zip(parsed, translations, strict=True):
            if one:
                record = one[0]
                record.get("translation", record)[tgt_lang] = text
                yield json.dumps(record, ensure_ascii=False)
            else:
                yield ""

    return Chunk([one[1][0] if one else "" for one in parsed], written)


def memory_chunks(path: Path, langs: tuple[str, str]) -> Iterator[Chunk]:
    """The units of a translation memory that have the first language, as a new one of both languages."""
    from aiayn import __version__
    from aiayn.data.translation_memory import read_units

    src_lang, tgt_lang = langs
    yield Chunk(
        [],
        lambda _: [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<tmx version="1.4"><header creationtool="aiayn" creationtoolversion="{__version__}" segtype="sentence" '
            f'o-tmf="aiayn" adminlang="en" srclang={quoteattr(src_lang)} datatype="plaintext"/>',
            "<body>",
        ],
    )
    units, left_out = read_units(path, (src_lang,)), 0
    while found := list(islice(units, FILE_LINES)):
        usable = [(unit.name, unit.texts[src_lang]) for unit in found if unit.texts and not unit.flaw]
        left_out += len(found) - len(usable)
        yield _units_chunk(usable, src_lang, tgt_lang)
    yield Chunk([], lambda _: ["</body></tmx>"])
    if left_out:
        print(f"{path}: {left_out} units without one text in {src_lang} left out", file=sys.stderr)


def _units_chunk(units: list[tuple[str | None, str]], src_lang: str, tgt_lang: str) -> Chunk:
    def written(translations: list[str]) -> Iterator[str]:
        for (name, source), text in zip(units, translations, strict=True):
            sides = (
                f"<tuv xml:lang={quoteattr(lang)}><seg>{_xml(line)}</seg></tuv>"
                for lang, line in ((src_lang, source), (tgt_lang, text))
            )
            yield f"<tu{f' tuid={quoteattr(name)}' if name else ''}>{''.join(sides)}</tu>"

    return Chunk([source for _, source in units], written)


def _xml(text: str) -> str:
    """Escaped, and without the characters that XML cannot hold."""
    return escape(re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "", text))
