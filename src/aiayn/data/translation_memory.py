"""Translation memories (TMX 1.4): units (tu) of variants (tuv) in several languages, each a segment (seg) of text.

Such files are untrusted input. expat fetches nothing by itself; entities other than those of XML are refused, and no
more than a tag or a segment is held in memory.
"""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO
from xml.parsers import expat

from aiayn.data.cleaning import MAX_LINE_BYTES
from aiayn.data.languages import best_match
from aiayn.data.text_files import opened
from aiayn.errors import DataError

READ_BYTES = 1 << 16
TAG_BYTES = 1 << 20
CODES = {"bpt", "ept", "it", "ph", "ut"}  # markup of the original document, not text
DEPTH = 64  # nested elements
DECLARATION = re.compile(rb"""^\s*<\?xml[^>]*?encoding\s*=\s*["']([A-Za-z0-9._:-]+)["']""")
MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


@dataclass
class Unit:
    """A unit; of each language the first variant counts."""

    line: int  # that it begins in
    name: str | None  # its tuid
    texts: dict[str, str] = field(default_factory=dict)  # by the language asked for
    languages: set[str] = field(default_factory=set)  # all, as they are written
    flaw: str | None = None


def read_units(path: Path, langs: tuple[str, ...]) -> Iterator[Unit]:
    """Streams the units of a file with their text in these languages; en-US counts as en unless it is one of them.

    Raises DataError with the line if the file is no translation memory, has an encoding that Python does not know, or
    has units inside each other.
    """
    reader = _Reader(path, langs)
    with opened(path) as stream:
        for text in _decoded(path, stream):
            yield from reader.parse(text)
    yield from reader.parse("", is_end=True)


def _decoded(path: Path, stream: BinaryIO) -> Iterator[str]:
    """Yields the text of an XML file, decoded as its mark or its declaration says: expat knows few encodings itself."""
    start = stream.read(READ_BYTES)
    declared = DECLARATION.match(start)
    encoding = next((name for mark, name in MARKS if start.startswith(mark)), None)
    if encoding is None and start[:2] in (b"<\0", b"\0<"):
        encoding = "utf-16-le" if start[:1] == b"<" else "utf-16-be"
    encoding = encoding or (declared[1].decode() if declared else "utf-8")
    try:
        "".encode(encoding)  # also refuses codecs that do not encode text, such as base64
        decoder = codecs.getincrementaldecoder(encoding)()
    except (LookupError, UnicodeError) as error:
        raise DataError(f"{path}: unknown encoding {encoding}; convert the file: iconv -t UTF-8") from error
    line, block = 1, start
    while True:
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeError as error:
            raise DataError(f"{path}: line {line} or one soon after it is not {encoding}; convert the file") from error
        line += text.count("\n")
        yield text
        if not block:
            return
        block = stream.read(READ_BYTES)


class _Reader:
    """Collects units from the events of expat."""

    def __init__(self, path: Path, langs: tuple[str, ...]):
        self.path, self.langs = path, langs
        self._parser = expat.ParserCreate("utf-8")
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        self._parser.EntityDeclHandler = self._parser.SkippedEntityHandler = self._refuse_entity
        self._fed = self._depth = self._codes = self._size = self._segments = 0
        self._unit: Unit | None = None
        self._lang: str | None = None  # language of the current variant, if it is wanted and the first of the unit
        self._segment: list[str] | None = None
        self._found: list[Unit] = []

    def parse(self, text: str, is_end: bool = False) -> list[Unit]:
        """Returns the units that end in the next part of the file."""
        self._found = []
        block = text.encode(errors="replace")
        try:
            self._parser.Parse(block, is_end)
        except expat.ExpatError as error:
            raise DataError(
                f"{self.path}: line {error.lineno} is not well-formed XML ({expat.ErrorString(error.code)}); correct it"
            ) from error
        self._fed += len(block)
        if block and self._fed - self._parser.CurrentByteIndex > TAG_BYTES:
            raise self._error("a tag is longer than a text can be")
        return self._found

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > DEPTH:
            raise self._error(f"more than {DEPTH} elements in each other")
        if name == "tu":
            if self._unit:
                raise self._error(f"a unit (tu) inside the one of line {self._unit.line}")
            self._unit = Unit(self._parser.CurrentLineNumber, attributes.get("tuid"))
        elif name == "tuv" and self._unit:
            code = attributes.get("xml:lang", attributes.get("lang", ""))
            self._unit.languages.add(code[:20])
            lang = best_match(code, self.langs)
            self._lang = lang if lang not in self._unit.texts else None
            self._segments = 0
        elif name == "seg" and self._unit and self._lang:
            self._segments += 1
            if self._segments > 1:
                self._unit.flaw = "two_segments"
            self._segment, self._codes, self._size = [], 0, 0
        self._codes += name in CODES

    def _end(self, name: str) -> None:
        self._depth -= 1
        self._codes -= name in CODES
        if name == "seg" and self._segment is not None and self._unit and self._lang:
            self._unit.texts[self._lang] = re.sub(r"[ \t]*\n[ \t]*", " ", "".join(self._segment)).strip()
            self._segment = None
        elif name == "tuv":
            self._lang = None
        elif name == "tu" and self._unit:
            self._found.append(self._unit)
            self._unit = None

    def _text(self, text: str) -> None:
        # A segment that is too long already is dropped when it is cleaned: it need not be held to its end.
        if self._segment is not None and not self._codes and self._size <= MAX_LINE_BYTES:
            self._segment.append(text)
            self._size += len(text)

    def _refuse_entity(self, name: str, *_: Any) -> None:
        raise self._error(f"entity {name}: none but those of XML itself are read")

    def _error(self, reason: str) -> DataError:
        return DataError(f"{self.path}: line {self._parser.CurrentLineNumber}: {reason}; correct the file")
