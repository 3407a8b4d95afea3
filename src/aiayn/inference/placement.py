"""Puts tags and placeholders of a source sentence into its translation, where the words are that they belong to."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from aiayn.data.placeholders import PLACEHOLDER
from aiayn.inference.projection import AlignedText, Span, best_interval

SURE = 0.2  # of a word's attention: below it, a place is a guess


@dataclass
class Places:
    """How the places of tags and placeholders were found."""

    by_model: int = 0  # placeholders that the model itself repeated
    by_alignment: int = 0
    guessed: int = 0  # attention told nothing

    def count(self, is_sure: bool) -> None:
        if is_sure:
            self.by_alignment += 1
        else:
            self.guessed += 1

    def shown(self) -> str:
        """Returns the counts in words."""
        total = self.by_model + self.by_alignment + self.guessed
        return (
            f"{total} tags and placeholders: {self.by_model} as the model wrote them, {self.by_alignment} put where "
            f"the alignment says, {self.guessed} where it says nothing"
        )

    def add(self, other: "Places") -> None:
        self.by_model += other.by_model
        self.by_alignment += other.by_alignment
        self.guessed += other.guessed


@dataclass
class Element:
    """A tag and, where it has one, the tag that closes it; from one place between characters to another."""

    raw: str
    start: int
    stop: int
    first_tag: int  # numbers of the two among the tags of the sentence
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


def repair(sentence: AlignedText, places: Places) -> AlignedText:
    """Returns the translation with every placeholder of the source.

    A missing one takes the place of what is aligned with it, such as `% s`, or is put beside it.
    """
    names = [sentence.text[start:stop] for start, stop in sentence.units]
    available = [name for name in names if PLACEHOLDER.fullmatch(name)]
    missing = []
    for column, (start, stop) in enumerate(sentence.source_units):
        name = sentence.source[start:stop]
        if name in available:
            available.remove(name)
            places.by_model += 1
        elif PLACEHOLDER.fullmatch(name):
            missing.append((column, name))
    for column, name in missing:
        sentence = _with_placeholder(sentence, column, name, places)
    return sentence


def _with_placeholder(sentence: AlignedText, column: int, name: str, places: Places) -> AlignedText:
    wanted = {sentence.source[start:stop] for start, stop in sentence.source_units}
    taken = [bool(PLACEHOLDER.fullmatch(word)) and word in wanted for word in _words(sentence)]
    mass = torch.where(torch.tensor(taken, dtype=torch.bool), torch.zeros(()), sentence.weights[:, column])
    gain, (start, stop) = best_interval(mass - 0.5, [(0, len(mass))])
    places.count(bool(len(mass)) and float(mass.max()) >= SURE)
    if gain <= 0:
        start = stop = _boundary(sentence.weights, column, (0, len(mass)))
    return _replaced(sentence, start, stop, name, column)


def _words(sentence: AlignedText) -> list[str]:
    return [sentence.text[start:stop] for start, stop in sentence.units]


def _replaced(sentence: AlignedText, start: int, stop: int, name: str, column: int) -> AlignedText:
    """Puts a placeholder in the place of some units, or between two; it attends to its source."""
    units, text = sentence.units, sentence.text
    if start < stop:
        first, last = units[start][0], units[stop - 1][1]
        inserted, at = name, first
    elif start < len(units):
        first = last = at = units[start][0]
        inserted = f"{name} "
    else:
        first = last = len(text.rstrip())
        inserted = f" {name}" if first else name
        at = first + len(inserted) - len(name)
    shift = len(inserted) - (last - first)
    moved = [(a + shift, b + shift) for a, b in units[stop:]]
    row = torch.zeros(1, len(sentence.source_units))
    row[0, column] = 1
    return replace(
        sentence,
        text=text[:first] + inserted + text[last:],
        units=[*units[:start], (at, at + len(name)), *moved],
        weights=torch.cat([sentence.weights[:start], row, sentence.weights[stop:]]),
    )


def _boundary(weights: Tensor, column: int, within: Span) -> int:
    """Returns the place before the unit that attends most to a source unit; the last one if none does."""
    start, stop = within
    if start == stop or float(weights[start:stop, column].max()) < SURE:
        return stop
    return start + int(weights[start:stop, column].argmax())


@dataclass(eq=False)
class _Placed:
    """An element in the translation: around units, or between two if start == stop."""

    element: Element
    start: int
    stop: int
    children: list["_Placed"]
    follows: bool = False  # it belongs to the word before it


def written(sentence: AlignedText, elements: list[Element], places: Places, escape: Callable[[str], str]) -> str:
    """Returns the translation with its tags; what is not a tag is passed through `escape`."""
    placed = _place(sentence, elements, (0, len(sentence.units)), places)
    gaps = [0, *(stop for _, stop in sentence.units)]
    spaces = [sentence.text[gap:start] for gap, (start, _) in zip(gaps, sentence.units, strict=False)]
    words = [escape(word) for word in _words(sentence)]
    tail = sentence.text[gaps[-1] :]
    body = _render(words, [escape(space) for space in spaces], placed, (0, len(words)))
    return body + escape(tail)


def _place(sentence: AlignedText, elements: list[Element], within: Span, places: Places) -> list[_Placed]:
    """Finds places for elements, and for those inside them, that do not cross each other."""
    free, placed = [within], []
    gains = {id(one): _mass(sentence, one) - 0.5 for one in elements if one.closing and one.start < one.stop}
    # The surest first: the others make room for them.
    order = sorted(
        (one for one in elements if id(one) in gains), key=lambda one: best_interval(gains[id(one)], [within])[0]
    )
    for element in reversed(order):
        gain, (start, stop) = best_interval(gains[id(element)], free)
        is_sure = gain > SURE - 0.5
        places.count(is_sure)
        if not is_sure:
            start = stop = min(stop, within[1]) if gain > float("-inf") else within[1]
        free = [span for a, b in free for span in ((a, min(b, start)), (max(a, stop), b)) if span[0] < span[1]]
        children = _place(sentence, element.children, (start, stop), places)
        placed.append(_Placed(element, start, stop, children))
    for element in elements:
        if id(element) not in gains:
            placed.append(_place_point(sentence, element, within, places))
            for one in placed[:-1]:  # not inside of its siblings
                if one.start < placed[-1].start < one.stop:
                    placed[-1].start = placed[-1].stop = one.stop
    return sorted(placed, key=lambda one: (one.start, one.stop, one.element.first_tag))


def _mass(sentence: AlignedText, element: Element) -> Tensor:
    """How much each unit attends to the source units within an element."""
    inside = [element.start < stop and start < element.stop for start, stop in sentence.source_units]
    return sentence.weights[:, torch.tensor(inside, dtype=torch.bool)].sum(1)


def _place_point(sentence: AlignedText, element: Element, within: Span, places: Places) -> _Placed:
    """Places a tag without text, or one without its other half, beside the word that it stands beside."""
    units, at = sentence.source_units, element.start
    after = next((n for n, (start, _) in enumerate(units) if start >= at), None)
    before = next((n for n in reversed(range(len(units))) if units[n][1] <= at), None)
    follows = before is not None and not element.before and (element.after or after is None)
    children = [_Placed(child, within[1], within[1], []) for child in element.children]
    if after is None or before is None:
        places.count(is_sure=True)
        here = within[0] if before is None else within[1]
    elif follows:
        here = _boundary(sentence.weights, before, within)
        places.count(is_sure=here < within[1])
        here = min(here + 1, within[1])
    else:
        here = _boundary(sentence.weights, after, within)
        places.count(is_sure=here < within[1])
    for child in children:
        child.start = child.stop = here
    return _Placed(element, here, here, children, follows)


def _render(words: list[str], spaces: list[str], placed: list[_Placed], within: Span) -> str:
    """Writes the units of an interval with its elements, without the space before the first unit."""
    start, stop = within
    out, unit, remaining = "", start, list(placed)
    while True:
        here = [one for one in remaining if one.start == unit and (one.start == one.stop or unit < stop)]
        points = [one for one in here if one.start == one.stop]
        out += "".join(_empty(one) for one in points if one.follows)
        if unit == stop:
            return out + "".join(" " * one.element.before + _empty(one) for one in points if not one.follows)
        if unit > start:
            out += spaces[unit]
        out += "".join(_empty(one) + " " * one.element.after for one in points if not one.follows)
        around = next((one for one in here if one.start < one.stop), None)
        remaining = [one for one in remaining if one not in here]
        if around:
            inner = _render(words, spaces, around.children, (unit, around.stop))
            out += around.element.raw + inner + around.element.closing
            unit = around.stop
        else:
            out += words[unit]
            unit += 1


def _empty(placed: _Placed) -> str:
    return placed.element.raw + "".join(map(_empty, placed.children)) + placed.element.closing
