"""The prepared corpus of a configuration: opened if it exists, built once if not.

Building reads the text twice: the vocabulary is learned from clean pairs, then they are encoded and stored.
"""

import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import filelock

from aiayn.config.data import DataConfig
from aiayn.data.cleaning import FILTERS, CleaningReport, wrong_encoding
from aiayn.data.corpus import (
    SPLITS,
    PreparedCorpus,
    corpus_folder,
    find_damage,
    fingerprint,
    store_split,
    write_manifest,
)
from aiayn.data.encode import encode_split
from aiayn.data.held_out import Leakage
from aiayn.data.raw_text import RawPair, RawText
from aiayn.data.sources import text_of
from aiayn.data.text_files import FileScans
from aiayn.data.tokenizer import Tokenizer, given_tokenizer, learn_tokenizer
from aiayn.errors import DataError
from aiayn.files import atomic_file, atomic_write_text, fsync_folder, host

log = logging.getLogger(__name__)

FORMAT = 3  # raise it whenever the same text would give other files
HEARTBEAT, POLL = 10.0, 0.5  # seconds
FIRST_PAIRS = 1000  # looked at before anything slow is begun
SHAPING = (
    "src_lang",
    "tgt_lang",
    "vocab_size",
    "max_length",
    "max_length_ratio",
    "tokenizer_pairs",
    "task",
    "lowercase",
)


def check_text(config: DataConfig) -> None:
    """Raises DataError if the corpus is not prepared and its text is missing or unusable.

    Writes nothing, reads the first pairs only and does not import torch, so that the most common mistakes are reported
    at once.
    """
    texts, tokenizer = _texts(config, FileScans(Path(config.folder).expanduser())), given_tokenizer(config)
    if not corpus_folder(config, fingerprint(_settings(config, texts, tokenizer))).is_dir():
        for text in (texts[split] for split in SPLITS):
            first = list(islice(text.pairs(), FIRST_PAIRS))
            bad = [pair for pair in first if not _is_utf8(pair.src + pair.tgt)]
            if len(bad) >= 20 and len(bad) > 0.25 * len(first):
                raise wrong_encoding(text, len(bad), f"the first {len(first):,}", bad[0].place)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def count_training_pairs(config: DataConfig) -> int:
    """Returns the number of training pairs before cleaning. Raises DataError for text that cannot be read."""
    folder = Path(config.folder).expanduser()
    scans = FileScans(folder)
    pairs = text_of(config, "train", scans).count()
    scans.save(folder)
    return pairs


def prepare(config: DataConfig, tokenizer: Tokenizer | None = None, scans: FileScans | None = None) -> PreparedCorpus:
    """Opens the prepared corpus of this configuration; builds it first if there is none.

    Without a tokenizer, one is learned from the training text. Raises DataError for text that cannot be used and for a
    data folder that cannot be read or written.
    """
    folder, tokenizer = Path(config.folder).expanduser(), tokenizer or given_tokenizer(config)
    if tokenizer and (unknown := [symbol for symbol in config.all_symbols if symbol not in tokenizer.symbols]):
        raise DataError(f"data.symbols: the given tokenizer divides {', '.join(unknown)}; learn one, or leave them out")
    scans = scans or FileScans(folder)
    texts = _texts(config, scans)
    settings = _settings(config, texts, tokenizer)
    target = corpus_folder(config, fingerprint(settings))
    try:
        if find_damage(target, scans):
            folder.mkdir(parents=True, exist_ok=True)
            with _locked(_lock(target), config.prepare_per_node):
                flaw = find_damage(target, scans)  # again: another process may have built it while we waited
                if flaw:
                    if target.exists():
                        log.warning("%s is damaged (%s): building it again", target, flaw)
                    _build(config, texts, settings, target, tokenizer)
        scans.save(folder)
        prepared = PreparedCorpus.open(target)
        if config.write_dropped:
            _write_dropped(config, texts, prepared)
    except OSError as error:
        raise DataError(
            f"data.folder={config.folder}: {error.strerror or error} ({error.filename or target}); "
            "make room or make it writable, or choose another place with data.folder=FOLDER"
        ) from error
    dropped = prepared.report["train"]["dropped"]
    reasons = ", ".join(f"{pairs:,} {reason}" for reason, pairs in dropped.items())
    counts = f"{len(prepared.train):,} training and {len(prepared.val):,} validation pairs"
    said = f"; {sum(dropped.values()):,} training pairs dropped: {reasons}" if dropped else ""
    log.info("%s: %s%s", target, counts, said)
    return prepared


def wait_for(config: DataConfig, tokenizer: Tokenizer | None, silence: float) -> PreparedCorpus:
    """Opens the prepared corpus as soon as another process, of any machine, has built it on a disk that all share.

    Raises DataError if that process shows no sign of life for `silence` seconds, and as `prepare` does.
    """
    scans, tokenizer = FileScans(Path(config.folder).expanduser()), tokenizer or given_tokenizer(config)
    target = corpus_folder(config, fingerprint(_settings(config, _texts(config, scans), tokenizer)))
    sign, since = None, time.monotonic()
    while find_damage(target, scans):
        if (now := _last_touched(_lock(target))) != sign:
            sign, since = now, time.monotonic()
        if time.monotonic() - since > silence:
            raise DataError(
                f"data.folder={config.folder}: no other process has prepared {target} or worked on it for {silence:g} "
                "seconds; all machines must see the same folder, or set data.prepare_per_node=true"
            )
        time.sleep(POLL)
    return prepare(config, tokenizer, scans=scans)  # so that no text is hashed twice


def _texts(config: DataConfig, scans: FileScans) -> dict[str, RawText]:
    """Returns the text of training and validation, and of the test set if there is one."""
    splits = SPLITS if config.test is None else (*SPLITS, "test")
    return {split: text_of(config, split, scans) for split in splits}


def _settings(config: DataConfig, texts: dict[str, RawText], tokenizer: Tokenizer | None = None) -> dict[str, Any]:
    """Returns everything that shapes the prepared corpus, as plain values."""
    shaping = {name: getattr(config, name) for name in (*SHAPING, "tags", *FILTERS)}
    if tokenizer:
        shaping["tokenizer"] = tokenizer.fingerprint
    elif config.tokenizer != "bpe":
        shaping["tokenizer"] = config.tokenizer
    if config.all_symbols:
        shaping["symbols"] = config.all_symbols
    return {"format": FORMAT} | shaping | {split: texts[split].identity() for split in SPLITS}


def _build(
    config: DataConfig,
    texts: dict[str, RawText],
    settings: dict[str, Any],
    target: Path,
    tokenizer: Tokenizer | None,
) -> None:
    """Builds the corpus beside `target` and renames it; a build that is killed begins anew. The caller holds the lock.

    Raises DataError if a text no longer is what `settings` identify. Every machine builds in a folder of its own,
    because locks of files may not work across machines.
    """
    work = target.parent / f".{target.name}.{host()}.tmp"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    try:
        tokenizer = tokenizer or learn_tokenizer(config, texts["train"])
        leakage = Leakage(config, texts)
        reports = {split: store_split(split, config, texts[split], tokenizer, leakage, work) for split in SPLITS}
        leakage.warn()
        if any(texts[split].identity() != settings[split] for split in SPLITS):
            raise DataError("data.train or data.val changed while it was read; start again when the files are complete")
        atomic_write_text(work / "tokenizer.json", tokenizer.to_json())
        atomic_write_text(work / "report.json", json.dumps(reports, indent=2))
        write_manifest(work, settings)
        for path in work.iterdir():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
        fsync_folder(work)
        _put_in_place(work, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _put_in_place(corpus: Path, target: Path) -> None:
    if target.exists():
        if find_damage(target, FileScans()) is None:  # built meanwhile by a machine that the lock does not reach
            return
        # At once, not file by file; processes that have it open keep its files.
        shutil.rmtree(target.rename(corpus / "damaged"))
    try:
        corpus.rename(target)
    except OSError:  # that machine finished just now
        if find_damage(target, FileScans()):
            raise
    fsync_folder(target.parent)


def _write_dropped(config: DataConfig, texts: dict[str, RawText], prepared: PreparedCorpus) -> None:
    """Writes `dropped.jsonl`, if missing: an object a pair: split, place (file and line), reason, source, target."""
    path = prepared.folder / "dropped.jsonl"
    if path.exists():
        return
    with atomic_file(path) as file:
        for split in SPLITS:

            def write(pair: RawPair, reason: str, split: str = split) -> None:
                found = {"split": split, "place": pair.place, "reason": reason}
                found |= {"source": pair.src.decode(errors="replace"), "target": pair.tgt.decode(errors="replace")}
                file.write((json.dumps(found, ensure_ascii=False) + "\n").encode())

            report = CleaningReport(on_drop=write)
            for _ in encode_split(split, config, texts[split], prepared.tokenizer, report):
                pass


def _lock(target: Path) -> Path:
    return target.with_name(f".{target.name}.lock")


def _last_touched(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None


@contextmanager
def _locked(path: Path, quietly: bool) -> Iterator[None]:
    """Holds an exclusive lock, which ends with the process, even if that is killed.

    Unless `quietly`, the file is touched meanwhile: a sign of life for `wait_for` on machines that do not see the lock.
    """
    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        log.info("another process is preparing this corpus: waiting for it")
        lock.acquire()
    over = threading.Event()
    if not quietly:
        path.touch()
        threading.Thread(target=_touch, args=(path, over), daemon=True).start()
    try:
        yield
    finally:
        over.set()
        lock.release()


def _touch(path: Path, over: threading.Event) -> None:
    while not over.wait(HEARTBEAT):
        with suppress(OSError):
            os.utime(path)
