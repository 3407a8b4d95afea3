"""Token ids on disk: cleaned, segmented once, memory-mapped ever after.

A prepared corpus is a folder named after a fingerprint of everything that shaped it. It is built beside its final
place, flushed and renamed under a lock, so that what bears the name is complete and never changes.
"""

import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aiayn.config import DataConfig
from aiayn.data import corpus, text_files
from aiayn.data.preparation import SIDES, build, sha256
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import DataError

log = logging.getLogger(__name__)

FORMAT = 1  # raise it whenever the same text would give other files
SHAPING = ("src_lang", "tgt_lang", "vocab_size", "max_length", "max_length_ratio", "tokenizer_pairs")
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
class Prepared:
    folder: Path
    fingerprint: str  # SHA-256 of everything that shaped the corpus
    tokenizer: Tokenizer
    train: PreparedSplit
    val: PreparedSplit
    report: dict[str, Any]  # what was read, kept and dropped, by split

    @classmethod
    def open(cls, folder: Path) -> "Prepared":
        return cls(
            folder=folder,
            fingerprint=json.loads((folder / "manifest.json").read_text("utf-8"))["fingerprint"],
            tokenizer=Tokenizer.from_json((folder / "tokenizer.json").read_text("utf-8")),
            train=PreparedSplit.open(folder, "train"),
            val=PreparedSplit.open(folder, "val"),
            report=json.loads((folder / "report.json").read_text("utf-8")),
        )

    def __reduce__(self):
        return Prepared.open, (self.folder,)


def corpus_folder(config: DataConfig, fingerprint: str) -> Path:
    """Where the prepared corpus of this fingerprint stands, or will stand."""
    return Path(config.folder).expanduser() / f"{config.src_lang}-{config.tgt_lang}-{fingerprint[:16]}"


def check_text(config: DataConfig) -> None:
    """Raises DataError if the corpus is neither prepared nor there to be prepared. Writes nothing, and needs no torch.

    Settles what most often is wrong before the seconds that importing a training takes.
    """
    _recall_scans(Path(config.folder).expanduser())
    if not corpus_folder(config, _fingerprint(_settings(config))).is_dir():
        for split in ("train", "val"):
            next(corpus.raw_pairs(config, split), None)


def prepare(config: DataConfig, tokenizer: Tokenizer | None = None) -> Prepared:
    """Opens the prepared corpus of this configuration, building it first where there is none.

    With a tokenizer it is cut into that one's subwords, otherwise a tokenizer is learnt on its training text.
    Raises DataError for text that cannot be used and for a data folder that cannot be read or written.
    """
    folder = Path(config.folder).expanduser()
    _recall_scans(folder)
    fingerprint = _fingerprint(_settings(config, tokenizer))
    target = corpus_folder(config, fingerprint)
    try:
        if _flaw(target):
            folder.mkdir(parents=True, exist_ok=True)
            with _locked(folder / f".{target.name}.lock"):
                flaw = _flaw(target)  # another process may have built it meanwhile
                if flaw:
                    if target.exists():
                        log.warning("%s is damaged (%s): building it again", target, flaw)
                    build(config, target, lambda: _settings(config, tokenizer), fingerprint, tokenizer)
        _keep_scans(folder)
        prepared = Prepared.open(target)
    except OSError as error:
        raise DataError(
            f"data.folder={config.folder}: {error.strerror or error} ({error.filename or target}); "
            "make room or make it writable, or choose another place with data.folder=FOLDER"
        ) from error
    log.info("%s: %s training and %s validation pairs", target, f"{len(prepared.train):,}", f"{len(prepared.val):,}")
    return prepared


def _settings(config: DataConfig, tokenizer: Tokenizer | None = None) -> dict[str, Any]:
    shaping = {name: getattr(config, name) for name in SHAPING}
    if tokenizer:
        shaping["tokenizer"] = tokenizer.fingerprint
    return {"format": FORMAT} | shaping | {split: corpus.identity(config, split) for split in ("train", "val")}


def _fingerprint(settings: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _flaw(folder: Path) -> str | None:
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


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Only one process at a time; the lock ends with the process, however that ends."""
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("another process is preparing this corpus: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _recall_scans(folder: Path) -> None:
    with suppress(OSError, ValueError, TypeError):
        text_files.SCANS.update(json.loads((folder / ".scans.json").read_text("utf-8")))


def _keep_scans(folder: Path) -> None:
    """Spares the next start the reading of raw text that has not changed; no harm where it cannot be written."""
    text = json.dumps(text_files.SCANS)
    path, new = folder / ".scans.json", folder / f".scans.{os.getpid()}.tmp"
    with suppress(OSError):
        if not path.exists() or path.read_text("utf-8") != text:
            new.write_text(text, "utf-8")
            new.replace(path)
