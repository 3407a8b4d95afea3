"""Builds a prepared corpus: cleans the text, learns a tokenizer and cuts every pair into subwords."""

import json
import logging
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from aiayn.config.schema import DataConfig
from aiayn.config.tasks import TASKS
from aiayn.data.as_learned import as_learned
from aiayn.data.cached_tokenizer import CachedTokenizer
from aiayn.data.cleaning import CleaningReport, clean
from aiayn.data.corpus_store import SIDES, fingerprint
from aiayn.data.overlap import Overlap
from aiayn.data.sources import count_pairs, identity, locate, raw_pairs
from aiayn.data.text_files import FileScans
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import DataError
from aiayn.files import atomic_write_text, fsync_folder, sha256

log = logging.getLogger(__name__)

CHUNK_PAIRS, CHUNK_CHARACTERS = 20_000, 8_000_000  # encoded at once; the second limits memory for long lines


def build(
    config: DataConfig,
    target: Path,
    settings: dict[str, Any],
    scans: FileScans,
    tokenizer: Tokenizer | None = None,
) -> None:
    """Builds the corpus beside `target` and renames it. The caller holds the lock. Without a tokenizer one is learned.

    `settings` is everything that shapes the corpus. Raises DataError if the text no longer is the one they identify.
    """
    for orphan in target.parent.glob(f".{target.name}.*.tmp"):
        shutil.rmtree(orphan)
    folder = target.parent / f".{target.name}.{os.getpid()}.tmp"
    folder.mkdir()
    try:
        tokenizer = tokenizer or _learn_tokenizer(config, scans)
        overlap = Overlap(config, scans)
        reports = {split: _encode_split(config, split, tokenizer, folder, scans, overlap) for split in ("train", "val")}
        overlap.warn()
        if any(identity(config, split, scans) != settings[split] for split in ("train", "val")):
            raise DataError("data.train or data.val changed while it was read; start again when the files are complete")
        atomic_write_text(folder / "tokenizer.json", tokenizer.to_json())
        atomic_write_text(folder / "report.json", json.dumps(reports, indent=2))
        files = {}
        for path in sorted(folder.iterdir()):
            files[path.name] = {"size": path.stat().st_size, "sha256": sha256(path)}
        counts = {split: report["kept"] for split, report in reports.items()}
        manifest = {"fingerprint": fingerprint(settings), "settings": settings, "pairs": counts, "files": files}
        atomic_write_text(folder / "manifest.json", json.dumps(manifest, indent=2))
        fsync_folder(folder)
        if target.exists():
            # Renamed to what the next build removes; processes that have it open keep their files.
            target.rename(folder.with_suffix(".old.tmp"))
        folder.rename(target)
        fsync_folder(target.parent)
        shutil.rmtree(folder.with_suffix(".old.tmp"), ignore_errors=True)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _learn_tokenizer(config: DataConfig, scans: FileScans) -> Tokenizer:
    pairs, report = raw_pairs(config, "train", scans), CleaningReport()
    if config.tokenizer_pairs is not None:
        pairs = _spread(pairs, count_pairs(config, "train", scans), config.tokenizer_pairs)
    log.info("learning %s subwords from data.train=%s", f"{config.vocab_size:,}", config.train)
    cleaned = as_learned(config, clean(_with_rate(pairs, "reading"), report))
    chunks = (src + tgt for src, tgt, _ in _chunks(cleaned, report, pairs=500, characters=200_000))
    first = next(chunks, None)
    if first is None:
        _refuse_wrong_encoding(config, report, scans)
    _require_pairs(config, "train", report)

    def to_the_end() -> Iterator[list[str]]:
        """All text; an error in it is raised before the vocabulary is learned, which takes the longest."""
        yield from chain([first], chunks)
        _refuse_wrong_encoding(config, report, scans)

    return Tokenizer.train(
        to_the_end(), config.vocab_size, pretokenized=TASKS[config.task].splits_at_spaces, lowercase=config.lowercase
    )


def _encode_split(
    config: DataConfig, split: str, tokenizer: Tokenizer, folder: Path, scans: FileScans, overlap: Overlap
) -> dict[str, Any]:
    """Writes the ids and offsets of one split; returns its report.

    Only training pairs are dropped for their length: validation measures all of its text.
    """
    report = CleaningReport()
    encode = CachedTokenizer(tokenizer)
    dtype = np.dtype("<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4")
    lengths: dict[str, list[np.ndarray]] = {side: [] for side in SIDES}
    cleaned = as_learned(config, clean(_with_rate(raw_pairs(config, split, scans), f"encoding {split}"), report))
    if split == "train":
        cleaned = overlap.watch(cleaned)
    with _synced(folder / f"{split}.src.bin") as src_file, _synced(folder / f"{split}.tgt.bin") as tgt_file:
        for src, tgt, numbers in _chunks(cleaned, report, CHUNK_PAIRS, CHUNK_CHARACTERS):
            ids, counts = zip(encode(src), encode(tgt), strict=True)
            keep = np.ones(len(src), bool)
            if split == "train":
                keep = _length_rules(config, *counts, numbers, report)
            for side, file, side_ids, count in zip(SIDES, (src_file, tgt_file), ids, counts, strict=True):
                file.write(side_ids[np.repeat(keep, count)].astype(dtype).data)
                lengths[side].append(count[keep].astype(np.int32))
    if split == "train":
        _refuse_wrong_encoding(config, report, scans)
    _require_pairs(config, split, report)
    for side in SIDES:
        with _synced(folder / f"{split}.{side}.offsets.npy") as file:
            np.save(file, np.concatenate([[0], np.cumsum(np.concatenate(lengths[side]), dtype=np.int64)]))
    return described(config, split, report, scans) | {
        f"{side}_tokens": int(sum(x.sum() for x in lengths[side])) for side in SIDES
    }


def described(config: DataConfig, split: str, report: CleaningReport, scans: FileScans) -> dict[str, Any]:
    """Returns a report as plain values, with file and line in the place of numbers."""
    numbers = {number for first in report.first_dropped.values() for number in first}
    places = locate(config, split, numbers, scans)
    first_dropped = {reason: [places[number] for number in first] for reason, first in report.first_dropped.items()}
    return asdict(report) | {"first_dropped": first_dropped}


def _length_rules(
    config: DataConfig, src: np.ndarray, tgt: np.ndarray, numbers: list[int], report: CleaningReport
) -> np.ndarray:
    """Returns which pairs to keep, (pairs,) bool, given their lengths in subwords; counts the others in `report`."""
    longer, shorter = np.maximum(src, tgt), np.minimum(src, tgt)
    too_long = longer > config.max_length
    keep = ~too_long & (longer <= config.max_length_ratio * shorter + 5)
    for i in np.flatnonzero(~keep):
        report.kept -= 1
        report.drop("too_long" if too_long[i] else "length_ratio", numbers[i])
    return keep


def _spread(pairs: Iterable[Any], total: int, wanted: int) -> Iterator[Any]:
    """Yields at most `wanted` of `total` pairs, evenly spaced."""
    return (pair for i, pair in enumerate(pairs) if (i + 1) * wanted // total > i * wanted // total)


def _chunks(
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


def _with_rate(pairs: Iterable[Any], doing: str) -> Iterator[Any]:
    """Passes pairs on and logs progress every ten seconds."""
    start = last = time.monotonic()
    for number, pair in enumerate(pairs, 1):
        yield pair
        if number % 1000 == 0 and (now := time.monotonic()) - last > 10:
            last = now
            log.info("%s: %s pairs, %s a second", doing, f"{number:,}", f"{number / (now - start):,.0f}")


def _require_pairs(config: DataConfig, split: str, report: CleaningReport) -> None:
    if not report.kept:
        reasons = ", ".join(f"{count} {reason}" for reason, count in report.dropped.items())
        raise DataError(
            f"data.{split}={getattr(config, split)}: none of {report.read} pairs is usable ({reasons}); "
            f"data.max_length={config.max_length}, data.max_length_ratio={config.max_length_ratio:g}"
        )


def _refuse_wrong_encoding(config: DataConfig, report: CleaningReport, scans: FileScans) -> None:
    """Raises DataError if over 5 % of the pairs are not UTF-8.

    Then the file is in another encoding, and dropping bad lines would lose exactly the sentences with accents.
    """
    bad = report.dropped.get("not_utf8", 0)
    if bad >= 20 and bad > 0.05 * report.read:
        first = report.first_dropped["not_utf8"][0]
        place = locate(config, "train", [first], scans)[first]
        raise DataError(
            f"data.train={config.train}: {bad} of {report.read} pairs are not UTF-8 (the first: {place}); convert the "
            "text, for example iconv -f ISO-8859-1 -t UTF-8"
        )


@contextmanager
def _synced(path: Path) -> Iterator[Any]:
    with open(path, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
