"""Train/test leakage: pairs of the development and test text that are in the training text, too."""

import logging
from collections.abc import Iterable, Iterator

from aiayn.config.data import DataOptions
from aiayn.data.as_learned import as_learned
from aiayn.data.cleaning import CleaningReport, clean
from aiayn.data.sources import raw_pairs, text_key
from aiayn.data.text_files import FileScans
from aiayn.errors import DataError

log = logging.getLogger(__name__)

Pair = tuple[str, str]


class Overlap:
    """Looks for these pairs, as the model learns them, while the training text is read.

    Test text that cannot be read yet counts as empty.
    """

    def __init__(self, config: DataOptions, scans: FileScans):
        self.config, self.scans = config, scans
        self.held_out = {split: self._pairs(split) for split in ("val", "test") if getattr(config, split) is not None}
        self.found: dict[str, set[Pair]] = {split: set() for split in self.held_out}

    def _pairs(self, split: str) -> set[Pair]:
        try:
            return set(as_learned(self.config, clean(raw_pairs(self.config, split, self.scans), CleaningReport())))
        except DataError:
            return set()

    def nothing(self) -> dict[str, list[Pair]]:
        """Where `watch` puts what it finds: pairs by split."""
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
            f"{len(found):,} of {len(self.held_out[split]):,} of data.{split}={getattr(self.config, split)}"
            for split, found in self.found.items()
            if found
        ]
        if counts:
            log.warning("warning: pairs that are training text, too: %s; scores on them say little", ", ".join(counts))
        if self.config.source == "files":
            files = text_key(self.config, "train", self.scans)
            if any(files.count(file) > 1 for file in files):
                log.warning("warning: data.train=%s: the same text is listed twice", self.config.train)
