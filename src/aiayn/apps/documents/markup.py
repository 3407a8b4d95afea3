"""Mark-up in a text: tags are taken out, so that the model sees sentences; `placement` puts them
back.

`html.parser` reads the text as a whole, be it a page of HTML or a line with tags. Text between two
tags that end a sentence is a part to translate, and everything else is copied.
"""

import html
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from html.parser import HTMLParser
from itertools import groupby, pairwise
from operator import attrgetter
from typing import NamedTuple

from aiayn.data.placeholders import CJK, PLACEHOLDER, TAG, has_letters

# These end a sentence: what is between two of them is translated by itself.
BLOCK = """address article aside blockquote body br caption col colgroup dd details dialog div dl
dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 head header hgroup hr html iframe
legend li main menu nav noembed noframes noscript ol optgroup option p pre script section select
style summary table tbody td textarea tfoot th thead title tr ul xmp"""
# Those of them that may stand in a paragraph; all others end it.
IN_PARAGRAPH = (
    "br iframe noembed noframes noscript optgroup option script select style textarea title"
)
# These stay as they are, with all that is in them; of those in a sentence the model sees the words.
KEPT = """address code iframe kbd math noembed noframes pre samp script style svg textarea time tt
var xmp"""
RAW_TEXT = "iframe noembed noframes textarea title xmp"  # tags in them are text
EMPTY = "area base embed img input meta param source track"  # have no closing tag, and divide words
VOID = f"{EMPTY} br col hr link wbr"
RUBY = "rb rp rt rtc ruby"  # their closing tags may be missing
LISTS = "datalist dl menu ol select table ul"  # whose items may have no closing tags
ANNOTATION = "rp rt rtc"  # how a word of the source is read: kept, and no word of the sentence
BLOCK, IN_PARAGRAPH, KEPT, RAW_TEXT, EMPTY, VOID, RUBY, LISTS, ANNOTATION = (
    frozenset(names.split())
    for names in (BLOCK, IN_PARAGRAPH, KEPT, RAW_TEXT, EMPTY, VOID, RUBY, LISTS, ANNOTATION)
)
# Elements that may end without a closing tag, with the tags that end them: opening and closing ones
ITEMS = {
    "dd": "dd dt",
    "dt": "dd dt",
    "li": "li",
    "option": "option optgroup",
    "tr": "tr tbody thead tfoot",
    "td": "td th tr tbody thead tfoot",
    "th": "td th tr tbody thead tfoot",
}
ENDED_BY = {
    "p": (BLOCK - IN_PARAGRAPH, BLOCK - IN_PARAGRAPH),
    **dict.fromkeys(ANNOTATION, (RUBY | BLOCK, RUBY | BLOCK)),
    **{name: (frozenset(tags.split()), LISTS.union(ITEMS)) for name, tags in ITEMS.items()},
}
# What a translation may not have more of: tags, placeholders, braces, which `str.format` refuses,
# and where a parser begins a tag.
MARK = re.compile(rf"{TAG.pattern}|{PLACEHOLDER.pattern}|[{{}}]|<(?=[A-Za-z_/!?])", re.DOTALL)
MARK_LENGTH = 200  # characters searched on each side of a joint; longer marks are rare
# In the word that one of more than 50 characters begins with
LONG_MARK = re.compile(r"(?<!\S)[^\s({<@./:&]*[({<@./:&]")
# In text: tags of templates, of itstool (`<_:media-1/>`), times of words in subtitles
# (`<00:01.500>`), and tags of HTML that is shown instead of used. Those of templates may have
# anything in them, and stand in tags:
# `<p {% if a > b %}class="x"{% endif %}>`.
TEXT_TAG = re.compile(
    r"(\{%[^{}%]{1,100}%\}|\{\{(?=%|[^{}]{0,100}[<>&])[^{}]{1,100}\}\}|<%(?:(?!%>).){1,200}%>|</?_[^<>\"']*>"
    r"|<\d\d:[\d:.]+>|&lt;/?[A-Za-z](?:(?!&[lg]t;)[^<>])*&gt;)",
    re.DOTALL,
)
TEXT_TAG_NAME = re.compile(r"(?:&lt;|<%?|\{%-?|\{\{[%<]?)\s*(end|/?)(\w*)")
# A message of ICU, `{n, plural, one {a cat} other {# cats}}`: what is text in it no model can tell.
MESSAGE = re.compile(
    r"\{\s*\w+\s*,\s*(?:plural|choice|select|selectordinal|number|date|time|spellout|ordinal|duration)\b"
)
TWO_WORDS = re.compile(rf"(?![{CJK}]{{2}})\w\w")  # the last letter of one, the first of the next
ENDING = re.compile(r"[a-z]{1,4}(?![^\W_])")  # of a word whose beginning is code: `Decimal`s
ENTITY = re.compile(r"&#?\w{1,40};")
# Where comments and the like end in a browser; Python's versions differ in that.
ENDS = {"<!--": "--!?>", "<![CDATA[": r"\]\]>", "<?": r"\?>", "": ">"}

# Text, open, close, alone, keep (opens what is kept) or other; name; as it is written
Token = tuple[str, str, str]
Edit = Callable[[str], str]  # from a text to another: reads, escapes or checks it


@dataclass
class Tag:
    """A tag of a part, or an element without words with all its text."""

    type: str  # as of tokens
    name: str
    raw: str  # with the blanks beside it
    offset: int  # before which character of the part's text it stands
    partner: int = -1  # the number of the other tag of its element, or its own


class Kept(NamedTuple):
    """An element that stays as it is, and the characters of a part that the model sees of it."""

    start: int
    stop: int
    raw: str


@dataclass(frozen=True)
class Part:
    """A text to translate, without its tags and without white space around it."""

    text: str
    raw: str = ""  # as it is written, which stays if the translation is the text
    tags: list[Tag] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    escape: Edit = str  # writes text as the document has it


@dataclass(frozen=True)
class Checked:
    """Pieces whose translation is written as a whole, such as those of a message."""

    pieces: "Pieces"
    accept: Edit  # is given the translation; returns what is written
    raw: str = ""  # is written instead if no translation differs from its text


Piece = Part | str | Checked
Pieces = list[Piece]


def parts_of(pieces: Iterable[Piece]) -> Iterator[Part]:
    for piece in pieces:
        if isinstance(piece, Checked):
            yield from parts_of(piece.pieces)
        elif isinstance(piece, Part):
            yield piece


def rendered(pieces: Iterable[Piece], translate: Callable[[Part], str]) -> str:
    """Returns pieces as one text, with a translation, tags included, in place of each part."""
    texts = []
    for piece in pieces:
        if isinstance(piece, Checked):
            translation = rendered(piece.pieces, translate)
            is_same = piece.raw and translation == rendered(piece.pieces, attrgetter("raw"))
            piece = piece.raw if is_same else piece.accept(translation)
        texts.append(translate(piece) if isinstance(piece, Part) else piece)
    return "".join(texts)


def changes_marks(left: str, right: str) -> bool:
    """Returns whether joining two texts changes their placeholders or tags, as it does for `%s` and
    `a`.
    """
    left, right = left[-MARK_LENGTH:], right[:MARK_LENGTH]
    long_mark = LONG_MARK.search(left)
    left = left[long_mark.start() if long_mark else -50 :]
    return MARK.findall(left + right) != MARK.findall(left) + MARK.findall(right)


class Reader(HTMLParser):
    """Cuts a text into tokens, which together are the text."""

    def __init__(self, text: str, hidden: re.Pattern[str] = TEXT_TAG):
        """`hidden` finds what is text, whatever tags it looks like."""
        super().__init__()
        self.tokens: list[Token] = []
        self._text, self._done = text, 0
        self._event: tuple[str, str] = ("alone", "")
        # The name of what is kept, is open, and may end without a tag (an annotation, a paragraph,
        # an item of a list or table), and how many lists and tables are open in it
        self._implied, self._lists = "", 0
        for pattern in dict.fromkeys((TEXT_TAG, hidden)):
            text = pattern.sub(lambda match: "x" * len(match[0]), text)
        head, end, tail = text.rpartition(">")
        # Nothing after the last ">" is a tag; Python would look for an end from every "<" there.
        self.rawdata = head + end + re.sub("<(?![!?])", "x", tail)
        self.close()
        self.tokens.append(("text", "", self._text[self._done :]))

    def updatepos(self, i: int, j: int) -> int:
        """Notes the token between these characters, after the parser's own handler."""
        if i < j:
            self.tokens.append((*self._event, self._text[i:j]))
        self._event, self._done = ("alone", ""), j
        return j

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        tag = tag.partition(".")[0]  # classes of WebVTT: `<c.red>` ends with `</c>`
        self._end_implied(tag, is_opening=True)
        values = {name: (value or "").lower() for name, value in attrs}
        is_kept = (
            tag in KEPT
            or tag in ANNOTATION
            or values.get("translate") == "no"
            or "notranslate" in values.get("class", "").split()
        ) and tag not in VOID
        if self._lists > 0:  # an item in an item, which may have no closing tag either
            self._event = ("open", "")
            return
        if is_kept and tag in ENDED_BY:
            self._implied, self._lists = tag, 0
        self._event = ("alone" if tag in EMPTY else "keep" if is_kept else "open", tag)
        if tag in RAW_TEXT:
            self.set_cdata_mode(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._event = ("alone", tag)

    def handle_endtag(self, tag: str) -> None:
        tag = tag.partition(".")[0]
        is_inner = self._lists > 0
        if tag == self._implied and not is_inner:
            self._implied = ""
        self._end_implied(tag, is_opening=False)
        self._event = ("close", "" if is_inner else tag)

    def _end_implied(self, tag: str, is_opening: bool) -> None:
        """Closes an annotation of ruby, a paragraph or an item that this tag ends."""
        if not self._implied:
            return
        opening, closing = ENDED_BY[self._implied]
        is_end = not self._lists and tag in (opening if is_opening else closing)
        if self._implied in ITEMS and tag in LISTS:
            self._lists += 1 if is_opening else -1
        if is_end:
            self.tokens.append(("close", self._implied, ""))
            self._implied = ""

    def handle_data(self, data: str) -> None:
        self._event = ("text", "")

    def _other(self, i: int, report: bool = True) -> int:
        self._event = ("other", "")
        end = next(end for start, end in ENDS.items() if self.rawdata.startswith(start, i))
        match = re.compile(end).search(self.rawdata, i + 2)
        return match.end() if match else len(self._text)

    parse_comment = parse_html_declaration = parse_bogus_comment = parse_pi = _other


def divided(pattern: re.Pattern[str], text: str) -> Iterator[tuple[str, bool]]:
    """Yields what is before, in and after the matches of a pattern, which has one group around it
    all, and whether it is a match.
    """
    for number, stretch in enumerate(pattern.split(text)):
        if stretch:
            yield stretch, number % 2 == 1


plain_text = partial(re.compile("[\n\r\f\v\x1c-\x1e\x85\u2028\u2029]+").sub, " ")
escaped_html = partial(html.escape, quote=False)


def html_text(raw: str) -> str:
    return html.unescape(re.sub("[ \t]+", " ", plain_text(raw)))


def _as_spelled(raw: str, escape: Edit) -> Edit:
    """Returns `escape`, but for characters that this text writes as entities and never otherwise:
    these are written as they are there.
    """
    plain = set(ENTITY.sub("", raw))
    spelled = {
        character: entity
        for entity in ENTITY.findall(raw)
        if (character := html.unescape(entity)) not in plain
    }
    return partial(_spelled, spelled, escape)  # unlike a function in a function it can be pickled


def _spelled(spelled: dict[str, str], escape: Edit, text: str) -> str:
    return "".join(spelled.get(character) or escape(character) for character in text)


def parse_markup(text: str, markup: bool = True, is_html: bool = False) -> Pieces:
    """Returns the parts of a text, and between them what is kept: with the parts' own tags, they
    are the text.

    Without `markup` it is one part. In HTML entities are characters. Nothing is refused: an
    unmatched tag is an element by itself. Takes time in proportion to the text's length.
    """
    return (
        read_parts(Reader(text).tokens, *((html_text, escaped_html) if is_html else ()))
        if markup
        else [Part(text)]
    )


def read_parts(
    tokens: Iterable[Token],
    read: Edit = plain_text,
    escape: Edit = str,
    edit_tag: Edit = str,
) -> Pieces:
    """Returns what is between tokens that end a sentence as parts, and the rest as it is.

    `read` makes text of what is written between tags, and `escape` the other way round; `edit_tag`
    gets every tag that is not in an element that stays as it is.
    """
    pieces: Pieces = []
    for is_other, group in groupby(
        _joined(iter(tokens), edit_tag), lambda token: token[0] == "other"
    ):
        group_tokens = list(group)
        raws = [raw for *_, raw in group_tokens]
        pieces += raws if is_other else _part(group_tokens, read, escape)
    return pieces


def _joined(tokens: Iterator[Token], edit_tag: Edit) -> Iterator[Token]:
    """Joins an element that stays as it is into one token, whose name is the words of it; cuts tags
    out of text.

    What ends a sentence becomes `other`.
    """
    for token_type, name, raw in tokens:
        if token_type == "text":
            for text, is_tag in divided(TEXT_TAG, raw):
                if is_tag:
                    end, inner = TEXT_TAG_NAME.findall(text)[0]
                    yield "close" if end else "open", text[:2] + inner, text
                else:
                    yield token_type, "", text
        elif token_type == "keep":
            inside: list[Token] = []
            depth = 1
            while depth and (inner_token := next(tokens, None)):
                inside.append(inner_token)
                depth += (inner_token[1] == name) * (
                    (inner_token[0] in ("keep", "open")) - (inner_token[0] == "close")
                )
            texts = [text for *_, text in inside]
            is_text = {token_type for token_type, *_ in inside[:-1]} == {"text"}
            words = "".join(texts[:-1]) if is_text and name not in ANNOTATION else ""
            yield "other" if name in BLOCK else "kept", words, raw + "".join(texts)
        else:
            yield "other" if name in BLOCK else token_type, name, edit_tag(raw)


def _part(tokens: list[Token], read: Edit, escape: Edit) -> Pieces:
    """Returns a part between the white space around it; what has no letters, or is a message, as it
    is.
    """
    raw = "".join(raw for *_, raw in tokens)
    text, tags, kept = _without_tags(tokens, read)
    text = text.rstrip()
    spans = [Kept(0, 0, ""), *kept, Kept(len(text), len(text), "")]
    translatable = " ".join(text[left.stop : right.start] for left, right in pairwise(spans))
    if MESSAGE.search(translatable) or not has_letters(translatable):
        return [raw] if raw else []
    blanks = raw
    if read is html_text:
        # White space around a part stays as it is written, `&nbsp;`, too.
        blanks = ENTITY.sub(
            lambda entity: (
                " " * len(entity[0]) if html.unescape(entity[0]).isspace() else entity[0]
            ),
            raw,
        )
        escape = _as_spelled(
            "".join(raw for token_type, _, raw in tokens if token_type == "text"), escape
        )
    front, back = len(raw) - len(blanks.lstrip()), len(blanks.rstrip())
    return [raw[:front], Part(text, raw[front:back], _paired(tags, text), kept, escape), raw[back:]]


def _without_tags(tokens: list[Token], read: Edit) -> tuple[str, list[Tag], list[Kept]]:
    """Returns the text of a part, its tags, which have no partners yet, and the elements in it that
    stay as they are.
    """
    text, between = "", ""  # the types of the tokens after the last word
    tags: list[Tag] = []
    kept: list[Kept] = []
    for token_type, name, raw in tokens:
        words = ""
        if token_type == "kept":
            words = read(name).strip()
        elif token_type == "text":
            words = read(raw)
            after_code = between in ("kept", "keptclose") and kept and kept[-1].stop == len(text)
            if after_code and (ending := ENDING.match(words)):
                text, words = text + ending[0], words[ending.end() :]
                start, _, code = kept[-1]
                if between == "kept":
                    code += ending[0]
                else:
                    tags[-1].raw, tags[-1].offset = tags[-1].raw + ending[0], len(text)
                kept[-1] = Kept(start, len(text), code)
                if not words:
                    continue
        if token_type == "alone" and raw[0] == "{" and between:  # attributes of what is before
            if between == "kept":
                kept[-1] = kept[-1]._replace(raw=kept[-1].raw + raw)
            else:
                tags[-1].raw += raw
            continue
        if token_type != "text":
            between += "alone" if raw[0] == "{" else token_type
        if not words:
            tags.append(Tag(token_type, name, " " * (text[-1:] == " ") + raw, len(text)))
            continue
        if words[0] == " " and tags and tags[-1].offset == len(text):
            tags[-1].raw += " "
        # Words of two elements are two, as are those beside a tag alone or code, but `<b>S</b>ave`
        # is one.
        is_divided = re.search("close.*open|alone|kept", between) and TWO_WORDS.fullmatch(
            text[-1:] + words[0]
        )
        if between and (is_divided or changes_marks(text, words)):
            text += " "  # for the model, in the tag's place
        if text[-1:] in ("", " "):  # without the tag between them two blanks are one
            words = words.lstrip()
        if token_type == "kept":
            kept.append(Kept(len(text), len(text + words), raw))
        text, between = text + words, "kept" * (token_type == "kept")
    return text, tags, kept


def _paired(unpaired: list[Tag], text: str) -> list[Tag]:
    """Returns tags with the numbers of their partners; the tags of an element without words become
    one.
    """
    tags: list[Tag] = []
    around: list[Tag] = []
    names: Counter[str] = Counter()  # of those around
    for tag in unpaired:
        tag.partner = len(tags)
        if tag.type == "close" and names[tag.name]:
            # What was opened in an element and never closed is a tag alone.
            while (opening := around.pop()).name != tag.name:
                names[opening.name] -= 1
            names[tag.name] -= 1
            if not text[opening.offset : tag.offset].strip():
                inside = tags[opening.partner + 1 :]
                opening.raw += "".join(inner.raw.strip() for inner in [*inside, tag])
                if tag.offset == opening.offset and tag.raw.endswith(" "):
                    opening.raw += " "
                del tags[opening.partner + 1 :]
                continue
            opening.partner, tag.partner = tag.partner, opening.partner
        elif tag.type == "open":
            around.append(tag)
            names[tag.name] += 1
        tags.append(tag)
    return tags
