"""Token ids on disk: cleaned, segmented once, memory-mapped ever after.

A prepared corpus is a folder named after a fingerprint of everything that shaped it. It is built beside its final
place, flushed and renamed under a lock, so that what bears the name is complete and never changes.
"""

import fcntl
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import chain, compress
from pathlib import Path
from typing import Any

import numpy as np

from aiayn.config import DataConfig
from aiayn.data import corpus
from aiayn.data.corpus import Report, clean, raw_pairs
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import DataError
from aiayn.files import sync_folder, write_text

log = logging.getLogger(__name__)

FORMAT = 1  # raise it whenever the same text would give other files
SIDES = ("src", "tgt")
CHUNK_PAIRS, CHUNK_CHARACTERS = 20_000, 8_000_000  # segmented at once; the second bounds memory for long lines
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
        """(pairs,) int64, subwords of every source."""
        return np.diff(self.src_offsets)

    @property
    def tgt_lengths(self) -> np.ndarray:
        return np.diff(self.tgt_offsets)


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


def check_text(config: DataConfig) -> None:
    """Raises DataError if the corpus is neither prepared nor there to be prepared. Writes nothing, and needs no torch.

    Settles what most often is wrong before the seconds that importing a training takes.
    """
    folder = Path(config.folder).expanduser()
    _recall_scans(folder)
    if not _target(folder, config, _fingerprint(_settings(config))).is_dir():
        for split in ("train", "val"):
            next(corpus.raw_pairs(config, split), None)


def prepare(config: DataConfig) -> Prepared:
    """Opens the prepared corpus of this configuration, building it first where there is none.

    Raises DataError for text that cannot be used and for a data folder that cannot be read or written.
    """
    folder = Path(config.folder).expanduser()
    _recall_scans(folder)
    settings = _settings(config)
    fingerprint = _fingerprint(settings)
    target = _target(folder, config, fingerprint)
    try:
        if _flaw(target):
            folder.mkdir(parents=True, exist_ok=True)
            with _locked(folder / f".{target.name}.lock"):
                flaw = _flaw(target)  # another process may have built it meanwhile
                if flaw:
                    if target.exists():
                        log.warning("%s is damaged (%s): building it again", target, flaw)
                    _build(config, settings, fingerprint, target)
        _keep_scans(folder)
        prepared = Prepared.open(target)
    except OSError as error:
        raise DataError(
            f"data.folder={config.folder}: {error.strerror or error} ({error.filename or target}); "
            "make room or make it writable, or choose another place with data.folder=FOLDER"
        ) from error
    log.info("%s: %s training and %s validation pairs", target, f"{len(prepared.train):,}", f"{len(prepared.val):,}")
    return prepared


def _settings(config: DataConfig) -> dict[str, Any]:
    shaping = {name: getattr(config, name) for name in SHAPING}
    return {"format": FORMAT} | shaping | {split: corpus.identity(config, split) for split in ("train", "val")}


def _fingerprint(settings: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _target(folder: Path, config: DataConfig, fingerprint: str) -> Path:
    return folder / f"{config.src_lang}-{config.tgt_lang}-{fingerprint[:16]}"


def _build(config: DataConfig, settings: dict[str, Any], fingerprint: str, target: Path) -> None:
    """Builds the corpus beside `target` and renames it. The caller holds the lock."""
    for orphan in target.parent.glob(f".{target.name}.*.tmp"):
        shutil.rmtree(orphan)
    folder = target.parent / f".{target.name}.{os.getpid()}.tmp"
    folder.mkdir()
    try:
        tokenizer = _learn_tokenizer(config)
        reports = {split: _encode_split(config, split, tokenizer, folder) for split in ("train", "val")}
        if _settings(config) != settings:
            raise DataError("data.train or data.val changed while it was read; start again when the files are complete")
        write_text(folder / "tokenizer.json", tokenizer.to_json())
        write_text(folder / "report.json", json.dumps(reports, indent=2))
        files = {}
        for path in sorted(folder.iterdir()):
            files[path.name] = {"size": path.stat().st_size, "sha256": _sha256(path)}
        counts = {split: report["kept"] for split, report in reports.items()}
        manifest = {"fingerprint": fingerprint, "settings": settings, "pairs": counts, "files": files}
        write_text(folder / "manifest.json", json.dumps(manifest, indent=2))
        sync_folder(folder)
        if target.exists():
            # Under a name that the next builder sweeps; processes that have it open keep their files.
            target.rename(folder.with_suffix(".old.tmp"))
        folder.rename(target)
        sync_folder(target.parent)
        shutil.rmtree(folder.with_suffix(".old.tmp"), ignore_errors=True)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _learn_tokenizer(config: DataConfig) -> Tokenizer:
    pairs, report = raw_pairs(config, "train"), Report()
    if config.tokenizer_pairs is not None:
        pairs = _spread(pairs, sum(1 for _ in raw_pairs(config, "train")), config.tokenizer_pairs)
    log.info("learning %s subwords from data.train=%s", f"{config.vocab_size:,}", config.train)
    cleaned = clean(_with_rate(pairs, "reading"), report)
    chunks = (src + tgt for src, tgt, _ in _chunks(cleaned, report, pairs=500, characters=200_000))
    first = next(chunks, None)
    _require_pairs(config, "train", report)
    tokenizer = Tokenizer.train(chain([first], chunks), config.vocab_size)
    _refuse_wrong_encoding(config, report)
    return tokenizer


def _encode_split(config: DataConfig, split: str, tokenizer: Tokenizer, folder: Path) -> dict[str, Any]:
    """Writes one split's ids and offsets. Only training pairs are dropped for their length: validation is measured
    on all the text that there is."""
    report = Report()
    dtype = np.dtype("<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4")
    lengths: dict[str, list[np.ndarray]] = {side: [np.zeros(1, np.int64)] for side in SIDES}
    cleaned = clean(_with_rate(raw_pairs(config, split), f"encoding {split}"), report)
    with _synced(folder / f"{split}.src.bin") as src_file, _synced(folder / f"{split}.tgt.bin") as tgt_file:
        for src, tgt, numbers in _chunks(cleaned, report, CHUNK_PAIRS, CHUNK_CHARACTERS):
            ids = tokenizer.encode(src + tgt)
            sides = {"src": (src_file, ids[: len(src)]), "tgt": (tgt_file, ids[len(src) :])}
            counts = {side: np.fromiter(map(len, rows), np.int64, len(rows)) for side, (_, rows) in sides.items()}
            keep = np.ones(len(src), bool)
            if split == "train":
                keep = _length_rules(config, counts["src"], counts["tgt"], numbers, report)
            for side, (file, rows) in sides.items():
                kept = counts[side][keep]
                flat = chain.from_iterable(compress(rows, keep))
                file.write(np.fromiter(flat, dtype, kept.sum()).data)
                lengths[side].append(kept)
    _require_pairs(config, split, report)
    for side in SIDES:
        with _synced(folder / f"{split}.{side}.offsets.npy") as file:
            np.save(file, np.cumsum(np.concatenate(lengths[side])))
    return asdict(report) | {f"{side}_tokens": int(sum(x.sum() for x in lengths[side])) for side in SIDES}


def _length_rules(
    config: DataConfig, src: np.ndarray, tgt: np.ndarray, numbers: list[int], report: Report
) -> np.ndarray:
    """Which pairs to keep, (pairs,) bool, from the lengths in subwords; the others are counted."""
    longer, shorter = np.maximum(src, tgt), np.minimum(src, tgt)
    too_long = longer > config.max_length
    keep = ~too_long & (longer <= config.max_length_ratio * shorter + 5)
    for i in np.flatnonzero(~keep):
        report.kept -= 1
        report.drop("too_long" if too_long[i] else "length_ratio", numbers[i])
    return keep


def _spread(pairs: Iterable[Any], total: int, wanted: int) -> Iterator[Any]:
    """At most `wanted` of `total` pairs, at even distances."""
    return (pair for i, pair in enumerate(pairs) if (i + 1) * wanted // total > i * wanted // total)


def _chunks(
    cleaned: Iterator[tuple[str, str]], report: Report, pairs: int, characters: int
) -> Iterator[tuple[list[str], list[str], list[int]]]:
    """Groups cleaned pairs into (sources, targets, their numbers), bounded in pairs and roughly in characters."""
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


def _with_rate(pairs: Iterable[Any], doing: str) -> Iterator[Any]:
    """Passes pairs on and logs the progress every ten seconds."""
    start = last = time.monotonic()
    for number, pair in enumerate(pairs, 1):
        yield pair
        if number % 1000 == 0 and (now := time.monotonic()) - last > 10:
            last = now
            log.info("%s: %s pairs, %s a second", doing, f"{number:,}", f"{number / (now - start):,.0f}")


def _require_pairs(config: DataConfig, split: str, report: Report) -> None:
    if not report.kept:
        reasons = ", ".join(f"{count} {reason}" for reason, count in report.dropped.items())
        raise DataError(
            f"data.{split}={getattr(config, split)}: none of {report.read} pairs is usable ({reasons}); "
            f"data.max_length={config.max_length}, data.max_length_ratio={config.max_length_ratio:g}"
        )


def _refuse_wrong_encoding(config: DataConfig, report: Report) -> None:
    """Single bad lines are dropped; where they abound the file is in another encoding, and would lose just those
    sentences that hold an accent."""
    bad = report.dropped.get("not_utf8", 0)
    if bad >= 20 and bad > 0.05 * report.read:
        raise DataError(
            f"data.train={config.train}: {bad} of {report.read} pairs are not UTF-8 (the first is pair "
            f"{report.first_dropped['not_utf8'][0]}); convert the text, for example iconv -f ISO-8859-1 -t UTF-8"
        )


# Files


def _flaw(folder: Path) -> str | None:
    """Why this is not a complete prepared corpus; None where it is one."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
        for name, expected in manifest["files"].items():
            size = (folder / name).stat().st_size
            if size != expected["size"]:
                return f"{name} has {size} bytes, not {expected['size']}"
            if size <= SMALL_FILE and _sha256(folder / name) != expected["sha256"]:
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


@contextmanager
def _synced(path: Path) -> Iterator[Any]:
    with open(path, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _recall_scans(folder: Path) -> None:
    with suppress(OSError, ValueError, TypeError):
        corpus.SCANS.update(json.loads((folder / ".scans.json").read_text("utf-8")))


def _keep_scans(folder: Path) -> None:
    """Spares the next start the reading of raw text that has not changed; no harm where it cannot be written."""
    text = json.dumps(corpus.SCANS)
    path, new = folder / ".scans.json", folder / f".scans.{os.getpid()}.tmp"
    with suppress(OSError):
        if not path.exists() or path.read_text("utf-8") != text:
            new.write_text(text, "utf-8")
            new.replace(path)
