"""Mark-up in a text: tags are taken out, so that the model sees sentences; `placement` puts them back.

`html.parser` reads the text as a whole, be it a page of HTML or a line with tags. Text between two tags that end a
sentence is a part to translate, and everything else is copied.
"""

import html
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser

from aiayn.data.placeholders import PLACEHOLDER, PLACEHOLDER_LENGTH, changes_placeholders

# Tags that end a sentence: what is between two of them is translated by itself.
BLOCK_NAMES = (
    "address article aside blockquote body br caption col colgroup dd details dialog div dl dt fieldset figcaption "
    "figure footer form h1 h2 h3 h4 h5 h6 head header hgroup hr html iframe legend li main menu nav noembed "
    "noframes noscript ol optgroup option p pre script section select style summary table tbody td textarea tfoot th "
    "thead title tr ul xmp"
)
BLOCKS = frozenset(BLOCK_NAMES.split())
# Elements that stay as they are, with all that is in them. What is written in the second ones is part of a sentence.
KEPT = frozenset(
    ["address", "iframe", "math", "noembed", "noframes", "pre", "script", "style", "svg", "textarea", "xmp"]
)
KEPT_WORDS = frozenset(["code", "kbd", "samp", "time", "var"])
RAW_TEXT = frozenset(["textarea", "title", "xmp", "iframe", "noembed", "noframes"])  # tags in them are text
EMPTY = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "meta", "param", "source", "track", "wbr"]
)
# Templates may have anything in them, and stand in tags: `<p {% if a > b %}class="x"{% endif %}>`.
TEMPLATE = re.compile(r"\{%[^{}%]{1,100}%\}|\{\{[^{}]{1,100}\}\}|<%(?:(?!%>).){1,200}%>", re.DOTALL)
# In text: tags of templates, of XML whose names no HTML has, and tags of HTML that is shown instead of used.
TEXT_TAG = re.compile(
    r"(\{%[^{}%]{1,100}%\}|\{\{(?=[^{}]{0,100}[<>&])[^{}]{1,100}\}\}|<%(?:(?!%>)(?s:.)){1,200}%>"
    r"|</?_[^<>]*>|&lt;/?[A-Za-z](?:(?!&[lg]t;)[^<>])*&gt;)"
)
NAME = re.compile(r"(?:<|&lt;|\{%-?\s*|\{\{)(end|/?)(\w*)")


@dataclass
class Element:
    """A tag and its closing tag, if it has one, or an element that stays as it is."""

    first: int  # of the part's tags: its own, and the closing one or the same
    last: int
    start: int  # characters of the part's text that it is around
    stop: int
    keeps: bool = False  # it replaces the words that it is around
    before: bool = False  # there is a blank before it, and after it
    after: bool = False
    children: list["Element"] = field(default_factory=list)


@dataclass(frozen=True)
class Part:
    """A text to translate, without its tags and without white space around it."""

    text: str
    tags: list[str] = field(default_factory=list)
    elements: list[Element] = field(default_factory=list)  # by their first tags
    escape: Callable[[str], str] = str  # writes text as the document has it
    finish: Callable[[str], str] = str  # is given the translation, with its tags


Pieces = list[Part | str]
Token = tuple[str, str, str]  # kind, name, text


class _Tokens(HTMLParser):
    """Cuts a text into tokens, which together are the text.

    Kinds are text, open, close, alone (a tag without a closing one), keep (one that opens what is not translated) and
    other. What a browser takes for text, a comment or the like must never come back as a tag, so those are read here
    to where they end in a browser; Python's versions differ in that.
    """

    def __init__(self, text: str):
        super().__init__()
        self._found = [(0, "text", "")]
        self._is_unclosed = False
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._text = text
        text = TEMPLATE.sub(lambda found: re.sub("[^\n]", "x", found[0]), text)
        # Nothing after the last ">" is a tag; Python would look for an end from every "<" there.
        end = text.rfind(">") + 1
        self.feed(text[:end])
        self.close()
        if self.cdata_elem is None and not self._is_unclosed:
            unclosed = re.search("<[!?]|$", text[end:])
            self._found += [(end, "text", ""), (end + unclosed.start() if unclosed else end, "other", "")]

    def tokens(self) -> list[Token]:
        found: list[Token] = []
        starts = [start for start, *_ in self._found]
        for (start, kind, name), stop in zip(self._found, [*starts[1:], len(self._text)], strict=True):
            raw = self._text[start:stop]
            if kind == "text" and found and found[-1][0] == "text":
                raw = found.pop()[2] + raw
            if raw:
                found.append((kind, name, raw))
        return found

    def _add(self, kind: str, name: str = "") -> None:
        line, column = self.getpos()
        self._found.append((self._line_starts[line - 1] + column, kind, name))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        keeps = tag in KEPT or tag in KEPT_WORDS or (dict(attrs).get("translate") or "").lower() == "no"
        self._add("alone" if tag in EMPTY else "keep" if keeps else "open", tag)
        if tag in RAW_TEXT:
            self.set_cdata_mode(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add("alone", tag)

    def handle_endtag(self, tag: str) -> None:
        self._add("close", tag)

    def handle_data(self, data: str) -> None:
        self._add("text")

    def parse_comment(self, i: int, report: bool = True) -> int:
        return self._other(i, "--!?>")

    def parse_html_declaration(self, i: int) -> int:
        return self._other(i, r"\]\]>" if self.rawdata.startswith("<![CDATA[", i) else ">")

    def parse_bogus_comment(self, i: int, report: bool = True) -> int:
        return self._other(i, ">")

    def parse_pi(self, i: int) -> int:
        return self._other(i, r"\?>" if "?>" in self.rawdata[i:] else ">")

    def _other(self, i: int, end: str) -> int:
        self._add("other")
        match = re.compile(end).search(self.rawdata, i + 2)
        self._is_unclosed |= match is None
        return match.end() if match else len(self.rawdata)


def parse_markup(text: str, is_html: bool = False) -> Pieces:
    """Returns the parts of a text, and between them what is kept: with the parts' own tags, they are the text.

    In HTML entities are characters. Nothing is refused: an unmatched tag is an element by itself. Takes time in
    proportion to the text's length.
    """
    return read_parts(html_tokens(text), lambda: PartReader(html_text, escaped_html) if is_html else PartReader())


def html_tokens(text: str) -> list[Token]:
    return _Tokens(text).tokens()


def read_parts(tokens: list[Token], reader: "Callable[[], PartReader]") -> Pieces:
    """Returns what is between tokens that end a sentence as parts, which new readers read, and the rest as it is."""
    pieces: Pieces = []
    part, kept, depth = reader(), [], 0
    for number, (kind, name, raw) in enumerate(tokens):
        if kept or kind == "keep":
            kept.append((kind, name, raw))
            depth += (name == kept[0][1]) * ((kind in ("keep", "open")) - (kind == "close"))
            if depth and number < len(tokens) - 1:
                continue
            whole = "".join(raw for _, _, raw in kept)
            name, kinds = kept[0][1], [kind for kind, *_ in kept]
            words = kept[1][2] if kinds == ["keep", "text", "close"] and name not in KEPT else ""
            kept, depth = [], 0
            if name not in BLOCKS:
                part.add_kept(whole, words)
                continue
            kind, raw = "other", whole
        if kind == "text":
            part.add_text(raw)
        elif kind != "other" and name not in BLOCKS:
            part.add_tag(raw, kind, name)
        else:
            pieces += [*part.finish(), raw]
            part = reader()
    return [*pieces, *part.finish()]


def _plain_text(raw: str) -> str:
    return re.sub("[\n\r\f\v\x1c-\x1e\x85\u2028\u2029]+", " ", raw)


def html_text(raw: str) -> str:
    return html.unescape(re.sub("[ \t]+", " ", _plain_text(raw)))


def escaped_html(text: str) -> str:
    return html.escape(text, quote=False)


class PartReader:
    """Collects the text and the tags of a part.

    `read` makes text of what is written between tags, and `escape` the other way round; `finish` gets the translation.
    """

    def __init__(
        self,
        read: Callable[[str], str] = _plain_text,
        escape: Callable[[str], str] = str,
        finish: Callable[[str], str] = str,
    ):
        self._read, self._escape, self._finish = read, escape, finish
        self._raw: list[str] = []
        self._text: list[str] = []
        self._length, self._end = 0, ""  # of the text, and its last characters
        self._tags: list[str] = []
        self._elements: list[Element] = []
        self._open: list[tuple[str, Element]] = []  # the innermost last
        self._open_names: Counter[str] = Counter()
        self._after_tag = False
        self._closed = self._divides = False  # what the tags after the last word do

    def add_text(self, raw: str) -> None:
        """Adds text, in which there may be tags of a template or of HTML that is shown."""
        for number, token in enumerate(TEXT_TAG.split(raw)):
            if number % 2:
                named = NAME.match(token)
                assert named is not None, token
                slash, name = named.groups()
                if token[0] == "{" and self._end.strip():  # words on both sides of it are two
                    self._append("" if self._end.endswith(" ") else " ")
                self.add_tag(token, "close" if slash else "open", token[:2] + name)
            elif token:
                self._raw.append(token)
                self._add(self._read(token))

    def _add(self, text: str) -> None:
        if self._after_tag:
            if self._elements[-1].first == len(self._tags) - 1:
                self._elements[-1].after = text.startswith(" ")
            if changes_placeholders(self._end, text):
                self._append(" ")  # for the model, in the tag's place
        if self._divides and self._end[-1:].isalnum() and text[:1].isalnum():
            self._append(" ")
        self._after_tag = self._closed = self._divides = False
        # Without the tag between them two blanks are one.
        self._append(text.lstrip(" ") if self._end.endswith(" ") else text)

    def _append(self, text: str) -> None:
        self._text.append(text)
        self._length += len(text)
        self._end = (self._end + text[-PLACEHOLDER_LENGTH:])[-PLACEHOLDER_LENGTH:]

    def add_tag(self, raw: str, kind: str, name: str) -> None:
        """Adds a tag of kind open, close or alone."""
        element = self._element(raw)
        # `<key>Ctrl</key><key>C</key>` and `Click<x/>here` are two words, `<b>S</b>ave` is one.
        self._divides |= (kind == "open" and self._closed) or (kind == "alone" and name != "wbr")
        self._closed |= kind == "close"
        if kind == "close" and self._open_names[name]:
            while True:  # tags that were opened after it and never closed are elements by themselves
                other, opened = self._open.pop()
                self._open_names[other] -= 1
                if other == name:
                    opened.last, opened.stop = element.first, self._length
                    return
        self._elements.append(element)
        if kind == "open":
            self._open.append((name, element))
            self._open_names[name] += 1

    def add_kept(self, raw: str, words: str = "") -> None:
        """Adds an element that stays as it is, and of which the model sees the words."""
        element = self._element(raw)
        self._elements.append(element)
        if words.strip():
            self._divides = True  # code and the letters beside it, too
            self._add(self._read(" ".join(words.split())))
            element.stop, element.keeps, element.after = self._length, True, False
            self._after_tag, self._divides = False, True

    def _element(self, raw: str) -> Element:
        number = len(self._tags)
        self._after_tag = True
        self._raw.append(raw)
        self._tags.append(raw)
        return Element(number, number, self._length, self._length, before=self._end.endswith(" "))

    def finish(self) -> Pieces:
        """Returns the part between the white space around it; what has no letters is returned as it is."""
        whole = "".join(self._text)
        text = whole.strip()
        if not re.search(r"[^\W\d_]", PLACEHOLDER.sub("", text)):
            return ["".join(self._raw)] if self._raw else []
        front = len(whole) - len(whole.lstrip())
        for element in self._elements:
            element.start = min(max(element.start - front, 0), len(text))
            element.stop = min(max(element.stop - front, 0), len(text))
        part = Part(text, self._tags, self._elements, self._escape, self._finish)
        raw = "".join(self._raw)
        return [raw[: len(raw) - len(raw.lstrip())], part, raw[len(raw.rstrip()) :]]
