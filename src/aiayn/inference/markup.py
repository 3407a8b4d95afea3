"""Mark-up in text that is translated: tags are taken out and put back where the alignment says.

Placeholders, such as `{name}`, `%s` or a web address, stay in the text, because the sentence needs them; where the
translation has spoilt one, it takes the place of what is aligned with it.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass

from aiayn.data.cleaning import SEPARATOR
from aiayn.data.placeholders import PLACEHOLDER, TAG
from aiayn.inference.paragraphs import Paragraph, split_paragraph
from aiayn.inference.placement import Element, Places, repair, tree, written
from aiayn.inference.projection import AlignedText, align, join
from aiayn.inference.translator import Progress, Translator

# Tags that end a sentence: what is between two of them is translated by itself.
BLOCK_NAMES = (
    "address article aside blockquote body br caption col colgroup dd details dialog div dl dt fieldset figcaption "
    "figure footer form h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li main menu nav ol optgroup option p "
    "section select summary table tbody td tfoot th thead title tr ul"
)
BLOCKS = frozenset(BLOCK_NAMES.split())
# HTML that is not translated, with all that is in it.
OPAQUE = re.compile(
    r"<(script|style|pre|textarea|svg|math)\b[^<>]*>.*?</\1\s*>"
    r"|<([A-Za-z][\w:-]*)\b[^<>]*\btranslate\s*=\s*[\"']?no\b[^<>]*>.*?</\2\s*>",
    re.DOTALL | re.IGNORECASE,
)
HTML_TOKEN = re.compile(f"{OPAQUE.pattern}|{TAG.pattern}", OPAQUE.flags)
PLACEHOLDER_LENGTH = 500  # looked at on each side of a tag; longer ones are hardly ever written
NAME = re.compile(r"(?:<|&lt;)(/?)([A-Za-z][\w:.-]*)")


@dataclass(frozen=True)
class Part:
    """A text between tags that end a sentence, its own tags taken out, without white space around it."""

    text: str
    elements: list[Element]


@dataclass(frozen=True)
class MarkedText:
    """A text with mark-up: parts to translate, and what stands between them and stays."""

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
    """A translation with all of its mark-up, and how the places of that were found."""

    text: str
    places: Places


def _escaped(text: str) -> str:
    return html.escape(text, quote=False)


def parse_markup(text: str, is_html: bool = False) -> MarkedText:
    """Takes the mark-up out of a text. In HTML, entities are characters, and scripts and the like stay as they are.

    Nothing is refused: a tag without its other half stands for itself.
    """
    pieces: list[Part | str] = []
    reader = _PartReader(is_html)
    for token, is_tag in _tokens(text, is_html):
        name = NAME.match(token) if is_tag else None
        if is_tag and (name is None or name[2].lower() in BLOCKS or (is_html and OPAQUE.fullmatch(token))):
            pieces += [*reader.finish(), token]
            reader = _PartReader(is_html)
        elif name:
            reader.add_tag(token, name[2].lower(), is_closing=bool(name[1]))
        else:
            reader.add_text(token)
    return MarkedText(pieces + reader.finish(), is_html)


def _tokens(text: str, is_html: bool) -> Iterator[tuple[str, bool]]:
    """Cuts a text into tags (True) and what is between them."""
    end = 0
    for match in (HTML_TOKEN if is_html else TAG).finditer(text):
        if match.start() > end:
            yield text[end : match.start()], False
        yield match[0], True
        end = match.end()
    if end < len(text):
        yield text[end:], False


class _PartReader:
    """Collects a part, whose tags are numbered in order."""

    def __init__(self, is_html: bool):
        self._is_html = is_html
        self._raw = self._text = ""
        self._elements: list[Element] = []
        self._open: list[tuple[str, Element]] = []  # the innermost last
        self._tags = 0
        self._starts_with_tag = self._ends_with_tag = False

    def add_text(self, token: str) -> None:
        self._raw += token
        token = SEPARATOR.sub(" ", token)
        if self._is_html:
            token = html.unescape(re.sub("[ \t]+", " ", token))
        apart = self._ends_with_tag and _changes_placeholders(self._text, token)
        self._ends_with_tag = False
        if self._elements and self._elements[-1].first_tag == self._tags:
            self._elements[-1].after = token.startswith(" ")
        if apart:
            self._text += " "  # for the model, in the tag's place
        # Without the tag between them two blanks are one.
        self._text += token.lstrip(" ") if self._text.endswith(" ") else token

    def add_tag(self, tag: str, name: str, is_closing: bool) -> None:
        here, self._ends_with_tag = len(self._text), True
        self._starts_with_tag |= not self._raw
        self._raw += tag
        self._tags += 1
        if is_closing and any(name == other for other, _ in self._open):
            while True:  # what was opened after it and never closed stands for itself
                other, element = self._open.pop()
                if other == name:
                    element.closing, element.stop, element.last_tag = tag, here, self._tags
                    return
        element = Element(tag, here, here, self._tags, self._tags, before=self._text.endswith(" "))
        self._elements.append(element)
        if not is_closing and not tag.endswith(("/>", "/&gt;")):
            self._open.append((name, element))

    def finish(self) -> list[Part | str]:
        """Returns the part, with the white space around it before and after; tags without text as they are."""
        text = self._text.strip()
        if not text:
            return [self._raw] if self._raw else []
        front = len(self._text) - len(self._text.lstrip())
        for element in self._elements:
            element.start = min(max(element.start - front, 0), len(text))
            element.stop = min(max(element.stop - front, 0), len(text))
        head = "" if self._starts_with_tag else self._text[:front]
        tail = "" if self._ends_with_tag else self._text[front + len(text) :]
        return [head, Part(text, tree(self._elements)), tail]


def _changes_placeholders(before: str, after: str) -> bool:
    """Whether two texts side by side have other placeholders than each by itself, as `%s` and `a` have."""
    before, after = before[-PLACEHOLDER_LENGTH:], after[:PLACEHOLDER_LENGTH]
    return PLACEHOLDER.findall(before + after) != PLACEHOLDER.findall(before) + PLACEHOLDER.findall(after)


def translate_paragraphs(translator: Translator, texts: list[str], on_batch: Progress | None = None) -> list[str]:
    """Translates texts sentence by sentence, all in one batch. Raises what `n_best` and `split_paragraph` raise."""
    split = [split_paragraph(text, translator.languages[0]) for text in texts]
    found = iter(translator.translate([one for paragraph in split for one in paragraph.sentences], on_batch))
    return [paragraph.join([next(found) for _ in paragraph.sentences]) for paragraph in split]


def translate_markup(
    translator: Translator,
    texts: list[str],
    is_html: bool = False,
    paragraphs: bool = False,
    on_batch: Progress | None = None,
) -> list[Restored]:
    """Translates texts and puts their mark-up back; with `paragraphs`, sentence by sentence.

    Raises what `Translator.n_best` and, with `paragraphs`, `split_paragraph` raise.
    """
    marked = [parse_markup(text, is_html) for text in texts]
    parts = [part.text for one in marked for part in one.parts]
    language = translator.languages[0]
    split = [split_paragraph(part, language) if paragraphs else Paragraph([part], ["", ""]) for part in parts]
    sentences = [sentence for paragraph in split for sentence in paragraph.sentences]
    best = [found for found, *_ in translator.n_best(sentences, 1, on_batch)]
    aligned = iter(align(translator, sentences, best))
    whole = iter(
        [join(part, one, [next(aligned) for _ in one.sentences]) for part, one in zip(parts, split, strict=True)]
    )
    return [one.restore([next(whole) for _ in one.parts]) for one in marked]
