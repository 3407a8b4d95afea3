"""The prepared corpus of a configuration: opened if it exists, built once if not."""

import fcntl
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from aiayn.config.data import DataConfig, DataOptions
from aiayn.data.build_corpus import SPLITS, Encode, build, remove_work, work_folder
from aiayn.data.corpus_store import PreparedCorpus, corpus_folder, find_damage, fingerprint
from aiayn.data.dropped import write_dropped
from aiayn.data.encode_shards import encode_on_cores
from aiayn.data.filters import RULES
from aiayn.data.raw_text import RawText
from aiayn.data.sources import text_of, texts_of
from aiayn.data.text_files import FileScans
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import DataError

log = logging.getLogger(__name__)

FORMAT = 2  # raise it whenever the same text would give other files
HEARTBEAT, POLL = 10.0, 0.5  # seconds
FIRST_PAIRS = 1000  # looked at before anything slow is begun
SHAPING = ("src_lang", "tgt_lang", "vocab_size", "max_length", "max_length_ratio", "tokenizer_pairs")


def check_text(config: DataOptions) -> None:
    """Raises DataError if the corpus is not prepared and its text is missing or unusable.

    Writes nothing, reads the first pairs only and does not import torch, so that the most common mistakes are reported
    at once.
    """
    texts = texts_of(config, FileScans(Path(config.folder).expanduser()))
    if not corpus_folder(config, fingerprint(_settings(config, texts))).is_dir():
        for text in (texts[split] for split in SPLITS):
            first = list(islice(text.pairs(), FIRST_PAIRS))
            bad = sum(not _is_utf8(src + tgt) for src, tgt in first)
            if bad >= 20 and bad > 0.25 * len(first):
                raise DataError(
                    f"{text.option}: {bad} of the first {len(first):,} pairs are not UTF-8; "
                    "convert the text, for example iconv -f ISO-8859-1 -t UTF-8"
                )


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def count_training_pairs(config: DataOptions) -> int:
    """Returns the number of training pairs before cleaning. Raises DataError for text that cannot be read."""
    folder = Path(config.folder).expanduser()
    scans = FileScans(folder)
    pairs = text_of(config, "train", scans).count()
    scans.save(folder)
    return pairs


def prepare(
    config: DataConfig,
    tokenizer: Tokenizer | None = None,
    encode: Encode = encode_on_cores,
    scans: FileScans | None = None,
) -> PreparedCorpus:
    """Opens the prepared corpus of this configuration; builds it first if there is none.

    Without a tokenizer one is learned from the training text. `encode` encodes the shards of a large text. `scans`:
    files that the caller has already scanned.
    Raises DataError for text that cannot be used and for a data folder that cannot be read or written.
    """
    folder = Path(config.folder).expanduser()
    scans = scans or FileScans(folder)
    texts = texts_of(config, scans)
    settings = _settings(config, texts, tokenizer)
    target = corpus_folder(config, fingerprint(settings))
    try:
        if find_damage(target, scans) or work_folder(target).exists():
            folder.mkdir(parents=True, exist_ok=True)
            with _locked(_lock(target), config.prepare_per_node):
                flaw = find_damage(target, scans)  # again: another process may have built it while we waited
                if flaw:
                    if target.exists():
                        log.warning("%s is damaged (%s): building it again", target, flaw)
                    build(config, texts, settings, target, tokenizer, encode)
                remove_work(target)  # left by a build that was killed after its rename
        scans.save(folder)
        prepared = PreparedCorpus.open(target)
        if config.write_dropped:
            write_dropped(config, texts, prepared)
    except OSError as error:
        raise DataError(
            f"data.folder={config.folder}: {error.strerror or error} ({error.filename or target}); "
            "make room or make it writable, or choose another place with data.folder=FOLDER"
        ) from error
    log.info("%s: %s", target, _counts(prepared))
    return prepared


def _counts(prepared: PreparedCorpus) -> str:
    dropped = prepared.report["train"]["dropped"]
    reasons = ", ".join(f"{pairs:,} {reason}" for reason, pairs in dropped.items())
    counts = f"{len(prepared.train):,} training and {len(prepared.val):,} validation pairs"
    return counts + (f"; {sum(dropped.values()):,} training pairs dropped: {reasons}" if dropped else "")


def wait_for(config: DataConfig, tokenizer: Tokenizer | None, silence: float) -> PreparedCorpus:
    """Opens the prepared corpus as soon as another process, of any machine, has built it on a disk that all share.

    Raises DataError if that process shows no sign of life for `silence` seconds, and as `prepare` does.
    """
    scans = FileScans(Path(config.folder).expanduser())
    target = corpus_folder(config, fingerprint(_settings(config, texts_of(config, scans), tokenizer)))
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


def _lock(target: Path) -> Path:
    return target.with_name(f".{target.name}.lock")


def _last_touched(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def _settings(config: DataOptions, texts: dict[str, RawText], tokenizer: Tokenizer | None = None) -> dict[str, Any]:
    """Everything that shapes the prepared corpus, as plain values."""
    shaping = {name: getattr(config, name) for name in SHAPING}
    if config.task != "translation":  # corpora prepared before there were tasks keep their fingerprint
        shaping["task"] = config.task
    if config.lowercase:
        shaping["lowercase"] = True
    if config.tags != "kept":
        shaping["tags"] = config.tags
    shaping |= {name: value for name in RULES if (value := getattr(config, name))}
    if tokenizer:
        shaping["tokenizer"] = tokenizer.fingerprint
    return {"format": FORMAT} | shaping | {split: texts[split].identity() for split in SPLITS}


@contextmanager
def _locked(path: Path, quietly: bool) -> Iterator[None]:
    """Holds an exclusive file lock. The lock ends with the process, even if that is killed.

    Unless `quietly`, the file is touched meanwhile: a sign of life for `wait_for` on machines that do not see the lock.
    """
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("another process is preparing this corpus: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        over = threading.Event()
        if not quietly:
            threading.Thread(target=_touch, args=(path, over), daemon=True).start()
        try:
            yield
        finally:
            over.set()


def _touch(path: Path, over: threading.Event) -> None:
    while not over.wait(HEARTBEAT):
        with suppress(OSError):
            os.utime(path)
