"""Mark-up in a text: tags are taken out, so that the model sees sentences; `placement` puts them back.

`html.parser` reads the text as a whole, be it a page of HTML or a line with tags. Text between two tags that end a
sentence is a part to translate, and everything else is copied.
"""

import html
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

from aiayn.data.placeholders import PLACEHOLDER, changes_placeholders

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
NO_BREAK = re.compile("&(?:nbsp|#160|#[xX][aA]0);")
NAME = re.compile(r"(?:<|&lt;|\{%-?\s*|\{\{)(end|/?)(\w*)")


@dataclass
class Element:
    """A tag and its closing tag, if it has one, or an element that stays as it is."""

    opening: str
    start: int  # characters of the part's text that it is around
    stop: int
    closing: str = ""
    keeps: bool = False  # it replaces the words that it is around
    before: bool = False  # there is a blank before it, and after it
    after: bool = False
    children: list["Element"] = field(default_factory=list)

    @property
    def raw(self) -> str:
        """All tags of it, without words."""
        found: list[str] = []
        waiting: list[Element | str] = [self]
        while waiting:
            one = waiting.pop()
            found.append(one if isinstance(one, str) else one.opening)
            waiting += [] if isinstance(one, str) else [one.closing, *reversed(one.children)]
        return "".join(found)


@dataclass(frozen=True)
class Part:
    """A text to translate, without its tags and without white space around it."""

    text: str
    elements: list[Element] = field(default_factory=list)  # the outermost
    tags: int = 0
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
            words = re.split("<[!?]", text[end:], maxsplit=1)[0]
            self._found += [(end, "text", ""), (end + len(words), "other", "")]

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
    return read_parts(html_tokens(text), html_text, escaped_html) if is_html else read_parts(html_tokens(text))


def html_tokens(text: str) -> list[Token]:
    return _Tokens(text).tokens()


def _plain_text(raw: str) -> str:
    return re.sub("[\n\r\f\v\x1c-\x1e\x85\u2028\u2029]+", " ", raw)


def html_text(raw: str) -> str:
    return html.unescape(re.sub("[ \t]+", " ", _plain_text(raw)))


def escaped_html(text: str) -> str:
    return html.escape(text, quote=False)


def read_parts(
    tokens: list[Token],
    read: Callable[[str], str] = _plain_text,
    escape: Callable[[str], str] = str,
    finish: Callable[[str], str] = str,
) -> Pieces:
    """Returns what is between tokens that end a sentence as parts, and the rest as it is.

    `read` makes text of what is written between tags, and `escape` the other way round; `finish` gets the translation.
    """
    pieces: Pieces = []
    here: list[Token] = []
    kept: list[Token] = []
    depth = 0
    for number, token in enumerate(tokens):
        kind, name, raw = token
        if kept or kind == "keep":
            kept.append(token)
            depth += (name == kept[0][1]) * ((kind in ("keep", "open")) - (kind == "close"))
            if depth and number < len(tokens) - 1:
                continue
            name, kinds = kept[0][1], [kind for kind, *_ in kept]
            words = kept[1][2] if kinds == ["keep", "text", "close"] and name not in KEPT else ""
            kind, raw = "other" if name in BLOCKS else "kept", "".join(raw for *_, raw in kept)
            kept, depth, token = [], 0, (kind, words, raw)
        if kind == "text":
            here += _with_tags_in_text(raw)
        elif kind == "kept" or (kind != "other" and name not in BLOCKS):
            here.append(token)
        else:
            pieces += [*_part(here, read, escape, finish), raw]
            here = []
    return pieces + _part(here, read, escape, finish)


def _with_tags_in_text(raw: str) -> Iterator[Token]:
    for number, token in enumerate(TEXT_TAG.split(raw)):
        if number % 2:
            named = NAME.match(token)
            assert named is not None, token
            yield "close" if named[1] else "open", token[:2] + named[2], token
        elif token:
            yield "text", "", token


def _part(
    tokens: list[Token], read: Callable[[str], str], escape: Callable[[str], str], finish: Callable[[str], str]
) -> Pieces:
    """Returns a part between the white space around it; what has no letters is returned as it is."""
    text, outermost, every = "", [], []
    around: list[Element] = []
    last: Element | None = None
    matched = _matched(tokens)
    is_after_tag = is_closed = divides = False  # what the tags after the last word do
    for number, (kind, name, raw) in enumerate(tokens):
        more = raw
        if kind != "text":
            if raw[0] == "{" and text and not text.endswith(" ") and not text.isspace():
                text += " "  # words on both sides of a template's tag are two
            # `<key>Ctrl</key><key>C</key>` and `Click<x/>here` are two words, `<b>S</b>ave` is one.
            divides |= (kind == "open" and is_closed) or (kind == "alone" and name != "wbr")
            is_closed |= kind == "close"
            is_after_tag, last = True, None
            if kind == "close" and number in matched:
                element = around.pop()
                element.closing, element.stop = raw, len(text)
                continue
            last = Element(raw, len(text), len(text), before=text.endswith(" "))
            every.append(last)
            (around[-1].children if around else outermost).append(last)
            if number in matched:
                around.append(last)
            words = " ".join(name.split()) if kind == "kept" else ""
            is_placeholder = PLACEHOLDER.fullmatch(read(words))
            # The words of code replace what becomes of them, but a placeholder is neither replaced nor doubled.
            if not words or (PLACEHOLDER.search(read(words)) and not is_placeholder):
                continue
            if is_placeholder:
                last.opening, _, last.closing = raw.rpartition(name)
            divides, more = True, words  # code and the letters beside it, too
        more = read(more)
        if last and kind == "text":
            last.after = more.startswith(" ")
        glued = is_after_tag and changes_placeholders(text, more)
        if glued or (divides and text[-1:].isalnum() and more[:1].isalnum()):
            text += " "  # for the model, in the tag's place
        text += more.lstrip(" ") if text.endswith(" ") else more  # without the tag between them two blanks are one
        is_after_tag = is_closed = False
        divides = kind == "kept"
        if last and divides:
            last.stop, last.keeps = len(text), not last.closing
        last = None
    raw, stripped = "".join(raw for *_, raw in tokens), text.strip()
    if not re.search(r"[^\W\d_]", PLACEHOLDER.sub("", stripped)):
        return [raw] if raw else []
    front = len(text) - len(text.lstrip())
    for element in every:
        element.start = min(max(element.start - front, 0), len(stripped))
        element.stop = min(max(element.stop - front, 0), len(stripped))
    tags = sum(kind != "text" for kind, *_ in tokens)
    part = Part(stripped, outermost, tags, escape, finish)
    # White space around a part stays as it is written, `&nbsp;`, too, where that is read as a blank.
    written = raw if read("&nbsp;").strip() else NO_BREAK.sub(lambda found: "\xa0" * len(found[0]), raw)
    front, back = len(raw) - len(written.lstrip()), len(written.rstrip())
    return [raw[:front], part, raw[back:]]


def _matched(tokens: list[Token]) -> set[int]:
    """Returns which tags have their other half: what was opened in an element and never closed has none."""
    matched: set[int] = set()
    around: list[int] = []
    names: Counter[str] = Counter()
    for number, (kind, name, _) in enumerate(tokens):
        if kind == "open":
            around.append(number)
            names[name] += 1
        while kind == "close" and names[name]:
            opened = around.pop()
            names[tokens[opened][1]] -= 1
            if tokens[opened][1] == name:
                matched |= {opened, number}
                break
    return matched
