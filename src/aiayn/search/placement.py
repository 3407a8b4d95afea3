"""Puts the tags of a source sentence into its translation, around or beside the words that they belong to."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from aiayn.data.placeholders import PLACEHOLDER
from aiayn.search.markup import Element, Part
from aiayn.search.projection import AlignedText, Span, best_interval

SURE = 0.2  # share of a word's attention below which a place is a guess


@dataclass
class Places:
    """How the places of tags and placeholders were found."""

    by_model: int = 0  # placeholders that the model itself repeated
    by_alignment: int = 0
    guessed: int = 0  # attention was too spread out
    removed: int = 0  # tags, placeholders and halves of them that the model added

    def count(self, is_sure: bool) -> None:
        self.by_alignment += bool(is_sure)
        self.guessed += not is_sure

    def shown(self) -> str:
        """Returns the counts in words."""
        total = self.by_model + self.by_alignment + self.guessed
        return (
            f"{total} tags and placeholders: {self.by_model} as the model wrote them, {self.by_alignment} put where "
            f"the alignment says, {self.guessed} where it says nothing; {self.removed} removed that the source does "
            "not have"
        )

    def add(self, other: "Places") -> None:
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)


def written(sentence: AlignedText, part: Part, places: Places) -> str:
    """Returns the translation of a part with its tags; what is not a tag is passed through `part.escape`.

    Takes Python steps in proportion to units and elements, and a few passes of numpy over the units for each element.
    """
    page = _Page(sentence, part.escape)
    # Children go into the interval of the element around them, so those around come first.
    waiting: list[Inside] = [(part.elements, (0, len(sentence.words)))]
    while waiting:
        waiting += _place(page, *waiting.pop(), places)
    return page.text()


Inside = tuple[list[Element], Span]


class _Page:
    """The units of a translation, with what is written before and after each."""

    def __init__(self, sentence: AlignedText, escape: Callable[[str], str]):
        self._sentence, self.weights = sentence, sentence.weights
        self._starts, self._stops = (np.array([span[n] for span in sentence.source_units]) for n in (0, 1))
        self._sums = np.pad(self.weights.cumsum(1), ((0, 0), (1, 0)))  # over source units, from zero
        self.placeholders = np.array([bool(PLACEHOLDER.fullmatch(word)) for word in sentence.words], dtype=bool)
        self._words, self._gaps = ([escape(text) for text in texts] for texts in (sentence.words, sentence.gaps))
        self._before: list[list[str]] = [[] for _ in sentence.gaps]  # the last for what has no unit
        self._after: list[list[str]] = [[] for _ in sentence.gaps]  # the outermost first

    def gains(self, element: Element, within: Span) -> np.ndarray:
        """Returns (units,): by how much more than half a unit attends to the source units that an element is around."""
        first, last = np.searchsorted(self._stops, element.start, "right"), np.searchsorted(self._starts, element.stop)
        gains = self._sums[slice(*within), max(first, last)] - self._sums[slice(*within), first] - 0.5
        if not element.keeps:
            return gains
        # The model has most likely repeated what the element is to replace: as a whole, or some of its words.
        kept = [self._sentence.source[slice(*span)] for span in self._sentence.source_units[first:last]]
        words = self._sentence.words[slice(*within)]
        copies = [n for n in range(len(words)) if words[n : n + len(kept)] == kept]
        if not copies:
            return gains + (gains + 0.5 >= SURE) * [word in kept for word in words]
        start = max(copies, key=lambda n: gains[n : n + len(kept)].sum())
        exact = np.full(len(words), -0.5)
        exact[start : start + len(kept)] = 1
        return exact

    def beside(self, element: Element, within: Span) -> tuple[int, bool, bool]:
        """Returns the unit that a tag without words stands beside, whether it follows it, and whether that is sure."""
        start, stop = within
        before = np.searchsorted(self._stops, element.start, "right") - 1
        after = np.searchsorted(self._starts, element.start)
        follows = before >= 0 and not element.before and (element.after or after == len(self._starts))
        if before < 0:
            return start, False, True
        if after == len(self._starts):
            return stop - 1, True, True
        attending = self.weights[start:stop, before if follows else after]
        is_sure = attending.max() >= SURE
        return (start + int(attending.argmax()), bool(follows), True) if is_sure else (stop - 1, True, False)

    def put(self, text: str, unit: int, follows: bool) -> None:
        (self._after if follows else self._before)[unit].append(text)

    def replace(self, text: str, span: Span) -> None:
        start, stop = span
        self._words[start:stop] = [text] + [""] * (stop - start - 1)
        self._gaps[start + 1 : stop] = [""] * (stop - start - 1)

    def text(self) -> str:
        out: list[str] = []
        for unit, word in enumerate(self._words):
            out += [self._gaps[unit], *self._before[unit], word, *reversed(self._after[unit])]
        return "".join([*out, *self._before[-1], self._gaps[-1]])


def _place(page: _Page, siblings: list[Element], within: Span, places: Places) -> list[Inside]:
    """Writes siblings between some units; returns what is inside of them, and between which units."""
    begin, end = within
    free = np.ones(end - begin, dtype=bool)
    # For each unit the interval of the sibling that is around it, or itself.
    starts, stops = np.arange(begin, end), np.arange(begin + 1, end + 1)
    spans: dict[int, Span] = {}  # by the number of the sibling
    gains = {number: page.gains(one, within) for number, one in enumerate(siblings) if one.start < one.stop}

    def best(number: int) -> tuple[float, Span]:
        return best_interval(gains[number], free & ~(siblings[number].keeps & page.placeholders[begin:end]))

    # The surest first: the others make room for them.
    for number in sorted(gains, key=lambda number: -best(number)[0]):
        gain, (start, stop) = best(number)
        is_sure = gain > SURE - 0.5
        if stop == 0 or (siblings[number].keeps and not is_sure):
            continue
        places.count(is_sure)
        free[start:stop] = False
        starts[start:stop], stops[start:stop] = begin + start, begin + stop
        spans[number] = (begin + start, begin + stop)
    beside: list[tuple[str, int, bool]] = []
    for number, element in enumerate(siblings):
        if number in spans:
            continue
        unit, follows, is_sure = page.beside(element, within) if begin < end else (begin, False, False)
        places.count(is_sure)
        if begin < end and (follows or starts[unit - begin] < unit):
            beside.append((" " * element.before + element.raw, int(stops[unit - begin]) - 1, True))
        else:
            beside.append((element.raw + " " * element.after, unit, False))
    # Tags alone are written outside of the siblings between which they stand.
    for text, unit, follows in [one for one in beside if not one[2]] + [one for one in beside[::-1] if one[2]]:
        page.put(text, unit, follows)
    for number, (start, stop) in spans.items():
        element = siblings[number]
        if element.keeps:
            page.replace(element.opening, (start, stop))
        else:
            page.put(element.opening, start, False)
            page.put(element.closing, stop - 1, True)
    return [(siblings[number].children, span) for number, span in spans.items()]
