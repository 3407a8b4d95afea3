"""Builds a prepared corpus: cleans the text, learns a tokenizer and cuts every pair into subwords."""

import errno
import json
import logging
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from aiayn.config.data import DataConfig
from aiayn.config.tasks import TASKS
from aiayn.data.as_learned import as_learned
from aiayn.data.cleaning import CleaningReport, clean
from aiayn.data.corpus_store import find_damage, fingerprint
from aiayn.data.encode_shards import SHARD_PAIRS, Encoder, Shard, chunks, cores, encode_on_cores
from aiayn.data.filters import Filters
from aiayn.data.merge_shards import merge
from aiayn.data.raw_text import RawText
from aiayn.data.text_files import FileScans
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import DataError
from aiayn.files import atomic_write_text, fsync_folder, host, sha256

log = logging.getLogger(__name__)

SPLITS = ("train", "val")
Encode = Callable[[Encoder, list[Shard], int], None]  # with so many processes


def build(
    config: DataConfig,
    texts: dict[str, RawText],
    settings: dict[str, Any],
    target: Path,
    tokenizer: Tokenizer | None = None,
    encode: Encode = encode_on_cores,
) -> None:
    """Builds the corpus beside `target` and renames it. The caller holds the lock. Without a tokenizer one is learned.

    `texts` by split, "test" too if there is one; `settings` is everything that shapes the corpus. `encode` writes
    missing shards, of a text that has several. Raises DataError if a text no longer is what `settings` identify.
    Reuses the finished parts of an interrupted build. Every machine builds in a folder of its own, because file locks
    may not work across machines.
    """
    work = work_folder(target)
    work.mkdir(exist_ok=True)
    try:
        filters = Filters(config, texts["train"])
        tokenizer = tokenizer or _tokenizer(config, texts["train"], settings, work, filters)
        encoder = Encoder(config, texts, settings, work, tokenizer, filters)
        shards = {split: _encode_split(split, encoder, encode) for split in SPLITS}
        corpus = work / "corpus"
        shutil.rmtree(corpus, ignore_errors=True)
        corpus.mkdir()
        reports = {split: _report(split, encoder, shards[split]) for split in SPLITS}
        encoder.overlap.warn()
        atomic_write_text(corpus / "tokenizer.json", tokenizer.to_json())
        atomic_write_text(corpus / "report.json", json.dumps(reports, indent=2))
        files = {name: _description(corpus / name) for name in ("report.json", "tokenizer.json")}
        for split in SPLITS:
            files |= merge(shards[split], work, corpus, encoder.dtype)
        counts = {split: report["kept"] for split, report in reports.items()}
        manifest = {"fingerprint": fingerprint(settings), "settings": settings, "pairs": counts, "files": files}
        atomic_write_text(corpus / "manifest.json", json.dumps(manifest, indent=2))
        fsync_folder(corpus)
        _put_in_place(corpus, target)
        remove_work(target)
    except BaseException as error:
        # A stop, or a full disk: finished shards are kept for the next start.
        if isinstance(error, DataError) or not any(work.glob("train-*.json")):
            remove_work(target)
        raise


def work_folder(target: Path) -> Path:
    """Returns the temporary folder in which this machine builds a corpus."""
    return target.parent / f".{target.name}.{host()}.tmp"


def remove_work(target: Path) -> None:
    """Removes the temporary folder: first the files that mark shards as done, so that a kill leaves no bad one."""
    for path in work_folder(target).glob("*.json"):
        path.unlink(missing_ok=True)
    shutil.rmtree(work_folder(target), ignore_errors=True)


def _put_in_place(corpus: Path, target: Path) -> None:
    if target.exists():
        if find_damage(target, FileScans()) is None:  # built meanwhile by a machine that the lock does not reach
            return
        damaged = corpus.with_name("damaged")  # processes that have it open keep its files
        shutil.rmtree(damaged, ignore_errors=True)
        target.rename(damaged)
    try:
        corpus.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        _put_in_place(corpus, target)  # that machine finished just now
        return
    fsync_folder(target.parent)


def _description(path: Path) -> dict[str, Any]:
    return {"size": path.stat().st_size, "sha256": sha256(path)}


def _tokenizer(config: DataConfig, text: RawText, settings: dict[str, Any], work: Path, filters: Filters) -> Tokenizer:
    """Learns the tokenizer, or reads the one that an earlier start learned."""
    path = work / "tokenizer.json"
    if path.exists():
        return Tokenizer.from_json(path.read_text("utf-8"))
    tokenizer = _learn_tokenizer(config, text, filters)
    if text.identity() != settings["train"]:
        raise DataError("data.train changed while it was read; start again when the files are complete")
    atomic_write_text(path, tokenizer.to_json())
    return tokenizer


def _learn_tokenizer(config: DataConfig, text: RawText, filters: Filters) -> Tokenizer:
    pairs, report = text.pairs(), CleaningReport()
    if config.tokenizer_pairs is not None:
        pairs = _spread(pairs, text.count(), config.tokenizer_pairs)
    log.info("learning %s subwords from %s", f"{config.vocab_size:,}", text.option)
    cleaned = as_learned(config, clean(_with_rate(pairs, "reading"), report))
    cleaned = filters(cleaned, report, numbered=config.tokenizer_pairs is None)
    both = (src + tgt for src, tgt, _ in chunks(cleaned, report, pairs=500, characters=200_000))
    first = next(both, None)
    if first is None:
        _refuse_wrong_encoding(text, report)
    _require_pairs(text, report, config)
    assert first is not None

    def to_the_end() -> Iterator[list[str]]:
        """All text; an error in it is raised before the vocabulary is learned, which takes the longest."""
        yield from chain([first], both)
        _refuse_wrong_encoding(text, report)

    return Tokenizer.train(
        to_the_end(), config.vocab_size, pretokenized=TASKS[config.task].splits_at_spaces, lowercase=config.lowercase
    )


def _encode_split(split: str, encoder: Encoder, encode: Encode) -> list[Shard]:
    """Returns the shards of a split when all are written. The pairs are counted only if there are several."""
    shards = [Shard(split, 0)]
    if not shards[0].is_done(encoder.folder):
        encoder(shards[0])
    if shards[0].result(encoder.folder)["report"]["read"] == SHARD_PAIRS:
        pairs = encoder.texts[split].count()
        shards = [Shard(split, number) for number in range(-(-pairs // SHARD_PAIRS))]
        missing = [shard for shard in shards if not shard.is_done(encoder.folder)]
        if missing:
            log.info("encoding %s: %s pairs, %d of %d shards missing", split, f"{pairs:,}", len(missing), len(shards))
            encode(encoder, missing, encoder.config.prepare_processes or cores())
    return shards


def _report(split: str, encoder: Encoder, shards: list[Shard]) -> dict[str, Any]:
    """Returns what the report says of a split. Raises DataError if hardly any of its text is usable."""
    results = [shard.result(encoder.folder) for shard in shards]
    total = CleaningReport()
    for result in results:
        total.add(CleaningReport(**result["report"]))
        encoder.overlap.add(result["found"])
    text = encoder.texts[split]
    if split == "train":
        _refuse_wrong_encoding(text, total)
    _require_pairs(text, total, encoder.config)
    tokens = {f"{side}_tokens": sum(result["tokens"][side] for result in results) for side in ("src", "tgt")}
    # By name: shards find the reasons in another order than one pass over the text.
    total.dropped, total.first_dropped = dict(sorted(total.dropped.items())), dict(sorted(total.first_dropped.items()))
    places = text.places({number for first in total.first_dropped.values() for number in first})
    first_dropped = {reason: [places[number] for number in first] for reason, first in total.first_dropped.items()}
    return asdict(total) | {"first_dropped": first_dropped} | tokens


def _spread(pairs: Iterable[Any], total: int, wanted: int) -> Iterator[Any]:
    """Yields at most `wanted` of `total` pairs, evenly spaced."""
    return (pair for i, pair in enumerate(pairs) if (i + 1) * wanted // total > i * wanted // total)


def _with_rate(pairs: Iterable[Any], doing: str) -> Iterator[Any]:
    """Passes pairs on and logs progress every ten seconds."""
    start = last = time.monotonic()
    for number, pair in enumerate(pairs, 1):
        yield pair
        if number % 1000 == 0 and (now := time.monotonic()) - last > 10:
            last = now
            log.info("%s: %s pairs, %s a second", doing, f"{number:,}", f"{number / (now - start):,.0f}")


def _require_pairs(text: RawText, report: CleaningReport, config: DataConfig) -> None:
    if not report.kept:
        reasons = ", ".join(f"{count} {reason}" for reason, count in report.dropped.items())
        raise DataError(
            f"{text.option}: none of {report.read} pairs is usable ({reasons}); "
            f"data.max_length={config.max_length}, data.max_length_ratio={config.max_length_ratio:g}"
        )


def _refuse_wrong_encoding(text: RawText, report: CleaningReport) -> None:
    """Raises DataError if over 5 % of the pairs are not UTF-8.

    Then the file is in another encoding, and dropping bad lines would lose exactly the sentences with accents.
    """
    bad = report.dropped.get("not_utf8", 0)
    if bad >= 20 and bad > 0.05 * report.read:
        first = report.first_dropped["not_utf8"][0]
        place = text.places([first])[first]
        raise DataError(
            f"{text.option}: {bad} of {report.read} pairs are not UTF-8 (the first: {place}); convert the "
            "text, for example iconv -f ISO-8859-1 -t UTF-8"
        )
