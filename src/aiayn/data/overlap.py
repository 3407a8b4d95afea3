"""Train/test leakage: pairs of the development and test text that are also in the training text."""

import logging
from collections.abc import Iterable, Iterator

from aiayn.config.data import DataOptions
from aiayn.data.as_learned import as_learned
from aiayn.data.cleaning import CleaningReport, clean
from aiayn.data.raw_text import RawText
from aiayn.errors import DataError

log = logging.getLogger(__name__)

Pair = tuple[str, str]


class Overlap:
    """Looks for these pairs, as the model learns them, while the training text is read.

    Test text that cannot be read yet counts as empty.
    """

    def __init__(self, config: DataOptions, texts: dict[str, RawText]):
        """texts: by split."""
        self.config, self.texts = config, texts
        self.held_out = {split: self._pairs(text) for split, text in texts.items() if split != "train"}
        self.found: dict[str, set[Pair]] = {split: set() for split in self.held_out}

    def _pairs(self, text: RawText) -> set[Pair]:
        try:
            return set(as_learned(self.config, clean(text.pairs(), CleaningReport())))
        except DataError:
            return set()

    def nothing(self) -> dict[str, list[Pair]]:
        """Returns empty lists by split, for `watch` to append to."""
        return {split: [] for split in self.held_out}

    def watch(self, pairs: Iterable[Pair], found: dict[str, list[Pair]]) -> Iterator[Pair]:
        """Passes the training pairs on, cleaned and as the model learns them."""
        for pair in pairs:
            for split, held_out in self.held_out.items():
                if pair in held_out:
                    found[split].append(pair)
            yield pair

    def add(self, found: dict[str, list[Pair]]) -> None:
        """Adds what was found in a part of the training text."""
        for split, pairs in found.items():
            self.found[split].update((src, tgt) for src, tgt in pairs)

    def warn(self) -> None:
        """Logs a line if any pair was found, and one if a training file is listed twice."""
        counts = [
            f"{len(found):,} of {len(self.held_out[split]):,} of {self.texts[split].option}"
            for split, found in self.found.items()
            if found
        ]
        if counts:
            log.warning(
                "warning: train/test leakage: %s are also training pairs; scores on them say little", ", ".join(counts)
            )
        if self.texts["train"].repeats_a_file():
            log.warning("warning: %s: the same text is listed twice", self.texts["train"].option)
