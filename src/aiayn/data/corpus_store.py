"""The prepared corpus on disk: subword ids of cleaned text, memory-mapped.

A prepared corpus is a folder named after a fingerprint of everything that shaped it. `build_corpus` writes it beside
its final place and renames it, so a folder under its final name is complete and never changes.
"""

import hashlib
import json
import mmap
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from aiayn.config.data import DataOptions
from aiayn.data.length_order import LengthRuns, sort_keys
from aiayn.data.text_files import FileScans
from aiayn.data.tokenizer import Tokenizer
from aiayn.token_ids import PAD_ID

SIDES = ("src", "tgt")
SMALL_FILE = 16 << 20  # bytes; larger files are read to verify them once, smaller ones at every start
SCANNED = 1 << 26  # ids looked at at once


@dataclass(frozen=True, eq=False)
class PreparedSplit:
    """Pairs of sentences in length order, as memory-mapped ids without end marks.

    Sides follow pair after pair: `lengths` says where each begins.
    """

    folder: Path
    name: str
    src: np.ndarray  # (source subwords of all pairs,) uint16 or uint32
    tgt: np.ndarray
    lengths: LengthRuns  # in subwords, without end marks

    @classmethod
    def open(cls, folder: Path, name: str) -> "PreparedSplit":
        runs = np.load(folder / f"{name}.lengths.npy")
        if runs.dtype != np.int64:
            raise ValueError(f"{name}.lengths.npy holds no counts")
        lengths = LengthRuns.of_counts(*runs.T)
        src = _mapped(folder / f"{name}.src.bin", lengths.src.total)
        tgt = _mapped(folder / f"{name}.tgt.bin", lengths.tgt.total)
        return cls(folder, name, src, tgt, lengths)

    @classmethod
    def of(cls, name: str, sources: list[list[int]], targets: list[list[int]]) -> "PreparedSplit":
        """Returns pairs that are in no file: ids of every line, without end marks, here in any order."""
        n_src, n_tgt = (np.array([len(line) for line in lines]) for lines in (sources, targets))
        order = np.argsort(sort_keys(n_src + 1, n_tgt + 1, np.arange(len(n_src))), kind="stable")
        src, tgt = (
            np.fromiter(chain.from_iterable(lines[i] for i in order), np.uint32) for lines in (sources, targets)
        )
        return cls(Path(), name, src, tgt, LengthRuns.of_pairs(n_src[order], n_tgt[order]))

    def __reduce__(self):
        # Worker processes map the files themselves instead of receiving copies.
        return PreparedSplit.open, (self.folder, self.name)

    def __len__(self) -> int:
        return len(self.lengths)

    def pair(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of the source and of the target of a pair."""
        (src, n_src), (tgt, n_tgt) = self.lengths.src.spans(number), self.lengths.tgt.spans(number)
        return self.src[src : src + n_src], self.tgt[tgt : tgt + n_tgt]


def _mapped(path: Path, tokens: int) -> np.ndarray:
    """Returns the ids of a file, memory-mapped; their number of bytes follows from its size."""
    with open(path, "rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(mapping, f"<u{path.stat().st_size // tokens}")


def read_ahead(ids: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> None:
    """Asks the kernel to read the part of memory-mapped ids that holds these sentences, if it is not in memory.

    Otherwise every page fault would read as much as the disk reads ahead, often megabytes.
    """
    mapping = getattr(ids.base, "obj", None)
    if isinstance(mapping, mmap.mmap):
        begin = int(starts.min()) * ids.itemsize // mmap.PAGESIZE * mmap.PAGESIZE
        end = int((starts + lengths).max()) * ids.itemsize
        mapping.madvise(mmap.MADV_WILLNEED, begin, end - begin)


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


def corpus_folder(config: DataOptions, fingerprint: str) -> Path:
    """Returns the folder of the prepared corpus with this fingerprint, existing or not."""
    return Path(config.folder).expanduser() / f"{config.src_lang}-{config.tgt_lang}-{fingerprint[:16]}"


def find_damage(folder: Path, scans: FileScans) -> str | None:
    """Returns why this is not a complete prepared corpus, or None if it is one.

    Large files are read the first time only: `scans` remembers them.
    """
    unread = set()
    try:
        manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
        for name, expected in manifest["files"].items():
            size = (folder / name).stat().st_size
            if size != expected["size"]:
                return f"{name} has {size} bytes, not {expected['size']}"
            if size <= SMALL_FILE or not scans.is_known(folder / name):
                unread.add(name)
            if scans.sha256(folder / name, anew=size <= SMALL_FILE) != expected["sha256"]:
                return f"{name} has other content"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "manifest.json is unreadable"
    try:
        return _find_wrong_content(folder, manifest, unread)
    except OSError:
        raise
    except Exception as error:  # whatever numpy and the tokenizer raise on malformed content
        return f"its content is unreadable: {error!s:.200}"


def _find_wrong_content(folder: Path, manifest: dict[str, Any], unread: set[str]) -> str | None:
    """Returns what is wrong in files that were changed together with their sizes and checksums; None if nothing is."""
    settings = manifest["settings"]
    if manifest["fingerprint"] != fingerprint(settings) or not folder.name.endswith(f"-{manifest['fingerprint'][:16]}"):
        return "manifest.json is that of another corpus"
    corpus = PreparedCorpus.open(folder)
    for split in (corpus.train, corpus.val):
        report, lengths = corpus.report[split.name], split.lengths
        if not len(split) == report["kept"] == report["read"] - sum(report["dropped"].values()):
            return f"report.json does not count the pairs of {split.name}"
        longest = settings["max_length"] if split.name == "train" else max(len(split.src), len(split.tgt))
        for side, ids, own in (("src", split.src, lengths.src), ("tgt", split.tgt, lengths.tgt)):
            if own.total != len(ids) or min(own.length.min(), lengths.pairs.min()) < 1 or own.length.max() > longest:
                return f"{split.name}.lengths.npy does not cut the ids into sentences"
            if f"{split.name}.{side}.bin" in unread and _has_wrong_ids(ids, corpus.tokenizer.vocab_size):
                return f"{split.name}.{side}.bin has ids outside the vocabulary"
    return None


def _has_wrong_ids(ids: np.ndarray, vocab_size: int) -> bool:
    parts = (ids[start : start + SCANNED] for start in range(0, len(ids), SCANNED))
    return any(part.min() <= PAD_ID or part.max() >= vocab_size for part in parts)
