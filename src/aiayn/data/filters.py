"""Filters of training pairs, each an option: duplicates, equal sides, mismatched numbers and placeholders, lengths."""

import hashlib
import re
import unicodedata
from array import array
from collections.abc import Iterable, Iterator

import numpy as np

from aiayn.config.data import DataConfig
from aiayn.data.cleaning import CleaningReport, clean
from aiayn.data.placeholders import numbers, placeholders
from aiayn.data.raw_text import RawText

# Options, whose names are also the reasons in the report.
RULES = ("drop_duplicates", "drop_equal", "drop_number_mismatch", "drop_placeholder_mismatch")

Pair = tuple[str, str]


class Filters:
    """The rules of a configuration. Of equal pairs the first is kept, wherever in the training text the others are."""

    def __init__(self, config: DataConfig, training_text: RawText):
        self.config = config
        self._repeated = _repeated(training_text, config.drop_duplicates) if config.drop_duplicates else None

    def __call__(self, pairs: Iterable[Pair], report: CleaningReport, numbered: bool = True) -> Iterator[Pair]:
        """Passes cleaned pairs on, except those that a rule drops; counts these in `report`.

        Without `numbered`, `report.read` does not number the training pairs, and repeated pairs are kept.
        """
        for src, tgt in pairs:
            reason = self._reason(src, tgt)
            if numbered and self._repeated is not None and self._repeated[report.read - 1]:
                reason = "duplicate"
            if reason:
                report.kept -= 1
                report.drop(reason, report.read)
            else:
                yield src, tgt

    def _reason(self, src: str, tgt: str) -> str | None:
        config = self.config
        if config.drop_equal and normalised(src) == normalised(tgt):
            return "equal_sides"
        if config.drop_number_mismatch and numbers(src) != numbers(tgt):
            return "numbers"
        if config.drop_placeholder_mismatch and placeholders(src) != placeholders(tgt):
            return "placeholders"
        return None


def normalised(text: str) -> str:
    """Returns a text in lower case, its letters and digits only; the text itself if it has none."""
    return re.sub(r"[\W_]+", " ", unicodedata.normalize("NFKC", text).casefold()).strip() or text


def _repeated(text: RawText, kind: str) -> np.ndarray:
    """Returns for every raw training pair whether an equal one comes before it, (pairs,) bool.

    Takes 16 bytes of memory a pair. Compares 64-bit hashes: ten million pairs have a collision with probability 3e-6.
    """
    report, keys, places = CleaningReport(), array("Q"), array("Q")
    for pair in clean(text.pairs(), report):
        compared = map(normalised, pair) if kind == "normalised" else pair
        digest = hashlib.blake2b("\n".join(compared).encode(), digest_size=8).digest()
        keys.append(int.from_bytes(digest, "little"))
        places.append(report.read - 1)
    repeated = np.zeros(report.read, bool)
    _, first = np.unique(np.array(keys), return_index=True)
    again = np.ones(len(keys), bool)
    again[first] = False
    repeated[np.array(places, np.int64)[again]] = True
    return repeated


def length_rules(
    config: DataConfig, src: np.ndarray, tgt: np.ndarray, numbers: list[int], report: CleaningReport
) -> np.ndarray:
    """Returns which pairs to keep, (pairs,) bool, given their lengths in subwords; counts the others in `report`."""
    longer, shorter = np.maximum(src, tgt), np.minimum(src, tgt)
    too_long = longer > config.max_length
    keep = ~too_long & (longer <= config.max_length_ratio * shorter + 5)
    for i in np.flatnonzero(~keep):
        report.kept -= 1
        report.drop("too_long" if too_long[i] else "length_ratio", numbers[i])
    return keep
