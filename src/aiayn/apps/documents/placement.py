"""Puts the tags and placeholders of a source into its translation, by word alignment.

A source with tags is translated without them, as a `Part`; `written` puts them back. For example

    source       `Open the <b>red</b> file %s`, as a part the text `Open the red file %s`
    translation  `Datei rot öffnen`; the model lost `%s`
    weights      (3, 5), how much its three units attend to the five of the source
    written      `Datei <b>rot</b> öffnen %s`

1. `unit_weights` adds the attention between subwords up to attention between units: words,
   placeholders and punctuation marks.
2. `_restored_words` cuts the translation into words, among them every placeholder of the source
   exactly once.
3. `TagPlacer` finds for every tag the word and the character before which it stands.
4. `written` joins words, tags, and the blanks between them.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from aiayn.apps.documents.markup import MARK, MARK_LENGTH, Edit, Part, changes_marks
from aiayn.data.cleaning import composed
from aiayn.data.placeholders import CJK, PLACEHOLDER, SCHEME

# What belongs to the character before it: accents, vowel signs, joiners, colours of skin.
SIGNS = "".join(
    chr(code) for code in range(0x300, 0x1F000) if unicodedata.category(chr(code))[0] == "M"
)
SIGNS += "\u200c\u200d\U0001f3fb-\U0001f3ff"
# and Thai, Lao, Burmese, Khmer: words without blanks
UNSPACED = f"{CJK}\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
# Marks, words, characters of scripts without blanks, and punctuation marks. A web address begins a
# unit even where a tag was between it and the word before; a joiner is followed by a part of the
# same emoji.
UNIT = re.compile(
    rf"(?P<mark>{MARK.pattern})|[{UNSPACED}][{SIGNS}]*"
    rf"|[^\W{UNSPACED}](?:(?!{SCHEME})[^\W{UNSPACED}]|[{SIGNS}])*"
    rf"|[^\w\s](?:[{SIGNS}]|(?<=\u200d)[^\w\s])*",
    re.DOTALL,
)
Unit = re.Match[str]
BESIDE_NO_BLANK = re.compile(f"[{CJK}]")
SURE = 0.2  # share of a word's attention below which a place is a guess
OPENING, CLOSING = "([{«„", ".,;:!?)]}»“…،؛؟।"  # without a blank after and before them
TAG_NAME = re.compile("/?[A-Za-z_]")
ZERO_WIDTH_SPACE = "\u200b"  # divides two placeholders where a blank does not

# Of a translated sentence: lengths in bytes of its subwords and of the source's, and their
# attention (T, S), if any.
Attention = tuple[list[int], list[int], Any]
BEHIND = -1  # behind the word before, where others stand before a character of a word
WHOLE = -1  # the part, in place of the number of an element


class SentenceSubwords(NamedTuple):
    """Which subwords of a sentence overlap each of its units."""

    units: slice  # of the whole text, those of the sentence
    starts: np.ndarray  # (units,), the first subword of each
    stops: np.ndarray  # (units,), after its last one
    units_per_subword: np.ndarray  # (subwords,), how many units each subword is in

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Returns (units, ...): the sums of the values (subwords, ...) of each unit's subwords."""
        sums = np.pad(values.cumsum(0), ((1, 0), (0, 0)))
        return sums[self.stops] - sums[self.starts]


class Word(NamedTuple):
    """Characters of a translation, and what replaces them; words are sorted by these fields."""

    start: int
    stop: int
    text: str
    weights: np.ndarray  # its attention to the units of the source
    is_new: bool  # the model did not write it


class Required(NamedTuple):
    """Units of the source that the translation has exactly once."""

    start: int
    stop: int
    raw: str  # the element that is written for them; empty for a placeholder


class PlacedTag(NamedTuple):
    """A tag of a translation; tags are written in the order of these fields."""

    word: int
    character: int  # of that word, before which it stands; or BEHIND the word before
    depth: float  # outer elements begin first and end last
    number: int  # in the source
    raw: str


class Element(NamedTuple):
    """The words of a translation that an element is around or in."""

    start: int
    stop: int
    parent: int  # number of the opening tag of the element around it, or WHOLE


def unit_weights(
    translated: list[str], cut: list[str], attention: Sequence[Attention]
) -> np.ndarray:
    """Returns (units, source units): how much the units of a translation attend to those of its
    source.

    Both texts are given as blank, sentence, blank, ..., blank. Rows sum to 1 or are 0.
    """
    weights = np.zeros([len(UNIT.findall("".join(pieces))) for pieces in (translated, cut)])
    rows = _sentence_subwords(translated, [lengths for lengths, *_ in attention], str)
    # The tokenizer composes the source; a translation is as its subwords spell it.
    columns = _sentence_subwords(cut, [lengths for _, lengths, _ in attention], composed)
    for row, column, (*_, subword_weights) in zip(rows, columns, attention, strict=True):
        if subword_weights is not None and weights.size:
            shared = np.asarray(subword_weights, float) / column.units_per_subword
            weights[row.units, column.units] += column.sums(row.sums(shared).T).T
    return weights / weights.sum(1, keepdims=True).clip(1e-9)


def _sentence_subwords(
    pieces: list[str], subword_lengths: list[list[int]], spell: Edit
) -> Iterator[SentenceSubwords]:
    """Yields the subwords of each sentence by unit; a blank belongs to the unit after it.

    `spell` writes a text as its subwords do; their lengths are in bytes of that.
    """
    text = "".join(pieces)
    ends = [0, *(unit.end() for unit in UNIT.finditer(text))]
    unit_stops = np.cumsum([len(spell(text[a:b]).encode()) for a, b in pairwise(ends)])[:-1]
    piece_stops = accumulate(len(spell(piece).encode()) for piece in pieces)
    blank_stops = list(piece_stops)[::2]
    for sentence_start, lengths in zip(blank_stops, subword_lengths, strict=False):
        # The first subword has a space of its own before the sentence.
        stops = sentence_start - 1 + np.cumsum(np.array(lengths, int))
        starts = np.maximum(stops - lengths, sentence_start)
        # That space alone is a subword of the sentence, even where no blank is before it.
        first_unit = np.searchsorted(unit_stops, sentence_start, "right")
        last = np.maximum(np.searchsorted(unit_stops, stops), first_unit)
        first = np.minimum(np.searchsorted(unit_stops, starts, "right"), last)
        bounds = (first[0], last[-1] + 1) if lengths else (0, 0)
        units = np.arange(*bounds)
        yield SentenceSubwords(
            slice(*bounds),
            np.searchsorted(last, units),
            np.searchsorted(first, units, "right"),
            last - first + 1,
        )


def written(part: Part, text: str, weights: np.ndarray, placement_counts: Counter[str]) -> str:
    """Returns the translation of a part with its tags and placeholders; other text is passed
    through `part.escape`. A part that stays the same is returned as it is written.

    Adds to `placement_counts` how many the model wrote itself (by_model), were put where the
    alignment says (by_alignment) or where it says nothing (guessed), and how many of the model's
    own were removed.
    Takes Python steps in proportion to units and tags, and a few passes of numpy over the units for
    each tag.
    """
    if text == part.text and part.raw:
        return part.raw
    words = sorted(
        _restored_words(part, text, weights, placement_counts), key=lambda word: word[:2]
    )
    tags_at: defaultdict[int, list[PlacedTag]] = defaultdict(list)
    for tag in TagPlacer(part, words, weights.shape[1], placement_counts).place():
        tags_at[tag.word].append(tag)
    pieces: list[str] = []
    previous = Word(0, 0, "", weights[:0], is_new=False)
    preceding = ""  # the end of what is written, without tags
    for number, word in enumerate(words):
        gap = _gap(part, text, preceding, previous, word)
        pieces += [tag.raw for tag in tags_at[number] if tag.character == BEHIND]
        pieces.append(part.escape(gap))
        done = 0
        for tag in tags_at[number]:
            if tag.character != BEHIND:
                pieces += [word.text[done : tag.character], tag.raw]
                done = tag.character
        pieces.append(word.text[done:])
        preceding = f"{preceding}{gap}{word.text}"[-MARK_LENGTH:]
        previous = word
    rest = text[previous.stop :]
    return "".join(
        [*pieces, *(tag.raw for tag in tags_at[len(words)]), "" if rest.strip() else rest]
    )


def _gap(part: Part, text: str, preceding: str, previous: Word, word: Word) -> str:
    """Returns what is between two words: what the translation has there, but a blank or nothing
    where they were no neighbours in it.

    Tags and placeholders must not run together, not even over a blank.
    """
    gap = text[previous.stop : word.start]
    # What follows `&lt;` would be a tag's name, and a `&gt;` far behind it the tag's end.
    begins_tag = (
        not gap and "&gt;" in part.text and preceding.endswith("&lt;") and TAG_NAME.match(word.text)
    )
    if not (word.is_new or previous.is_new or gap.strip() or begins_tag):
        return gap
    following = word.text if word.is_new else text[word.start : word.start + MARK_LENGTH]
    # No blank belongs beside punctuation that is the translation's own.
    is_open = not previous.is_new and preceding[-1:] in OPENING
    is_closed = not word.is_new and following[0] in CLOSING
    beside_cjk = any(map(BESIDE_NO_BLANK.match, (preceding[-1:], following)))
    gap = "" if not preceding or is_open or is_closed or beside_cjk else " "
    blanks = (blank for blank in (gap, " ") if not changes_marks(preceding + blank, following))
    return next(blanks, ZERO_WIDTH_SPACE)


def _restored_words(
    part: Part, text: str, weights: np.ndarray, placement_counts: Counter[str]
) -> Iterator[Word]:
    """Yields the words of a translation with every placeholder of the source, and every element
    that is kept, once.

    A missing one takes the place of what is aligned with it, such as `% s`, or is put beside it.
    Copies that the source does not have go, and tags and stray braces, which would break what reads
    or formats the text.
    """
    source, units = list(UNIT.finditer(part.text)), list(UNIT.finditer(text))
    source_names, names = (  # names are emptied as their units are used
        np.array([_name(unit) for unit in side], dtype=object) for side in (source, units)
    )
    edges = [*(unit.span() for unit in units), (len(text), len(text))]
    required = _required(part, source)
    is_wanted = np.isin(names, [source_names[span.start] for span in required if not span.raw])
    for span in required:
        count = span.stop - span.start
        mass = weights[:, span.start : span.stop].sum(1)
        windows = sliding_window_view(np.append(names, [""] * count), count)[:-1]
        copies = (windows == source_names[span.start : span.stop]).all(1)
        is_missing = not copies.any()
        unit = source[span.start]
        # A stray brace or `<` stays where the model wrote it, and is not missed.
        is_stray = not span.raw and not PLACEHOLDER.search(unit[0])
        if not is_missing:
            start = int(np.where(copies, mass, -1).argmax())
            stop, unit = start + count, units[start]
            placement_counts["by_model"] += not is_stray
        elif is_stray:
            continue
        else:
            is_sure = mass.max(initial=0) >= SURE
            # A placeholder that others want is one of this element's if it attends to it.
            is_others = is_wanted & (mass < 0.5) if span.raw else is_wanted
            gain, start, stop = best_interval(mass - 0.5, (names != "") & ~is_others)
            if gain <= 0:
                start = stop = int(mass.argmax()) if is_sure else len(units)
            placement_counts["by_alignment" if is_sure else "guessed"] += 1
        names[start:stop] = ""
        begin = edges[start][0]
        end = edges[stop - 1][1] if start < stop else begin
        row = np.zeros(len(source))
        row[span.start : span.stop] = 1 / count
        yield Word(begin, end, span.raw or part.escape(unit[0]), row, is_missing)
    for number, unit in enumerate(units):
        if names[number] and not unit["mark"]:
            yield Word(*unit.span(), part.escape(unit[0]), weights[number], is_new=False)
        placement_counts["removed"] += bool(names[number] and unit["mark"])


def _name(unit: Unit) -> str:
    """Returns what copies of a unit have in common; of tags and what may begin one it is only
    `<`.
    """
    return unit[0] if not unit["mark"] or PLACEHOLDER.search(unit[0]) else unit[0][0]


def _required(part: Part, source: list[Unit]) -> list[Required]:
    """Returns the elements that are kept, and then the placeholders outside of them."""
    starts, stops = [kept.start for kept in part.kept], [kept.stop for kept in part.kept]
    ranges = _unit_ranges(source, starts, stops)
    elements = [Required(*units, kept.raw) for units, kept in zip(ranges, part.kept, strict=True)]
    inside = {unit for units in ranges for unit in range(*units)}
    return elements + [
        Required(number, number + 1, "")
        for number, unit in enumerate(source)
        if unit["mark"] and number not in inside
    ]


def _unit_ranges(units: list[Unit], starts: list[int], stops: list[int]) -> list[tuple[int, int]]:
    """Returns which units are in these ranges of characters, even in part: from the first to the
    one after the last.
    """
    begins, ends = np.array([unit.span() for unit in units]).reshape(-1, 2).T
    firsts, lasts = np.searchsorted(ends, starts, "right"), np.searchsorted(begins, stops)
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


class TagPlacer:
    """Places the tags of a part in its translation, whose elements are in each other as they were.

    An element is around the words that attend to what it was around, as far as the one around it
    and those before it leave them free. Other tags are put beside the word that attends to the word
    that they stood before or after. A tag within a word, such as `<wbr>`, or an element of a part
    of a word, such as `2<sup>31</sup>`, is put into that word if it is copied.
    """

    def __init__(
        self, part: Part, words: list[Word], source_units: int, placement_counts: Counter[str]
    ):
        self._tags, self._counts = part.tags, placement_counts
        self._source = list(UNIT.finditer(part.text))
        self._texts = np.array([word.text for word in words], dtype=object)
        weights = np.array([word.weights for word in words])
        self._weights = weights.reshape(len(words), source_units)
        self._elements = {WHOLE: Element(0, len(words), WHOLE)}  # by number of the opening tag
        self._owners = np.full(len(words) + 1, WHOLE)  # the innermost element of each word
        self._divided: dict[tuple[int, int], int] = {}  # copies, by unit of the source and parent
        self._placed: list[PlacedTag] = []

    def place(self) -> list[PlacedTag]:
        """Returns all tags in the order in which they are written."""
        around = [WHOLE]  # numbers of the opening tags of the elements around a tag
        beside: list[tuple[int, int, int]] = []  # placed once all elements are
        offsets = [tag.offset for tag in self._tags]
        partner_offsets = [offsets[tag.partner] for tag in self._tags]
        ranges = _unit_ranges(self._source, offsets, partner_offsets)
        sums = np.pad(self._weights.cumsum(1), ((0, 0), (1, 0)))
        for number, (tag, (first, last)) in enumerate(zip(self._tags, ranges, strict=True)):
            parent = around[-1]
            if tag.partner < number:  # placed with its opening tag
                if tag.partner == parent:
                    around.pop()
                continue
            has_no_tags = tag.partner == number + 1
            if has_no_tags and self._put_into_word(number, parent, first):
                continue
            mass = sums[:, last] - sums[:, first]
            if tag.partner > number and self._surround(number, parent, mass):
                around.append(number)
            else:
                beside.append((number, parent, first))
        for number, parent, unit in beside:
            if not self._put_into_word(number, parent, unit):
                self._put_beside(number, parent, unit)
        return sorted(self._placed)

    def _put_into_word(self, number: int, parent: int, unit: int) -> bool:
        """Puts a tag, or an element without tags, into the copy of the word that it was in.

        Returns False if it was in none, or the parent has no copy of it.
        """
        if unit == len(self._source):
            return False
        opening = self._tags[number]
        closing = self._tags[opening.partner]
        word, word_start = self._source[unit][0], self._source[unit].start()
        start, stop = (max(0, tag.offset - word_start) for tag in (opening, closing))
        if stop > len(word) or (start == 0 and stop in (0, len(word))):
            return False
        copy = self._divided.get((unit, parent))
        if copy is None:
            copies = (self._texts == word) & (self._owners[:-1] == parent)
            if not copies.any():
                return False
            copy = int(np.where(copies, self._weights[:, unit], -1).argmax())
        self._counts["by_alignment"] += 1
        if closing is opening:
            self._placed.append(PlacedTag(copy, start, number, number, opening.raw.strip(" ")))
        else:
            self._divided[unit, parent] = copy
            self._enclose(number, Element(copy, copy + 1, parent), (copy, start), (copy, stop))
        return True

    def _surround(self, number: int, parent: int, mass: np.ndarray) -> bool:
        """Puts an element around the free words that attend most to its own, or returns False.

        mass (words,): the attention to what it was around.
        """
        gain, start, stop = best_interval(mass - 0.5, self._owners[:-1] == parent)
        if gain < -1:
            return False
        self._counts["by_alignment" if gain > SURE - 0.5 else "guessed"] += 1
        self._enclose(number, Element(start, stop, parent), (start, 0), (stop, BEHIND))
        return True

    def _enclose(
        self, number: int, element: Element, begin: tuple[int, int], end: tuple[int, int]
    ) -> None:
        """Puts the two tags of an element before these (word, character)."""
        self._elements[number] = element
        self._owners[element.start : element.stop] = number
        opening = self._tags[number]
        closing = self._tags[opening.partner]
        self._placed += [
            PlacedTag(*begin, number, number, opening.raw.strip(" ")),
            PlacedTag(*end, -number, number, closing.raw.strip(" ")),
        ]

    def _put_beside(self, number: int, parent: int, unit: int) -> None:
        """Puts a tag, or an element without words, before or after a word of its parent."""
        tag, (begin, end, _) = self._tags[number], self._elements[parent]
        raw = tag.raw
        if tag.partner > number:
            raw += self._tags[tag.partner].raw.strip(" ")
        follows = unit == 0 or raw.endswith(" ") > raw.startswith(" ")
        # Of nothing, at the ends of the source
        mass = self._weights[begin:end, unit - follows : unit - follows + 1].sum(1)
        is_sure = mass.max(initial=0) >= SURE
        is_at_end = unit in (0, self._weights.shape[1])
        self._counts["by_alignment" if is_sure or is_at_end else "guessed"] += 1
        if is_sure:
            word = begin + int(mass.argmax())
        else:
            word, follows = (begin, False) if unit == 0 else (end - 1, True)
        start, stop, owner = word, word + 1, self._owners[word]
        while owner != parent:  # it is in another, which it goes before or after
            start, stop, owner = self._elements[owner]
        if follows or word > start:
            placed = PlacedTag(stop, BEHIND, -parent - 0.5, number, raw.rstrip(" "))
        else:
            placed = PlacedTag(start, 0, parent + 0.5, number, raw.lstrip(" "))
        self._placed.append(placed)


def best_interval(gains: np.ndarray, free: np.ndarray) -> tuple[float, int, int]:
    """Returns the interval of free units with the largest sum of gains: the sum, its start and its
    end. Of equal ones it is the shortest.

    Gains (units,) are at least -1/2; a sum below -1 says that no unit is free.
    """
    # What is not free, as what follows the last unit, outweighs any sum of gains.
    sums = np.append(0, np.where(free, gains, -2.0 * len(gains) - 2)).cumsum()
    totals = np.append(sums[1:] - np.minimum.accumulate(sums[:-1]), -np.inf)
    last = int(totals.argmax())
    start = last - int(sums[: last + 1][::-1].argmin())
    return float(totals[last]), start, last + 1
