"""The checkpoint of a model: everything of a run except the training text, the optimizer state and
the loggers.

It holds the weights, the configuration, the tokenizer, the corpus' fingerprint and the counters, in
a torch archive of tensors and plain values with the SHA-256 of its bytes in the zip comment. A file
under its final name is therefore either complete and verified, or refused. The optimizer state is
written beside it in the same form.
"""

import contextlib
import hashlib
import json
import math
import os
import shutil
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch
from torch import Tensor, nn

from aiayn.config.extensions import STORED, file_names
from aiayn.config.resolve import RunConfig
from aiayn.config.stored import stored_config, to_dict
from aiayn.errors import ConfigError, RefusedError, one_line, writing
from aiayn.files import atomic_file, open_regular
from aiayn.runs.run_folder import (
    CHECKSUM_PREFIX,
    CHECKSUM_SIZE,
    checksum_at_end,
    is_count,
    read_checksum,
)

FORMAT = 1
MOST_NAMES = 4  # of a tensor, which is stored once; each could become a copy in memory
MOMENTS = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")  # of Adam, as torch calls them
NOT_NEGATIVE = ("exp_avg_sq", "max_exp_avg_sq", "step")


@dataclass(frozen=True)
class Checkpoint:
    """A model with everything that is needed to use it or to continue its training."""

    step: int
    config: RunConfig
    weights: dict[str, Tensor]
    tokenizer: str  # its JSON
    corpus: str  # fingerprint of the prepared corpus
    micro_batches: int  # per step, fixed at the run's first start
    averaged: list[int]  # the steps whose weights were averaged; empty for a single step
    path: Path | None = field(default=None, compare=False)  # the file that it was read from

    @property
    def vocab_size(self) -> int:
        """Returns the number of subwords of the tokenizer, including its symbols, which are not
        learned.
        """
        return _vocab_size_of(self.tokenizer)


# What a file holds of a checkpoint
CONTENTS = [name for name in Checkpoint.__dataclass_fields__ if name != "path"]


def save(path: Path, checkpoint: Checkpoint, *, kept: bool = True) -> None:
    """Writes a checkpoint file, see `write_tensors`."""
    payload = {name: getattr(checkpoint, name) for name in CONTENTS}
    write_tensors(path, payload | {"config": to_dict(checkpoint.config)}, kept=kept)


def load(path: Path, just_written: bool = False) -> Checkpoint:
    """Reads a checkpoint file, including one that a Lightning Trainer wrote for our modules.
    `just_written`: by this process and program, see `read_tensors`.

    Raises RefusedError if it is missing or damaged, or holds no model, values of wrong types or
    unknown options.
    """
    payload = None if just_written else _read_lightning(path)
    payload = payload or read_tensors(path, just_written)
    if missing := sorted(name for name in CONTENTS if payload.get(name) is None):
        raise RefusedError(
            f"{path}: not a model (it lacks {', '.join(missing)}); choose another file"
        )
    if fault := _fault_of(payload):
        raise RefusedError(f"{path}: not a model of this program ({fault}); choose another file")
    try:
        payload["config"] = stored_config(payload["config"])
    except ConfigError as error:
        raise RefusedError(
            f"{path}: {error}; it was written by another version of this program: use that one"
        ) from error
    for name, weight in payload["weights"].items():
        if weight.dtype in (torch.bfloat16, torch.float16):  # of `in_bfloat16`
            payload["weights"][name] = weight.float()
    return Checkpoint(**{name: payload[name] for name in CONTENTS}, path=path)


def _fault_of(payload: Mapping[str, Any]) -> str:
    """Returns which field differs from what `Checkpoint` declares, or an empty text. A checksum
    shows that a file is complete, not who made it.
    """
    for name in ("step", "micro_batches"):
        if not is_count(payload[name]):
            return f"{name} is not a count"
    steps, weights = payload["averaged"], payload["weights"]
    if not isinstance(steps, list) or not all(is_count(step) for step in steps):
        return "averaged is not a list of steps"
    if not isinstance(payload["corpus"], str):
        return "corpus is not a fingerprint"
    if not isinstance(weights, dict) or not all(isinstance(name, str) for name in weights):
        return "weights are not a table of tensors by name"
    for name, weight in weights.items():
        is_plain = isinstance(weight, Tensor) and weight.layout is torch.strided
        if not is_plain or weight.device.type != "cpu" or weight.is_quantized:
            return f"the weight {name:.80} is not a plain tensor"
    try:
        _vocab_size_of(payload["tokenizer"])
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return "tokenizer is not tokenizer JSON"
    return ""


def fault_of_optimizer(state: Mapping[str, Any]) -> str:
    """Returns which value would spoil the weights at the next step, or an empty text.

    Any optimizer may have any names, but torch's names for Adam's moments mean the same in all.
    """
    weights, groups = state.get("state", {}), state.get("param_groups", [])
    if not isinstance(weights, Mapping) or not isinstance(groups, list):
        return "not laid out as torch does it"
    for number, values in weights.items():
        for name, value in values.items() if isinstance(values, Mapping) else ():
            if fault := _fault_of_value(name, value):
                return f"{name} of weight {number} {fault}"
    for group in groups:
        for name, value in group.items() if isinstance(group, Mapping) else ():
            if isinstance(value, float) and math.isnan(value):
                return f"{name} is NaN"
    return ""


def _fault_of_value(name: str, value: Any) -> str:
    if not isinstance(value, Tensor | int | float):
        return ""
    numbers = torch.as_tensor(value)
    if name in MOMENTS and not (numbers.is_floating_point() or numbers.itemsize == 1):  # quantised
        return f"has the type {numbers.dtype}"
    if numbers.is_complex():
        numbers = torch.view_as_real(numbers)
    if numbers.numel() and (numbers.dim() or name in NOT_NEGATIVE):
        # In one pass; float8 cannot be compared
        extremes = (numbers.float() if numbers.itemsize < 4 else numbers).aminmax()
        if not all(extreme.isfinite() for extreme in extremes):
            return "is not finite"
        if name in NOT_NEGATIVE and extremes.min < 0:
            return "is negative"
    return ""


def _vocab_size_of(tokenizer: str) -> int:
    fields = json.loads(tokenizer)
    added = fields.get("added_tokens", [])
    return len(fields["model"]["vocab"]) + sum(not token["special"] for token in added)


def _read_lightning(path: Path) -> dict[str, Any] | None:
    """Returns the fields of a checkpoint that Lightning's ModelCheckpoint wrote, without a
    checksum; None for others.

    Raises RefusedError if it lacks the fields that only our data module adds.
    """
    checkpoint: Any = None
    with contextlib.suppress(Exception):  # missing, or no file of tensors
        if not read_checksum(path):
            with open_regular(path) as file:
                checkpoint = load_archive(file, path)
    if not isinstance(checkpoint, dict) or "pytorch-lightning_version" not in checkpoint:
        return None
    options, state = checkpoint.get("hyper_parameters"), checkpoint.get("state_dict")
    if not (isinstance(options, dict) and isinstance(state, dict) and "tokenizer" in checkpoint):
        raise RefusedError(
            f"{path}: a checkpoint of Lightning without options or tokenizer; train with "
            "TranslationModule and, as `datamodule`, TranslationDataModule, or read it with "
            "TranslationModule.load_from_checkpoint"
        )
    return {
        **{name: checkpoint.get(name) for name in ("tokenizer", "corpus", "micro_batches")},
        "step": checkpoint.get("global_step"),
        "averaged": [],
        "config": options.get("config"),
        "weights": {
            name.removeprefix("model."): weight
            for name, weight in state.items()
            if name.startswith("model.")
        },
    }


def write_tensors(path: Path, payload: Mapping[str, Any], *, kept: bool = True) -> None:
    """Writes tensors and plain values so that `path` is never incomplete, even after a kill or a
    power cut.

    Not `kept`: for this process, which reads it at once with `just_written` and removes it; without
    a checksum, and not flushed to the disk. Raises ResourceError if the disk is full; an earlier
    file under `path` is then still there.
    """
    payload = {"format": FORMAT, **payload}
    size = n_bytes(payload)
    with writing_checkpoint(path, size), atomic_file(path, flushed=kept) as file:
        pieces = _Pieces(file, hashed=kept)
        torch.save(payload, cast(BinaryIO, pieces))  # which calls write and flush only
        if pieces.error:
            raise pieces.error
        if pieces.digest:
            file.seek(-2, os.SEEK_END)
            file.write(struct.pack("<H", CHECKSUM_SIZE))  # the length of the zip comment
            file.write(CHECKSUM_PREFIX + pieces.digest.hexdigest().encode())


class _Pieces:
    """The file that torch writes an archive to. It hashes and writes each piece, so that no second
    copy is in memory.
    """

    def __init__(self, file: BinaryIO, hashed: bool):
        self._file, self.digest = file, hashlib.sha256() if hashed else None
        # A disk error, which torch would replace by one of its own
        self.error: OSError | None = None

    def write(self, chunk: bytes) -> int:
        if self.digest:
            self.digest.update(chunk)
        try:
            if not self.error:
                self._file.write(chunk)
        except OSError as error:
            self.error = error
        return len(chunk)

    def flush(self) -> None:
        """Does nothing, though torch calls it at the end: the file is flushed when it is
        complete.
        """


def write_outline(path: Path, payload: Mapping[str, Any]) -> None:
    """Writes what `write_tensors` would, but holes in the place of values: in no time, to see
    whether it can be read.
    """
    with torch.serialization.skip_data():
        torch.save({"format": FORMAT, **payload}, path)


def n_bytes(payload: Any) -> int:
    """Returns the size of all tensors in tables and lists at any depth, in memory after each has
    been copied.
    """
    size, pending, seen = 0, [payload], set[int]()
    while pending:
        value = pending.pop()
        if isinstance(value, Tensor):
            size += value.numel() * value.itemsize
        elif isinstance(value, Mapping | list | tuple) and id(value) not in seen:
            seen.add(id(value))  # a file may hold a list that contains itself
            pending += value.values() if isinstance(value, Mapping) else value
    return size


def writing_checkpoint(path: Path, size: int) -> contextlib.AbstractContextManager[None]:
    """Turns an OSError while `size` bytes are written into a ResourceError that names the needed
    and the free space.
    """
    sizes = f"{size / 1e6:.1f} MB are needed"
    with contextlib.suppress(OSError):
        sizes += f", {shutil.disk_usage(path.parent).free / 1e6:.1f} MB are free"
    return writing(
        path, f"{sizes}, earlier checkpoints are intact; make room and run the same command again"
    )


def read_tensors(path: Path, just_written: bool = False) -> dict[str, Any]:
    """Reads what `write_tensors` wrote, onto the CPU. Raises RefusedError if it is missing or
    damaged, or needs much more memory than its size.

    `just_written`: by this process; the file is mapped into memory and not compared with its
    checksum, both of which take seconds for a large one.
    """
    try:
        with open_regular(path) as file:
            if not just_written:
                _verify(file, path)
            payload = load_archive(file, path, just_written)
    except OSError as error:
        raise RefusedError(f"{path}: cannot be read ({error.strerror})") from error
    except RefusedError:
        raise
    except Exception as error:  # torch.load raises many types on unexpected bytes
        raise RefusedError(
            f"{path}: not a checkpoint of this program (more than tensors and values); choose a "
            "file of a run's checkpoints/"
        ) from error
    if not isinstance(payload, dict):
        raise RefusedError(
            f"{path}: not a checkpoint of this program; choose a file of a run's checkpoints/"
        )
    if (written := payload.get("format")) != FORMAT:
        raise RefusedError(
            f"{path}: written in format {written}, this program reads format {FORMAT}; use the "
            "version that wrote it, or train again"
        )
    return payload


def load_archive(file: BinaryIO, path: Path, mapped: bool = False) -> Any:
    """Loads a torch archive onto the CPU, without running its code. `mapped`: the tensors are read
    from the file at `path` when they are used.

    Raises RefusedError if it needs much more memory than its size: by compression, or by tensors
    that repeat a few values.
    """
    size = file.seek(0, os.SEEK_END)
    with zipfile.ZipFile(file) as archive:
        _refuse_larger(path, sum(entry.file_size for entry in archive.infolist()), size)
    file.seek(0)
    source = path if mapped else file
    payload = torch.load(source, map_location="cpu", weights_only=True, mmap=mapped)
    _refuse_larger(path, n_bytes(payload), size)
    return payload


def _refuse_larger(path: Path, memory: int, size: int) -> None:
    if memory > MOST_NAMES * size:
        raise RefusedError(
            f"{path}: not a checkpoint of this program ({size / 1e6:,.1f} MB that would take "
            f"{memory / 1e6:,.1f} MB of memory); choose another file"
        )


def _verify(file: BinaryIO, path: Path) -> None:
    """Raises RefusedError unless the file ends with the checksum of what comes before."""
    stored, left = checksum_at_end(file), file.seek(0, os.SEEK_END) - CHECKSUM_SIZE - 2
    if not stored:
        raise RefusedError(
            f"{path}: damaged or not a checkpoint of this program (no checksum at its end); copy "
            "it again, or choose another"
        )
    digest = hashlib.sha256()
    file.seek(0)
    while left and (block := file.read(min(left, 1 << 20))):
        digest.update(block)
        left -= len(block)
    digest.update(b"\0\0")  # the length of a comment, before there was one
    if file.read(2) != struct.pack("<H", CHECKSUM_SIZE) or digest.hexdigest() != stored:
        raise RefusedError(
            f"{path}: damaged (its checksum does not match its content); copy it again, or choose "
            "another checkpoint"
        )


def in_bfloat16(checkpoint: Checkpoint) -> Checkpoint:
    """Returns the checkpoint with weights rounded to bfloat16, for a file of half the size."""
    rounded = {
        name: weight.bfloat16()
        for name, weight in checkpoint.weights.items()
        if weight.is_floating_point()
    }
    return replace(checkpoint, weights=checkpoint.weights | rounded)


def restore(model: nn.Module, checkpoint: Checkpoint) -> None:
    """Loads the weights into a model. Raises RefusedError if the model is not the one that was
    saved.
    """
    try:
        for name, weight in model.state_dict().items():
            # torch would cut the imaginary parts off, and the digits after the point
            if name in checkpoint.weights and _number(weight) != _number(checkpoint.weights[name]):
                dtype = checkpoint.weights[name].dtype
                raise RuntimeError(f"{name} has the type {dtype} instead of {weight.dtype}")
        model.load_state_dict(checkpoint.weights, strict=True)
    except RuntimeError as error:
        reason = "use the version of this program that wrote it"
        if files := file_names(checkpoint.config.model.parts):
            reason = (
                f"it was trained with another {', '.join(files)}; --extension {STORED} or "
                f"extensions=[{STORED}] runs the run's copy"
            )
        raise RefusedError(
            f"the checkpoint of step {checkpoint.step} does not fit the model of its own "
            f"configuration: {one_line(error)}; {reason}"
        ) from error


def _number(weight: Any) -> tuple[bool, bool] | None:
    """Returns what a conversion of types must keep of a weight."""
    is_tensor = isinstance(weight, Tensor)
    return (weight.is_floating_point(), weight.is_complex()) if is_tensor else None


def average(checkpoints: list[Checkpoint]) -> Checkpoint:
    """Returns the newest checkpoint with the arithmetic mean of all weights, summed in float64
    (section 6.1).

    What is no floating-point number, such as a counter, stays the newest's.

    Raises RefusedError if the checkpoints are not of one model.
    """
    newest = checkpoints[-1]
    for other in checkpoints[:-1]:
        if (other.config.model, other.tokenizer) != (newest.config.model, newest.tokenizer):
            raise RefusedError(
                f"the checkpoints of steps {other.step} and {newest.step} have different models or "
                "tokenizers; remove those that are not of this run"
            )
    weights = dict(newest.weights)
    for name, tensor in newest.weights.items():
        if tensor.is_floating_point():
            total = torch.zeros_like(tensor, dtype=torch.float64)
            for checkpoint in checkpoints:
                total += checkpoint.weights[name]
            weights[name] = (total / len(checkpoints)).to(tensor.dtype)
    return replace(
        newest,
        weights=weights,
        averaged=[checkpoint.step for checkpoint in checkpoints],
        path=None,
    )
