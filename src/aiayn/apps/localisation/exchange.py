"""Files in which translators exchange texts: translation memories (TMX 1.4) and XLIFF 1.2 and 2.

They are untrusted input: nothing is fetched, and a file that declares entities is refused.
"""

import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO
from xml.parsers import expat

from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from aiayn.apps.documents.markup import Token, divided
from aiayn.data.languages import best_match
from aiayn.data.placeholders import CJK
from aiayn.errors import DataError, one_line

# In TMX: mark-up of the original document, not text; inside may be <sub>
CODES = {"bpt", "ept", "it", "ph", "ut"}
LANG = "{http://www.w3.org/XML/1998/namespace}lang"
UNITS = ("trans-unit", "segment")  # of XLIFF 1.2 and 2
OPEN_STATES = ("new", "needs-translation", "initial")  # of a target that is no translation yet
STATE = re.compile(
    r"""(<(?:[\w.-]+:)?(?:target|segment)\b(?:[^"'>]|"[^"]*"|'[^']*')*?\sstate\s*=\s*["'])[^"']*"""
)
# In XLIFF: elements around text; others are codes, and so is all that is in them
PAIRED = ("g", "mrk", "pc", "sub")
# Codes that begin or end something, with the code of the same number as its other half.
HALVES = {"bpt": "open", "bx": "open", "sc": "open", "sm": "open"}
HALVES |= dict.fromkeys(("ept", "ex", "ec", "em"), "close")
MAX_DEPTH = 200
TAG = re.compile(rb"<(?:[^>\"']|\"[^\"]*\"|'[^']*')*+>")
NOT_TEXT = re.compile(r"(<!--.*?-->|<\?.*?\?>)", re.DOTALL)
CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
# In XLIFF with xml:space="preserve", what is between texts
LINE_END = r"(?:\r?\n|[\x85\u2028\u2029]|&#(?:0*1[03]|[xX]0*[aAdD]);)"
LAYOUT = re.compile(
    rf"([ \t]*{LINE_END}(?:\s|{LINE_END})*|(?:\t|&#(?:0*9|[xX]0*9);)[ \t]*|[ \t]{{2,}})"
)
CODE = "\0"  # stands for a code in a text; XML cannot hold it


def without_codes(text: str) -> str:
    """Returns a text in which `CODE` stands for codes as a line without them.

    One between two letters is a blank: `Click<ph/>here` are two words. Chinese and Japanese get
    none.
    """
    text = re.sub(
        rf"(?<=\w){CODE}+(?=\w)", " ", re.sub(f"(?<=[{CJK}]){CODE}+(?=[{CJK}])", "", text)
    ).replace(CODE, "")
    return re.sub(r"(?<![ \t])[ \t]*\n[ \t]*", " ", text).strip()


@dataclass
class MemoryUnit:
    """A unit (tu) with variants (tuv) in several languages; the first variant of a language that is
    not empty counts.
    """

    line: int  # that it begins in
    name: str | None  # its tuid
    texts: dict[str, str] = field(default_factory=dict)  # by the language asked for
    languages: set[str] = field(default_factory=set)  # all, as they are written
    flaw: str = ""


def read_memory(path: Path, content: BinaryIO, langs: tuple[str, ...]) -> Iterator[MemoryUnit]:
    """Streams the units of a translation memory with their text in these languages; see
    `best_match`.

    Raises DataError with the line if it is no such file.
    """
    # Without DTDs no entity can be declared, and none expands.
    safe = {"resolve_entities": False, "no_network": True, "load_dtd": False}
    elements = etree.iterparse(content, ("start", "end"), tag="{*}tu", **safe)
    try:
        for event, tu in elements:
            # Beyond 65,535 libxml2 knows only where the first text of an element ends.
            line = tu.sourceline - (tu.sourceline > 65_535) * next(tu.itertext(), "").count("\n")
            where = f"{path}: line {line}"
            if event == "start":
                dtd = tu.getroottree().docinfo.internalDTD
                if dtd is not None and list(dtd.entities()):
                    raise DataError(
                        f"{path}: custom XML entities are not supported; remove their declarations"
                    )
                if next(tu.iterancestors("{*}tu"), None) is not None:
                    raise DataError(f"{where}: a tu element inside another one; correct it")
                continue
            if (entity := next(tu.iter(etree.Entity), None)) is not None:
                raise DataError(
                    f"{where}: {entity.text}: this entity is not supported; write its character "
                    "instead"
                )
            yield _memory_unit(tu, line, langs)
            tu.clear()
            while tu.getprevious() is not None:
                del tu.getparent()[0]
    except etree.XMLSyntaxError as error:
        errors = [(entry.message, entry.line) for entry in elements.error_log] or [
            (error.msg, error.lineno)
        ]
        message, line = one_line(errors[0][0]), errors[0][1]
        raise DataError(
            f"{path}: line {line} is not well-formed XML ({message:.200}); correct it"
        ) from error


def _memory_unit(tu: etree._Element, line: int, langs: tuple[str, ...]) -> MemoryUnit:
    unit = MemoryUnit(line, tu.get("tuid"))
    for tuv in tu.iterchildren("{*}tuv"):
        code = tuv.get(LANG) or tuv.get("lang") or ""
        unit.languages.add(code[:20])
        lang = best_match(code, langs)
        if lang is None or unit.texts.get(lang):
            continue
        segments = list(tuv.iterchildren("{*}seg"))
        if len(segments) > 1:
            unit.flaw = "two_segments"
        unit.texts[lang] = without_codes(_segment_text(segments[0])) if segments else ""
    return unit


def _segment_text(seg: etree._Element) -> str:
    parts = [seg.text or ""]
    for child in seg:
        is_code = not isinstance(child.tag, str) or etree.QName(child).localname in CODES
        parts += [CODE if is_code else _segment_text(child), child.tail or ""]
    return "".join(parts)


@dataclass
class Node:
    """An element of XML, and where it is in the file's bytes."""

    tag: str
    attributes: dict[str, str]
    line: int
    start: int  # of its opening tag
    inner: int  # after that
    stop: int = 0  # before its closing tag
    end: int = 0  # after that; an empty element ends where its one tag does
    children: list["Node"] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Returns the tag without its prefix."""
        return self.tag.rpartition(":")[2]

    def child(self, name: str) -> "Node | None":
        return next((child_node for child_node in self.children if child_node.name == name), None)


@dataclass
class XliffUnit:
    """A text with its translation, and the bytes of the file, between two tags, that a new
    translation replaces.
    """

    line: int
    languages: tuple[str, str]  # of source and target as the file says, or ""
    source: list[Token]
    text: str  # of the source, without codes
    translation: str  # empty if there is none
    span: tuple[int, int]
    tags: tuple[str, str]  # and what comes before them, which says that it is translated
    is_kept: bool  # it says translate="no"
    is_partial: bool  # only some of its segments have a translation


def read_xliff(content: bytes, path: Path) -> Iterator[XliffUnit]:
    """Yields the units of a file in UTF-8. Raises DataError if it is no XLIFF."""
    root = _parse_xml(content, path)
    if root.name != "xliff":
        raise DataError(
            f"{path}: not an XLIFF file, it begins with <{root.name:.40}>; check the file"
        )
    waiting: list[tuple[Node, dict[str, str]]] = [(root, {})]
    while waiting:
        node, inherited = waiting.pop()
        attributes = inherited | node.attributes
        if node.name not in UNITS:
            waiting += [(child, attributes) for child in reversed(node.children)]
        elif source := node.child("source"):
            yield _xliff_unit(node, source, content, attributes)


def _parse_xml(content: bytes, path: Path) -> Node:
    """Returns the root of an XML file in UTF-8. Raises DataError with the line if it is not
    well-formed.
    """
    parser = expat.ParserCreate("utf-8")
    open_nodes = [Node("", {}, 0, 0, 0)]

    def after_tag(start: int) -> int:
        tag = TAG.match(content, start)
        assert tag is not None
        return tag.end()

    def start(name: str, attributes: dict[str, str]) -> None:
        line, byte_index = parser.CurrentLineNumber, parser.CurrentByteIndex
        node = Node(name, attributes, line, byte_index, after_tag(byte_index))
        open_nodes[-1].children.append(node)
        if len(open_nodes) > MAX_DEPTH:
            raise DataError(
                f"{path}: line {line} is nested {MAX_DEPTH} elements deep; choose an XLIFF file"
            )
        open_nodes.append(node)

    def end(name: str) -> None:
        node, byte_index = open_nodes.pop(), parser.CurrentByteIndex
        is_empty = content[node.inner - 2 : node.inner] == b"/>"
        node.stop, node.end = (
            (node.inner, node.inner) if is_empty else (byte_index, after_tag(byte_index))
        )

    def refuse(*_: object) -> None:
        raise DataError(f"{path}: custom XML entities are not supported; remove their declarations")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        message = expat.ErrorString(error.code)
        raise DataError(
            f"{path}: line {error.lineno} is not well-formed XML ({message}); correct it"
        ) from None
    return open_nodes[0].children[0]


def _xliff_unit(node: Node, source: Node, content: bytes, attributes: dict[str, str]) -> XliffUnit:
    """Returns the unit of an element; `attributes` are its own and those of the elements around
    it.
    """
    src, tgt = (
        next(filter(None, map(attributes.get, names)), "")
        for names in (("source-language", "srcLang"), ("target-language", "trgLang"))
    )
    target = node.child("target")
    segments = node.child("seg-source") or source
    tokens = list(_coded_tokens(segments, content))
    if (attributes | source.attributes).get("xml:space") == "preserve":
        tokens = list(_with_layout(tokens))
    state = (target.attributes.get("state") if target else None) or node.attributes.get("state")
    is_translated = target is not None and state not in OPEN_STATES
    # The translation is written between these bytes and tags.
    if target is None:
        start = stop = segments.end
        preceding = content[max(source.start - 200, 0) : source.start]
        blank = preceding[len(preceding.rstrip()) :].decode()
        name = source.tag.removesuffix("source") + "target"
        opening, closing = f"{blank}<{name}>", f"</{name}>"
    elif target.inner == target.end:  # <target/>
        start, stop = target.start, target.end
        opening = content[start:stop].decode()[:-2].rstrip() + ">"
        closing = f"</{target.tag}>"
    else:
        start, stop = target.inner, target.stop
        opening = closing = ""
    # Only in the tags: a source may have such text in CDATA.
    after_source = target.start if target else start
    before = "".join(
        (
            STATE.sub(r"\1translated", content[node.start : node.inner].decode()),
            content[node.inner : after_source].decode(),
            STATE.sub(r"\1translated", content[after_source:start].decode() + opening),
        )
    )
    return XliffUnit(
        line=node.line,
        languages=(src, tgt),
        source=tokens,
        text=_text_without_codes(source, content),
        translation=_text_without_codes(target, content) if target and is_translated else "",
        span=(node.start, stop),
        tags=(before, closing),
        is_kept=attributes.get("translate") == "no",
        is_partial=target is not None
        and any(
            child.attributes.get("mtype") == "seg" and not _text_without_codes(child, content)
            for child in target.children
        ),
    )


def _text_without_codes(node: Node, content: bytes) -> str:
    """Returns the text of an element without codes; one between two letters is a blank."""
    tokens = _coded_tokens(node, content)
    parts = [
        raw if token_type == "text" else CODE * (token_type == "alone" or name[:1] == CODE)
        for token_type, name, raw in tokens
    ]
    return without_codes(html.unescape("".join(parts)))


def _coded_tokens(node: Node, content: bytes) -> Iterator[Token]:
    """Yields what is in an element as tokens of mark-up: text, open, close, alone, keep or
    other.
    """
    start = node.inner
    for child in node.children:
        yield from _text_tokens(content[start : child.start].decode())
        attributes, start = child.attributes, child.end
        if child.name in PAIRED and child.inner < child.end:
            is_segment = attributes.get("mtype") == "seg"
            is_kept = attributes.get("mtype") == "protected" or attributes.get("translate") == "no"
            begin = "other" if is_segment else "keep" if is_kept else "open"
            yield begin, child.name, content[child.start : child.inner].decode()
            yield from _coded_tokens(child, content)
            end = "other" if is_segment else "close"
            yield end, child.name, content[child.stop : child.end].decode()
            continue
        raw = content[child.start : child.end].decode()
        if child.name in HALVES:
            pair_id = attributes.get("rid") or attributes.get("startRef") or attributes.get("id")
            is_kept = child.name == "sm" and attributes.get("translate") == "no"
            yield "keep" if is_kept else HALVES[child.name], f"{CODE}{pair_id}", raw
        else:
            yield "alone", child.name, raw
    yield from _text_tokens(content[start : node.stop].decode())


def _with_layout(tokens: Iterable[Token]) -> Iterator[Token]:
    """Yields tokens whose line ends, tabs and wide blanks end a sentence, and so stay."""
    for token_type, name, raw in tokens:
        stretches = divided(LAYOUT, raw) if token_type == "text" else [(raw, False)]
        for stretch, is_layout in stretches:
            yield ("other", "", stretch) if is_layout else (token_type, name, stretch)


def _text_tokens(raw: str) -> Iterator[Token]:
    raw = CDATA.sub(lambda cdata: html.escape(cdata[1], quote=False), raw)
    for stretch, is_markup in divided(NOT_TEXT, raw):
        yield "alone" if is_markup else "text", "", stretch
