"""Translation memories (TMX 1.4): units (tu) of variants (tuv) in several languages, each a segment (seg) of text.

Such files are untrusted input: nothing is fetched, and entities other than those of XML are refused.
"""

import re
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from aiayn.data.text_files import opened
from aiayn.errors import DataError

INLINE = {"bpt", "ept", "it", "ph", "ut"}  # markup of the original document, not text; inside them may be <sub>
CODE = "\0"  # stands for a code in a text; XML cannot hold it
READ_BYTES = 1 << 16
LANG = "{http://www.w3.org/XML/1998/namespace}lang"


@dataclass
class Unit:
    """A unit; of each language the first variant that is not empty counts."""

    line: int  # that it begins in
    name: str | None  # its tuid
    texts: dict[str, str] = field(default_factory=dict)  # by the language asked for
    languages: set[str] = field(default_factory=set)  # all, as they are written
    flaw: str = ""


def normal_code(name: str) -> str:
    """Returns a language code in lower case with hyphens: pt_BR is pt-br."""
    return name.strip().casefold().replace("_", "-")


def best_match(code: str, langs: tuple[str, ...]) -> str | None:
    """Returns which of these languages a code stands for: itself, else the one that it is a variant of, else None.

    en-GB is en, but if en-GB itself is one of them, that one.
    """
    code, own = normal_code(code), {normal_code(lang): lang for lang in langs}
    variants = [lang for lang in own if code.startswith(f"{lang}-")]
    return own.get(code) or own.get(max(variants, key=len, default=""))


def read_units(path: Path, langs: tuple[str, ...], content: BinaryIO | None = None) -> Iterator[Unit]:
    """Streams the units of a file with their text in these languages; en-US counts as en unless it is one of them.

    With `content` that is read, and the file is only named.

    Raises DataError with the line if the file is no translation memory.
    """
    # Without DTDs no entity can be declared, and none expands.
    parser = etree.XMLPullParser(("start", "end"), resolve_entities=False, no_network=True, load_dtd=False)
    with nullcontext(content) if content else opened(path) as stream:
        try:
            while block := stream.read(READ_BYTES):
                parser.feed(block)
                yield from _units(path, parser, langs)
            parser.close()
            yield from _units(path, parser, langs)
        except etree.XMLSyntaxError as error:
            said = [(entry.message, entry.line) for entry in parser.feed_error_log] or [(error.msg, error.lineno)]
            message, line = " ".join(str(said[0][0]).split()), said[0][1]
            raise DataError(f"{path}: line {line} is not well-formed XML ({message:.200}); correct it") from error


def _units(path: Path, parser: etree.XMLPullParser, langs: tuple[str, ...]) -> Iterator[Unit]:
    """Yields the units that have ended, and forgets them."""
    for event, element in parser.read_events():
        if not isinstance(element.tag, str) or etree.QName(element).localname != "tu":
            continue
        where = f"{path}: line {element.sourceline}"
        if event == "start":
            dtd = element.getroottree().docinfo.internalDTD
            if dtd is not None and list(dtd.entities()):
                raise DataError(f"{path}: it declares entities of its own, which are not read; remove them")
            if next(element.iterancestors("{*}tu"), None) is not None:
                raise DataError(f"{where}: a unit (tu) inside another; correct it")
            continue
        if (entity := next(element.iter(etree.Entity), None)) is not None:
            raise DataError(f"{where}: {entity.text}: none but the entities of XML are read; correct it")
        yield _unit(element, langs)
        element.clear()
        while element.getprevious() is not None:
            del element.getparent()[0]


def _unit(tu: etree._Element, langs: tuple[str, ...]) -> Unit:
    unit = Unit(tu.sourceline or 0, tu.get("tuid"))
    for tuv in tu.iterchildren("{*}tuv"):
        code = tuv.get(LANG) or tuv.get("lang") or ""
        unit.languages.add(code[:20])
        lang = best_match(code, langs)
        if lang is None or unit.texts.get(lang):
            continue
        segments = list(tuv.iterchildren("{*}seg"))
        if len(segments) > 1:
            unit.flaw = "two_segments"
        unit.texts[lang] = without_codes(_text(segments[0])) if segments else ""
    return unit


def _text(seg: etree._Element) -> str:
    parts = [seg.text or ""]
    for child in seg:
        is_code = not isinstance(child.tag, str) or etree.QName(child).localname in INLINE
        parts += [CODE if is_code else _text(child), child.tail or ""]
    return "".join(parts)


def without_codes(text: str) -> str:
    """Returns a text in which `CODE` stands for codes as a line without them.

    One between two letters is a blank: `Click<ph/>here` are two words.
    """
    text = re.sub(rf"(?<=\w){CODE}+(?=\w)", " ", text).replace(CODE, "")
    return re.sub(r"[ \t]*\n[ \t]*", " ", text).strip()
