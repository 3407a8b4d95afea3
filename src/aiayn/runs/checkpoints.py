"""Checkpoints: complete, verified, and holding everything of a run but the training text.

`step_N.ckpt` holds the weights, the configuration, the tokenizer, the corpus' fingerprint and the counters.
`step_N.optim` beside some of them holds the optimizer state, which only training needs; the newest two are kept.
`last.ckpt` is the newest step, `best.ckpt` that of the best validation, `averaged.ckpt` the mean of the last few
(section 6.1).

Every file is sealed: a torch archive of tensors and plain values with the SHA-256 of its bytes in the zip comment.
A file under its final name is therefore either whole and verified, or refused.
"""

import contextlib
import hashlib
import logging
import os
import shutil
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch
from torch import Tensor, nn

from aiayn.config.model import ModelConfig
from aiayn.config.schema import Config
from aiayn.config.stored import stored_config, to_plain
from aiayn.errors import ConfigError, RefusedError, writing
from aiayn.files import atomic_file, atomic_write, fsync_folder
from aiayn.runs.run_folder import MARK, SEAL_SIZE, is_count, read_seal, saved_steps

log = logging.getLogger(__name__)

FORMAT = 1
END_RECORD = b"PK\x05\x06"  # begins the last 22 bytes of a zip archive without comment


def write_sealed(path: Path, payload: Mapping[str, Any]) -> None:
    """Writes tensors and plain values so that `path` is never incomplete, even after a kill or a power cut.

    Raises ResourceError if the disk is full; an earlier file under `path` is then still there.
    """
    with (
        _writing(path, sum(tensor.numel() * tensor.itemsize for tensor in _tensors(payload))),
        atomic_file(path) as file,
    ):
        hashed = _HashedFile(file)
        torch.save(dict(payload), cast(BinaryIO, hashed))  # which calls write and flush only
        if hashed.error:
            raise hashed.error
        file.seek(-2, os.SEEK_END)
        file.write(struct.pack("<H", SEAL_SIZE))  # the length of the zip comment
        file.write(MARK + hashed.digest.hexdigest().encode())


class _HashedFile:
    """What torch writes an archive to: each piece is hashed and written, so that no second copy is in memory."""

    def __init__(self, file: BinaryIO):
        self._file, self.digest = file, hashlib.sha256()
        self.error: OSError | None = None  # a disk error, which torch would replace by one of its own

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        try:
            if not self.error:
                self._file.write(data)
        except OSError as error:
            self.error = error
        return len(data)

    def flush(self) -> None:
        """torch asks for it at the end; the file is flushed when it is complete."""


def _tensors(payload: Any) -> Iterator[Tensor]:
    if isinstance(payload, Tensor):
        yield payload
    elif isinstance(payload, Mapping):
        for value in payload.values():
            yield from _tensors(value)
    elif isinstance(payload, list | tuple):
        for value in payload:
            yield from _tensors(value)


def _writing(path: Path, size: int) -> contextlib.AbstractContextManager[None]:
    sizes = f"{size / 1e6:.1f} MB are needed"
    with contextlib.suppress(OSError):
        sizes += f", {shutil.disk_usage(path.parent).free / 1e6:.1f} MB are free"
    return writing(path, f"{sizes}, earlier checkpoints are intact; make room and run the same command again")


def read_sealed(path: Path) -> dict[str, Any]:
    """Reads what `write_sealed` wrote, onto the CPU. Raises RefusedError if it is missing or damaged."""
    try:
        with open(path, "rb") as file:
            _verify(file, path)
            payload = _loaded(file, path)
    except OSError as error:
        raise RefusedError(f"{path}: cannot be read ({error.strerror})") from error
    if not isinstance(payload, dict):
        raise RefusedError(f"{path}: not a checkpoint of this program")
    written = payload.get("format")
    if type(written) is not int or written != FORMAT:
        raise RefusedError(
            f"{path}: written in format {' '.join(f'{written}'.split()):.80}, this program reads format {FORMAT}"
        )
    return payload


def _verify(file: BinaryIO, path: Path) -> None:
    """Raises RefusedError unless the file ends with the checksum of what comes before."""
    size = file.seek(0, os.SEEK_END) - SEAL_SIZE  # length of the archive
    file.seek(max(0, size - 22))
    end, seal = file.read(22), file.read()
    if not seal.startswith(MARK) or end[:4] != END_RECORD or end[-2:] != struct.pack("<H", SEAL_SIZE):
        raise RefusedError(f"{path}: damaged or not a checkpoint of this program (no checksum at its end)")
    digest, left = hashlib.sha256(), size - 2
    file.seek(0)
    while left and (block := file.read(min(left, 1 << 20))):
        digest.update(block)
        left -= len(block)
    digest.update(b"\0\0")  # the length of a comment, before there was one
    if MARK + digest.hexdigest().encode() != seal:
        raise RefusedError(f"{path}: damaged (its checksum does not match its content)")


def _loaded(file: BinaryIO, path: Path) -> Any:
    """Returns the payload, read from the disk into its tensors."""
    file.seek(0)
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises many types on unexpected bytes
        raise RefusedError(f"{path}: not a checkpoint of this program (more than tensors and values)") from error


@dataclass(frozen=True)
class Checkpoint:
    """A model and all that is needed to use it or to continue its training."""

    step: int
    config: Config
    weights: dict[str, Tensor]
    tokenizer: str  # its JSON
    corpus: str  # fingerprint of the prepared corpus
    micro_batches: int  # per step, fixed at the run's first start
    averaged: list[int]  # the steps whose weights were averaged; empty for a single step

    @property
    def vocab_size(self) -> int:
        return len(self.weights["embedding.weight"])


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Writes a checkpoint file. Raises ResourceError if the disk is full."""
    write_sealed(path, {"format": FORMAT, **vars(checkpoint), "config": to_plain(checkpoint.config)})


def _are_weights(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and all(isinstance(name, str) and isinstance(weight, Tensor) for name, weight in value.items())
        # A tensor that is not contiguous may have more elements than its file has bytes.
        and all(w.layout == torch.strided and w.is_floating_point() and w.is_contiguous() for w in value.values())
        and value.get("embedding.weight", torch.empty(0)).dim() == 2
    )


# What each field must be, besides `config`, whose types and ranges are those of `aiayn.config`. A checksum
# only says that the bytes are those that were written, not by whom.
FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "step": (is_count, "a number of steps"),
    "weights": (_are_weights, "names with dense tensors, embedding.weight among them"),
    "tokenizer": (lambda value: isinstance(value, str), "JSON text"),
    "corpus": (lambda value: isinstance(value, str), "a fingerprint"),
    "micro_batches": (lambda value: is_count(value) and value > 0, "a number above 0"),
    "averaged": (lambda value: isinstance(value, list) and all(map(is_count, value)), "a list of steps"),
}


def load(path: Path) -> Checkpoint:
    """Reads a checkpoint file, also one that a Lightning Trainer has written of our modules.

    Raises RefusedError if it is missing or damaged, or if a field is of another kind.
    """
    payload = _read_lightning(path) or read_sealed(path)
    names = Checkpoint.__dataclass_fields__
    if not set(names) <= set(payload):
        raise RefusedError(f"{path}: not a model (it lacks {', '.join(sorted(set(names) - set(payload)))})")
    for name, (is_valid, expected) in FIELDS.items():
        if not is_valid(payload[name]):
            raise RefusedError(f"{path}: not a model of this program ({name} is not {expected})")
    try:
        payload["config"] = stored_config(payload["config"])
    except ConfigError as error:
        reason = " ".join(str(error).split())
        raise RefusedError(f"{path}: {reason}; it was written by another version of this program") from error
    if not _may_fit(payload["config"].model, payload["weights"]):
        raise RefusedError(f"{path}: not a model of this program (its weights are too few for config.model)")
    payload["weights"] = {name: _as_float(weight) for name, weight in payload["weights"].items()}
    return Checkpoint(**{name: payload[name] for name in names})


def _read_lightning(path: Path) -> dict[str, Any] | None:
    """Returns the fields of a checkpoint that Lightning's own ModelCheckpoint wrote, without a seal; None for others.

    Raises RefusedError if it lacks what only our data module puts into it.
    """
    try:
        found = None if read_seal(path) else torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # `read_sealed` says what is wrong
        return None
    if not isinstance(found, dict) or "pytorch-lightning_version" not in found:
        return None
    options, state = found.get("hyper_parameters"), found.get("state_dict")
    if not isinstance(options, dict) or not isinstance(state, dict) or "tokenizer" not in found:
        raise RefusedError(
            f"{path}: a checkpoint of Lightning without options or tokenizer; train with TranslationModule and, as "
            "`datamodule`, TranslationDataModule, or read it with TranslationModule.load_from_checkpoint"
        )
    weights = {name.removeprefix("model."): value for name, value in state.items() if name.startswith("model.")}
    fields = {name: found.get(name) for name in ("tokenizer", "corpus", "micro_batches")}
    step = {"step": found.get("global_step"), "averaged": []}
    return {"format": FORMAT, "config": options.get("config"), "weights": weights} | fields | step


def _may_fit(model: ModelConfig, weights: Mapping[str, Tensor]) -> bool:
    """False for sizes so large that building the model, before `restore` can compare it, would fill the memory."""
    widest = max(model.d_ff, model.n_heads * model.d_k, model.n_heads * model.d_v)
    positions = model.max_positions if model.positions == "learned" else 0
    needed = (model.n_layers * widest + positions) * model.d_model
    return needed <= sum(weight.numel() for weight in weights.values())


def _as_float(weight: Tensor) -> Tensor:
    """A weight of a packed file, or of a training in bfloat16, as float32; one of float64 as it is."""
    return weight if weight.dtype == torch.float64 else weight.float()


def in_bfloat16(checkpoint: Checkpoint) -> Checkpoint:
    """Returns the checkpoint with rounded weights, of which `save` makes half as large a file."""
    weights = {name: weight.to(torch.bfloat16) for name, weight in checkpoint.weights.items()}
    return replace(checkpoint, weights=weights)


def restore(model: nn.Module, checkpoint: Checkpoint) -> None:
    """Loads the weights into a model. Raises RefusedError if the model is not the one that was saved."""
    try:
        model.load_state_dict(checkpoint.weights, strict=True)
    except RuntimeError as error:
        raise RefusedError(
            f"the checkpoint of step {checkpoint.step} does not fit the model of its own configuration: "
            f"{' '.join(str(error).split())[:300]}; it was written by another version of this program"
        ) from error


def step_path(folder: Path, step: int) -> Path:
    return folder / f"step_{step}.ckpt"


def optimizer_path(checkpoint: Path) -> Path:
    """Returns where the optimizer state of a checkpoint is."""
    return checkpoint.with_suffix(".optim")


def load_newest(folder: Path) -> tuple[Checkpoint, dict[str, Any]] | None:
    """Returns the newest undamaged checkpoint that has an optimizer state, and both; warns of damaged ones.

    Returns None if there is no checkpoint at all. Raises RefusedError if all are damaged or without that state.
    """
    found = saved_steps(folder)
    complete = _with_optimizer(folder, found)
    for step in reversed(complete):
        path = step_path(folder, step)
        try:
            return load(path), read_sealed(optimizer_path(path))
        except RefusedError as error:
            log.warning("warning: %s; trying the one before", error)
    if complete:
        raise RefusedError(f"{folder}: all checkpoints are damaged; remove the folder or choose another name=")
    if found:
        raise RefusedError(
            f"{folder}: no checkpoint has its optimizer state, such as step_{found[-1]}.optim, beside it; put it "
            "back, or begin another run from the weights with init_from= and name="
        )
    return None


def _with_optimizer(folder: Path, steps: list[int]) -> list[int]:
    return [step for step in steps if optimizer_path(step_path(folder, step)).exists()]


def update_last(folder: Path, step: int) -> None:
    """Makes `last.ckpt` the checkpoint of `step`, atomically. Raises ResourceError if the disk is full."""
    _link(folder, step, "last.ckpt")


def update_best(folder: Path, step: int) -> None:
    """Makes `best.ckpt` the checkpoint of `step`, as `update_last` does."""
    _link(folder, step, "best.ckpt")


def _link(folder: Path, step: int, name: str) -> None:
    temporary = folder / f".{name}.{os.getpid()}.part"
    temporary.unlink(missing_ok=True)
    try:
        os.link(step_path(folder, step), temporary)
    except OSError:  # a file system without hard links
        content = step_path(folder, step).read_bytes()
        with _writing(folder / name, len(content)):
            atomic_write(folder / name, content)
        return
    os.replace(temporary, folder / name)
    temporary.unlink(missing_ok=True)  # a rename between two names of one file does nothing
    fsync_folder(folder)


def set_aside_average(folder: Path) -> None:
    """Renames the average of a finished run that is trained further to `averaged_N.ckpt`, N its step.

    As `averaged.ckpt` it would be taken for the average of the longer training.
    """
    path = folder / "averaged.ckpt"
    if path.exists():
        with contextlib.suppress(RefusedError):
            os.replace(path, folder / f"averaged_{load(path).step}.ckpt")
        path.unlink(missing_ok=True)  # a damaged one
        fsync_folder(folder)


def prune(folder: Path, keep: Collection[int]) -> None:
    """Removes checkpoints but for the steps to keep, the newest two, and the newest two with an optimizer state.

    All other optimizer states are removed, too.
    """
    found = saved_steps(folder)
    resumable = _with_optimizer(folder, found)[-2:]
    for step in found:
        if step not in resumable:
            optimizer_path(step_path(folder, step)).unlink(missing_ok=True)
            if step not in keep and step not in found[-2:]:
                step_path(folder, step).unlink(missing_ok=True)


def remove_after(folder: Path, step: int) -> None:
    """Removes the checkpoints after `step`, from which training goes on: it computes them anew.

    Otherwise one of them, with weights that were rounded by other hardware, could get an optimizer state of this start.
    """
    later = [other for other in saved_steps(folder) if other > step]
    if later and step_path(folder, step).exists():
        update_last(folder, step)
        for other in later:
            step_path(folder, other).unlink(missing_ok=True)
            optimizer_path(step_path(folder, other)).unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Removes what interrupted writes left behind. Only the process that holds the run's lock may call it."""
    for orphan in folder.glob(".*.part"):
        orphan.unlink(missing_ok=True)
    for state in folder.glob("step_*.optim"):
        if not state.with_suffix(".ckpt").exists():
            state.unlink(missing_ok=True)


def average(checkpoints: list[Checkpoint]) -> Checkpoint:
    """Returns the newest checkpoint with the arithmetic mean of all weights, summed in float64 (section 6.1).

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
    return replace(newest, weights=weights, averaged=[checkpoint.step for checkpoint in checkpoints])
