"""Puts the tags and placeholders of a source into its translation, by how their subwords attend to each other."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from aiayn.data.placeholders import MARK, MARK_LENGTH, PLACEHOLDER, changes_marks
from aiayn.search.markup import Element, Part

# Marks, words and punctuation marks. A web address begins a unit even where a tag was between it and the word before.
UNIT = re.compile(rf"{MARK.pattern}|\w(?:(?!(?:https?|ftp|file)://)\w)*|[^\w\s]", re.DOTALL)
SURE = 0.2  # share of a word's attention below which a place is a guess
STRAY = ("{", "}", "<")  # names of marks that a translation may lack
OPENING, CLOSING = "([{«„", ".,;:!?)]}»“"  # without a blank after and before them
ZERO_WIDTH_SPACE = "\u200b"  # divides two placeholders where a blank does not

Word = tuple[int, int, str, np.ndarray, bool]  # the units that it replaces, its row of weights, and whether it is new


@dataclass(frozen=True)
class AlignedText:
    """A text and its translation, and where in both their units are: (units, 2), from and to which character."""

    source: str
    source_units: np.ndarray
    text: str
    units: np.ndarray
    weights: np.ndarray  # (units, source units): how much each attends to each source unit; rows sum to 1 or are 0


def units_of(text: str) -> np.ndarray:
    return np.array([match.span() for match in UNIT.finditer(text)], dtype=int).reshape(-1, 2)


def align(
    source: str, source_lengths: list[int], text: str, lengths: list[int], attention: np.ndarray | None
) -> AlignedText:
    """Aligns the units of a sentence and of its translation, both without white space around them.

    `attention` (T, S) is that of subwords, whose lengths in bytes are given; None if one of them has none.
    """
    source_units, units = units_of(source), units_of(text)
    weights = np.zeros((len(units), len(source_units)))
    if attention is not None and weights.size:
        rows, columns = _of_subwords(text, lengths, units), _of_subwords(source, source_lengths, source_units)
        np.add.at(weights, (rows[:, None], columns), attention)
        weights /= weights.sum(1, keepdims=True).clip(1e-9)
    return AlignedText(source, source_units, text, units, weights)


def _of_subwords(text: str, lengths: list[int], units: np.ndarray) -> np.ndarray:
    """Returns (subwords,): the unit that a subword's last character is in, or that follows it."""
    bytes_until = np.cumsum([len(character.encode(errors="replace")) for character in text], dtype=int)
    # The line's first space is the tokenizer's. A character that subwords share belongs to the first of them.
    stops = np.searchsorted(bytes_until, np.cumsum(lengths, dtype=int) - 1, "right")
    return np.searchsorted(units[:-1, 1], stops)


def join(cut: list[str], sentences: list[AlignedText]) -> AlignedText:
    """Returns the alignment of a text that is `cut` into blank, sentence, blank, ..., given those of its sentences."""
    rows, columns = ([len(getattr(one, name)) for one in sentences] for name in ("units", "source_units"))
    weights = np.zeros((sum(rows), sum(columns)))
    source, text, source_units, units = "", "", [], []
    for number, (blank, one) in enumerate(zip(cut[::2], sentences, strict=False)):
        row, column, source, text = sum(rows[:number]), sum(columns[:number]), source + blank, text + blank
        weights[row : row + rows[number], column : column + columns[number]] = one.weights
        source_units.append(one.source_units + len(source))
        units.append(one.units + len(text))
        source, text = source + one.source, text + one.text
    return AlignedText(source + cut[-1], np.concatenate(source_units), text + cut[-1], np.concatenate(units), weights)


def written(sentence: AlignedText, part: Part, places: Counter[str]) -> str:
    """Returns the translation of a part with its tags and placeholders; other text is passed through `part.escape`.

    Adds to `places` how many the model wrote itself (by_model), were put where the alignment says (by_alignment) or
    where it says nothing (guessed), and how many of the model's own were removed. Takes Python steps in proportion to
    units and elements, and a few passes of numpy over the units for each element.
    """
    return _with_tags(_with_fixed_words(sentence, part, places), part, places)


def _with_fixed_words(sentence: AlignedText, part: Part, places: Counter[str]) -> AlignedText:
    """Returns the translation with every placeholder of the source, and every element that stays as it is, once.

    A missing one takes the place of what is aligned with it, such as `% s`, or is put beside it. Copies that the source
    does not have go, and tags and stray braces, which would break what reads or formats the text.
    """
    source_words, source_names, source_marks = _units_and_names(sentence.source, sentence.source_units)
    words, names, marks = _units_and_names(sentence.text, sentence.units)  # names are empty where a unit is taken
    wanted = [(first, last, part.tags[one.first]) for one, first, last in _ranges(sentence, part) if one.is_kept]
    inside = {unit for first, last, _ in wanted for unit in range(first, last)}
    wanted += [(unit, unit + 1, "") for unit in source_marks if unit not in inside]
    fixed: list[Word] = []
    missing = []
    for first, last, kept in wanted:
        row, mass = np.zeros(len(source_words)), sentence.weights[:, first:last].sum(1)
        row[first:last] = 1 / (last - first)
        copies = np.ones(len(words), dtype=bool)
        for shift, name in enumerate(source_names[first:last]):
            copies &= np.append((names == name)[shift:], np.zeros(shift, dtype=bool))[: len(words)]
        is_stray = not kept and source_names[first] in STRAY
        if copies.any():
            start = int(np.where(copies, mass, -1).argmax())
            fixed.append((start, start + last - first, kept or part.escape(words[start]), row, False))
            names[start : start + last - first] = ""
            places["by_model"] += not is_stray
        elif not is_stray:
            missing.append((source_names[first:last], kept or part.escape(source_words[first]), row, mass))
    for kept, text, row, mass in missing:
        is_sure = mass.max(initial=0) >= SURE
        places["by_alignment" if is_sure else "guessed"] += 1
        gain, (start, stop) = best_interval(np.where(np.isin(names, kept) & (mass >= SURE), 1, mass) - 0.5, names != "")
        if gain <= 0:
            start = stop = int(mass.argmax()) if is_sure else len(words)
        names[start:stop] = ""
        fixed.append((start, stop, text, row, True))
    strange = {unit for unit in marks if names[unit]}
    places["removed"] += len(strange)
    for unit, word in enumerate(words):
        if names[unit] and unit not in strange:
            fixed.append((unit, unit + 1, part.escape(word), sentence.weights[unit], False))
    return _rewritten(sentence, sorted(fixed, key=lambda one: one[:2]))


def _units_and_names(text: str, units: np.ndarray) -> tuple[list[str], np.ndarray, list[int]]:
    """Returns the units of a text, their names, which are themselves but `<` for tags, and which of them are marks."""
    words = [text[start:stop] for start, stop in units]
    found = ((number, stop, MARK.match(text, start)) for number, (start, stop) in enumerate(units))
    marks = [number for number, stop, match in found if match and match.end() == stop]
    names = np.array(words, dtype=object)
    names[[unit for unit in marks if words[unit][0] == "<" and not PLACEHOLDER.search(words[unit])]] = "<"
    return words, names, marks


def _ranges(sentence: AlignedText, part: Part) -> Iterator[tuple[Element, int, int]]:
    """Yields the elements of a part, and which source units they are around: the first, and the one after the last."""
    starts, stops = sentence.source_units.T
    firsts = np.searchsorted(stops, [one.start for one in part.elements], "right")
    lasts = np.searchsorted(starts, [one.stop for one in part.elements])
    yield from zip(part.elements, firsts.tolist(), lasts.tolist(), strict=True)


def _rewritten(sentence: AlignedText, words: list[Word]) -> AlignedText:
    """Returns the translation made of these words, with the blanks between those that were neighbours."""
    text, units, done, was_new = "", [], 0, False
    edges = [*sentence.units.tolist(), [len(sentence.text)] * 2]
    for start, stop, word, _, is_new in words:
        begin = edges[start][0]
        following = word if is_new else sentence.text[begin : begin + MARK_LENGTH]
        if is_new or was_new or start != done:
            text += _gap(text[-MARK_LENGTH:], following)
        else:
            text += sentence.text[edges[start - 1][1] : begin] * bool(text)
        units.append((len(text), len(text) + len(word)))
        text, done, was_new = text + word, stop, is_new
    weights = np.array([row for *_, row, _ in words]).reshape(len(words), len(sentence.source_units))
    return AlignedText(sentence.source, sentence.source_units, text, np.array(units, dtype=int).reshape(-1, 2), weights)


def _gap(before: str, after: str) -> str:
    """Returns what is between two words that were none, so that they and placeholders do not run together."""
    gap = "" if not before or after[0] in CLOSING or before[-1] in OPENING else " "
    return next((one for one in (gap, " ") if not changes_marks(before + one, after)), ZERO_WIDTH_SPACE)


def _with_tags(sentence: AlignedText, part: Part, places: Counter[str]) -> str:
    """Returns the translation with the tags of its part, whose elements are in each other as they were.

    An element is around the units that attend to what it was around, as far as the one around it and those before it
    leave them free. The others are put beside the unit that attends to the word that they stood before or after.
    """
    text, units, tags = sentence.text, sentence.units, list(part.tags)
    sums = np.pad(sentence.weights.cumsum(1), ((0, 0), (1, 0)))
    owners, spans = np.full(len(units) + 1, -1), {-1: (0, len(units))}  # by the number of an element; -1 is the part
    parents, around, alone = [], [-1], []
    events: list[tuple[int, int, float, int, str]] = []  # before a unit: what ends, the gap, what begins; the unit
    for number, (one, first, last) in enumerate(_ranges(sentence, part)):
        while around[-1] >= 0 and part.elements[around[-1]].last < one.first:
            around.pop()
        parents.append(around[-1])
        around += [number] * (one.first < one.last)
        start = stop = gain = 0
        if one.is_kept:
            tags[one.first] = ""
            continue
        if one.start < one.stop and first < last:
            gain, (start, stop) = best_interval(sums[:, last] - sums[:, first] - 0.5, owners[:-1] == parents[number])
        if start < stop:
            owners[start:stop], spans[number] = number, (start, stop)
            places["by_alignment" if gain > SURE - 0.5 else "guessed"] += 1
            events.append((start, 2, number, number, tags[one.first].strip(" ")))
            events.append((stop, 0, -number, number, tags[one.last].strip(" ")))
        elif parents[number] in spans:  # else it is written with the one around it
            alone.append((number, one, first - 1, first if one.start < one.stop else last))
    for number, one, before, after in alone:
        begin, end = spans[parent := parents[number]]
        unit, follows, is_sure = begin, one.follows, True
        if before < 0 or begin == end:
            follows = False
        elif after == len(sentence.source_units):
            unit, follows = end - 1, True
        else:
            mass = sentence.weights[begin:end, before if follows else after]
            is_sure = mass.max() >= SURE
            unit, follows = (begin + int(mass.argmax()), follows) if is_sure else (end - 1, True)
        places["by_alignment" if is_sure else "guessed"] += 1
        (start, stop), owner = (unit, unit + 1), owners[unit]
        while owner != parent:  # it is in another, which it goes before or after
            (start, stop), owner = spans[owner], parents[owner]
        follows = follows or unit > start
        raw = "".join(tags[one.first : one.last + 1])
        is_apart = one.start > len(part.text) or part.text[one.start - 1 : one.start] == " "
        gap = " " * (raw.endswith(" ") or (follows and is_apart))  # as there was in the source
        raw = f"{gap}{raw.strip(' ')}" if follows else f"{raw.strip(' ')}{gap}"
        # After the tags of the one around it and before those in that, or the other way round.
        events.append((stop, 0, -parent - 0.5, number, raw) if follows else (start, 2, parent + 0.5, number, raw))
    edges = [0, *units.ravel().tolist(), len(text), len(text)]
    pieces = [text[start:stop] for start, stop in pairwise(edges)]
    events += [(number // 2, 1 + number % 2 * 2, 0, 0, piece) for number, piece in enumerate(pieces)]
    return "".join(raw for *_, raw in sorted(events))


def best_interval(gains: np.ndarray, free: np.ndarray) -> tuple[float, tuple[int, int]]:
    """Returns the interval of free units with the largest sum of gains, and that sum.

    Gains (units,) are between -1/2 and 3/2. The interval has at least one unit; (-inf, (0, 0)) if none is free.
    """
    if not free.any():
        return -np.inf, (0, 0)
    # What is not free outweighs any sum of gains.
    sums = np.append(0, np.where(free, gains, -2 * (len(gains) + 1.0)).cumsum())
    totals = sums[1:] - np.minimum.accumulate(sums[:-1])
    last = int(totals.argmax())
    begin = last - int(sums[: last + 1][::-1].argmin())  # the shortest of equals
    return float(totals[last]), (begin, last + 1)
