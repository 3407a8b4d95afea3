"""Puts the tags of a source sentence into its translation, beside the words that they belong to."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from aiayn.search.places import SURE, Places, best_interval, boundary
from aiayn.search.projection import AlignedText, Span


@dataclass
class Element:
    """A tag and its closing tag, if it has one, with their offsets in the text."""

    raw: str
    start: int
    stop: int
    first_tag: int  # indices of the two among the tags of the sentence
    last_tag: int
    closing: str = ""
    before: bool = False  # there is a blank before it, and after it
    after: bool = False
    children: list["Element"] = field(default_factory=list)


def tree(elements: list[Element]) -> list[Element]:
    """Makes elements children of those around them; returns the outermost. They come in order of their first tags."""
    outermost: list[Element] = []
    around: list[Element] = []
    for element in elements:
        while around and around[-1].last_tag < element.first_tag:
            around.pop()
        (around[-1].children if around else outermost).append(element)
        if element.closing:
            around.append(element)
    return outermost


@dataclass(eq=False)
class _Placed:
    """An element in the translation: around units, or between two if start == stop."""

    element: Element
    start: int
    stop: int
    follows: bool = False  # it belongs to the word before it
    inside: list["_Placed"] = field(default_factory=list)  # empty where start == stop


def written(sentence: AlignedText, elements: list[Element], places: Places, escape: Callable[[str], str]) -> str:
    """Returns the translation with its tags; what is not a tag is passed through `escape`.

    Takes Python steps in proportion to units and elements, and no more than two passes of PyTorch over the units for
    each element.
    """
    outermost: list[_Placed] = []
    attention, waiting = _Attention(sentence), [(elements, (0, len(sentence.units)), outermost)]
    while waiting:
        siblings, within, placed = waiting.pop()
        placed += _place(attention, siblings, within, places)
        waiting += [(one.element.children, (one.start, one.stop), one.inside) for one in placed if one.start < one.stop]
    gaps = [0, *(stop for _, stop in sentence.units)]
    spaces = [escape(sentence.text[gap:start]) for gap, (start, _) in zip(gaps, sentence.units, strict=False)]
    words = [escape(sentence.text[start:stop]) for start, stop in sentence.units]
    return _render(words, spaces, outermost) + escape(sentence.text[gaps[-1] :])


class _Attention:
    """How much the units of a translation attend to parts of its source."""

    def __init__(self, sentence: AlignedText):
        self.weights = sentence.weights
        # Cumulative over source units, from zero.
        self._sums = torch.nn.functional.pad(self.weights.double().cumsum(1), (1, 0))
        self._starts = [start for start, _ in sentence.source_units]
        self._stops = [stop for _, stop in sentence.source_units]

    def gains(self, element: Element, within: Span) -> Tensor:
        """Returns (units,): by how much more than half a unit attends to the source units that an element is around."""
        first, last = bisect_right(self._stops, element.start), bisect_left(self._starts, element.stop)
        start, stop = within
        return self._sums[start:stop, max(first, last)] - self._sums[start:stop, first] - 0.5

    def beside(self, at: int) -> tuple[int | None, int | None]:
        """Returns the source units before and after a place between characters."""
        before, after = bisect_right(self._stops, at) - 1, bisect_left(self._starts, at)
        return (before if before >= 0 else None), (after if after < len(self._starts) else None)


def _place(attention: _Attention, elements: list[Element], within: Span, places: Places) -> list[_Placed]:
    """Finds places for siblings that do not cross each other; of those inside them, only with a tag without text."""
    begin, end = within
    free = torch.ones(end - begin, dtype=torch.bool)
    ends = torch.arange(begin, end + 1)  # of the sibling that a place is inside of
    around = [one for one in elements if one.closing and one.start < one.stop]
    placed, unsure = [], []
    # The surest first: the others make room for them.
    order = sorted(around, key=lambda one: best_interval(attention.gains(one, within), torch.ones_like(free))[0])
    for element in reversed(order):
        gain, (start, stop) = best_interval(attention.gains(element, within), free)
        places.count(gain > SURE - 0.5)
        if gain > SURE - 0.5:
            free[start:stop] = False
            ends[start + 1 : stop] = begin + stop
            placed.append(_Placed(element, begin + start, begin + stop))
        else:
            unsure.append(element)
    for element in unsure:
        gain, (_, stop) = best_interval(attention.gains(element, within), free)
        here = begin + stop if gain > float("-inf") else end
        placed.append(_Placed(element, here, here))
    for element in elements:
        if not (element.closing and element.start < element.stop):
            here, follows, is_sure = _beside_word(attention, element, within)
            places.count(is_sure)
            here = int(ends[here - begin])
            placed.append(_Placed(element, here, here, follows))
    for one in placed:
        if one.start == one.stop:
            places.guessed += sum(1 for _ in _inside(one.element))
    return sorted(placed, key=lambda one: (one.start, one.stop, one.element.first_tag))


def _beside_word(attention: _Attention, element: Element, within: Span) -> tuple[int, bool, bool]:
    """Places a tag without text, or one without its other half, beside the word that it stands beside.

    Returns the place, whether the tag belongs to the word before it, and whether the place is sure.
    """
    before, after = attention.beside(element.start)
    follows = before is not None and not element.before and (element.after or after is None)
    if after is None or before is None:
        return within[0] if before is None else within[1], follows, True
    here = boundary(attention.weights[:, before if follows else after], within)
    return min(here + follows, within[1]), follows, here < within[1]


def _inside(element: Element) -> Iterator[Element]:
    waiting = [*element.children]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += one.children


@dataclass
class _Around:
    """An element that is being written."""

    waiting: list[_Placed]  # inside it, the next one last
    start: int
    stop: int
    closing: str

    def points_at(self, unit: int) -> list[_Placed]:
        """Takes what is between two units."""
        found = []
        while self.waiting and self.waiting[-1].start == self.waiting[-1].stop == unit:
            found.append(self.waiting.pop())
        return found


def _render(words: list[str], spaces: list[str], placed: list[_Placed]) -> str:
    """Writes units with their elements, without the space before the first unit of each."""
    out: list[str] = []
    unit, around = 0, [_Around(placed[::-1], 0, len(words), "")]
    while around:
        here = around[-1]
        points = here.points_at(unit)
        out += [_empty(one.element) for one in points if one.follows]
        before_word = [one.element for one in points if not one.follows]
        if unit == here.stop:
            out += [" " * one.before + _empty(one) for one in before_word]
            out.append(here.closing)
            around.pop()
            continue
        if unit > here.start:
            out.append(spaces[unit])
        out += [_empty(one) + " " * one.after for one in before_word]
        while here.waiting and here.waiting[-1].start == unit:
            inner = here.waiting.pop()
            out.append(inner.element.raw)
            here = _Around(inner.inside[::-1], unit, inner.stop, inner.element.closing)
            around.append(here)
            points = here.points_at(unit)
            out += [_empty(one.element) + " " * (one.element.after and not one.follows) for one in points]
        out.append(words[unit])
        unit += 1
    return "".join(out)


def _empty(element: Element) -> str:
    """Returns the tags of an element, and of all inside it, without text."""
    out: list[str] = []
    waiting: list[Element | str] = [element]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            out.append(one)
        else:
            out.append(one.raw)
            waiting += [one.closing, *reversed(one.children)]
    return "".join(out)
