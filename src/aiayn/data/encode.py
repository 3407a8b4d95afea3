"""Encodes clean text into subword ids: in order, on all cores, with rate and time left."""

import logging
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain
from typing import NamedTuple

import numpy as np

from aiayn.config.data import DataConfig
from aiayn.data.cleaning import CleaningReport, CleanPair, clean_as_learned, grouped, is_plain
from aiayn.data.held_out import Leakage
from aiayn.data.raw_text import RawText, with_progress
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import ResourceError

log = logging.getLogger(__name__)

CHUNK_PAIRS, CHUNK_CHARACTERS = 20_000, 8_000_000  # encoded at once; the second limits memory for long lines
SEVERAL = 8  # chunks, from which on several processes are worth starting
MAX_WORDS = 1_000_000  # in a cache; some 300 MB


class Ids(NamedTuple):
    """The subwords of some sentences."""

    flat: np.ndarray  # (tokens,) uint16 or uint32, sentence after sentence, without end marks
    lengths: np.ndarray  # (sentences,) int64

    def where(self, keep: np.ndarray) -> "Ids":
        """Returns those of the sentences for which `keep`, (sentences,) bool, is true."""
        return Ids(self.flat[np.repeat(keep, self.lengths)], self.lengths[keep])


class CachedTokenizer:
    """Returns the ids that `Tokenizer.encode` returns, ten times as fast: every distinct word is encoded only once.

    Subwords never cross a space, and the tokenizer puts a space before every line. So the ids of a line are those of
    its words, concatenated, if its only white space is single spaces. Any other line is treated as one word.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._dtype = id_type(tokenizer)
        self._words: dict[str, list[int]] = {}

    def __call__(self, lines: list[str]) -> Ids:
        if len(self._words) > MAX_WORDS:
            self._words = {}
        split = [line.split(" ") if is_plain(line) and "  " not in f" {line} " else [line] for line in lines]
        new = list(set(chain.from_iterable(split)).difference(self._words))
        self._words.update(zip(new, self._tokenizer.encode(new), strict=True))
        rows = [list(chain.from_iterable(map(self._words.__getitem__, words))) for words in split]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return Ids(np.fromiter(chain.from_iterable(rows), self._dtype, lengths.sum()), lengths)


def id_type(tokenizer: Tokenizer) -> np.dtype:
    return np.dtype("<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4")


class LineChunk(NamedTuple):
    """Some pairs that follow each other in the text."""

    pairs: list[CleanPair]
    src: Ids
    tgt: Ids


def encode_split(
    split: str,
    config: DataConfig,
    text: RawText,
    tokenizer: Tokenizer,
    report: CleaningReport,
    leakage: Leakage | None = None,
) -> Iterator[tuple[Ids, Ids]]:
    """Yields the ids of a split's usable pairs, sources and targets, some at a time.

    Of training, pairs that are too long are dropped, and `leakage` looks at each.
    """
    training = split == "train"
    total = text.count() if training and config.source == "files" else None
    raw = with_progress(text.pairs(), f"encoding {split}", total)
    cleaned = clean_as_learned(config, raw, report, training)
    if training and leakage:
        cleaned = leakage.watch(cleaned)
    for chunk in encode(cleaned, tokenizer, config.prepare_processes):
        src, tgt = chunk.src, chunk.tgt
        if training:
            longer, shorter = np.maximum(src.lengths, tgt.lengths), np.minimum(src.lengths, tgt.lengths)
            too_long = longer > config.max_length
            keep = ~too_long & (longer <= config.max_length_ratio * shorter + 5)
            for number in np.flatnonzero(~keep):
                report.kept -= 1
                report.drop(chunk.pairs[number].raw, "too_long" if too_long[number] else "length_ratio")
            report.corpora.update(chunk.pairs[number].raw.corpus for number in np.flatnonzero(keep))
            src, tgt = src.where(keep), tgt.where(keep)
        yield src, tgt


def encode(pairs: Iterable[CleanPair], tokenizer: Tokenizer, processes: int | None = None) -> Iterator[LineChunk]:
    """Yields the pairs with their ids, in order. processes: None for one a core.

    Raises ResourceError if a process is killed, as for want of memory.
    """
    processes = processes or cores()
    chunks = enumerate(grouped(pairs, CHUNK_PAIRS, CHUNK_CHARACTERS))
    own = CachedTokenizer(tokenizer)
    for number, chunk in chunks:
        yield LineChunk(chunk, own([pair.src for pair in chunk]), own([pair.tgt for pair in chunk]))
        if number + 1 == SEVERAL and processes > 1:
            break
    # The processes are started only if there is more text.
    first = next(chunks, None)
    if first is None:
        return
    waiting: deque[tuple[list[CleanPair], Future[tuple[Ids, Ids]]]] = deque()
    pool = ProcessPoolExecutor(processes, initializer=_start, initargs=(tokenizer, os.getpid()))
    try:
        for _, chunk in chain([first], chunks):
            sides = [pair.src for pair in chunk], [pair.tgt for pair in chunk]
            waiting.append((chunk, pool.submit(_encode, *sides)))
            if len(waiting) > 2 * processes:
                done, future = waiting.popleft()
                yield LineChunk(done, *future.result())
        for done, future in waiting:
            yield LineChunk(done, *future.result())
    except BrokenProcessPool as error:
        raise ResourceError(
            "a process that encodes text was killed; if memory ran out, lower data.prepare_processes"
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


_tokenizer: CachedTokenizer | None = None  # of a process of the pool


def _start(tokenizer: Tokenizer, parent: int) -> None:
    """Prepares a process of the pool, which leaves signals to its parent and ends with it."""
    global _tokenizer
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _tokenizer = CachedTokenizer(tokenizer)

    def end_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _encode(sources: list[str], targets: list[str]) -> tuple[Ids, Ids]:
    assert _tokenizer is not None
    return _tokenizer(sources), _tokenizer(targets)


def cores() -> int:
    """Returns how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
