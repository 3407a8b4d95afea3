"""Mark-up in text that is translated: tags are taken out and put back where the alignment says.

Placeholders, such as `{name}`, `%s` or a web address, stay in the text, because the sentence needs them. If the
translation has spoilt or lost one, it replaces what is aligned with it; superfluous copies are removed.
"""

import html
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from aiayn.data.cleaning import SEPARATOR
from aiayn.data.placeholders import PLACEHOLDER_LENGTH, TAG, changes_placeholders
from aiayn.search.placement import Element, tree, written
from aiayn.search.places import Places
from aiayn.search.projection import AlignedText
from aiayn.search.repair import repair

# Tags that end a sentence: what is between two of them is translated by itself.
BLOCK_NAMES = (
    "address article aside blockquote body br caption col colgroup dd details dialog div dl dt fieldset figcaption "
    "figure footer form h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li main menu nav ol optgroup option p "
    "section select summary table tbody td tfoot th thead title tr ul"
)
BLOCKS = frozenset(BLOCK_NAMES.split())
# HTML elements that are not translated, with all that is in them; and those with an attribute that says so.
OPAQUE = frozenset({"script", "style", "pre", "textarea", "svg", "math"})
UNTRANSLATED = re.compile(r"\btranslate\s*=\s*[\"']?no\b", re.IGNORECASE)
NAME = re.compile(r"(?:<|&lt;)(/?)([A-Za-z_][\w:.-]*)")


@dataclass(frozen=True)
class Part:
    """A text between tags that end a sentence, without its own tags and without white space around it."""

    text: str
    elements: list[Element]


@dataclass(frozen=True)
class MarkedText:
    """A text with mark-up: parts to translate, and the text between them, which is kept."""

    pieces: list[Part | str]
    is_html: bool

    @property
    def parts(self) -> list[Part]:
        return [piece for piece in self.pieces if isinstance(piece, Part)]

    def restore(self, translations: list[AlignedText]) -> "Restored":
        """Returns the translation with its mark-up, given the translation of every part."""
        remaining, pieces, places = iter(translations), [], Places()
        for piece in self.pieces:
            if isinstance(piece, Part):
                sentence = repair(next(remaining), places)
                piece = written(sentence, piece.elements, places, _escaped if self.is_html else str)
            pieces.append(piece)
        return Restored("".join(pieces), places)


@dataclass(frozen=True)
class Restored:
    """A translation with all of its mark-up, and how the mark-up was placed."""

    text: str
    places: Places


def _escaped(text: str) -> str:
    return html.escape(text, quote=False)


def parse_markup(text: str, is_html: bool = False) -> MarkedText:
    """Takes the mark-up out of a text. In HTML, entities are characters, and scripts and the like are kept unchanged.

    Nothing is refused: an unmatched tag is an element by itself. Takes time in proportion to the text's length.
    """
    pieces: list[Part | str] = []
    reader = _PartReader(is_html)
    for token, is_tag, is_whole in _tokens(text, is_html):
        name = NAME.match(token) if is_tag else None
        if is_whole or (is_tag and (name is None or name[2].lower() in BLOCKS)):
            pieces += [*reader.finish(), token]
            reader = _PartReader(is_html)
        elif name:
            reader.add_tag(token, name[2].lower(), is_closing=bool(name[1]))
        else:
            reader.add_text(token)
    return MarkedText(pieces + reader.finish(), is_html)


def _tokens(text: str, is_html: bool) -> Iterator[tuple[str, bool, bool]]:
    """Cuts a text into tags (True, False), elements that are not translated (False, True) and what is between them."""
    end = 0
    closings = _Closings(text)
    while match := TAG.search(text, end):
        if match.start() > end:
            yield text[end : match.start()], False, False
        stop = closings.end_of_untranslated(match) if is_html else None
        end = stop or match.end()
        yield text[match.start() : end], stop is None, stop is not None
    if end < len(text):
        yield text[end:], False, False


class _Closings:
    """Finds the tags that close elements; a name without further closing tags is searched for once."""

    def __init__(self, text: str):
        self._text = text
        self._without: set[str] = set()

    def end_of_untranslated(self, tag: re.Match[str]) -> int | None:
        """Returns where the element that a tag opens ends, if that is not translated; None for all other tags."""
        name = NAME.match(tag[0])
        if name is None or name[1] or tag[0].startswith("&"):
            return None
        key = name[2].lower()
        if key in self._without or not (key in OPAQUE or UNTRANSLATED.search(tag[0])):
            return None
        closing = re.compile(rf"</{re.escape(key)}\s*>", re.IGNORECASE).search(self._text, tag.end())
        if closing is None:
            self._without.add(key)
        return closing and closing.end()


class _PartReader:
    """Collects a part, whose tags are numbered in order."""

    def __init__(self, is_html: bool):
        self._is_html = is_html
        self._raw: list[str] = []
        self._pieces: list[str] = []  # the text without its tags
        self._length, self._end = 0, ""  # that text's length and last characters
        self._elements: list[Element] = []
        self._open: list[tuple[str, Element]] = []  # the innermost last
        self._open_names: Counter[str] = Counter()
        self._tags = 0
        self._starts_with_tag = self._ends_with_tag = False

    def add_text(self, token: str) -> None:
        self._raw.append(token)
        token = SEPARATOR.sub(" ", token)
        if self._is_html:
            token = html.unescape(re.sub("[ \t]+", " ", token))
        apart = self._ends_with_tag and changes_placeholders(self._end, token)
        self._ends_with_tag = False
        if self._elements and self._elements[-1].first_tag == self._tags:
            self._elements[-1].after = token.startswith(" ")
        if apart:
            self._append(" ")  # for the model, in the tag's place
        # Without the tag between them two blanks are one.
        self._append(token.lstrip(" ") if self._end.endswith(" ") else token)

    def _append(self, text: str) -> None:
        self._pieces.append(text)
        self._length += len(text)
        self._end = (self._end + text[-PLACEHOLDER_LENGTH:])[-PLACEHOLDER_LENGTH:]

    def add_tag(self, tag: str, name: str, is_closing: bool) -> None:
        here, self._ends_with_tag = self._length, True
        self._starts_with_tag |= not self._raw
        self._raw.append(tag)
        self._tags += 1
        if is_closing and self._open_names[name]:
            while True:  # tags that were opened after it and never closed are elements by themselves
                other, element = self._open.pop()
                self._open_names[other] -= 1
                if other == name:
                    element.closing, element.stop, element.last_tag = tag, here, self._tags
                    return
        element = Element(tag, here, here, self._tags, self._tags, before=self._end.endswith(" "))
        self._elements.append(element)
        if not is_closing and not tag.endswith(("/>", "/&gt;")):
            self._open.append((name, element))
            self._open_names[name] += 1

    def finish(self) -> list[Part | str]:
        """Returns the part, with the white space around it before and after; tags without text as they are."""
        whole = "".join(self._pieces)
        text = whole.strip()
        if not text:
            return ["".join(self._raw)] if self._raw else []
        front = len(whole) - len(whole.lstrip())
        for element in self._elements:
            element.start = min(max(element.start - front, 0), len(text))
            element.stop = min(max(element.stop - front, 0), len(text))
        head = "" if self._starts_with_tag else whole[:front]
        tail = "" if self._ends_with_tag else whole[front + len(text) :]
        return [head, Part(text, tree(self._elements)), tail]
