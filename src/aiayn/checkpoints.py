"""The run's memory: checkpoints that are complete, verified, and hold everything but the training text.

`checkpoints/step_N.ckpt` holds the weights with what gives them meaning: the configuration, the tokenizer, the corpus'
fingerprint and the counters. `step_N.optim` beside it holds what only the next training step needs, and is kept for the
newest two. `last.ckpt` is the newest step; `averaged.ckpt` is the mean of the last ones (section 6.1).

Every file is an ordinary torch archive of tensors and plain values. The SHA-256 of its bytes stands in the archive's
own comment field, so that one file under its final name is either whole and verified, or refused.
"""

import contextlib
import hashlib
import logging
import os
import shutil
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aiayn.config import Config
from aiayn.errors import ConfigError, RefusedError, ResourceError
from aiayn.files import atomic_write, fsync_folder
from aiayn.options import from_plain, to_plain

log = logging.getLogger(__name__)

FORMAT = 1
END_RECORD = b"PK\x05\x06"  # the last 22 bytes of an archive without comment
MARK = b"sha256:"
SEAL_SIZE = len(MARK) + 64


def write_sealed(path: Path, payload: Mapping[str, Any]) -> None:
    """Writes tensors and plain values so that `path` is never incomplete, whatever happens and whenever.

    Raises ResourceError where the disk is full; what stood under `path` before is then still there.
    """
    buffer = BytesIO()
    torch.save(dict(payload), buffer)
    archive = buffer.getbuffer()
    seal = MARK + hashlib.sha256(archive).hexdigest().encode()
    archive[-2:] = struct.pack("<H", len(seal))  # the length of the comment that follows
    try:
        atomic_write(path, archive, seal)
    except OSError as error:
        raise _cannot_write(path, error, len(archive) + SEAL_SIZE) from error


def _cannot_write(path: Path, error: OSError, size: int) -> ResourceError:
    free = ""
    with contextlib.suppress(OSError):
        free = f", {shutil.disk_usage(path.parent).free / 1e6:.1f} MB are free"
    return ResourceError(
        f"{path}: cannot be written ({error.strerror}); {size / 1e6:.1f} MB are needed{free}, "
        "earlier checkpoints are intact; make room and run the same command again"
    )


def read_sealed(path: Path) -> dict[str, Any]:
    """Reads a file of `write_sealed` onto the CPU. Raises RefusedError if it is missing, damaged, or no such file."""
    try:
        stored = bytearray(path.read_bytes())
    except OSError as error:
        raise RefusedError(f"{path}: cannot be read ({error.strerror})") from error
    archive, seal = stored[:-SEAL_SIZE], bytes(stored[-SEAL_SIZE:])
    if not seal.startswith(MARK) or archive[-22:-18] != END_RECORD or archive[-2:] != struct.pack("<H", SEAL_SIZE):
        raise RefusedError(f"{path}: damaged or not a checkpoint of this program (no checksum at its end)")
    archive[-2:] = b"\0\0"
    if MARK + hashlib.sha256(archive).hexdigest().encode() != seal:
        raise RefusedError(f"{path}: damaged (its checksum does not match its content)")
    try:
        payload = torch.load(BytesIO(archive), map_location="cpu", weights_only=True)
    except Exception as error:  # torch's reader of untrusted bytes raises whatever it stumbles over
        raise RefusedError(f"{path}: not a checkpoint of this program (more than tensors and values)") from error
    if not isinstance(payload, dict):
        raise RefusedError(f"{path}: not a checkpoint of this program")
    if payload.get("format") != FORMAT:
        raise RefusedError(f"{path}: written in format {payload.get('format')}, this program reads format {FORMAT}")
    return payload


@dataclass(frozen=True)
class Checkpoint:
    """A model and all that is needed to use it or to go on training it."""

    step: int
    config: Config
    weights: dict[str, Tensor]
    tokenizer: str  # its JSON
    corpus: str  # fingerprint of the prepared corpus
    micro_batches: int  # parts of a step, fixed at the run's first start
    averaged: list[int]  # the steps whose weights were averaged; empty: none were

    @property
    def vocab_size(self) -> int:
        return len(self.weights["embedding.weight"])


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Writes a checkpoint file. Raises ResourceError where it cannot be written."""
    write_sealed(path, {"format": FORMAT, **vars(checkpoint), "config": to_plain(checkpoint.config)})


def load(path: Path) -> Checkpoint:
    """Reads a checkpoint file. Raises RefusedError if it is missing or damaged."""
    payload = read_sealed(path)
    names = Checkpoint.__dataclass_fields__
    if not set(names) <= set(payload):
        raise RefusedError(f"{path}: not a model (it lacks {', '.join(sorted(set(names) - set(payload)))})")
    try:
        payload["config"] = from_plain(Config, payload["config"])
    except ConfigError as error:
        raise RefusedError(f"{path}: {error}; it was written by another version of this program") from error
    return Checkpoint(**{name: payload[name] for name in names})


def restore(model: nn.Module, checkpoint: Checkpoint) -> None:
    """Puts the checkpoint's weights into the model that its configuration describes. Raises RefusedError otherwise."""
    try:
        model.load_state_dict(checkpoint.weights, strict=True)
    except RuntimeError as error:
        raise RefusedError(
            f"the checkpoint of step {checkpoint.step} does not fit the model of its own configuration: "
            f"{' '.join(str(error).split())[:300]}; it was written by another version of this program"
        ) from error


def saved_steps(folder: Path) -> list[int]:
    """Steps of the checkpoints in a folder, oldest first."""
    numbers = (path.stem.removeprefix("step_") for path in folder.glob("step_*.ckpt"))
    return sorted(int(number) for number in numbers if number.isdigit())


def step_path(folder: Path, step: int) -> Path:
    return folder / f"step_{step}.ckpt"


def optimizer_path(checkpoint: Path) -> Path:
    """Where the state lies that goes with a checkpoint and only training needs."""
    return checkpoint.with_suffix(".optim")


def load_newest(folder: Path) -> tuple[Checkpoint, dict[str, Any]] | None:
    """The newest checkpoint that is whole, with its optimizer state; damaged ones are passed over with a warning.

    Returns None where there is no checkpoint at all. Raises RefusedError if there are some and none is whole.
    """
    found = saved_steps(folder)
    for step in reversed(found):
        path = step_path(folder, step)
        try:
            return load(path), read_sealed(optimizer_path(path))
        except RefusedError as error:
            log.warning("warning: %s; trying the one before", error)
    if found:
        raise RefusedError(
            f"{folder}: no checkpoint is whole enough to continue from; remove the folder or choose another name="
        )
    return None


def update_last(folder: Path, step: int) -> None:
    """Makes `last.ckpt` the checkpoint of `step`, in one instant. Raises ResourceError where the disk is full."""
    temporary = folder / f".last.ckpt.{os.getpid()}.part"
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    try:
        os.link(step_path(folder, step), temporary)
    except OSError:  # a file system without hard links
        content = step_path(folder, step).read_bytes()
        try:
            atomic_write(folder / "last.ckpt", content)
        except OSError as error:
            raise _cannot_write(folder / "last.ckpt", error, len(content)) from error
        return
    os.replace(temporary, folder / "last.ckpt")
    temporary.unlink(missing_ok=True)  # a rename between two names of one file does nothing
    fsync_folder(folder)


def set_aside_average(folder: Path) -> None:
    """Gives the average of a finished run that goes on a name that says what it is: `averaged_N.ckpt`, N its step.

    Then nothing takes it for the average of what the run has become since.
    """
    path = folder / "averaged.ckpt"
    if path.exists():
        with contextlib.suppress(RefusedError):
            os.replace(path, folder / f"averaged_{load(path).step}.ckpt")
        path.unlink(missing_ok=True)  # a damaged one
        fsync_folder(folder)


def prune(folder: Path, keep: Collection[int]) -> None:
    """Removes all checkpoints but those of the steps to keep and the newest two; only these have optimizer states."""
    found = saved_steps(folder)
    for step in found[:-2]:
        optimizer_path(step_path(folder, step)).unlink(missing_ok=True)
        if step not in keep:
            step_path(folder, step).unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Removes what interrupted writes left behind; only the process that owns the run may call it."""
    for orphan in folder.glob(".*.part"):
        orphan.unlink(missing_ok=True)
    for state in folder.glob("step_*.optim"):
        if not state.with_suffix(".ckpt").exists():
            state.unlink(missing_ok=True)


def average(checkpoints: list[Checkpoint]) -> Checkpoint:
    """The arithmetic mean of the weights, summed in float64 (section 6.1); everything else is the newest one's.

    Raises RefusedError if the checkpoints are not of one model.
    """
    newest = checkpoints[-1]
    for other in checkpoints[:-1]:
        if (other.config.model, other.tokenizer) != (newest.config.model, newest.tokenizer):
            raise RefusedError(f"the checkpoints of steps {other.step} and {newest.step} are not of one model")
    weights = {}
    for name, tensor in newest.weights.items():
        total = torch.zeros_like(tensor, dtype=torch.float64)
        for checkpoint in checkpoints:
            total += checkpoint.weights[name]
        weights[name] = (total / len(checkpoints)).to(tensor.dtype)
    merged = vars(newest) | {"weights": weights, "averaged": [checkpoint.step for checkpoint in checkpoints]}
    return Checkpoint(**merged)


def find_checkpoint(run: Path, checkpoint: str | None) -> Path:
    """The checkpoint file meant by `averaged`, `last`, a path, or None: averaged where there is one, else last.

    Raises RefusedError if there is no such run or file.
    """
    folder = run / "checkpoints"
    if not folder.is_dir():
        raise RefusedError(f"{run}: not a run (it has no checkpoints/)")
    if checkpoint is None:
        checkpoint = "averaged" if (folder / "averaged.ckpt").exists() else "last"
    path = folder / f"{checkpoint}.ckpt" if checkpoint in ("averaged", "last") else Path(checkpoint)
    if not path.is_file():
        raise RefusedError(f"{path}: there is no such checkpoint")
    return path
