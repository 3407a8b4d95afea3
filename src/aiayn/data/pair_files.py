"""Parallel text in one file: tab-separated columns (.tsv), JSON lines (.jsonl) or a translation memory (.tmx).

All of them may be packed (.gz). A line feed inside a text becomes a space, because a sentence is one line.
"""

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.parsers import expat

from aiayn.data.cleaning import MAX_LINE_BYTES
from aiayn.data.text_files import lines, opened
from aiayn.errors import DataError

log = logging.getLogger(__name__)

Numbered = tuple[int, bytes, bytes]  # line of the file, source, target

RECORD_BYTES = 1 << 20  # of a line, or of a tag: enough for two sentences and what a corpus notes beside them
BLOCK = 1 << 16
CODES = {"bpt", "ept", "it", "ph", "ut"}  # of a translation memory: markup of the original document, not text
DEPTH = 64  # of elements in each other


def pair_file_kind(name: str) -> str | None:
    """Returns tsv, jsonl or tmx by a file's name, None for any other."""
    ending = Path(name.removesuffix(".gz")).suffix.removeprefix(".")
    return ending if ending in READERS else None


def read_pair_file(path: Path, src_lang: str, tgt_lang: str) -> Iterator[Numbered]:
    """Streams the pairs of a file with the line that each begins in.

    Raises DataError with file and line for what is not of the file's kind, and if there is no pair at all.
    """
    empty = True
    for pair in READERS[pair_file_kind(path.name)](path, src_lang, tgt_lang):
        empty = False
        yield pair
    if empty:
        raise DataError(f"{path}: there are no pairs of {src_lang} and {tgt_lang} in it")


def _records(path: Path) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(lines(path, RECORD_BYTES), 1):
        if len(line) >= RECORD_BYTES - 1:
            raise DataError(f"{path}: line {number} is longer than {RECORD_BYTES:,} bytes; remove it")
        yield number, line


def _read_tsv(path: Path, src_lang: str, tgt_lang: str) -> Iterator[Numbered]:
    """Columns are named by a first line that has both languages; without one there are two, source and target.

    A quotation mark is text like any other: one that opens a sentence must not swallow the lines up to the next.
    """
    width, src, tgt = 2, 0, 1
    for number, line in _records(path):
        fields = line.split(b"\t")
        if number == 1 and {src_lang.encode(), tgt_lang.encode()} <= set(fields):
            width, src, tgt = len(fields), fields.index(src_lang.encode()), fields.index(tgt_lang.encode())
        elif not line:
            yield number, b"", b""
        elif len(fields) == width:
            yield number, fields[src], fields[tgt]
        else:
            raise DataError(
                f"{path}: line {number} has {len(fields)} columns instead of {width}; correct it, or name the columns "
                f"in the first line, {src_lang} and {tgt_lang} among them"
            )


def _read_jsonl(path: Path, src_lang: str, tgt_lang: str) -> Iterator[Numbered]:
    for number, line in _records(path):
        try:
            record = json.loads(line)
            record = record.get("translation", record)
            pair = [record[lang] for lang in (src_lang, tgt_lang)]
        except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
            pair = []
        if not pair or not all(isinstance(text, str) for text in pair):
            raise DataError(
                f"{path}: line {number} is no JSON object with two texts, "
                f'{{"{src_lang}": "...", "{tgt_lang}": "..."}}; correct or remove it'
            )
        # Half of a character, which JSON can hold, becomes bytes that are not UTF-8: cleaning drops them.
        yield number, *(text.replace("\n", " ").encode(errors="surrogatepass") for text in pair)


def _read_tmx(path: Path, src_lang: str, tgt_lang: str) -> Iterator[Numbered]:
    memory = _TranslationMemory(path, src_lang, tgt_lang)
    with opened(path) as stream:
        while block := stream.read(BLOCK):
            yield from memory.parse(block)
    yield from memory.parse(b"")
    if memory.incomplete:
        log.info("%s: %d units without %s or %s left out", path, memory.incomplete, src_lang, tgt_lang)


class _TranslationMemory:
    """Reads the units (tu) of a translation memory: variants (tuv) in several languages, each a segment (seg) of text.

    Such files come from strangers. expat fetches nothing by itself; entities other than those of XML are refused, and
    no more than a tag or a segment is held in memory.
    """

    def __init__(self, path: Path, src_lang: str, tgt_lang: str):
        self.path = path
        self.langs = (src_lang, tgt_lang)
        self.incomplete = 0  # units that lack one of the languages
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        self._parser.EntityDeclHandler = self._parser.SkippedEntityHandler = self._refuse_entity
        self._fed = self._depth = self._codes = self._line = self._size = 0
        self._unit: dict[str, str] = {}
        self._lang: str | None = None  # of the variant, if it is one of the two and the unit's first of it
        self._segment: list[str] | None = None
        self._found: list[Numbered] = []

    def parse(self, block: bytes) -> list[Numbered]:
        """Returns the pairs that end in the next bytes of the file; no bytes mean its end."""
        self._found = []
        try:
            self._parser.Parse(block, not block)
        except expat.ExpatError as error:
            raise DataError(
                f"{self.path}: line {error.lineno} is not well-formed XML ({expat.ErrorString(error.code)}); correct it"
            ) from error
        self._fed += len(block)
        if block and self._fed - self._parser.CurrentByteIndex > RECORD_BYTES:
            raise self._error("a tag is longer than a text can be")
        return self._found

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > DEPTH:
            raise self._error(f"more than {DEPTH} elements in each other")
        if name == "tu":
            self._unit, self._line = {}, self._parser.CurrentLineNumber
        elif name == "tuv":
            lang = attributes.get("xml:lang", attributes.get("lang", "")).lower().replace("_", "-")
            # en matches en-US, but pt-BR only itself.
            matching = [own for own in self.langs if lang == own.lower() or lang.startswith(f"{own.lower()}-")]
            self._lang = next((own for own in matching if own not in self._unit), None)
        elif name == "seg" and self._lang:
            self._segment, self._codes, self._size = [], 0, 0
        self._codes += name in CODES

    def _end(self, name: str) -> None:
        self._depth -= 1
        self._codes -= name in CODES
        if name == "seg" and self._segment is not None:
            self._unit[self._lang] = re.sub(r"[ \t]*\n[ \t]*", " ", "".join(self._segment)).strip()
            self._segment = None
        elif name == "tuv":
            self._lang = None
        elif name == "tu" and len(self._unit) == 2:
            self._found.append((self._line, *(self._unit[lang].encode() for lang in self.langs)))
        elif name == "tu":
            self.incomplete += 1

    def _text(self, text: str) -> None:
        # A segment that is too long already is dropped when it is cleaned: it need not be held to its end.
        if self._segment is not None and not self._codes and self._size <= MAX_LINE_BYTES:
            self._segment.append(text)
            self._size += len(text)

    def _refuse_entity(self, name: str, *_: Any) -> None:
        raise self._error(f"entity {name}: none but those of XML itself are read")

    def _error(self, reason: str) -> DataError:
        return DataError(f"{self.path}: line {self._parser.CurrentLineNumber}: {reason}; correct the file")


READERS = {"tsv": _read_tsv, "jsonl": _read_jsonl, "tmx": _read_tmx}
