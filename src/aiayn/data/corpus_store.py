"""Token ids on disk: cleaned, segmented once, memory-mapped ever after.

A prepared corpus is a folder named after a fingerprint of everything that shaped it. It is built beside its final
place, flushed and renamed under a lock, so that what bears the name is complete and never changes.
"""

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aiayn.config import DataConfig
from aiayn.data.tokenizer import Tokenizer
from aiayn.files import sha256

log = logging.getLogger(__name__)

SIDES = ("src", "tgt")
SMALL_FILE = 16 << 20  # up to this size a file is checked by content at every start, above by size


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

    def __reduce__(self):
        # Loader processes map the files themselves instead of receiving copies.
        return PreparedSplit.open, (self.folder, self.name)

    def __len__(self) -> int:
        return len(self.src_offsets) - 1

    @property
    def src_lengths(self) -> np.ndarray:
        """(pairs,) int32, subwords of every source."""
        return _differences(self.src_offsets)

    @property
    def tgt_lengths(self) -> np.ndarray:
        return _differences(self.tgt_offsets)


def _differences(offsets: np.ndarray) -> np.ndarray:
    return np.subtract(offsets[1:], offsets[:-1], out=np.empty(len(offsets) - 1, np.int32), casting="same_kind")


@dataclass(frozen=True, eq=False)
class PreparedCorpus:
    folder: Path
    fingerprint: str  # SHA-256 of everything that shaped the corpus
    tokenizer: Tokenizer
    train: PreparedSplit
    val: PreparedSplit
    report: dict[str, Any]  # what was read, kept and dropped, by split

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


def corpus_folder(config: DataConfig, fingerprint: str) -> Path:
    """Where the prepared corpus of this fingerprint stands, or will stand."""
    return Path(config.folder).expanduser() / f"{config.src_lang}-{config.tgt_lang}-{fingerprint[:16]}"


def find_flaw(folder: Path) -> str | None:
    """Why this is not a complete prepared corpus; None where it is one."""
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
    except (ValueError, KeyError, TypeError, AttributeError):
        return "manifest.json is unreadable"
    return None
