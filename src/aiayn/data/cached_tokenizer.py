"""Many lines into subword ids at once, ten times as fast as line by line: every word is cut into subwords only once."""

import numpy as np

from aiayn.data.tokenizer import Tokenizer

MAX_WORDS = 1_000_000  # remembered; some 300 MB


class CachedTokenizer:
    """Gives what `Tokenizer.encode` gives, to the id.

    Subwords never reach across a space, and the tokenizer puts a space before a line. So a line's ids are those of its
    words one after another, if single spaces are all the white space in it; any other line counts as one word.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._forget()

    def _forget(self) -> None:
        self._words = _Words()
        self._ids = np.empty(0, np.int32)  # of all words, one after another
        self._starts = np.zeros(1, np.int64)  # of each word's ids, and the end of the last

    def __call__(self, lines: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all lines one after another, (tokens,) int32, and how many each line has, (lines,) int64."""
        if len(self._words) > MAX_WORDS:
            self._forget()
        words: list[str] = []
        ends = []
        for line in lines:
            if line.isprintable() and "  " not in line and line == line.strip(" "):
                words += line.split(" ")
            else:
                words.append(line)
            ends.append(len(words))
        places = np.fromiter(map(self._words.__getitem__, words), np.int64, len(words))
        self._learn()
        counts = np.diff(self._starts)[places]
        stops = np.concatenate([[0], np.cumsum(counts)])
        # Token t of the result is token t - (where its word begins here) + (where it begins among all words).
        ids = self._ids[np.arange(stops[-1]) + np.repeat(self._starts[places] - stops[:-1], counts)]
        return ids, np.diff(stops[ends], prepend=0)

    def _learn(self) -> None:
        """Cuts the words that are new."""
        rows = self._tokenizer.encode(self._words.new)
        self._words.new = []
        counts = np.fromiter(map(len, rows), np.int64, len(rows))
        new = np.fromiter((i for row in rows for i in row), np.int32, counts.sum())
        self._ids = np.concatenate([self._ids, new])
        self._starts = np.concatenate([self._starts, self._starts[-1] + np.cumsum(counts)])


class _Words(dict[str, int]):
    """Numbers words in the order in which they are first asked for."""

    def __init__(self) -> None:
        self.new: list[str] = []

    def __missing__(self, word: str) -> int:
        self.new.append(word)
        self[word] = number = len(self)
        return number
