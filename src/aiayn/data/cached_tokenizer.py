"""A tokenizer with a cache: ten times as fast on a corpus, because every distinct word is encoded only once."""

import numpy as np

from aiayn.data.tokenizer import Tokenizer

MAX_WORDS = 1_000_000  # in the cache; some 300 MB


class CachedTokenizer:
    """Returns exactly the ids that `Tokenizer.encode` returns.

    Subwords never cross a space, and the tokenizer puts a space before every line. So the ids of a line are those of
    its words, concatenated, if its only white space is single spaces. Any other line is treated as one word.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._clear()

    def _clear(self) -> None:
        self._words = _Words()
        self._ids = np.empty(0, np.int32)  # ids of all cached words, concatenated
        self._starts = np.zeros(1, np.int64)  # where each word's ids start, and the end of the last

    def __call__(self, lines: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of all lines, concatenated, (tokens,) int32; and how many each line has, (lines,) int64."""
        if len(self._words) > MAX_WORDS:
            self._clear()
        words: list[str] = []
        ends = []
        for line in lines:
            if line.isprintable() and "  " not in line and line == line.strip(" "):
                words += line.split(" ")
            else:
                words.append(line)
            ends.append(len(words))
        places = np.fromiter(map(self._words.__getitem__, words), np.int64, len(words))
        self._encode_new()
        counts = np.diff(self._starts)[places]
        stops = np.concatenate([[0], np.cumsum(counts)])
        # Token t of the result is token t - (where its word begins here) + (where its word begins in the cache).
        ids = self._ids[np.arange(stops[-1]) + np.repeat(self._starts[places] - stops[:-1], counts)]
        return ids, np.diff(stops[ends], prepend=0)

    def _encode_new(self) -> None:
        """Adds the ids of the new words to the cache."""
        rows = self._tokenizer.encode(self._words.new)
        self._words.new = []
        counts = np.fromiter(map(len, rows), np.int64, len(rows))
        new = np.fromiter((i for row in rows for i in row), np.int32, counts.sum())
        self._ids = np.concatenate([self._ids, new])
        self._starts = np.concatenate([self._starts, self._starts[-1] + np.cumsum(counts)])


class _Words(dict[str, int]):
    """Numbers words in the order in which they are first looked up."""

    def __init__(self) -> None:
        self.new: list[str] = []

    def __missing__(self, word: str) -> int:
        self.new.append(word)
        self[word] = number = len(self)
        return number
