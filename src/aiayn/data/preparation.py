"""The prepared corpus of a configuration: opened if it exists, built once if not.

Building reads the text twice: the vocabulary is learned from clean pairs, then they are encoded and
stored.
"""

import logging
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import filelock
import numpy as np

from aiayn.config.data import DataConfig, DataOptions
from aiayn.config.resolve import SizedConfig, infer_sizes
from aiayn.config.rules import known_tags
from aiayn.config.schema import Config
from aiayn.data.cleaning import CleaningReport, clean
from aiayn.data.corpus import (
    SPLITS,
    PreparedCorpus,
    fingerprint_of,
    open_verified,
    store_split,
    write_manifest,
)
from aiayn.data.encode import Sentences, encode_split
from aiayn.data.raw_text import RawPair, RawText
from aiayn.data.sources import FileText, text_of
from aiayn.data.survey import Survey, check_sides, remarks
from aiayn.data.tokenizer import (
    Tokenizer,
    existing_tokenizer,
    learn_tokenizer,
    supported_vocab_size,
)
from aiayn.errors import DISK_FULL, DataError, ResourceError, counted
from aiayn.files import atomic_file, atomic_write, fsync_folder, host, jsonl_line, write_json

log = logging.getLogger(__name__)

FORMAT = 3  # raise it whenever text in NFC would give other ids
HEARTBEAT, POLL = 10.0, 0.5  # seconds
FIRST_PAIRS = 1000  # looked at before anything slow is begun
PAIRS_AT_ONCE = 1 << 20  # compared with held-out pairs
# Options that shape the corpus, besides its text and what the tokenizer is.
SHAPING = (
    "src_lang",
    "tgt_lang",
    "vocab_size",
    "max_length",
    "max_length_ratio",
    "tokenizer_pairs",
    "task",
    "lowercase",
    "tags",
    "drop_duplicates",
    "drop_equal",
    "drop_placeholder_mismatch",
)


class CorpusSpec(NamedTuple):
    """What a prepared corpus is made of."""

    texts: dict[str, RawText]  # by split
    tokenizer: Tokenizer | None  # None: one is to be learned
    settings: dict[str, Any]  # everything that shapes the corpus, as plain values
    target: Path  # the folder that it belongs in


def check_text(config: DataOptions) -> None:
    """Raises DataError if the corpus is not prepared and its text is missing or unusable.

    Writes nothing, reads the first pairs only and does not import torch, so that the most common
    mistakes are reported at once.
    """
    spec = _specify(config, None)
    if spec.target.is_dir():
        return
    for split in SPLITS:
        text, report = spec.texts[split], CleaningReport()
        deque(clean(islice(text.pairs(), FIRST_PAIRS), report), maxlen=0)
        report.check_encoding(text, most=0.25)
    check_sides(spec.texts, config)


def infer_from_text(options: Config) -> SizedConfig:
    """Returns the options, sizes inferred from the training text where they are null."""
    text = text_of(options.data, "train")
    return infer_sizes(
        options, text.count, lambda size: supported_vocab_size(options.data, text, size)
    )


def prepare_corpus(
    config: DataConfig, tokenizer: Tokenizer | None = None, *, silence: float | None = None
) -> PreparedCorpus:
    """Opens the prepared corpus of this configuration; builds it first if there is none.

    Without a tokenizer, one is learned from the training text. With `silence`, another process, of
    any machine, builds the corpus on a disk that all share; it is opened as soon as it is there.
    Raises DataError for text that cannot be used, for a data folder that cannot be read or written,
    and if the other process shows no sign of life for `silence` seconds; ResourceError for a full
    disk.
    """
    spec = _specify(config, tokenizer)
    try:
        prepared = open_verified(spec.target)
        is_new = isinstance(prepared, str) and silence is None
        if isinstance(prepared, str):
            prepared = _build(config, spec) if silence is None else _wait(config, spec, silence)
        if config.write_dropped:
            _write_dropped(prepared, config, spec)
    except OSError as error:
        error_class = ResourceError if error.errno in DISK_FULL else DataError
        raise error_class(
            f"data.folder={config.folder}: {error.strerror or error} "
            f"({error.filename or spec.target}); make room, make it writable, or set another "
            "data.folder"
        ) from error
    dropped = prepared.report["train"]["dropped"]
    reasons = ", ".join(f"{reason}: {pairs:,}" for reason, pairs in dropped.items())
    counts = f"{len(prepared.train):,} training and {len(prepared.val):,} validation pairs"
    lost = counted(sum(dropped.values()), "training pair")
    losses = f"; {lost} dropped ({reasons})" if dropped else ""
    log.info("%s: %s%s", spec.target, counts, losses)
    if sum(dropped.values()) > len(prepared.train):
        log.warning(
            "warning: most pairs of %s are dropped, mainly as %s",
            spec.texts["train"].option,
            max(dropped, key=dropped.__getitem__),
        )
    texts = dict(spec.texts)
    if config.source == "hub" and not is_new:  # opening it needs no network
        texts.pop("test", None)
    warn_of_leakage(prepared, texts, config)
    return prepared


def _wait(config: DataConfig, spec: CorpusSpec, silence: float) -> PreparedCorpus:
    """Opens the corpus as soon as another process has built it."""
    sign, since = None, time.monotonic()
    while isinstance(prepared := open_verified(spec.target), str):
        lock = _lock_file(spec.target)
        if (modified := lock.stat().st_mtime_ns if lock.exists() else None) != sign:
            sign, since = modified, time.monotonic()
        if time.monotonic() - since > silence:
            raise DataError(
                f"data.folder={config.folder}: no process has worked on {spec.target} for "
                f"{silence:g} seconds; share the folder among the machines, or set "
                "data.prepare_per_node=true"
            )
        time.sleep(POLL)
    return prepared


def _specify(config: DataOptions, tokenizer: Tokenizer | None) -> CorpusSpec:
    """Returns what the corpus of these options is made of, with this tokenizer, that of
    `data.tokenizer` or a new one.

    Raises DataError for text or a tokenizer that cannot be read, and for options that the tokenizer
    contradicts.
    """
    tokenizer = existing_tokenizer(config, tokenizer)
    known_tags("data.val", config.val, tokenizer.symbols if tokenizer else config.all_symbols)
    splits = SPLITS if config.test is None else (*SPLITS, "test")
    texts = {split: text_of(config, split) for split in splits}
    algorithm = None if config.tokenizer == "bpe" else config.tokenizer
    optional = {
        "tokenizer": tokenizer.fingerprint if tokenizer else algorithm,
        "src_vocab_size": config.src_vocab_size,
        # Versions of rules: raise one whenever it drops other pairs.
        "duplicates": config.drop_duplicates and 2,
        "placeholders": config.drop_placeholder_mismatch and 5,
        "languages": config.drop_wrong_language and 2,
        "letters": config.drop_without_letters and 1,
        "symbols": config.all_symbols,
    }
    settings = {
        "format": FORMAT,
        "drop_number_mismatch": False,  # once an option: corpora keep their names
        **{name: getattr(config, name) for name in SHAPING},
        **{name: value for name, value in optional.items() if value},
        **{split: texts[split].identity() for split in SPLITS},
    }
    name = f"{config.src_lang}-{config.tgt_lang}-{fingerprint_of(settings)[:16]}"
    return CorpusSpec(texts, tokenizer, settings, Path(config.folder).expanduser() / name)


def _build(config: DataConfig, spec: CorpusSpec) -> PreparedCorpus:
    """Builds the corpus beside its folder and renames it; a build that is killed begins anew.

    Raises DataError if a text no longer is what the settings identify, and for a link in the place
    of the folder. Every machine builds in a folder of its own, because locks of files may not work
    across machines.
    """
    target = spec.target
    target.parent.mkdir(parents=True, exist_ok=True)
    work = target.parent / f".{target.name}.{host()}.tmp"
    with _locked(_lock_file(target)):
        prepared = open_verified(target)
        if not isinstance(prepared, str):  # another process has built it while we waited
            return prepared
        if target.is_symlink():
            raise DataError(
                f"data.folder={config.folder}: {target} is a symbolic link, not to a prepared "
                f"corpus ({prepared}); remove the link"
            )
        if target.exists():
            log.warning("%s is damaged (%s): building it again", target, prepared)
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        try:
            _write_corpus(work, config, spec)
            if target.exists() and isinstance(open_verified(target), str):
                # A rename takes effect at once. Processes that have the corpus open keep its files.
                shutil.rmtree(target.rename(work / "damaged"))
            work.rename(target)
        except OSError:
            if isinstance(open_verified(target), str):
                raise
            # else built meanwhile by a machine that the lock does not reach
        finally:
            shutil.rmtree(work, ignore_errors=True)
        fsync_folder(target.parent)
        return PreparedCorpus.open(target)


def _write_corpus(folder: Path, config: DataConfig, spec: CorpusSpec) -> None:
    """Encodes the texts into a folder, and flushes it to the disk."""
    texts, tokenizer, settings, _ = spec
    for line in check_sides(texts, config):
        log.warning("warning: %s", line)
    tokenizer = tokenizer or learn_tokenizer(config, texts["train"])
    reports, survey = {}, Survey((config.src_lang, config.tgt_lang))
    for split in SPLITS:
        report = CleaningReport()
        ids = encode_split(split, config, texts[split], tokenizer, report, survey)
        tokens = store_split(folder, split, ids)
        report.check(texts[split], config)
        reports[split] = report.as_dict() | tokens
    reports["train"]["survey"] = survey.as_dict()
    # Those of the phrasebook are known.
    for line in remarks(reports["train"]["survey"]) if config.source != "phrasebook" else ():
        log.warning("warning: %s: %s", texts["train"].option, line)
    if any(texts[split].identity() != settings[split] for split in SPLITS):
        raise DataError(
            "data.train or data.val changed while being read; start again when the files are "
            "complete"
        )
    atomic_write(folder / "tokenizer.json", tokenizer.to_json())
    write_json(folder / "report.json", reports)
    write_manifest(folder, settings)
    for path in folder.iterdir():
        with open(path, "rb") as file:
            os.fsync(file.fileno())
    fsync_folder(folder)


def _write_dropped(prepared: PreparedCorpus, config: DataConfig, spec: CorpusSpec) -> None:
    """Writes `dropped.jsonl`, if missing: an object a pair: split, place (file and line), reason,
    source, target.
    """
    path = prepared.folder / "dropped.jsonl"
    if path.exists():
        return

    def write(split: str, pair: RawPair, reason: str) -> None:
        record = {
            "split": split,
            "place": pair.place,
            "reason": reason,
            "source": pair.src.decode(errors="replace"),
            "target": pair.tgt.decode(errors="replace"),
        }
        file.write(jsonl_line(record).encode())

    with atomic_file(path) as file:
        for split in SPLITS:
            report = CleaningReport(on_drop=partial(write, split))
            ids = encode_split(split, config, spec.texts[split], prepared.tokenizer, report)
            deque(ids, maxlen=0)


def _lock_file(target: Path) -> Path:
    return target.with_name(f".{target.name}.lock")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock, which ends with the process, even if that is killed.

    The file is touched meanwhile: a sign of life for `_wait` on machines that do not see the
    lock.
    """
    lock, over = filelock.FileLock(path), threading.Event()
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        log.info("another process is preparing this corpus: waiting for it")
        lock.acquire()

    def touch() -> None:
        while not over.wait(HEARTBEAT):
            with suppress(OSError):
                os.utime(path)

    path.touch()
    threading.Thread(target=touch, daemon=True).start()
    try:
        yield
    finally:
        over.set()
        lock.release()


# Train/test leakage.


def warn_of_leakage(
    prepared: PreparedCorpus, texts: dict[str, RawText], config: DataConfig
) -> None:
    """Logs a line if development or test pairs are also training pairs, and one if a training file
    is listed twice.

    texts: by split. Pairs are compared as the model reads them. Test text that cannot be read yet
    counts as empty.
    """
    if not log.isEnabledFor(logging.WARNING):
        return  # another rank says it
    val, tokenizer = prepared.val, prepared.tokenizer
    held_out = {"val": (val.src, val.tgt)}
    with suppress(DataError):
        raw = texts["test"].pairs() if "test" in texts else ()
        pairs = list(clean(raw, CleaningReport(), tags=config.tags))
        sources, targets = [pair.src for pair in pairs], [pair.tgt for pair in pairs]
        held_out["test"] = (
            Sentences.of(tokenizer.source.encode(sources), val.src.flat.dtype),
            Sentences.of(tokenizer.encode(targets), val.tgt.flat.dtype),
        )
    wanted = np.concatenate([_signatures(*sides) for sides in held_out.values()])
    learned, train = set(), prepared.train
    for begin in range(0, len(train), PAIRS_AT_ONCE):
        bounds = slice(begin, begin + PAIRS_AT_ONCE + 1)
        src, tgt = (Sentences(side.flat, side.starts[bounds]) for side in (train.src, train.tgt))
        similar = np.flatnonzero(np.isin(_signatures(src, tgt), wanted))
        learned |= {(src[n].tobytes(), tgt[n].tobytes()) for n in similar.tolist()}
    overlaps = []
    for split, (src, tgt) in held_out.items():
        distinct = {(src[n].tobytes(), tgt[n].tobytes()) for n in range(len(src))}
        if leaked := distinct & learned:
            overlaps.append(f"{len(leaked):,} of {len(distinct):,} pairs of {texts[split].option}")
    if summary := ", ".join(overlaps):
        log.warning(
            "warning: train/test leakage: %s (repeats counted once) are also training pairs; "
            "scores on them say little",
            summary,
        )
    text = texts["train"]
    files = list(map(str, text.identity())) if isinstance(text, FileText) else []
    if len(set(files)) < len(files):
        log.warning("warning: %s: the same text is listed twice", text.option)


def _signatures(src: Sentences, tgt: Sentences) -> np.ndarray:
    """Returns a number that few pairs share, the sums of their ids, (pairs,) uint64."""
    src_sums, tgt_sums = (
        np.add.reduceat(side.flat[: side.starts[-1]], side.starts[:-1], dtype=np.uint64)
        for side in (src, tgt)
    )
    return src_sums * np.uint64(1_000_003) + tgt_sums
