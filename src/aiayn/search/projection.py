"""Where the words of a source sentence are in its translation, given how its subwords attend to each other."""

import re
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from aiayn.data.placeholders import PLACEHOLDER, TAG

# A web address begins a unit even where a tag was between it and the word before.
UNIT = re.compile(
    rf"{TAG.pattern}|{PLACEHOLDER.pattern}|\w(?:(?!(?:https?|ftp|file)://)\w)*|[^\w\s]", TAG.flags | PLACEHOLDER.flags
)

Span = tuple[int, int]  # first character, and the one after the last


@dataclass(frozen=True)
class AlignedText:
    """A text and its translation, both cut into words, punctuation marks, placeholders and tags."""

    source: str
    source_units: list[Span]
    words: list[str]  # of the translation: its units
    gaps: list[str]  # before, between and after them
    weights: np.ndarray  # (words, source units): how much each word attends to each source unit; rows sum to 1 or are 0

    @property
    def text(self) -> str:
        return self.gaps[0] + "".join(map("".join, zip(self.words, self.gaps[1:], strict=True)))

    @property
    def units(self) -> list[Span]:
        """Where the words are in the text."""
        stops = accumulate(map(len, map("".join, zip(self.gaps, self.words, strict=False))))
        return [(stop - len(word), stop) for stop, word in zip(stops, self.words, strict=True)]


def align(
    source: str, source_lengths: list[int], text: str, lengths: list[int], attention: np.ndarray | None
) -> AlignedText:
    """Aligns the words of a source and of its translation, both without white space around them.

    `attention` (T, S) is that of subwords, whose lengths in bytes are given; None if one of them has none.
    """
    source_units, units = units_of(source), units_of(text)
    weights = np.zeros((len(units), len(source_units)))
    if attention is not None and weights.size:
        rows, columns = _of_subwords(text, lengths, units), _of_subwords(source, source_lengths, source_units)
        np.add.at(weights, (rows[:, None], columns), attention)
        weights /= weights.sum(1, keepdims=True).clip(1e-9)
    edges = [0, *(edge for unit in units for edge in unit), len(text)]
    pieces = [text[start:stop] for start, stop in pairwise(edges)]
    return AlignedText(source, source_units, pieces[1::2], pieces[::2], weights)


def join(text: str, blanks: list[str], sentences: list[AlignedText]) -> AlignedText:
    """Returns the alignment of a whole text, given those of its sentences and the blanks around them."""
    source_units, words, gaps, start = [], [], [""], 0
    weights = np.zeros([sum(len(getattr(one, name)) for one in sentences) for name in ("words", "source_units")])
    for blank, one in zip(blanks, sentences, strict=False):
        row, column, start = len(words), len(source_units), start + len(blank)
        weights[row : row + len(one.words), column : column + len(one.source_units)] = one.weights
        source_units += [(a + start, b + start) for a, b in one.source_units]
        words += one.words
        gaps = [*gaps[:-1], gaps[-1] + blank + one.gaps[0], *one.gaps[1:]]
        start += len(one.source)
    return AlignedText(text, source_units, words, [*gaps[:-1], gaps[-1] + blanks[-1]], weights)


def units_of(text: str) -> list[Span]:
    """Returns where the words, punctuation marks, placeholders and tags of a text are."""
    return [match.span() for match in UNIT.finditer(text)]


def _of_subwords(text: str, lengths: list[int], units: list[Span]) -> np.ndarray:
    """Returns (subwords,): the unit that a subword's last character is in, or that follows it."""
    ends = np.array([end for _, end in units[:-1]], dtype=int)
    # The line's first space is the tokenizer's. A character that subwords share belongs to the first of them.
    character_of = [n for n, character in enumerate(text) for _ in character.encode(errors="replace")]
    character_of += [len(text)] * 2
    stops = [character_of[min(max(stop - 1, 0), len(character_of) - 1)] for stop in accumulate(lengths)]
    return np.searchsorted(ends, stops, side="left")


def best_interval(gains: np.ndarray, free: np.ndarray) -> tuple[float, Span]:
    """Returns the interval of free units with the largest sum of gains, and that sum.

    Gains (units,) are between -1/2 and 3/2. The interval has at least one unit; (-inf, (0, 0)) if none is free.
    """
    if not free.any():
        return -np.inf, (0, 0)
    sums = np.concatenate(
        [[0.0], np.where(free, gains, -2 * (len(gains) + 1.0)).cumsum()]
    )  # outweighs any sum of gains
    totals = sums[1:] - np.minimum.accumulate(sums[:-1])
    last = int(totals.argmax())
    begin = last - int(sums[: last + 1][::-1].argmin())  # the shortest of equals
    return float(totals[last]), (begin, last + 1)
