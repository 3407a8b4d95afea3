"""The pairs of one split as given: not cleaned, dropped or normalised."""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from aiayn.data.text_files import decode
from aiayn.errors import DataError

log = logging.getLogger(__name__)


class RawPair(NamedTuple):
    """A source and its target as bytes, and where they come from."""

    file: str  # the option if there is no file
    number: int  # line of the file that the pair begins in, or its number, from 1
    src: bytes
    tgt: bytes
    flaw: str = ""  # why a row is not a pair, a key of FLAWS; empty for a pair
    corpus: int = 0  # number of its name in the option, from 0

    @property
    def place(self) -> str:
        return f"{self.file}: line {self.number}"


# Reasons why a row is not a pair, as in the report, and how messages put them.
FLAWS = {
    "columns": "has another number of columns",
    "not_json": "is not a JSON object with two texts",
    "two_segments": "has two segments of one language",
    "too_many_bytes": "is too long",
}


@dataclass(eq=False)
class RawText(ABC):
    """Text that an option names. It can be read several times; `identity` identifies its
    content.
    """

    key: str  # the option, such as data.train
    names: list[str]  # its value as a list
    langs: tuple[str, str]  # of source and target

    @abstractmethod
    def pairs(self) -> Iterator[RawPair]:
        """Streams the pairs. Raises DataError for missing, empty or unreadable text.

        Errors that can be found without reading all of it are raised before the first pair.
        """

    @abstractmethod
    def identity(self) -> Any:
        """Returns plain values for a fingerprint, by the content of what is on disk."""

    def count(self) -> int:
        """Returns the number of pairs before cleaning."""
        return sum(1 for _ in self.pairs())

    def untagged(self) -> "list[RawText]":
        """Returns each name as a text of its own, without those with a tag."""
        return [self]

    def read(self) -> tuple[list[str], list[str]]:
        """Returns sources and targets. Raises DataError as `pairs` does, for rows that are not
        pairs and for lines that are not UTF-8.
        """
        sources, targets, flaws = [], [], []
        for pair in self.pairs():
            if pair.flaw:
                flaws.append(pair)
                continue
            sources.append(decode(pair.src, f"{pair.file} (source)", pair.number))
            targets.append(decode(pair.tgt, f"{pair.file} (target)", pair.number))
        if flaws:
            raise DataError(
                f"{flaws[0].file}: rows that are not pairs: {len(flaws)}{remark(flaws)}; correct "
                "or remove them"
            )
        return sources, targets

    @property
    def option(self) -> str:
        """Returns the option as it is written on the command line."""
        return f"{self.key}={self.names[0] if len(self.names) == 1 else self.names}"


def remark(flaws: list[RawPair]) -> str:
    """Says what is wrong with the first few rows that are not pairs, in brackets; nothing without
    any.
    """
    descriptions = [f"line {pair.number} {FLAWS.get(pair.flaw, pair.flaw)}" for pair in flaws[:5]]
    return f" ({', '.join(descriptions)}{', ...' if len(flaws) > 5 else ''})" if flaws else ""


def with_progress(pairs: Iterable, doing: str, total: int | None) -> Iterator:
    """Passes pairs on and logs, every ten seconds, how many of `total` there were, their rate and
    the time left.
    """
    start = last = time.monotonic()
    for number, pair in enumerate(pairs, 1):
        yield pair
        if number % 1000 == 0 and (clock := time.monotonic()) - last > 10:
            last, rate = clock, number / (clock - start)
            of_total = left = ""
            if total:
                seconds = round(max(0, total - number) / rate)
                of_total, left = f" of {total:,}", f", {timedelta(seconds=seconds)} left"
            log.info(f"{doing}: {number:,}{of_total} pairs, {rate:,.0f} a second{left}")
