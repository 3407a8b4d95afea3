"""Puts the tags and placeholders of a source into its translation, by how their subwords attend to
each other.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from aiayn.apps.documents.markup import MARK, MARK_LENGTH, Part, changes_marks
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
    rf"({MARK.pattern})|[{UNSPACED}][{SIGNS}]*"
    rf"|[^\W{UNSPACED}](?:(?!{SCHEME})[^\W{UNSPACED}]|[{SIGNS}])*"
    rf"|[^\w\s](?:[{SIGNS}]|(?<=\u200d)[^\w\s])*",
    re.DOTALL,
)
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


class Word(NamedTuple):
    """What replaces some characters of a translation."""

    start: int
    stop: int
    text: str
    weights: np.ndarray  # its attention to the units of the source
    is_new: bool  # the model did not write it


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
    # for each sentence which subwords are in which units: pairs, and how many units each subword is
    # in
    sides = []
    counts = []
    for number, pieces in enumerate((translated, cut)):
        text = "".join(pieces)
        # The tokenizer composes the source; a translation is as its subwords spell it.
        byte_lengths = (
            _composed_byte_lengths(text)
            if pieces is cut
            else [len(letter.encode()) for letter in text]
        )
        bytes_until = np.cumsum([0, *byte_lengths])
        stops = bytes_until[[unit.end() for unit in UNIT.finditer(text)]]
        # The first subword has a space of its own
        starts = bytes_until[list(accumulate(map(len, pieces)))[::2]] - 1
        lengths = [np.array(sentence_attention[number], int) for sentence_attention in attention]
        sides.append(
            [
                _units_of(stops, *start_and_lengths)
                for start_and_lengths in zip(starts, lengths, strict=False)
            ]
        )
        counts.append(len(stops))
    weights = np.zeros(counts)
    for (rows, units, _), (columns, src_units, shares), (*_, subword_weights) in zip(
        *sides, attention, strict=True
    ):
        if subword_weights is not None and weights.size:
            added = np.asarray(subword_weights)[np.ix_(rows, columns)] / shares
            np.add.at(weights, (units[:, None], src_units), added)
    return weights / weights.sum(1, keepdims=True).clip(1e-9)


def _composed_byte_lengths(text: str) -> list[int]:
    """Returns the bytes of each character in the composed text; a decomposed unit has all of them
    at its last one.
    """
    lengths = [len(letter.encode()) for letter in text]
    if composed(text) != text:
        for unit in UNIT.finditer(text):
            zeros = [0] * (len(unit[0]) - 1)
            lengths[unit.start() : unit.end()] = [*zeros, len(composed(unit[0]).encode())]
    return lengths


def _units_of(
    stops: np.ndarray, start: int, lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the subwords of a sentence, once for each unit that they are in or before, these, and
    how many each has.

    stops: the bytes that units end before; start: that of the blank of the sentence's first
    subword.
    """
    ends = start + np.cumsum(lengths)
    last = np.searchsorted(stops[:-1], ends)
    first = np.minimum(
        np.searchsorted(stops[:-1], np.maximum(ends - lengths, start + 1), "right"), last
    )
    counts = last - first + 1
    subwords = np.repeat(np.arange(len(lengths)), counts)
    units = np.arange(len(subwords)) + np.repeat(first - counts.cumsum() + counts, counts)
    return subwords, units, counts[subwords]


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
    words = sorted(_fixed_words(part, text, weights, placement_counts), key=lambda word: word[:2])
    word_weights = np.array([word.weights for word in words]).reshape(len(words), weights.shape[1])
    tags_at: defaultdict[int, dict[int, str]] = defaultdict(dict)  # by word and character
    for tag in TagPlacer(part, words, word_weights, placement_counts).place():
        tags = tags_at[tag.word]
        tags[tag.character] = tags.get(tag.character, "") + tag.raw
    pieces: list[str] = []
    preceding, done, was_new = "", 0, False  # the text before a word, up to where text is written
    for number, word in enumerate(words):
        gap = text[done : word.start]
        # What follows `&lt;` would be a tag's name, and a `&gt;` far behind it the tag's end.
        begins_tag = (
            not gap
            and "&gt;" in part.text
            and preceding.endswith("&lt;")
            and TAG_NAME.match(word.text)
        )
        if word.is_new or was_new or gap.strip() or begins_tag:  # they were no neighbours
            following = word.text if word.is_new else text[word.start : word.start + MARK_LENGTH]
            gap = _gap(preceding, following, not was_new, not word.is_new)
        tags = tags_at[number]
        pieces += [tags.pop(BEHIND, ""), part.escape(gap), tags.get(0, "")]
        for start, stop in pairwise(sorted({0, *tags, len(word.text)})):
            pieces += [word.text[start:stop], tags.get(stop, "")]
        preceding = f"{preceding}{gap}{word.text}"[-MARK_LENGTH:]
        done, was_new = word.stop, word.is_new
    blanks_at_end = "" if text[done:].strip() else text[done:]
    return "".join([*pieces, *tags_at[len(words)].values(), blanks_at_end])


def _gap(preceding: str, following: str, may_open: bool, may_close: bool) -> str:
    """Returns what is put between two texts that were not neighbours: a blank or nothing.

    may_open, may_close: whether punctuation before and after is the translation's own, so that no
    blank belongs beside it. Tags and placeholders must not run together, not even over a blank.
    """
    is_open = may_open and preceding[-1:] in OPENING
    is_closed = may_close and following[0] in CLOSING
    beside_cjk = any(map(BESIDE_NO_BLANK.match, (preceding[-1:], following)))
    gap = "" if not preceding or is_open or is_closed or beside_cjk else " "
    blanks = (blank for blank in (gap, " ") if not changes_marks(preceding + blank, following))
    return next(blanks, ZERO_WIDTH_SPACE)


def _fixed_words(
    part: Part, text: str, weights: np.ndarray, placement_counts: Counter[str]
) -> Iterator[Word]:
    """Yields the words of a translation with every placeholder of the source, and every element
    that is kept, once.

    A missing one takes the place of what is aligned with it, such as `% s`, or is put beside it.
    Copies that the source does not have go, and tags and stray braces, which would break what reads
    or formats the text.
    """
    source, units = list(UNIT.finditer(part.text)), list(UNIT.finditer(text))
    source_names, names = (
        np.array([_name(unit) for unit in some], dtype=object) for some in (source, units)
    )
    edges = [*(unit.span() for unit in units), (len(text), len(text))]
    ranges = _units_in(
        part.text, [start for start, *_ in part.kept], [stop for _, stop, _ in part.kept]
    )
    wanted = [(*unit_range, raw) for unit_range, (*_, raw) in zip(ranges, part.kept, strict=True)]
    inside = {unit for first, last, _ in wanted for unit in range(first, last)}
    alone = [number for number, unit in enumerate(source) if unit[1] and number not in inside]
    wanted += [(number, number + 1, "") for number in alone]
    is_wanted = np.isin(names, source_names[alone])
    for first, last, kept in wanted:
        row, mass = np.zeros(len(source)), weights[:, first:last].sum(1)
        row[first:last] = 1 / (last - first)
        windows = sliding_window_view(np.append(names, [""] * (last - first)), last - first)[:-1]
        copies = (windows == source_names[first:last]).all(1)
        is_stray = not kept and not PLACEHOLDER.search(source[first][0])
        if is_new := not copies.any():
            if is_stray:
                continue
            is_sure = mass.max(initial=0) >= SURE
            placement_counts["by_alignment" if is_sure else "guessed"] += 1
            gain, start, stop = best_interval(mass - 0.5, (names != "") & ~is_wanted)
            if gain <= 0:
                start = stop = int(mass.argmax()) if is_sure else len(units)
        else:
            start = int(np.where(copies, mass, -1).argmax())
            stop = start + last - first
            placement_counts["by_model"] += not is_stray
        names[start:stop] = ""
        begin = edges[start][0]
        end = edges[stop - 1][1] if start < stop else begin
        unit = source[first] if is_new else units[start]
        yield Word(begin, end, kept or part.escape(unit[0]), row, is_new)
    for number, unit in enumerate(units):
        if names[number] and not unit[1]:
            yield Word(*unit.span(), part.escape(unit[0]), weights[number], is_new=False)
        placement_counts["removed"] += bool(names[number] and unit[1])


def _name(unit: re.Match[str]) -> str:
    """Returns what copies of a unit have in common; of tags and what may begin one it is only
    `<`.
    """
    return unit[0] if not unit[1] or PLACEHOLDER.search(unit[0]) else unit[0][0]


def _units_in(text: str, starts: list[int], stops: list[int]) -> Iterator[tuple[int, int]]:
    """Yields which units are in these ranges of characters, even in part: the first, and the one
    after the last.
    """
    begins, ends = np.array([unit.span() for unit in UNIT.finditer(text)]).reshape(-1, 2).T
    firsts, lasts = np.searchsorted(ends, starts, "right"), np.searchsorted(begins, stops)
    yield from zip(firsts.tolist(), lasts.tolist(), strict=True)


class TagPlacer:
    """Places the tags of a part in its translation, whose elements are in each other as they were.

    An element is around the words that attend to what it was around, as far as the one around it
    and those before it leave them free. Other tags are put beside the word that attends to the word
    that they stood before or after. A tag within a word, such as `<wbr>`, or an element of a part
    of a word, such as `2<sup>31</sup>`, is put into that word if it is copied.
    """

    def __init__(
        self, part: Part, words: list[Word], weights: np.ndarray, placement_counts: Counter[str]
    ):
        self._part, self._weights, self._counts = part, weights, placement_counts
        self._source = list(UNIT.finditer(part.text))
        self._texts = np.array([word.text for word in words], dtype=object)
        self._elements = {WHOLE: Element(0, len(words), WHOLE)}  # by number of the opening tag
        self._owners = np.full(len(words) + 1, WHOLE)  # the innermost element of each word
        self._divided: dict[tuple[int, int], int] = {}  # copies, by unit of the source and parent
        self._placed: list[PlacedTag] = []

    def place(self) -> list[PlacedTag]:
        """Returns all tags in the order in which they are written."""
        tags, around, alone = self._part.tags, [WHOLE], []
        sums = np.pad(self._weights.cumsum(1), ((0, 0), (1, 0)))
        offsets = [tag.offset for tag in tags]
        ranges = _units_in(self._part.text, offsets, [offsets[tag.partner] for tag in tags])
        for number, (tag, (first, last)) in enumerate(zip(tags, ranges, strict=True)):
            parent = around[-1]
            if tag.partner < number:
                if tag.partner == parent:
                    around.pop()
            elif tag.partner == number:
                alone.append((number, parent, first))
            elif tag.partner > number + 1 or not self._put_into_word(number, parent, first):
                if self._surround(number, parent, sums[:, last] - sums[:, first]):
                    around.append(number)
                else:
                    alone.append((number, parent, first))
        for number, parent, unit in alone:
            if not self._put_into_word(number, parent, unit):
                self._put_beside(number, parent, unit)
        return sorted(self._placed)

    def _put_into_word(self, number: int, parent: int, unit: int) -> bool:
        """Puts a tag, or an element without tags, into the copy of the word that it was in.

        Returns False if it was in none, or the parent has no copy of it.
        """
        if unit == len(self._source):
            return False
        tag, source_word = self._part.tags[number], self._source[unit][0]
        closing = self._part.tags[tag.partner]
        start, stop = (max(0, half.offset - self._source[unit].start()) for half in (tag, closing))
        if stop > len(source_word) or (start == 0 and stop in (0, len(source_word))):
            return False
        copies = (self._texts == source_word) & (self._owners[:-1] == parent)
        copy = self._divided.get((unit, parent))
        if copy is None and not copies.any():
            return False
        if copy is None:
            copy = int(np.where(copies, self._weights[:, unit], -1).argmax())
        self._counts["by_alignment"] += 1
        self._placed.append(PlacedTag(copy, start, number, number, tag.raw.strip(" ")))
        if tag.partner > number:
            raw = closing.raw.strip(" ")
            self._placed.append(PlacedTag(copy, stop, -number, number, raw))
            self._divided[unit, parent], self._owners[copy] = copy, number
            self._elements[number] = Element(copy, copy + 1, parent)
        return True

    def _surround(self, number: int, parent: int, mass: np.ndarray) -> bool:
        """Puts an element around the free words that attend most to its own, or returns False.

        mass (words,): the attention to what it was around.
        """
        gain, start, stop = best_interval(mass - 0.5, self._owners[:-1] == parent)
        if gain < -1:
            return False
        self._elements[number] = Element(start, stop, parent)
        self._owners[start:stop] = number
        self._counts["by_alignment" if gain > SURE - 0.5 else "guessed"] += 1
        opening = self._part.tags[number]
        raw, closing_raw = opening.raw.strip(" "), self._part.tags[opening.partner].raw.strip(" ")
        self._placed += [
            PlacedTag(start, 0, number, number, raw),
            PlacedTag(stop, BEHIND, -number, number, closing_raw),
        ]
        return True

    def _put_beside(self, number: int, parent: int, unit: int) -> None:
        """Puts a tag, or an element without words, before or after a word of its parent."""
        tag, (begin, end, _) = self._part.tags[number], self._elements[parent]
        raw = tag.raw
        if tag.partner > number:
            raw += self._part.tags[tag.partner].raw.strip(" ")
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
    end.

    Gains (units,) are at least -1/2; a sum below -1 says that no unit is free.
    """
    # What is not free, as what follows the last unit, outweighs any sum of gains.
    sums = np.append(0, np.where(free, gains, -2.0 * len(gains) - 2)).cumsum()
    totals = np.append(sums[1:] - np.minimum.accumulate(sums[:-1]), -np.inf)
    last = int(totals.argmax())
    # The shortest of equals
    return (
        float(totals[last]),
        last - int(sums[: last + 1][::-1].argmin()),
        last + 1,
    )
