"""The prepared corpus of a configuration: opened where it stands, built once where it does not."""

import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from aiayn.config import DataConfig
from aiayn.data import sources, text_files
from aiayn.data.build_corpus import build
from aiayn.data.corpus_store import PreparedCorpus, corpus_folder, find_flaw
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import DataError

log = logging.getLogger(__name__)

FORMAT = 1  # raise it whenever the same text would give other files
SHAPING = ("src_lang", "tgt_lang", "vocab_size", "max_length", "max_length_ratio", "tokenizer_pairs")


def check_text(config: DataConfig) -> None:
    """Raises DataError if the corpus is neither prepared nor there to be prepared. Writes nothing, and needs no torch.

    Settles what most often is wrong before the seconds that importing a training takes.
    """
    _recall_scans(Path(config.folder).expanduser())
    if not corpus_folder(config, _fingerprint(_settings(config))).is_dir():
        for split in ("train", "val"):
            next(sources.raw_pairs(config, split), None)


def prepare(config: DataConfig, tokenizer: Tokenizer | None = None) -> PreparedCorpus:
    """Opens the prepared corpus of this configuration, building it first where there is none.

    With a tokenizer it is cut into that one's subwords, otherwise a tokenizer is learnt on its training text.
    Raises DataError for text that cannot be used and for a data folder that cannot be read or written.
    """
    folder = Path(config.folder).expanduser()
    _recall_scans(folder)
    fingerprint = _fingerprint(_settings(config, tokenizer))
    target = corpus_folder(config, fingerprint)
    try:
        if find_flaw(target):
            folder.mkdir(parents=True, exist_ok=True)
            with _locked(folder / f".{target.name}.lock"):
                flaw = find_flaw(target)  # another process may have built it meanwhile
                if flaw:
                    if target.exists():
                        log.warning("%s is damaged (%s): building it again", target, flaw)
                    build(config, target, lambda: _settings(config, tokenizer), fingerprint, tokenizer)
        _keep_scans(folder)
        prepared = PreparedCorpus.open(target)
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
    return {"format": FORMAT} | shaping | {split: sources.identity(config, split) for split in ("train", "val")}


def _fingerprint(settings: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


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
