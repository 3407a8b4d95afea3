"""Puts the tags and placeholders of a source into its translation, by how their subwords attend to
each other.
"""

import re
import unicodedata
from collections import Counter
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
ENDS, GAP, BEGINS, UNIT_ITSELF = range(4)  # in this order, what stands before and at a unit


class Word(NamedTuple):
    """What replaces some characters of a translation."""

    start: int
    stop: int
    text: str
    weights: np.ndarray  # its attention to the units of the source
    is_new: bool  # the model did not write it


class Event(NamedTuple):
    """A piece of the text to write; pieces are written in the order of these fields."""

    unit: int  # that it stands at
    order: int  # ENDS, GAP, BEGINS or UNIT_ITSELF
    depth: float  # outer elements begin first and end last
    tag: int  # its number in the source
    text: str


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
    for (rows, units, _), (columns, src_units, shares), (_, _, some) in zip(
        *sides, attention, strict=True
    ):
        if some is not None and weights.size:
            np.add.at(
                weights,
                (units[:, None], src_units),
                np.asarray(some)[np.ix_(rows, columns)] / shares,
            )
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
    through `part.escape`.

    Adds to `placement_counts` how many the model wrote itself (by_model), were put where the
    alignment says (by_alignment) or where it says nothing (guessed), and how many of the model's
    own were removed.
    Takes Python steps in proportion to units and tags, and a few passes of numpy over the units for
    each tag.
    """
    words = sorted(_fixed_words(part, text, weights, placement_counts), key=lambda word: word[:2])
    word_weights = np.array([word.weights for word in words]).reshape(len(words), weights.shape[1])
    events = list(_tags(part, words, word_weights, placement_counts))
    cuts: dict[int, set[int]] = {}  # in words where a tag stands
    for event in events:
        if event.order == UNIT_ITSELF:
            cuts.setdefault(event.unit, set()).add(round(event.depth + 0.5))
    previous_text, done, was_new = "", 0, False
    for unit, word in enumerate(words):
        gap = text[done : word.start]
        # What follows `&lt;` would be a tag's name, and a `&gt;` far behind it the tag's end.
        begins_tag = (
            not gap
            and "&gt;" in part.text
            and previous_text.endswith("&lt;")
            and TAG_NAME.match(word.text)
        )
        if word.is_new or was_new or gap.strip() or begins_tag:  # they were no neighbours
            next_text = word.text if word.is_new else text[word.start : word.start + MARK_LENGTH]
            beside_cjk = any(map(BESIDE_NO_BLANK.match, (previous_text[-1:], next_text)))
            closes = not word.is_new and next_text[0] in CLOSING
            opens = not was_new and previous_text[-1:] in OPENING
            gap = "" if not previous_text or beside_cjk or closes or opens else " "
            # They and placeholders must not run together.
            gap = next(
                (
                    blank
                    for blank in (gap, " ")
                    if not changes_marks(previous_text + blank, next_text)
                ),
                ZERO_WIDTH_SPACE,
            )
        events.append(Event(unit, GAP, 0, 0, gap))
        for start, stop in pairwise([0, *sorted(cuts.get(unit, ())), len(word.text)]):
            events.append(Event(unit, UNIT_ITSELF, start, 0, word.text[start:stop]))
        previous_text = f"{previous_text}{gap}{word.text}"[-MARK_LENGTH:]
        done, was_new = word.stop, word.is_new
    blanks_at_end = "" if text[done:].strip() else text[done:]
    return "".join(event.text for event in sorted(events)) + blanks_at_end


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


def _tags(
    part: Part, words: list[Word], weights: np.ndarray, placement_counts: Counter[str]
) -> Iterator[Event]:
    """Yields the tags of a part, whose elements are in each other as they were.

    An element is around the units that attend to what it was around, as far as the one around it
    and those before it leave them free. Other tags are put beside the unit that attends to the word
    that they stood before or after; one within a word, such as `<wbr>`, into that word if it is
    copied.
    """
    source = [*UNIT.finditer(part.text)]
    texts = np.array([word.text for word in words], dtype=object)
    sums = np.pad(weights.cumsum(1), ((0, 0), (1, 0)))
    # By number of the opening tag; -1: the part
    owners, spans = (
        np.full(len(weights) + 1, -1),
        {-1: (0, len(weights))},
    )
    parents, around, alone = {}, [-1], []
    ranges = _units_in(
        part.text,
        [tag.offset for tag in part.tags],
        [part.tags[tag.partner].offset for tag in part.tags],
    )
    for number, (tag, (first, last)) in enumerate(zip(part.tags, ranges, strict=True)):
        if tag.partner < number:
            if tag.partner in spans:
                around.pop()
            continue
        closing = part.tags[tag.partner].raw.strip(" ")
        gain, start, stop = -np.inf, 0, 0
        if tag.partner > number:
            gain, start, stop = best_interval(
                sums[:, last] - sums[:, first] - 0.5, owners[:-1] == around[-1]
            )
        if gain < -1:  # it is beside a unit
            alone.append((number, around[-1], first, tag.raw + closing * (tag.partner > number)))
            continue
        parents[number], spans[number] = around[-1], (start, stop)
        owners[start:stop] = number
        around.append(number)
        placement_counts["by_alignment" if gain > SURE - 0.5 else "guessed"] += 1
        yield Event(start, BEGINS, number, number, tag.raw.strip(" "))
        yield Event(stop, ENDS, -number, number, closing)
    for number, parent, unit, raw in alone:
        begin, end = spans[parent]
        if unit < len(source) and (cut := part.tags[number].offset - source[unit].start()) > 0:
            copies = (texts == source[unit][0]) & (owners[:-1] == parent)
            if copies.any():
                placement_counts["by_alignment"] += 1
                copy = int(np.where(copies, weights[:, unit], -1).argmax())
                yield Event(copy, UNIT_ITSELF, cut - 0.5, number, raw.strip(" "))
                continue
        follows = unit == 0 or raw.endswith(" ") > raw.startswith(" ")
        # Of nothing, at the ends of the source
        mass = weights[begin:end, unit - follows : unit - follows + 1].sum(1)
        is_sure = mass.max(initial=0) >= SURE
        placement_counts[
            "by_alignment" if is_sure or unit in (0, weights.shape[1]) else "guessed"
        ] += 1
        if is_sure:
            neighbour = begin + int(mass.argmax())
        else:
            neighbour, follows = (begin, False) if unit == 0 else (end - 1, True)
        (start, stop), owner = (neighbour, neighbour + 1), owners[neighbour]
        while owner != parent:  # it is in another, which it goes before or after
            (start, stop), owner = spans[owner], parents[owner]
        if follows or neighbour > start:
            yield Event(stop, ENDS, -parent - 0.5, number, raw.rstrip(" "))
        else:
            yield Event(start, BEGINS, parent + 0.5, number, raw.lstrip(" "))


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
