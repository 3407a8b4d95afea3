"""The prepared corpus on disk: subword ids of cleaned text, memory-mapped.

A prepared corpus is a folder named after a fingerprint of everything that shaped it. `build_corpus` writes it beside
its final place and renames it, so a folder under its final name is complete and never changes.
"""

import hashlib
import json
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from aiayn.config.schema import PAD_ID, DataConfig
from aiayn.data.tokenizer import Tokenizer
from aiayn.files import sha256

SIDES = ("src", "tgt")
SMALL_FILE = 16 << 20  # bytes; larger files are verified by size only, smaller ones by content at every start


@dataclass(frozen=True, eq=False)
class PreparedSplit:
    """Pairs of sentences as memory-mapped ids without end marks: pair i is `src[src_offsets[i]:src_offsets[i + 1]]`."""

    folder: Path
    name: str
    src: np.ndarray  # (source subwords of all pairs,) uint16 or uint32
    src_offsets: np.ndarray  # (pairs + 1,) int64
    tgt: np.ndarray
    tgt_offsets: np.ndarray

    @classmethod
    def open(cls, folder: Path, name: str) -> "PreparedSplit":
        arrays = {}
        for side in SIDES:
            arrays[f"{side}_offsets"] = offsets = np.load(folder / f"{name}.{side}.offsets.npy", mmap_mode="r")
            path = folder / f"{name}.{side}.bin"
            dtype = f"<u{path.stat().st_size // int(offsets[-1])}"
            arrays[side] = np.memmap(path, dtype, mode="r")
        return cls(folder, name, **{key: np.asarray(array) for key, array in arrays.items()})

    @classmethod
    def of(cls, name: str, sources: list[list[int]], targets: list[list[int]]) -> "PreparedSplit":
        """Returns pairs that are in no file: ids of every line, without end marks."""
        arrays: dict[str, np.ndarray] = {}
        for side, lines in zip(SIDES, (sources, targets), strict=True):
            arrays[f"{side}_offsets"] = np.cumsum([0, *map(len, lines)], dtype=np.int64)
            arrays[side] = np.fromiter(chain.from_iterable(lines), np.uint32)
        return cls(Path(), name, **arrays)

    def __reduce__(self):
        # Worker processes map the files themselves instead of receiving copies.
        return PreparedSplit.open, (self.folder, self.name)

    def __len__(self) -> int:
        return len(self.src_offsets) - 1

    @property
    def src_lengths(self) -> np.ndarray:
        """(pairs,) int32, subwords of every source."""
        return _differences(self.src_offsets)

    @property
    def tgt_lengths(self) -> np.ndarray:
        """(pairs,) int32, subwords of every target."""
        return _differences(self.tgt_offsets)


def _differences(offsets: np.ndarray) -> np.ndarray:
    return np.subtract(offsets[1:], offsets[:-1], out=np.empty(len(offsets) - 1, np.int32), casting="same_kind")


@dataclass(frozen=True, eq=False)
class PreparedCorpus:
    """Training and validation split, and the tokenizer that their ids belong to."""

    folder: Path
    fingerprint: str  # SHA-256 of everything that shaped the corpus
    tokenizer: Tokenizer
    train: PreparedSplit
    val: PreparedSplit
    report: dict[str, Any]  # pairs read, kept and dropped, by split

    @classmethod
    def open(cls, folder: Path) -> "PreparedCorpus":
        return cls(
            folder=folder,
            fingerprint=json.loads((folder / "manifest.json").read_text("utf-8"))["fingerprint"],
            tokenizer=Tokenizer.from_json((folder / "tokenizer.json").read_text("utf-8")),
            train=PreparedSplit.open(folder, "train"),
            val=PreparedSplit.open(folder, "val"),
            report=json.loads((folder / "report.json").read_text("utf-8")),
        )

    def __reduce__(self):
        return PreparedCorpus.open, (self.folder,)


def fingerprint(settings: dict[str, Any]) -> str:
    """Returns the SHA-256 of everything that shapes a corpus, as hexadecimal digits."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def corpus_folder(config: DataConfig, fingerprint: str) -> Path:
    """Returns the folder of the prepared corpus with this fingerprint, existing or not."""
    return Path(config.folder).expanduser() / f"{config.src_lang}-{config.tgt_lang}-{fingerprint[:16]}"


def find_flaw(folder: Path) -> str | None:
    """Returns why this is not a complete prepared corpus, or None if it is one."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
        for name, expected in manifest["files"].items():
            size = (folder / name).stat().st_size
            if size != expected["size"]:
                return f"{name} has {size} bytes, not {expected['size']}"
            if size <= SMALL_FILE and sha256(folder / name) != expected["sha256"]:
                return f"{name} has other content"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "manifest.json is unreadable"
    try:
        return _find_wrong_content(folder, manifest)
    except OSError:
        raise
    except Exception as error:  # what numpy and the tokenizer raise on content of other kinds
        return f"its content is unreadable: {error!s:.200}"


def _find_wrong_content(folder: Path, manifest: dict[str, Any]) -> str | None:
    """Returns what is wrong in files that were changed together with their sizes and checksums; None if nothing is."""
    settings = manifest["settings"]
    if manifest["fingerprint"] != fingerprint(settings) or not folder.name.endswith(f"-{manifest['fingerprint'][:16]}"):
        return "manifest.json is that of another corpus"
    corpus = PreparedCorpus.open(folder)
    for split in (corpus.train, corpus.val):
        report = corpus.report[split.name]
        if not len(split) == report["kept"] == report["read"] - sum(report["dropped"].values()):
            return f"report.json does not count the pairs of {split.name}"
        for side, ids, offsets in (("src", split.src, split.src_offsets), ("tgt", split.tgt, split.tgt_offsets)):
            lengths = np.diff(offsets)
            longest = settings["max_length"] if split.name == "train" else len(ids)
            whole = offsets[0] == 0 and offsets[-1] == len(ids) and len(lengths) == len(split)
            if not whole or lengths.min() < 1 or lengths.max() > longest:
                return f"{split.name}.{side}.offsets.npy does not cut the ids into sentences"
            if ids.min() <= PAD_ID or ids.max() >= corpus.tokenizer.vocab_size:
                return f"{split.name}.{side}.bin has ids that no subword has"
    return None
