"""The prepared corpus of a configuration: opened if it exists, built once if not."""

import fcntl
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiayn.config.schema import DataConfig, DataOptions
from aiayn.data.build_corpus import build, remove_work, work_folder
from aiayn.data.corpus_store import PreparedCorpus, corpus_folder, find_flaw, fingerprint
from aiayn.data.dropped import write_dropped
from aiayn.data.filters import RULES
from aiayn.data.sources import count_pairs, identity, raw_pairs
from aiayn.data.text_files import FileScans
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import DataError

log = logging.getLogger(__name__)

FORMAT = 2  # raise it whenever the same text would give other files
SHAPING = ("src_lang", "tgt_lang", "vocab_size", "max_length", "max_length_ratio", "tokenizer_pairs")


def check_text(config: DataOptions) -> None:
    """Raises DataError if the corpus is not prepared and its text is missing or unusable.

    Writes nothing and does not import torch, so that the most common mistakes are reported at once.
    """
    scans = FileScans(Path(config.folder).expanduser())
    if not corpus_folder(config, fingerprint(_settings(config, scans))).is_dir():
        for split in ("train", "val"):
            next(raw_pairs(config, split, scans), None)


def count_training_pairs(config: DataOptions) -> int:
    """Returns the number of training pairs before cleaning. Raises DataError as `raw_pairs` does."""
    folder = Path(config.folder).expanduser()
    scans = FileScans(folder)
    pairs = count_pairs(config, "train", scans)
    scans.save(folder)
    return pairs


def prepare(config: DataConfig, tokenizer: Tokenizer | None = None) -> PreparedCorpus:
    """Opens the prepared corpus of this configuration; builds it first if there is none.

    Without a tokenizer one is learned from the training text. Raises DataError for text that cannot be used and for a
    data folder that cannot be read or written.
    """
    folder = Path(config.folder).expanduser()
    scans = FileScans(folder)
    settings = _settings(config, scans, tokenizer)
    target = corpus_folder(config, fingerprint(settings))
    try:
        if find_flaw(target, scans) or work_folder(target).exists():
            folder.mkdir(parents=True, exist_ok=True)
            with _locked(folder / f".{target.name}.lock"):
                flaw = find_flaw(target, scans)  # again: another process may have built it while we waited
                if flaw:
                    if target.exists():
                        log.warning("%s is damaged (%s): building it again", target, flaw)
                    build(config, target, settings, scans, tokenizer)
                remove_work(target)  # of a build that was killed in its last moment
        scans.save(folder)
        prepared = PreparedCorpus.open(target)
        if config.write_dropped:
            write_dropped(config, prepared, scans)
    except OSError as error:
        raise DataError(
            f"data.folder={config.folder}: {error.strerror or error} ({error.filename or target}); "
            "make room or make it writable, or choose another place with data.folder=FOLDER"
        ) from error
    log.info("%s: %s training and %s validation pairs", target, f"{len(prepared.train):,}", f"{len(prepared.val):,}")
    return prepared


def _settings(config: DataOptions, scans: FileScans, tokenizer: Tokenizer | None = None) -> dict[str, Any]:
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
    return {"format": FORMAT} | shaping | {split: identity(config, split, scans) for split in ("train", "val")}


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lets one process in at a time. The lock ends with the process, even if that is killed."""
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("another process is preparing this corpus: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
