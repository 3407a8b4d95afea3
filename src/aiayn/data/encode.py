"""Encodes clean text into subword ids: in order, on all cores, with rate and time left."""

import os
import signal
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count, islice

import numpy as np

from aiayn.config.data import DataConfig
from aiayn.data.cleaning import CleaningReport, CleanPair, clean, grouped, is_plain, training_rules
from aiayn.data.raw_text import RawText, with_progress
from aiayn.data.survey import Survey
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import ResourceError
from aiayn.files import cores

# Encoded at once; the second limits memory for long lines
CHUNK_PAIRS, CHUNK_CHARACTERS = 20_000, 8_000_000
SEVERAL = 8  # chunks, from which on several processes are worth starting
MAX_WORDS = 1_000_000  # in a cache; some 300 MB


@dataclass(frozen=True, eq=False)
class Sentences:
    """The ids of some sentences, one after another, without end marks."""

    flat: np.ndarray  # (tokens,) uint16 or uint32
    starts: np.ndarray  # (sentences + 1,) int64: where each begins, and the end of the last

    @classmethod
    def of(cls, rows: list[list[int]], dtype: type | np.dtype = np.uint32) -> "Sentences":
        starts = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        return cls(np.fromiter(chain.from_iterable(rows), dtype, starts[-1]), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, number: int) -> np.ndarray:
        return self.flat[self.starts[number] : self.starts[number + 1]]

    @cached_property
    def lengths(self) -> np.ndarray:
        """Returns the number of tokens of every sentence with its end mark, (sentences,) int32."""
        return np.diff(self.starts).astype(np.int32) + 1

    def __add__(self, other: "Sentences") -> "Sentences":
        starts = np.concatenate([self.starts, self.starts[-1] + other.starts[1:]])
        return Sentences(np.concatenate([self.flat, other.flat]), starts)

    def take(self, numbers: np.ndarray) -> "Sentences":
        """Returns the sentences of these numbers, (n,) integers, in their order."""
        starts = self.starts[numbers]
        counts = self.starts[numbers + 1] - starts
        ends = np.concatenate([[0], counts.cumsum()])
        tokens = np.arange(ends[-1]) + np.repeat(starts - ends[:-1], counts)
        return Sentences(self.flat[tokens], ends)


class CachedTokenizer:
    """Returns the ids that `Tokenizer.encode` returns, ten times as fast: every distinct word is
    encoded only once.

    Subwords never cross a space, and the tokenizer puts a space before every line. So the ids of a
    line are those of its words, concatenated, if its only white space is single spaces. Any other
    line is treated as one word.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._dtype = np.dtype("<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4")
        self._forget()

    def _forget(self) -> None:
        # The number of each word, in the order in which words first occurred
        self._numbers = defaultdict[str, int](count().__next__)
        self._words = Sentences.of([], self._dtype)  # the ids of each

    def __call__(self, lines: list[str]) -> Sentences:
        if len(self._numbers) > MAX_WORDS:
            self._forget()
        words: list[str] = []
        words_before = [0]
        for line in lines:
            words += line.split(" ") if is_plain(line) and "  " not in f" {line} " else [line]
            words_before.append(len(words))
        numbers = np.fromiter(map(self._numbers.__getitem__, words), np.int64, len(words))
        new = list(islice(self._numbers, len(self._words), None))
        self._words += Sentences.of(self._tokenizer.encode(new), self._dtype)
        sentences = self._words.take(numbers)  # one after the other
        return Sentences(sentences.flat, sentences.starts[words_before])


def encode_split(
    split: str,
    config: DataConfig,
    text: RawText,
    tokenizer: Tokenizer,
    report: CleaningReport,
    survey: Survey | None = None,
) -> Iterator[tuple[Sentences, Sentences]]:
    """Yields the ids of a split's usable pairs, sources and targets, some at a time.

    Of training, pairs that are too long, and repeated ones, are dropped; `survey` gets the others.
    """
    training = split == "train"
    total = text.count() if training and config.source == "files" else None
    raw = with_progress(text.pairs(), f"encoding {split}", total)
    rules = training_rules(config) if training else []
    # The last; of pairs that stay
    is_duplicate = rules.pop()[1] if training and config.drop_duplicates else None
    pairs = clean(raw, report, rules, config.tags)
    for chunk, src, tgt in encode(pairs, tokenizer, config.prepare_processes):
        if not training:
            yield src, tgt
            continue
        kept = []
        lengths = np.sort([np.diff(src.starts), np.diff(tgt.starts)], axis=0)
        rows = zip(chunk, *lengths.tolist(), strict=True)
        for number, (pair, shorter, longer) in enumerate(rows):
            if longer > config.max_length:
                report.drop_kept(pair, "too_long")
            elif longer > config.max_length_ratio * shorter + 5:
                report.drop_kept(pair, "length_ratio")
            elif is_duplicate and is_duplicate(pair.src, pair.tgt):
                report.drop_kept(pair, "duplicate")
            else:
                kept.append(number)
                report.corpora[pair.raw.corpus] += 1
        if survey:
            survey.add(chunk[number] for number in kept)
        numbers = np.array(kept, np.int64)
        yield src.take(numbers), tgt.take(numbers)


def encode(
    pairs: Iterable[CleanPair], tokenizer: Tokenizer, processes: int | None = None
) -> Iterator[tuple[list[CleanPair], Sentences, Sentences]]:
    """Yields some pairs at a time with the ids of their sources and targets, in order. processes:
    None for one a core.

    Raises ResourceError if a process is killed, as for want of memory.
    """
    processes = processes or cores()
    chunks = grouped(pairs, CHUNK_PAIRS, CHUNK_CHARACTERS)
    src, tgt = _cached(tokenizer)
    for chunk in islice(chunks, SEVERAL if processes > 1 else None):
        yield chunk, src([pair.src for pair in chunk]), tgt([pair.tgt for pair in chunk])
    # The processes are started only if there is more text.
    first = next(chunks, None)
    if first is None:
        return
    waiting = deque[tuple[list[CleanPair], Future[tuple[Sentences, Sentences]]]]()
    pool = ProcessPoolExecutor(processes, initializer=_start, initargs=(tokenizer, os.getpid()))
    try:
        for chunk in chain([first], chunks):
            texts = [pair.src for pair in chunk], [pair.tgt for pair in chunk]
            waiting.append((chunk, pool.submit(_encode, *texts)))
            if len(waiting) > 2 * processes:
                done, ids = waiting.popleft()
                yield done, *ids.result()
        for done, ids in waiting:
            yield done, *ids.result()
    except BrokenProcessPool as error:
        raise ResourceError(
            "a process that encodes text was killed; if memory ran out, lower "
            "data.prepare_processes"
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _cached(tokenizer: Tokenizer) -> tuple[CachedTokenizer, CachedTokenizer]:
    """Returns cached encoders of sources and of targets, with one cache for a shared vocabulary."""
    targets = CachedTokenizer(tokenizer)
    return targets if tokenizer.source is tokenizer else CachedTokenizer(tokenizer.source), targets


_tokenizers: tuple[CachedTokenizer, CachedTokenizer] | None = (
    None  # set in each process of the pool
)


def _start(tokenizer: Tokenizer, parent: int) -> None:
    """Prepares a process of the pool, which leaves signals to its parent and ends with it."""
    global _tokenizers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _tokenizers = _cached(tokenizer)

    def end_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _encode(sources: list[str], targets: list[str]) -> tuple[Sentences, Sentences]:
    assert _tokenizers is not None
    return _tokenizers[0](sources), _tokenizers[1](targets)
