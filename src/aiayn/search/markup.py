"""Mark-up in a text: tags are taken out, so that the model sees sentences; `placement` puts them back.

`html.parser` reads the text as a whole, be it a page of HTML or a line with tags. Text between two tags that end a
sentence is a part to translate, and everything else is copied.
"""

import html
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from html.parser import HTMLParser
from itertools import groupby

from aiayn.data.placeholders import PLACEHOLDER, changes_marks

BLOCKS, KEPT, RAW_TEXT, EMPTY = (
    frozenset(names.split())
    for names in (
        # These end a sentence: what is between two of them is translated by itself.
        "address article aside blockquote body br caption col colgroup dd details dialog div dl dt fieldset figcaption "
        "figure footer form h1 h2 h3 h4 h5 h6 head header hgroup hr html iframe legend li main menu nav noembed "
        "noframes noscript ol optgroup option p pre script section select style summary table tbody td textarea tfoot "
        "th thead title tr ul xmp",
        # These stay as they are, with all that is in them; of those in a sentence the model sees the words.
        "address code iframe kbd math noembed noframes pre samp script style svg textarea time var xmp",
        "iframe noembed noframes textarea title xmp",  # tags in them are text
        "area base br col embed hr img input meta param source track wbr",  # have no closing tag
    )
)
# Templates may have anything in them, and stand in tags: `<p {% if a > b %}class="x"{% endif %}>`.
TEMPLATE = re.compile(r"\{%[^{}%]{1,100}%\}|\{\{[^{}]{1,100}\}\}|<%(?:(?!%>).){1,200}%>", re.DOTALL)
# In text: tags of templates, of itstool (`<_:media-1/>`), and of HTML that is shown instead of used.
TEXT_TAG = re.compile(
    r"(\{%[^{}%]{1,100}%\}|\{\{(?=[^{}]{0,100}[<>&])[^{}]{1,100}\}\}|<%(?:(?!%>)(?s:.)){1,200}%>"
    r"|</?_[^<>]*>|&lt;/?[A-Za-z](?:(?!&[lg]t;)[^<>])*&gt;)"
)
TEXT_TAG_NAME = re.compile(r"(?:&lt;|<%?|\{%-?|\{\{)\s*(end|/?)(\w*)")
NO_BREAK = re.compile("&(?:nbsp|#160|#[xX][aA]0);")
# Where comments and the like end in a browser; Python's versions differ in that.
ENDS = {"<!--": "--!?>", "<![CDATA[": r"\]\]>", "<?": r"\?>", "": ">"}

Token = tuple[str, str, str]  # text, open, close, alone, keep (opens what is kept) or other; name; as it is written


@dataclass
class Element:
    """A tag and its closing tag, if it has one, or an element that stays as it is."""

    name: str
    first: int  # of its part's tags
    last: int
    start: int  # characters of the part's text that it is around
    stop: int
    is_kept: bool = False  # it replaces the words that it is around
    follows: bool = False  # there is a blank after it, but not before


@dataclass(frozen=True)
class Part:
    """A text to translate, without its tags and without white space around it."""

    text: str
    tags: list[str] = field(default_factory=list)  # with a blank after those that had one on both sides
    elements: list[Element] = field(default_factory=list)  # in the order of their first tags
    escape: Callable[[str], str] = str  # writes text as the document has it
    finish: Callable[[str], str] = str  # is given the translation, with its tags


Pieces = list[Part | str]


class _Reader(HTMLParser):
    """Cuts a text into tokens, which together are the text."""

    def __init__(self, text: str):
        super().__init__()
        self.tokens: list[Token] = []
        self._text, self._done = text, 0
        self._event, self._is_unclosed = ("alone", ""), False
        text = TEMPLATE.sub(lambda found: "x" * len(found[0]), text)
        # Nothing after the last ">" is a tag; Python would look for an end from every "<" there.
        self.feed(text[: text.rfind(">") + 1])
        self.close()
        rest = self._text[self._done :]
        words = "" if self._is_unclosed else re.split("<[!?]", rest, maxsplit=1)[0]
        self._add("text", "", words)
        self._add("other", "", rest[len(words) :])

    def _add(self, kind: str, name: str, raw: str) -> None:
        if kind == "text" and self.tokens and self.tokens[-1][0] == "text":
            raw = self.tokens.pop()[2] + raw
        if raw:
            self.tokens.append((kind, name, raw))

    def updatepos(self, i: int, j: int) -> int:
        """Is called after the handler of what is between these characters."""
        start, self._done = self._done, self._done + j - i
        if i < j:
            self._add(*self._event, self._text[start : self._done])
            self._event = ("alone", "")
        return j

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        is_kept = tag in KEPT or (dict(attrs).get("translate") or "").lower() == "no"
        self._event = ("alone" if tag in EMPTY else "keep" if is_kept else "open", tag)
        if tag in RAW_TEXT:
            self.set_cdata_mode(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._event = ("alone", tag)

    def handle_endtag(self, tag: str) -> None:
        self._event = ("close", tag)

    def handle_data(self, data: str) -> None:
        self._event = ("text", "")

    def _other(self, i: int, report: bool = True) -> int:
        self._event = ("other", "")
        end = next(end for start, end in ENDS.items() if self.rawdata.startswith(start, i))
        match = re.compile(end).search(self.rawdata, i + 2)
        self._is_unclosed = match is None
        return match.end() if match else len(self.rawdata)

    parse_comment = parse_html_declaration = parse_bogus_comment = parse_pi = _other


def parse_markup(text: str, is_html: bool = False) -> Pieces:
    """Returns the parts of a text, and between them what is kept: with the parts' own tags, they are the text.

    In HTML entities are characters. Nothing is refused: an unmatched tag is an element by itself. Takes time in
    proportion to the text's length.
    """
    return read_parts(html_tokens(text), *((html_text, escaped_html) if is_html else ()))


def html_tokens(text: str) -> list[Token]:
    return _Reader(text).tokens


def _plain_text(raw: str) -> str:
    return re.sub("[\n\r\f\v\x1c-\x1e\x85\u2028\u2029]+", " ", raw)


def html_text(raw: str) -> str:
    return html.unescape(re.sub("[ \t]+", " ", _plain_text(raw)))


escaped_html = partial(html.escape, quote=False)


def read_parts(
    tokens: Iterable[Token],
    read: Callable[[str], str] = _plain_text,
    escape: Callable[[str], str] = str,
    finish: Callable[[str], str] = str,
) -> Pieces:
    """Returns what is between tokens that end a sentence as parts, and the rest as it is.

    `read` makes text of what is written between tags, and `escape` the other way round; `finish` gets the translation.
    """
    pieces: Pieces = []
    for is_kept, group in groupby(
        _joined(tokens), lambda one: one[0] == "other" or (one[0] not in ("text", "kept") and one[1] in BLOCKS)
    ):
        here = list(group)
        pieces += [raw for *_, raw in here] if is_kept else _part(here, read, escape, finish)
    return pieces


def _joined(tokens: Iterable[Token]) -> Iterator[Token]:
    """Joins an element that stays as it is into one token, whose name is the words of it; cuts tags out of text."""
    kept: list[Token] = []
    depth = 0
    for kind, name, raw in [*tokens, ("end", "", "")]:
        if kept or kind == "keep":
            kept.append((kind, name, raw))
            depth += (name == kept[0][1]) * ((kind in ("keep", "open")) - (kind == "close"))
            if depth == 0 or kind == "end":
                words = kept[1][2] if [kind for kind, *_ in kept] == ["keep", "text", "close"] else ""
                yield "other" if kept[0][1] in BLOCKS else "kept", words, "".join(raw for *_, raw in kept)
                kept = []
        elif kind == "text":
            for number, text in enumerate(TEXT_TAG.split(raw)):
                if number % 2:
                    end, name = TEXT_TAG_NAME.findall(text)[0]
                    yield "close" if end else "open", text[:2] + name, text
                elif text:
                    yield kind, "", text
        elif kind != "end":
            yield kind, name, raw


def _part(
    tokens: list[Token], read: Callable[[str], str], escape: Callable[[str], str], finish: Callable[[str], str]
) -> Pieces:
    """Returns a part between the white space around it; what has no letters is returned as it is."""
    text, between = "", ""  # the kinds of the tags after the last word
    tags: list[str] = []
    elements: list[Element] = []
    around: list[Element] = []
    names: Counter[str] = Counter()  # of those around
    for kind, name, raw in tokens:
        if kind == "close" and names[name]:  # what was opened in an element and never closed is a tag alone
            while (element := around.pop()).name != name:
                names[element.name] -= 1
            names[name] -= 1
            element.last, element.stop = len(tags), len(text)
        elif kind != "text":
            elements.append(Element(name, len(tags), len(tags), len(text), len(text)))
            if kind == "open":
                around.append(elements[-1])
                names[name] += 1
        words = read(raw) if kind == "text" else read(name).strip() if kind == "kept" else ""
        if kind != "text":
            tags.append(raw)
            between += "alone" if raw[0] == "{" else "" if name == "wbr" else kind
        if not words:
            continue
        # `<key>Ctrl</key><key>C</key>`, `Click<x/>here` and code beside letters are two words, `<b>S</b>ave` is one.
        divides = re.search("close.*open|alone|kept", between) and text[-1:].isalnum() and words[:1].isalnum()
        if between and (divides or changes_marks(text, words)):
            text += " "  # for the model, in the tag's place
        stripped = words.lstrip(" " if text else None) if text[-1:] in ("", " ") else words
        if stripped != words:  # without the tag between them two blanks are one
            words, tags[-1:] = stripped, [f"{tag} " for tag in tags[-1:]]
        elif words[0] == " " and elements and elements[-1].last == len(tags) - 1:
            elements[-1].follows = True
        if kind == "kept":
            elements[-1].is_kept, elements[-1].start, elements[-1].stop = True, len(text), len(text + words)
        text += words
        between = kind * (kind == "kept")
    raw, text = "".join(raw for *_, raw in tokens), text.rstrip()
    if not re.search(r"[^\W\d_]", PLACEHOLDER.sub("", text)):
        return [raw] if raw else []
    # White space around a part stays as it is written, `&nbsp;`, too, where that is read as a blank.
    blanks = raw if read("&nbsp;").strip() else NO_BREAK.sub(lambda found: "\xa0" * len(found[0]), raw)
    front, back = len(raw) - len(blanks.lstrip()), len(blanks.rstrip())
    return [raw[:front], Part(text, tags, elements, escape, finish), raw[back:]]
