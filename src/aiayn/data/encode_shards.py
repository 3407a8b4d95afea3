"""Encodes text into shards: equal parts of a split, each on its own, so that several processes can share the work.

A shard under its final name is complete, and is not encoded again after a kill.
"""

import json
import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np

from aiayn.config.data import DataConfig
from aiayn.data.as_learned import as_learned
from aiayn.data.cached_tokenizer import CachedTokenizer
from aiayn.data.cleaning import CleaningReport, clean
from aiayn.data.filters import Filters, length_rules
from aiayn.data.length_order import sort_keys
from aiayn.data.overlap import Overlap
from aiayn.data.raw_text import RawPair, RawText
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import DataError, ResourceError
from aiayn.files import atomic_write, atomic_write_text

log = logging.getLogger(__name__)

SHARD_PAIRS = 1 << 18  # some ten seconds of work; part of the format, as the pairs of shards are sorted together
CHUNK_PAIRS, CHUNK_CHARACTERS = 20_000, 8_000_000  # encoded at once; the second limits memory for long lines
GATHERED = 1 << 14  # pairs put into order at once

# A pair of a shard: the key that it is sorted by, and its lengths in subwords.
PAIR = np.dtype([("key", "<u8"), ("src", "<u4"), ("tgt", "<u4")])


@dataclass(frozen=True)
class Shard:
    """Raw pairs `number * SHARD_PAIRS` and following of a split."""

    split: str
    number: int

    def path(self, folder: Path, kind: str) -> Path:
        """kind: src or tgt, ids in length order; pairs, see PAIR; json, counts, the last to be written."""
        return folder / f"{self.split}-{self.number:06}.{kind}"

    def is_done(self, folder: Path) -> bool:
        return self.path(folder, "json").exists()

    def result(self, folder: Path) -> dict[str, Any]:
        """Returns {"report": a CleaningReport, "tokens": by side, "found": pairs of other splits}."""
        return json.loads(self.path(folder, "json").read_text("utf-8"))


class Encoder:
    """Encodes shards, one after another and best in ascending order."""

    def __init__(
        self,
        config: DataConfig,
        texts: dict[str, RawText],
        settings: dict[str, Any],
        folder: Path,
        tokenizer: Tokenizer,
        filters: Filters,
    ):
        """texts: by split; settings: what they must be; folder: of the shards."""
        self.config, self.texts, self.settings, self.folder = config, texts, settings, folder
        self.tokenizer = tokenizer
        self.dtype = np.dtype("<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4")
        self.filters, self.overlap = filters, Overlap(config, texts)
        self._tokenizer = CachedTokenizer(tokenizer)
        self._split, self._next = "", 0
        self._pairs: Iterator[RawPair] = iter(())

    def __call__(self, shard: Shard, at_every_chunk: Callable[[], None] = lambda: None) -> None:
        """Writes a shard. Raises DataError if the text cannot be read, or is no longer the one of `settings`."""
        first = shard.number * SHARD_PAIRS
        report = CleaningReport(read=first)
        found = self.overlap.nothing()
        cleaned = as_learned(self.config, clean(self._read(shard.split, first), report))
        if shard.split == "train":
            cleaned = self.overlap.watch(self.filters(cleaned, report), found)
        sides: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        pairs: list[np.ndarray] = []
        for src, tgt, numbers in chunks(cleaned, report, CHUNK_PAIRS, CHUNK_CHARACTERS):
            at_every_chunk()
            ids, counts = zip(self._tokenizer(src), self._tokenizer(tgt), strict=True)
            keep = np.ones(len(src), bool)
            if shard.split == "train":
                keep = length_rules(self.config, *counts, numbers, report)
            for kept, side, count in zip(sides, ids, counts, strict=True):
                kept.append(side[np.repeat(keep, count)].astype(self.dtype))
            made = np.empty(keep.sum(), PAIR)
            made["src"], made["tgt"] = (count[keep] for count in counts)
            made["key"] = sort_keys(made["src"] + 1, made["tgt"] + 1, np.array(numbers)[keep])
            pairs.append(made)
        self._next = report.read
        report.read -= first
        if self.texts[shard.split].identity() != self.settings[shard.split]:
            raise DataError("data.train or data.val changed while it was read; start again when the files are complete")
        self._write(shard, np.concatenate(pairs) if pairs else np.empty(0, PAIR), sides)
        tokens = {name: sum(map(len, parts)) for name, parts in zip(("src", "tgt"), sides, strict=True)}
        result = {"report": asdict(report), "tokens": tokens, "found": found}
        atomic_write_text(shard.path(self.folder, "json"), json.dumps(result))

    def rewind(self) -> None:
        """Closes the text: a forked process must not share its file offset."""
        self._split, self._pairs = "", iter(())

    def _read(self, split: str, first: int) -> Iterator[RawPair]:
        """The raw pairs of a shard. Earlier pairs are skipped by seeking in files, and by reading in other sources."""
        text, ahead = self.texts[split], first - self._next
        if split != self._split or ahead < 0 or (ahead and text.can_jump):
            self._split, self._pairs, ahead = split, text.pairs(first), 0
        return islice(self._pairs, ahead, ahead + SHARD_PAIRS)

    def _write(self, shard: Shard, pairs: np.ndarray, sides: tuple[list[np.ndarray], list[np.ndarray]]) -> None:
        order = np.argsort(pairs["key"], kind="stable")
        for name, parts in zip(("src", "tgt"), sides, strict=True):
            ids = np.concatenate(parts) if parts else np.empty(0, self.dtype)
            lengths = pairs[name].astype(np.int64)
            atomic_write(shard.path(self.folder, name), *in_order(ids, lengths, order))
        atomic_write(shard.path(self.folder, "pairs"), pairs[order].tobytes())


def in_order(ids: np.ndarray, lengths: np.ndarray, order: np.ndarray) -> Iterator[memoryview]:
    """Yields the ids of sentences in another order, some at a time. ids: of all, `lengths` of each."""
    starts = np.cumsum(lengths) - lengths
    for begin in range(0, len(order), GATHERED):
        chosen = order[begin : begin + GATHERED]
        counts = lengths[chosen]
        stops = np.cumsum(counts)
        yield ids[np.arange(stops[-1]) + np.repeat(starts[chosen] - (stops - counts), counts)].data


def chunks(
    cleaned: Iterator[tuple[str, str]], report: CleaningReport, pairs: int, characters: int
) -> Iterator[tuple[list[str], list[str], list[int]]]:
    """Groups cleaned pairs into (sources, targets, their numbers), limited in pairs and roughly in characters."""
    chunk: tuple[list[str], list[str], list[int]] = ([], [], [])
    size = 0
    for src, tgt in cleaned:
        chunk[0].append(src)
        chunk[1].append(tgt)
        chunk[2].append(report.read)
        size += len(src) + len(tgt)
        if len(chunk[0]) == pairs or size > characters:
            yield chunk
            chunk, size = ([], [], []), 0
    if chunk[0]:
        yield chunk


def encode_on_cores(encoder: Encoder, shards: list[Shard], processes: int) -> None:
    """Encodes shards in several processes, dealt out round-robin; logs progress.

    Raises what encoding a shard raises, and ResourceError if a process is killed.
    """
    progress = Progress(len(shards))
    if len(shards) == 1 or processes == 1:
        for done, shard in enumerate(shards, 1):
            encoder(shard)
            progress.report(done)
        return
    encoder.rewind()
    context = multiprocessing.get_context()
    shares = [shards[i::processes] for i in range(min(processes, len(shards)))]
    children = [context.Process(target=_encode_share, args=(encoder, share, os.getpid())) for share in shares]
    try:
        for child in children:
            child.start()
        running = [child.sentinel for child in children]
        while running:
            wait(running, timeout=10)
            running = [child.sentinel for child in children if child.is_alive()]
            progress.report(sum(shard.is_done(encoder.folder) for shard in shards))
            for child, share in zip(children, shares, strict=True):
                if child.exitcode:
                    _explain(encoder, share, child.exitcode)
    finally:
        for child in children:
            if child.pid is not None:
                child.terminate()
                child.join()


def _explain(encoder: Encoder, share: list[Shard], code: int) -> None:
    """Raises the error with which the process of a share ended, by trying again here."""
    encoder(next(shard for shard in share if not shard.is_done(encoder.folder)))
    raise ResourceError(
        f"a process that encodes text ended with code {code}; if memory ran out, lower data.prepare_processes; run the "
        "same command to go on from what is done"
    )


def _encode_share(encoder: Encoder, share: list[Shard], parent: int) -> None:
    """Runs in a child process, which exits when its parent dies and leaves signals to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def end_with_parent() -> None:
        if os.getppid() != parent:
            os._exit(1)

    try:
        for shard in share:
            encoder(shard, end_with_parent)
    except (DataError, OSError):
        os._exit(1)  # the parent repeats the shard and reports the error


def cores() -> int:
    """Returns how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Progress:
    """Logs pairs done, their rate, and the time left."""

    def __init__(self, shards: int):
        self.shards, self.done_before = shards, 0
        self.start = time.monotonic()

    def report(self, done: int) -> None:
        """done: shards finished since the start."""
        if done == self.done_before:
            return
        self.done_before = done
        pairs_per_second = done * SHARD_PAIRS / (time.monotonic() - self.start)
        left = (self.shards - done) * SHARD_PAIRS / pairs_per_second
        log.info(
            "encoding: %d of %d shards (of %s pairs), %s pairs a second, %s left",
            *(done, self.shards, f"{SHARD_PAIRS:,}", f"{pairs_per_second:,.0f}"),
            f"{left / 60:.0f} min" if left >= 60 else f"{left:.0f} s",
        )
