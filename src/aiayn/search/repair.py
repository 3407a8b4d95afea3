"""Gives a translation exactly the placeholders of its source: missing ones are put in, superfluous ones removed.

Tags of the source were taken out before. Those in the translation are removed, too, unless the source has as many that
are meant as text.
"""

from collections import defaultdict

import numpy as np

from aiayn.data.placeholders import PLACEHOLDER, PLACEHOLDER_LENGTH, TAG_START, changes_placeholders
from aiayn.search.placement import SURE, Places
from aiayn.search.projection import AlignedText, Span, best_interval

BRACES = ("{", "}")  # a single one is no placeholder, but `str.format` refuses it
TAG_NAME = "<"  # of all tags without a placeholder
NEVER_MISSING = (*BRACES, TAG_NAME)
OPENING, CLOSING = "([{«„", ".,;:!?)]}»“"  # without a blank after and before them
# What divides two placeholders where a blank does not: `%(x)d` may have one before its letter, and a tag that is shown
# may have both kinds of blanks before its end.
NO_BREAK_SPACE, ZERO_WIDTH_SPACE = "\u00a0", "\u200b"


def repair(sentence: AlignedText, places: Places) -> AlignedText:
    """Returns the translation with every placeholder of the source, and with none that the source does not have.

    A missing one takes the place of what is aligned with it, such as `% s`, or is put beside it. Where the model wrote
    more copies than the source has, those that attend least to it go. Takes Python steps in proportion to the units.
    """
    columns, copies = _by_name(sentence.source, sentence.source_units), _by_name(sentence.text, sentence.units)
    removed: set[int] = set()
    free = np.ones(len(sentence.words), dtype=bool)
    for name, found in copies.items():
        wanted = columns.get(name, [])
        attended = sentence.weights[found][:, wanted].sum(1)
        ranked = [found[n] for n in np.argsort(-attended, kind="stable")]
        free[ranked[: len(wanted)]] = False
        removed |= set(ranked[len(wanted) :])
        places.by_model += 0 if name in NEVER_MISSING else min(len(wanted), len(found))
    names = [name for name in columns if name not in NEVER_MISSING]
    missing = [column for name in names for column in columns[name][len(copies[name]) :]]
    if not missing and not removed:
        return sentence
    inserted: defaultdict[int, list[int]] = defaultdict(list)  # source units to put before a unit
    ends = np.arange(len(free) + 1)  # of the replaced interval that a place is inside of
    beside = []
    replaced: set[int] = set()
    for column in missing:
        mass = sentence.weights[:, column] * free
        gain, (start, stop) = best_interval(mass - 0.5, free)
        places.count(mass.max(initial=0) >= SURE)
        if gain <= 0:
            beside.append(column)
            continue
        free[start:stop] = False
        ends[start + 1 : stop] = stop
        replaced |= set(range(start, stop))
        inserted[start].append(column)
    for column in beside:
        mass = sentence.weights[:, column]
        here = int(mass.argmax()) if mass.max(initial=0) >= SURE else len(free)
        inserted[int(ends[here])].append(column)
    places.removed += len(removed - replaced)
    return _rewritten(sentence, inserted, replaced | removed)


def _by_name(text: str, units: list[Span]) -> defaultdict[str, list[int]]:
    """Returns the numbers of the units that are placeholders, braces, tags or beginnings of tags, by name."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for number, (start, stop) in enumerate(units):
        name = text[start:stop]
        if name in BRACES or PLACEHOLDER.fullmatch(name):
            found[name].append(number)
        elif TAG_START.match(text, start):
            found[name if PLACEHOLDER.search(name) else TAG_NAME].append(number)
    return found


def _rewritten(sentence: AlignedText, inserted: dict[int, list[int]], dropped: set[int]) -> AlignedText:
    """Returns the sentence with source units that are put before words, and without the words that are dropped."""
    words, gaps, rows, end = [], [], [], ""
    text, units = sentence.text, sentence.units
    pending: list[str] = []  # white space since the last word; more than one piece where something changes

    def add(word: str, following: str, row: np.ndarray) -> None:
        nonlocal end
        gaps.append(pending[0] if len(pending) == 1 else _gap(end, following, pending))
        words.append(word)
        rows.append(row)
        end = (end + gaps[-1] + word)[-PLACEHOLDER_LENGTH:]

    for unit, gap in enumerate(sentence.gaps):
        pending.append(gap)
        for column in inserted.get(unit, []):
            name = sentence.source[slice(*sentence.source_units[column])]
            pending += [" ", " "]
            add(name, name, np.eye(sentence.weights.shape[1])[column])
            pending = [" ", " "]
        if unit < len(units) and unit not in dropped:
            start = units[unit][0]
            add(sentence.words[unit], text[start : start + PLACEHOLDER_LENGTH], sentence.weights[unit])
            pending = []
    weights = np.array(rows).reshape(len(rows), sentence.weights.shape[1])
    return AlignedText(sentence.source, sentence.source_units, words, [*gaps, ""], weights)


def _gap(before: str, after: str, gaps: list[str]) -> str:
    """Returns one of several pieces of white space, or a space where words or placeholders would run together."""
    if not before:
        return ""
    is_close = after[0] in CLOSING or before[-1] in OPENING
    gap = min(gaps, key=len) if is_close else max(gaps, key=len)
    if not gap and ((before[-1].isalnum() and after[0].isalnum()) or TAG_START.match(before[-1] + after)):
        gap = " "
    choices = (gap, gap or " ", NO_BREAK_SPACE, ZERO_WIDTH_SPACE)
    return next((one for one in choices if not changes_placeholders(before + one, after)), NO_BREAK_SPACE)
