"""XLIFF 1.2 and 2: units of a source and its translation, with inline elements in both.

Such files are untrusted input: nothing is fetched, and a file that declares entities is refused.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from aiayn.data.translation_memory import CODE, without_codes
from aiayn.errors import DataError

UNITS = ("trans-unit", "segment")  # of XLIFF 1.2 and 2
OPEN_STATES = ("new", "needs-translation", "initial")  # of a target that is no translation yet
MAX_DEPTH = 200
PAIRED = ("g", "mrk", "pc", "sub")  # inline elements around text; others are codes, and so is all that is in them
NOT_TEXT = re.compile(r"(<!--.*?-->|<\?.*?\?>)", re.DOTALL)
CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
Languages = tuple[str, str]  # of source and target as the file says, or ""


@dataclass
class Node:
    """An element, and where it is in the file's bytes."""

    name: str  # without its prefix
    attributes: dict[str, str]
    line: int
    start: int  # of its opening tag
    inner: int  # after that
    stop: int = 0  # before its closing tag
    end: int = 0  # after that
    children: list["Node"] = field(default_factory=list)

    def child(self, name: str) -> "Node | None":
        return next((one for one in self.children if one.name == name), None)


@dataclass
class Unit:
    """A text and its translation, and what a translation of it replaces: bytes of the file, between two tags."""

    line: int
    languages: Languages
    source: list[tuple[str, str, str]]  # tokens (kind, name, raw) as those of mark-up
    text: str  # of the source, without codes
    translation: str  # empty if there is none
    span: tuple[int, int]
    tags: tuple[str, str]
    is_kept: bool  # it says translate="no"


def parse(content: bytes, path: Path) -> Node:
    """Returns the root of an XML file in UTF-8. Raises DataError with the line if it is not well-formed."""
    parser = expat.ParserCreate("utf-8")
    open_nodes = [Node("", {}, 0, 0, 0)]
    waiting: list[tuple[Node, str]] = []  # whose tag ends where the next event begins

    def here(*_: object) -> None:
        while waiting:
            setattr(*waiting.pop(), parser.CurrentByteIndex)

    def start(name: str, attributes: dict[str, str]) -> None:
        here()
        node = Node(name.rpartition(":")[2], attributes, parser.CurrentLineNumber, parser.CurrentByteIndex, 0)
        open_nodes[-1].children.append(node)
        if len(open_nodes) > MAX_DEPTH:
            raise DataError(f"{path}: line {node.line} has {MAX_DEPTH} elements in each other; this is no XLIFF")
        open_nodes.append(node)
        waiting.append((node, "inner"))

    def end(name: str) -> None:
        node = open_nodes.pop()
        is_empty = parser.CurrentByteIndex == node.start
        if not is_empty:
            here()
        node.stop = parser.CurrentByteIndex
        waiting.append((node, "end"))

    def refuse(*_: object) -> None:
        raise DataError(f"{path}: it declares entities of its own, which are not read; remove them")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.DefaultHandler, parser.EntityDeclHandler = here, refuse
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        message = expat.ErrorString(error.code)
        raise DataError(f"{path}: line {error.lineno} is not well-formed XML ({message}); correct it") from None
    while waiting:
        setattr(*waiting.pop(), len(content))
    return open_nodes[0].children[0]


def read_xliff(content: bytes, path: Path) -> Iterator[Unit]:
    """Yields the units of a file in UTF-8. Raises DataError if it is no XLIFF."""
    root = parse(content, path)
    if root.name != "xliff":
        raise DataError(f"{path}: this is no XLIFF, it begins with <{root.name:.40}>; check the file")
    waiting: list[tuple[Node, bool, Languages]] = [(root, False, ("", ""))]
    while waiting:
        node, is_kept, (src, tgt) = waiting.pop()
        given = node.attributes
        src = given.get("source-language") or given.get("srcLang") or src
        tgt = given.get("target-language") or given.get("trgLang") or tgt
        is_kept = given.get("translate", "no" if is_kept else "yes") == "no"
        if node.name not in UNITS:
            waiting += [(child, is_kept, (src, tgt)) for child in reversed(node.children)]
        elif node.child("source"):
            yield _xliff_unit(node, content, is_kept, (src, tgt))


def _xliff_unit(node: Node, content: bytes, is_kept: bool, languages: Languages) -> Unit:
    source, target = node.child("source"), node.child("target")
    assert source is not None
    segments = node.child("seg-source") or source
    state = (target.attributes.get("state") if target else None) or node.attributes.get("state")
    translation = _text_without_codes(target, content) if target and state not in OPEN_STATES else ""
    if target is None:
        before = content[max(source.start - 200, 0) : source.start]
        blank = before[len(before.rstrip()) :].decode()
        name = content[source.start + 1 : source.inner].decode().split(">")[0].split()[0].replace("source", "target")
        span, tags = (segments.end, segments.end), (f"{blank}<{name}>", f"</{name}>")
    elif target.inner == target.end:  # <target/>
        opening = content[target.start : target.end].decode()
        name = opening[1:].rstrip("/>").split()[0]
        span, tags = (target.start, target.end), (f"{opening[:-2].rstrip()}>", f"</{name}>")
    else:
        span, tags = (target.inner, target.stop), ("", "")
    tokens = list(_coded_tokens(segments, content))
    return Unit(node.line, languages, tokens, _text_without_codes(source, content), translation, span, tags, is_kept)


def _text_without_codes(node: Node, content: bytes) -> str:
    """Returns the text of an element without codes; one between two letters is a blank."""
    parts = [raw if kind == "text" else CODE * (kind == "alone") for kind, _, raw in _coded_tokens(node, content)]
    return without_codes(html.unescape("".join(parts)))


def _coded_tokens(node: Node, content: bytes) -> Iterator[tuple[str, str, str]]:
    """Yields what is in an element as tokens of mark-up: text, open, close, alone, keep or other."""
    start = node.inner
    for child in node.children:
        yield from _text_tokens(content[start : child.start].decode())
        attributes, start = child.attributes, child.end
        if child.name not in PAIRED or child.inner == child.end:
            yield "alone", child.name, content[child.start : child.end].decode()
            continue
        is_kept = attributes.get("mtype") == "protected" or attributes.get("translate") == "no"
        is_segment = attributes.get("mtype") == "seg"
        yield (
            "other" if is_segment else "keep" if is_kept else "open",
            child.name,
            content[child.start : child.inner].decode(),
        )
        yield from _coded_tokens(child, content)
        yield "other" if is_segment else "close", child.name, content[child.stop : child.end].decode()
    yield from _text_tokens(content[start : node.stop].decode())


def _text_tokens(raw: str) -> Iterator[tuple[str, str, str]]:
    raw = CDATA.sub(lambda found: html.escape(found[1], quote=False), raw)
    for number, part in enumerate(NOT_TEXT.split(raw)):
        if part:
            yield "alone" if number % 2 else "text", "", part
