"""Merges the shards of a split into its files: all pairs in length order, the same bytes however they were encoded."""

import hashlib
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from aiayn.data.encode_shards import PAIR, Shard, in_order
from aiayn.data.length_order import LengthRuns

MERGED_PAIRS = 1 << 20  # about as many are merged at once
SAMPLED = 1 << 10  # one of so many pairs of a shard is sampled, to find parts of about equal size


class HashedFile:
    """A file that is written once, and its checksum."""

    def __init__(self, file: BinaryIO):
        self._file, self._digest, self.size = file, hashlib.sha256(), 0

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._digest.update(data)
        self.size += len(data) if isinstance(data, bytes) else data.nbytes

    def description(self) -> dict[str, Any]:
        return {"size": self.size, "sha256": self._digest.hexdigest()}


@contextmanager
def synced(path: Path) -> Iterator[HashedFile]:
    """Opens a file to write; at the end it is on the disk."""
    with open(path, "wb") as file:
        yield HashedFile(file)
        file.flush()
        os.fsync(file.fileno())


def merge(shards: list[Shard], source: Path, target: Path, dtype: np.dtype) -> dict[str, Any]:
    """Writes `SPLIT.src.bin`, `SPLIT.tgt.bin` and `SPLIT.lengths.npy` into `target`; returns {name: size, sha256}."""
    split = shards[0].split
    names = [f"{split}.src.bin", f"{split}.tgt.bin", f"{split}.lengths.npy"]
    counts = np.empty((0, 3), np.int64)
    with synced(target / names[0]) as src, synced(target / names[1]) as tgt:
        for pairs, sides in _parts(shards, source, dtype):
            order = np.argsort(pairs["key"], kind="stable")
            for file, ids, name in zip((src, tgt), sides, ("src", "tgt"), strict=True):
                for block in in_order(ids, pairs[name].astype(np.int64), order):
                    file.write(block)
            counts = _with_runs(counts, pairs[order])
    with synced(target / names[2]) as lengths:
        lengths.write(_npy(counts))
    return {name: file.description() for name, file in zip(names, (src, tgt, lengths), strict=True)}


def _parts(shards: list[Shard], source: Path, dtype: np.dtype) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
    """Yields what of all shards comes next in the order: its PAIRs, and the ids of both sides, shard after shard."""
    cuts = _cuts([_mapped(shard.path(source, "pairs"), PAIR) for shard in shards])
    at = [0] * len(shards)
    begin = [[0] * len(shards), [0] * len(shards)]  # offset of the next id, for each side and shard
    for part in range(len(cuts[0])):
        rows = [
            _read(shard.path(source, "pairs"), PAIR, a, cut[part])
            for shard, a, cut in zip(shards, at, cuts, strict=True)
        ]
        sides = []
        for side, name in enumerate(("src", "tgt")):
            ends = [a + int(row[name].sum(dtype=np.int64)) for a, row in zip(begin[side], rows, strict=True)]
            spans = zip(shards, begin[side], ends, strict=True)
            sides.append(np.concatenate([_read(shard.path(source, name), dtype, a, b) for shard, a, b in spans]))
            begin[side] = ends
        at = [cut[part] for cut in cuts]
        yield np.concatenate(rows), sides


def _cuts(tables: list[np.ndarray]) -> list[list[int]]:
    """Returns where the parts of each table of PAIRs end; a part is about MERGED_PAIRS of all tables."""
    sample = np.sort(np.concatenate([table["key"][SAMPLED - 1 :: SAMPLED] for table in tables]))
    bounds = np.unique(sample[MERGED_PAIRS // SAMPLED :: MERGED_PAIRS // SAMPLED])
    return [[*table["key"].searchsorted(bounds).tolist(), len(table)] for table in tables]


def _with_runs(counts: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Adds sorted pairs to the runs of equal lengths, (runs, 3): source and target subwords, pairs."""
    if len(pairs) == 0:
        return counts
    runs = LengthRuns.of_pairs(pairs["src"].astype(np.int64), pairs["tgt"].astype(np.int64))
    new = np.stack([runs.src.length, runs.tgt.length, runs.pairs], axis=1)
    if len(counts) and (counts[-1, :2] == new[0, :2]).all():  # a run that two parts share
        new[0, 2] += counts[-1, 2]
        counts = counts[:-1]
    return np.concatenate([counts, new])


def _read(path: Path, dtype: np.dtype, start: int, stop: int) -> np.ndarray:
    """Reads a part of a file. Mapped, all files together would count as memory of this process."""
    return np.fromfile(path, dtype, count=stop - start, offset=start * dtype.itemsize)


def _mapped(path: Path, dtype: np.dtype) -> np.ndarray:
    if path.stat().st_size == 0:
        return np.empty(0, dtype)
    return np.asarray(np.memmap(path, dtype, mode="r"))


def _npy(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()
