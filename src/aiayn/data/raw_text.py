"""The pairs of one split as they were given: nothing is cleaned, dropped or normalised."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from typing import Any

from aiayn.data.text_files import decode

RawPair = tuple[bytes, bytes]  # source, target


class RawText(ABC):
    """Text that an option names. It can be read several times; `identity` identifies its content."""

    can_jump = False  # whether `pairs(first)` is faster than reading past the first ones

    def __init__(self, key: str, names: list[str]):
        """key: the option, such as data.train; names: its value as a list."""
        self.key, self.names = key, names

    @abstractmethod
    def pairs(self, first: int = 0) -> Iterator[RawPair]:
        """Streams the pairs, without the `first` ones. Raises DataError for missing, empty or unreadable text.

        Errors that can be found without reading all of it are raised before the first pair.
        """

    @abstractmethod
    def identity(self) -> Any:
        """Returns plain values for a fingerprint, by the content of what is on disk."""

    def placed(self) -> Iterator[tuple[str, RawPair]]:
        """Streams the pairs, each with its place: file and line, or its number."""
        return ((f"pair {number}", pair) for number, pair in enumerate(self.pairs(), 1))

    def places(self, numbers: Collection[int]) -> dict[int, str]:
        """Returns the places of pairs by their numbers, counted from 1."""
        return {number: f"pair {number}" for number in numbers}

    def count(self) -> int:
        """Returns the number of pairs."""
        return sum(1 for _ in self.pairs())

    def read(self) -> tuple[list[str], list[str]]:
        """Returns sources and targets. Raises DataError as `pairs` does, and for a line that is not UTF-8."""
        sources, targets = [], []
        for number, (src, tgt) in enumerate(self.pairs(), 1):
            sources.append(decode(src, self.option, number))
            targets.append(decode(tgt, self.option, number))
        return sources, targets

    def repeats_a_file(self) -> bool:
        """Whether the same file is named twice."""
        return False

    @property
    def option(self) -> str:
        """The option as it is written on the command line."""
        return f"{self.key}={self.names[0] if len(self.names) == 1 else self.names}"
