"""The order in which a prepared corpus keeps its pairs: by their lengths, so that neighbours need little padding.

Pairs are sorted by their longer side, then by the difference of the sides, ascending and descending in turn: padding is
below 1 % at 25,000 tokens on a large corpus, where sorting by target and then source costs 7 %. Pairs of equal lengths
lie in an order drawn once from their numbers in the text: those of one source are spread over all of it.
"""

from dataclasses import dataclass

import numpy as np

LONGEST_BITS, DRAWN_BITS = 20, 23  # bits of a sort key for a length, and for the order among equal lengths
LONGEST = (1 << LONGEST_BITS) - 1  # tokens of a side


@dataclass(frozen=True, eq=False)
class SideLengths:
    """Lengths of all pairs on one side (or of both sides together), as runs of equal lengths.

    There are a few ten thousand runs for millions of pairs, and every cut can be computed from them.
    """

    first: np.ndarray  # (runs + 1,) position of each run's first pair, then the number of pairs
    length: np.ndarray  # (runs,) at least 1
    sums: np.ndarray  # (runs + 1,) tokens before each run, then all tokens

    @classmethod
    def of(cls, first: np.ndarray, length: np.ndarray) -> "SideLengths":
        return cls(first, length, np.concatenate([[0], np.cumsum(length * np.diff(first))]))

    @property
    def total(self) -> int:
        return int(self.sums[-1])

    def tokens_before(self, positions: np.ndarray) -> np.ndarray:
        """Returns the tokens of all pairs before each position, in the shape of `positions`."""
        run = self._run(positions)
        return self.sums[run] + (positions - self.first[run]) * self.length[run]

    def spans(self, positions: np.ndarray | int) -> tuple[np.ndarray, np.ndarray]:
        """Returns where the tokens of each pair begin among those of all pairs, and how many they are."""
        run = self._run(positions)
        return self.sums[run] + (positions - self.first[run]) * self.length[run], self.length[run]

    def reaching(self, tokens: np.ndarray) -> np.ndarray:
        """Returns the first position with at least so many tokens before it, in the shape of `tokens`."""
        tokens = np.ceil(tokens).astype(np.int64)
        run = np.maximum(self.sums.searchsorted(tokens) - 1, 0)
        return self.first[run] - (self.sums[run] - tokens) // self.length[run]

    def padded(self, cuts: np.ndarray) -> np.ndarray:
        """Returns the padded tokens of every micro-batch, pairs times longest, (steps, M), for cuts (steps, M + 1)."""
        start, stop = cuts[:, :-1].ravel(), cuts[:, 1:].ravel()
        between = np.stack([self._run(start), self._run(stop - 1) + 1], axis=1).ravel()
        longest = np.maximum.reduceat(np.append(self.length, 0), between)[::2]
        return ((stop - start) * longest).reshape(len(cuts), -1)

    def _run(self, positions: np.ndarray | int) -> np.ndarray:
        """The run of each position; the end of all pairs belongs to the last one."""
        return np.clip(self.first.searchsorted(positions, "right") - 1, 0, len(self.length) - 1)


@dataclass(frozen=True, eq=False)
class LengthRuns:
    """Source and target lengths of all pairs, in order."""

    src: SideLengths
    tgt: SideLengths

    @classmethod
    def of_counts(cls, src: np.ndarray, tgt: np.ndarray, pairs: np.ndarray) -> "LengthRuns":
        """src, tgt (runs,): the lengths; pairs (runs,): how many in a row have them."""
        first = np.concatenate([[0], np.cumsum(pairs, dtype=np.int64)])
        return cls(SideLengths.of(first, src.astype(np.int64)), SideLengths.of(first, tgt.astype(np.int64)))

    @classmethod
    def of_pairs(cls, src: np.ndarray, tgt: np.ndarray) -> "LengthRuns":
        """src, tgt (pairs,): the lengths of every pair, in order."""
        changes = np.flatnonzero(np.diff(src) | np.diff(tgt)) + 1
        first = np.concatenate([[0], changes, [len(src)]])
        return cls.of_counts(src[first[:-1]], tgt[first[:-1]], np.diff(first))

    def __len__(self) -> int:
        return int(self.src.first[-1])

    @property
    def pairs(self) -> np.ndarray:
        """(runs,) pairs of each run."""
        return np.diff(self.src.first)

    @property
    def longest(self) -> int:
        return int(max(self.src.length.max(), self.tgt.length.max()))

    def with_end_marks(self) -> "LengthRuns":
        """The same for sentences with their end mark."""
        return self.of_counts(self.src.length + 1, self.tgt.length + 1, self.pairs)


def sort_keys(src: np.ndarray, tgt: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Returns (n,) uint64 keys that sort pairs as above, by their lengths with end marks and numbers in the text."""
    src, tgt = src.astype(np.int64), tgt.astype(np.int64)
    longer, difference = np.maximum(src, tgt), src - tgt
    assert len(src) == 0 or longer.max() <= LONGEST, "a pair is too long to be sorted"
    difference *= 2 * (longer % 2) - 1
    lengths = (longer << LONGEST_BITS + 1) + difference + LONGEST
    drawn = scrambled(numbers.astype(np.uint64)) >> np.uint64(64 - DRAWN_BITS)
    return lengths.astype(np.uint64) << np.uint64(DRAWN_BITS) | drawn


def scrambled(numbers: np.ndarray) -> np.ndarray:
    """Returns 64 random-looking bits for each of the numbers, uint64; different ones for different numbers.

    The mixing function of SplitMix64 (Steele, Lea and Flood, 2014).
    """
    z = numbers * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
