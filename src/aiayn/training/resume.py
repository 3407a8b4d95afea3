"""What connects the starts of one run: its lock, its configuration, and the newest checkpoint."""

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TextIO

from filelock import lock_descriptor

from aiayn.config.schema import Config
from aiayn.config.stored import too_late
from aiayn.data.corpus import PreparedCorpus
from aiayn.errors import ConfigError, RefusedError, writing
from aiayn.runs import checkpoint_folder
from aiayn.runs.checkpoint_folder import ResumeState
from aiayn.runs.continuation import check_unchanged, read_options
from aiayn.runs.run_folder import RunFolder, open_unlinked, refuse_link
from aiayn.search.build import load_tokenizer
from aiayn.training.distributed.ranks import global_rank

log = logging.getLogger(__name__)


def first_options(folder: RunFolder) -> Config | None:
    """Returns the options of the run's first start, None for a new run. Raises RefusedError if they
    cannot be read.
    """
    if folder.config.exists():
        return read_options(folder)
    newest = checkpoint_folder.load_newest(folder.checkpoints)
    return newest.checkpoint.config if newest else None


def load_resume_state(
    folder: RunFolder, prepared: PreparedCorpus, config: Config
) -> ResumeState | None:
    """Returns what to continue from, None for a new run.

    Raises RefusedError if that was trained with other options, on another corpus or with another
    vocabulary.
    """
    newest = checkpoint_folder.load_newest(folder.checkpoints)
    if newest is None:
        return None
    checkpoint = newest.checkpoint
    # Weights fit into a model with another number of heads as well, should config.yaml differ.
    check_unchanged(folder, config, checkpoint.config)
    vocabulary = load_tokenizer(checkpoint)
    for difference, stored, current in (
        ("on another text (prepared corpus", checkpoint.corpus, prepared.fingerprint),
        (
            "with another vocabulary (SHA-256",
            vocabulary.fingerprint,
            prepared.tokenizer.fingerprint,
        ),
    ):
        if stored != current:
            raise RefusedError(
                f"{folder.path} was started {difference} {stored[:16]}, now {current[:16]}); "
                "give a new run another name="
            )
    return newest


def store_test(folder: RunFolder, stored: Config, config: Config) -> None:
    """Stores another data.test with a run that is finished, for `evaluate.py`, and names options
    that differ from the stored ones and have no effect any more.
    """
    if changed := too_late(stored, config):
        log.warning("warning  %s has no effect on a finished run", changed)
    is_stored = folder.config.exists() and stored.data.test == config.data.test
    if global_rank() == 0 and not is_stored:
        folder.write_config(replace(stored, data=replace(stored.data, test=config.data.test)))


@contextmanager
def run_lock(folder: RunFolder) -> Iterator[Callable[[], None]]:
    """Creates the run's folder and locks it for this process. Raises ConfigError if another process
    holds the lock. Removes a new folder if the run is refused before its first checkpoint.

    Yields a function to call before every write. It raises RefusedError if the path no longer leads
    to the folder and the lock that this process holds: the folder was moved or removed, and another
    run may have begun in its place.
    """
    if global_rank() != 0:  # rank 0 holds it for all
        yield lambda: None
        return
    for name in (folder.checkpoints, folder.extensions, "wandb", "tensorboard", "csv"):
        refuse_link(folder.path / name)
    # Lightning's logger empties the folder of this start, and copies of sources have folders
    for path in (*folder.extensions.rglob("*"), *(folder.path / "csv").rglob("*")):
        refuse_link(path)
    is_new = not folder.path.is_dir() or not any(folder.path.iterdir())
    with writing(folder.path, "make room, make it writable, or set another outputs="):
        folder.checkpoints.mkdir(parents=True, exist_ok=True)
        lock = _lock(folder)
    # Data loader workers outlive a kill by seconds and must not hold the lock for as long.
    os.register_at_fork(after_in_child=lock.close)
    with lock:
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {os.uname().nodename}")
        lock.flush()
        for folder_path in (folder.path, folder.checkpoints):
            checkpoint_folder.remove_leftovers(folder_path)

        def check_folder() -> None:
            if not _is_held(folder, lock):
                raise RefusedError(
                    f"{folder.path}: moved or removed while this run wrote to it, or its .lock "
                    "was; stopped, so that no other run's files are overwritten. Put the folder "
                    "back and run the same command again"
                )

        try:
            yield check_folder
        except (ConfigError, RefusedError):
            if is_new and _is_held(folder, lock) and not any(folder.checkpoints.glob("*.ckpt")):
                shutil.rmtree(folder.path)
            raise
        finally:
            with suppress(OSError):
                if _is_held(folder, lock):
                    folder.lock.unlink()
                    folder.checkpoints.rmdir()  # the folders are empty only after a refusal
                    folder.path.rmdir()


def _is_held(folder: RunFolder, lock: TextIO) -> bool:
    """Returns whether the run's path still leads to this lock file, and so to its folder."""
    try:
        return os.path.samestat(os.stat(folder.lock), os.fstat(lock.fileno()))
    except FileNotFoundError:
        return False


def _lock(folder: RunFolder) -> TextIO:
    """Returns the open, locked lock file. Raises ConfigError if another process has locked it."""
    while True:
        lock = open_unlinked(folder.lock, "a+")  # open for as long as it is locked
        if not lock_descriptor(lock.fileno(), blocking=False):
            with lock:
                lock.seek(0)
                owner = lock.read().strip() or "another process"
            raise ConfigError(f"{folder.path} is in use by {owner}; wait, or choose another name=")
        # The last owner removes the file, so the one that is locked now may no longer be at this
        # path.
        if _is_held(folder, lock):
            return lock
        lock.close()
