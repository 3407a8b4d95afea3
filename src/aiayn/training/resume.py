"""What connects the starts of one run: its folder and its configuration, and what the newest checkpoint brings back."""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import yaml
from pytorch_lightning.plugins import CheckpointIO
from pytorch_lightning.utilities import rank_zero_only

from aiayn import checkpoints
from aiayn.checkpoints import Checkpoint
from aiayn.config import Config
from aiayn.data.corpus_store import PreparedCorpus
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import ConfigError, RefusedError, ResourceError
from aiayn.files import atomic_write_text
from aiayn.options import changed_options, stored_options, to_plain

LOCK = ".lock"


@dataclass(frozen=True)
class ResumeState:
    """What an earlier start of the run left: a checkpoint and the optimizer's state that goes with it."""

    checkpoint: Checkpoint
    optimizer: dict[str, Any]


def refuse_changes(folder: Path, config: Config) -> None:
    """Raises RefusedError if an option that defines the training differs from the run's beginning."""
    path = folder / "config.yaml"
    if not path.exists():
        return
    try:
        stored = stored_options(Config, yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, AttributeError, yaml.YAMLError) as error:
        raise RefusedError(
            f"{path}: cannot be read as the run's options; remove it (its checkpoints hold them too), or choose "
            "another name="
        ) from error
    _refuse_other_options(folder, stored, config)


def _refuse_other_options(folder: Path, stored: Mapping[str, Any], config: Config) -> None:
    changed = changed_options(stored, config)
    if changed:
        diff = "; ".join(f"{key}: {values}" for key, values in changed.items())
        raise RefusedError(f"{folder} was started with other options ({diff}); give a new run another name=")


def load_resume_state(folder: Path, prepared: PreparedCorpus, config: Config) -> ResumeState | None:
    """What to continue from. Raises RefusedError if it was trained with other options, on another corpus or with

    another vocabulary, or if its steps cannot be shared among the devices.
    """
    newest = checkpoints.load_newest(folder / "checkpoints")
    if newest is None:
        return None
    checkpoint, optimizer = newest
    # The checkpoint's own: config.yaml may be gone, and weights fit into a model with other heads as well.
    _refuse_other_options(folder, to_plain(checkpoint.config), config)
    vocabulary = Tokenizer.from_json(checkpoint.tokenizer)
    for what, before, now in (
        ("on another text (prepared corpus", checkpoint.corpus, prepared.fingerprint),
        ("with another vocabulary (SHA-256", vocabulary.fingerprint, prepared.tokenizer.fingerprint),
    ):
        if before != now:
            raise RefusedError(
                f"{folder} was started {what} {before[:16]}, now {now[:16]}); give a new run another name="
            )
    parts, world_size = checkpoint.micro_batches, config.trainer.world_size
    if parts % world_size:
        counts = ", ".join(str(count) for count in range(1, parts + 1) if parts % count == 0)
        raise RefusedError(
            f"trainer.devices: the steps of {folder} have {parts} micro-batches, {world_size} devices cannot share "
            f"them evenly; use {counts}"
        )
    return ResumeState(checkpoint, optimizer)


def write_config(folder: Path, config: Config) -> None:
    if rank_zero_only.rank == 0:
        text = yaml.safe_dump(to_plain(config), sort_keys=False, allow_unicode=True)
        atomic_write_text(folder / "config.yaml", text)


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Makes the run's folder, and makes it this process' alone. Raises ConfigError if another process has it."""
    if rank_zero_only.rank != 0:  # the first rank owns it for all
        yield
        return
    try:
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        lock = _lock(folder)
    except OSError as error:
        raise ResourceError(
            f"{folder}: cannot be written ({error.strerror}); make room or make it writable, or start in another folder"
        ) from error
    # Loader processes that outlive a kill by seconds must not hold the folder for as long.
    os.register_at_fork(after_in_child=lock.close)
    with lock:
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {os.uname().nodename}")
        lock.flush()
        for place in (folder, folder / "checkpoints"):
            checkpoints.remove_leftovers(place)
        try:
            yield
        finally:
            with suppress(OSError):
                (folder / LOCK).unlink()
                (folder / "checkpoints").rmdir()  # only of a run that was refused are the folders empty
                folder.rmdir()


def _lock(folder: Path) -> TextIO:
    """The open, locked lock file. Raises ConfigError if another process has locked it."""
    while True:
        lock = open(folder / LOCK, "a+", encoding="utf-8")  # noqa: SIM115 - it is locked for as long as it is open
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            with lock:
                lock.seek(0)
                owner = lock.read().strip() or "another process"
            raise ConfigError(f"{folder} is in use by {owner}; wait, or choose another name=") from error
        # Its owner removes the file in the end: what is locked now may be a file that no one else will ever find.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock.fileno()), os.stat(folder / LOCK)):
                return lock
        lock.close()


class RunCheckpointIO(CheckpointIO):
    """Lightning's checkpoints as the files of `aiayn.checkpoints`: a model, and the optimizer's state beside it."""

    def __init__(self, config: Config, prepared: PreparedCorpus, micro_batches: int, found: ResumeState | None):
        self.config = config
        self.prepared = prepared
        self.micro_batches = micro_batches
        self.found = found

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        path = Path(path)
        weights = {name.removeprefix("model."): value.cpu() for name, value in checkpoint["state_dict"].items()}
        kept = ("optimizer_states", "lr_schedulers", "loops", "since_last_log", "skipped_steps")
        states = {key: checkpoint[key] for key in kept}
        # The checkpoint's own file comes last: with it in place, both are.
        version = checkpoint["pytorch-lightning_version"]
        checkpoints.write_sealed(
            checkpoints.optimizer_path(path), {"format": checkpoints.FORMAT, "lightning": version, **states}
        )
        checkpoints.save(
            path,
            Checkpoint(
                step=checkpoint["global_step"],
                config=self.config,
                weights=weights,
                tokenizer=self.prepared.tokenizer.to_json(),
                corpus=self.prepared.fingerprint,
                micro_batches=self.micro_batches,
                averaged=[],
            ),
        )

    def load_checkpoint(self, path: str | Path, map_location: Any = None, weights_only: bool | None = None) -> dict:
        checkpoint, states = self.found.checkpoint, self.found.optimizer
        batches = checkpoint.step * self.micro_batches // self.config.trainer.world_size
        loaded = {
            "state_dict": {f"model.{name}": value for name, value in checkpoint.weights.items()},
            "global_step": checkpoint.step,
            "epoch": 0,
            "pytorch-lightning_version": states["lightning"],
            "optimizer_states": states["optimizer_states"],
            "lr_schedulers": states["lr_schedulers"],
            "loops": _with_batches(states["loops"], batches),
            "since_last_log": states.get("since_last_log", {"loss_sum": 0.0, "tokens": 0}),
            "skipped_steps": states.get("skipped_steps", 0),
            "callbacks": {},
        }
        # Lightning loads once: whoever still holds what was found shall not hold its tensors to the end of the run.
        checkpoint.weights.clear()
        states.clear()
        return loaded

    def remove_checkpoint(self, path: str | Path) -> None:
        Path(path).unlink(missing_ok=True)


def _with_batches(loops: Mapping[str, Any], batches: int) -> dict[str, Any]:
    """Lightning's counters, with the number of micro-batches that this number of devices would have taken each."""
    fit = dict(loops["fit_loop"])
    progress = {
        part: dict(counts) for part, counts in fit["epoch_loop.batch_progress"].items() if part != "is_last_batch"
    }
    for counts in progress.values():
        counts.update({"ready": batches, "started": batches, "processed": batches, "completed": batches})
    fit["epoch_loop.batch_progress"] = {**progress, "is_last_batch": False}
    return {**loops, "fit_loop": fit}
