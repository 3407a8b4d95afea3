"""Gives a translation exactly the placeholders of its source: missing ones are put in, superfluous ones removed.

Tags of the source were taken out before. Those in the translation are removed, too, unless the source has as many that
are meant as text.
"""

from collections import defaultdict
from dataclasses import replace

import torch
from torch import Tensor

from aiayn.data.placeholders import PLACEHOLDER, PLACEHOLDER_LENGTH, TAG_START, changes_placeholders
from aiayn.search.places import SURE, Places, best_interval, boundary
from aiayn.search.projection import AlignedText, Span

BRACES = ("{", "}")  # a single one is no placeholder, but `str.format` refuses it
TAG_NAME = "<"  # of all tags
NEVER_MISSING = (*BRACES, TAG_NAME)
OPENING, CLOSING = "([{«„", ".,;:!?)]}»“"  # without a blank after and before them
# Not part of any placeholder, while `%(x)d` may have blanks before its letter.
NO_BREAK_SPACE = "\u00a0"

Replacement = tuple[Span, int]  # units that are replaced, or a place between two; the source unit that is put there


def repair(sentence: AlignedText, places: Places) -> AlignedText:
    """Returns the translation with every placeholder of the source, and with none that the source does not have.

    A missing one takes the place of what is aligned with it, such as `% s`, or is put beside it. Where the model wrote
    more copies than the source has, those that attend least to it go. Takes Python steps in proportion to the units.
    """
    columns, copies = _named(sentence.source, sentence.source_units), _named(sentence.text, sentence.units)
    superfluous: list[int] = []
    kept = torch.zeros(len(sentence.units), dtype=torch.bool)
    for name, found in copies.items():
        wanted = columns.get(name, [])
        attended = sentence.weights[found][:, wanted].sum(1).tolist()
        ranked = [unit for _, unit in sorted(zip(attended, found, strict=True), key=lambda one: -one[0])]
        kept[ranked[: len(wanted)]] = True
        superfluous += ranked[len(wanted) :]
        places.by_model += 0 if name in NEVER_MISSING else min(len(wanted), len(found))
    missing = [
        column
        for name, wanted in columns.items()
        if name not in NEVER_MISSING
        for column in wanted[len(copies[name]) :]
    ]
    if not missing and not superfluous:
        return sentence
    replacements = _places_for(sentence, missing, kept, places)
    replaced = {unit for (start, stop), _ in replacements for unit in range(start, stop)}
    removed = set(superfluous) - replaced
    places.removed += len(removed)
    return _rewritten(sentence, replacements, removed)


def _named(text: str, units: list[Span]) -> defaultdict[str, list[int]]:
    """Returns the numbers of the units that are placeholders, braces, tags or beginnings of tags, by name."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for number, (start, stop) in enumerate(units):
        name = text[start:stop]
        if name in BRACES or PLACEHOLDER.fullmatch(name):
            found[name].append(number)
        elif TAG_START.match(text, start):
            found[TAG_NAME].append(number)
    return found


def _places_for(sentence: AlignedText, missing: list[int], kept: Tensor, places: Places) -> list[Replacement]:
    """Returns where the missing placeholders go. Units that are `kept` stay."""
    weights, free = sentence.weights, ~kept
    ends = torch.arange(len(free) + 1)  # of the replaced interval that a place is inside of
    replacements: list[Replacement] = []
    beside = []
    for column in missing:
        mass = weights[:, column] * free
        gain, (start, stop) = best_interval(mass - 0.5, free)
        places.count(bool(len(mass)) and float(mass.max()) >= SURE)
        if gain <= 0:
            beside.append(column)
            continue
        free[start:stop] = False
        ends[start + 1 : stop] = stop
        replacements.append(((start, stop), column))
    for column in beside:
        place = int(ends[boundary(weights[:, column], (0, len(free)))])
        replacements.append(((place, place), column))
    return replacements


def _rewritten(sentence: AlignedText, replacements: list[Replacement], removed: set[int]) -> AlignedText:
    """Returns the sentence with its replacements, which attend to their source, and without the removed units."""
    units, text, new = sentence.units, sentence.text, _NewText()
    here: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for (start, stop), column in sorted(replacements):
        here[start].append((stop, column))
    ends = [0, *(stop for _, stop in units)]
    gaps: list[str] = []  # around what was removed or put in before
    is_changed, skipped = False, 0
    for unit in range(len(units) + 1):
        before = text[ends[unit] : units[unit][0]] if unit < len(units) else " "
        gaps.append(before)
        for stop, column in here[unit]:
            name = sentence.source[slice(*sentence.source_units[column])]
            new.add(name, new.gap(gaps, name), -1 - column)
            is_changed, skipped, gaps = True, stop, [" "]
        if unit < skipped:
            gaps = []
        elif unit in removed:
            is_changed = True
        elif unit < len(units):
            start, stop = units[unit]
            after = text[start : start + PLACEHOLDER_LENGTH]
            new.add(text[start:stop], new.gap(gaps, after) if is_changed else before, unit)
            gaps, is_changed = [], False
    return replace(
        sentence, text="".join(new.pieces) + text[ends[-1] :], units=new.units, weights=new.weights(sentence.weights)
    )


class _NewText:
    """Collects a text unit by unit."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.units: list[Span] = []
        self._rows: list[int] = []
        self._end = ""  # the last characters

    def add(self, name: str, gap: str, row: int) -> None:
        """Adds a unit after white space. `row`: of the old weights, or -1 - u for a unit that copies source unit u."""
        start = (self.units[-1][1] if self.units else 0) + len(gap)
        self.pieces += [gap, name]
        self.units.append((start, start + len(name)))
        self._rows.append(row)
        self._end = (self._end + gap + name)[-PLACEHOLDER_LENGTH:]

    def gap(self, gaps: list[str], after: str) -> str:
        """Returns one of several pieces of white space, or a space if words or placeholders would run together."""
        if not self.units:
            return ""
        is_close = after[0] in CLOSING or self._end[-1] in OPENING
        gap = min(gaps, key=len) if is_close else max(gaps, key=len)
        if not gap and self._end[-1].isalnum() and after[0].isalnum():
            gap = " "
        if not gap and TAG_START.match(self._end[-1] + after):
            gap = " "
        choices = (gap, gap or " ")
        return next((one for one in choices if not changes_placeholders(self._end + one, after)), NO_BREAK_SPACE)

    def weights(self, old: Tensor) -> Tensor:
        rows = torch.tensor(self._rows, dtype=torch.long)
        new = torch.zeros(len(rows), old.size(1))
        new[rows >= 0] = old[rows[rows >= 0]]
        new[rows < 0, -1 - rows[rows < 0]] = 1
        return new
