"""Parallel text in one file: tab-separated columns (.tsv), JSON lines (.jsonl) or a translation memory (.tmx).

All of them may be compressed (.gz). A line feed inside a text becomes a space, because a sentence is one line.
"""

import json
import logging
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from aiayn.data.cleaning import Flaw
from aiayn.data.languages import header_columns, seem_swapped
from aiayn.data.text_files import lines
from aiayn.data.translation_memory import read_units
from aiayn.errors import DataError

log = logging.getLogger(__name__)

Numbered = tuple[int, bytes, bytes]  # line of the file, source, target

CHECKED_ROWS = 1000  # rows in which the languages of unnamed columns are detected
RECORD_BYTES = 1 << 20  # limit of a line: room for two sentences and their metadata


def pair_file_kind(name: str) -> str | None:
    """Returns tsv, jsonl or tmx by a file's name, None for any other."""
    path = Path(name)
    ending = Path(path.stem if path.suffix.lower() == ".gz" else name).suffix.removeprefix(".").lower()
    return ending if ending in READERS else None


def read_pair_file(path: Path, src_lang: str, tgt_lang: str) -> Iterator[Numbered]:
    """Streams the pairs of a file with the line that each begins in; a row that is no pair has a Flaw as its source.

    Raises DataError with file and line if the format is wrong, if over 5 % of the rows are no pairs, and if there is no
    pair at all.
    """
    kind = pair_file_kind(path.name)
    assert kind is not None, path
    rows, flaws = 0, Flaws()
    for number, src, tgt in READERS[kind](path, src_lang, tgt_lang):
        rows += 1
        if isinstance(src, Flaw):
            flaws.add(number, src)
        yield number, src, tgt
    if rows == flaws.count:
        raise DataError(f"{path}: there are no pairs of {src_lang} and {tgt_lang} in it{flaws.remark()}")
    if flaws.count >= 20 and flaws.count > 0.05 * rows:
        raise DataError(f"{path}: {flaws.count} of {rows} rows are no pairs{flaws.remark()}; correct or remove them")


class Flaws:
    """Rows of a file that are no pairs."""

    def __init__(self) -> None:
        self.count = 0
        self._first: list[str] = []

    def add(self, number: int, flaw: Flaw) -> None:
        self.count += 1
        if len(self._first) < 5:
            self._first.append(f"line {number} {FLAWS.get(flaw.decode(), flaw.decode())}")

    def remark(self) -> str:
        """The first few, in brackets; nothing without any."""
        more = ", ..." if self.count > len(self._first) else ""
        return f" ({', '.join(self._first)}{more})" if self._first else ""


# Reasons in the report, and what is said of a line.
FLAWS = {
    "columns": "has another number of columns",
    "not_json": "is no JSON object with two texts",
    "two_segments": "has two segments of one language",
    "too_many_bytes": f"is longer than {RECORD_BYTES:,} bytes",
}


def records(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """Yields the lines of a file with their numbers, None for one that is too long."""
    for number, line in enumerate(lines(path, RECORD_BYTES), 1):
        yield number, line if len(line) < RECORD_BYTES - 1 else None


def _read_tsv(path: Path, src_lang: str, tgt_lang: str) -> Iterator[Numbered]:
    """Columns are named by a first line that has both languages; without one there are two, source and target.

    A quotation mark is text like any other: one that opens a sentence must not swallow the lines up to the next.
    """
    width, src, tgt = 2, 0, 1
    for number, line in records(path):
        fields = line.split(b"\t") if line is not None else []
        if number == 1:
            columns = tsv_columns(path, fields, src_lang, tgt_lang)
            if columns:
                width, (src, tgt) = len(fields), columns
                continue
            if line and len(fields) != width:
                raise DataError(
                    f"{path}: line 1 has {len(fields)} columns instead of {width}; correct it, or name the columns "
                    f"in the first line, {src_lang} and {tgt_lang} among them"
                )
            _refuse_swapped(path, src_lang, tgt_lang)
        if line is None:
            yield number, Flaw(b"too_many_bytes"), b""
        elif not line.strip():
            yield number, b"", b""
        elif len(fields) == width:
            yield number, fields[src], fields[tgt]
        else:
            yield number, Flaw(b"columns"), b""


def _refuse_swapped(path: Path, src_lang: str, tgt_lang: str) -> None:
    """Raises DataError if two columns without names are clearly in each other's languages."""
    rows = (line.decode(errors="replace").split("\t") for _, line in islice(records(path), CHECKED_ROWS) if line)
    if seem_swapped(((row[0], row[1]) for row in rows if len(row) == 2), src_lang, tgt_lang):
        raise DataError(
            f"{path}: its first column seems to be {tgt_lang} and its second {src_lang}; name them in a first line, "
            f"{tgt_lang}<TAB>{src_lang}"
        )


def tsv_columns(path: Path, fields: list[bytes], src_lang: str, tgt_lang: str) -> tuple[int, int] | None:
    """Returns `header_columns` of a first line. Raises DataError where it does not say which column is which."""
    try:
        return header_columns([field.decode(errors="replace") for field in fields], src_lang, tgt_lang)
    except ValueError as error:
        raise DataError(
            f"{path}: {error}; write {src_lang} and {tgt_lang} over the columns, or remove that line if source comes "
            "first"
        ) from None


def json_record(line: bytes | None, langs: tuple[str, ...]) -> tuple[dict, list[str]] | None:
    """Returns a line's JSON object and its texts of these languages, by language or under `translation`.

    Returns None if a line does not have them; never raises.
    """
    try:
        record = json.loads(line or b"")
        texts = [record.get("translation", record)[lang] for lang in langs]
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
        return None
    return (record, texts) if all(isinstance(text, str) for text in texts) else None


def _read_jsonl(path: Path, src_lang: str, tgt_lang: str) -> Iterator[Numbered]:
    for number, line in records(path):
        found = json_record(line, (src_lang, tgt_lang))
        if found:
            # A lone surrogate, which JSON can hold, becomes invalid UTF-8, which cleaning drops.
            src, tgt = (text.replace("\n", " ").encode(errors="surrogatepass") for text in found[1])
            yield number, src, tgt
        elif line is not None and not line.strip() and number > 1:
            yield number, b"", b""
        elif number == 1:
            raise DataError(
                f"{path}: line {number} is no JSON object with two texts, "
                f'{{"{src_lang}": "...", "{tgt_lang}": "..."}}; correct or remove it'
            )
        else:
            yield number, Flaw(b"too_many_bytes" if line is None else b"not_json"), b""


def _read_tmx(path: Path, src_lang: str, tgt_lang: str) -> Iterator[Numbered]:
    incomplete, seen = 0, set()
    pairs = 0
    for unit in read_units(path, (src_lang, tgt_lang)):
        seen |= unit.languages
        if unit.flaw:
            yield unit.line, Flaw(unit.flaw.encode()), b""
        elif len(unit.texts) == 2:
            pairs += 1
            yield unit.line, unit.texts[src_lang].encode(), unit.texts[tgt_lang].encode()
        else:
            incomplete += 1
    if not pairs and seen:
        raise DataError(
            f"{path}: there are no pairs of {src_lang} and {tgt_lang} in it; its languages are "
            f"{', '.join(sorted(seen)[:20])}"
        )
    if incomplete:
        log.info("%s: %d units without %s or %s left out", path, incomplete, src_lang, tgt_lang)


READERS = {"tsv": _read_tsv, "jsonl": _read_jsonl, "tmx": _read_tmx}
