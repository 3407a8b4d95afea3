"""The checkpoint of a model: everything of a run except the training text, the optimizer state and
the loggers.

It holds the weights, the configuration, the tokenizer, the corpus' fingerprint and the counters.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aiayn.config.resolve import RunConfig
from aiayn.config.rules import MAX_COUNT
from aiayn.config.stored import stored_config, to_dict
from aiayn.errors import ConfigError, RefusedError
from aiayn.runs import tensor_files
from aiayn.runs.tensor_files import FORMAT


@dataclass(frozen=True)
class Checkpoint:
    """A model and all that is needed to use it or to continue its training."""

    step: int
    config: RunConfig
    weights: dict[str, Tensor]
    tokenizer: str  # its JSON
    corpus: str  # fingerprint of the prepared corpus
    micro_batches: int  # per step, fixed at the run's first start
    averaged: list[int]  # the steps whose weights were averaged; empty for a single step

    @property
    def vocab_size(self) -> int:
        """Returns the number of subwords of the tokenizer, with its symbols, which are not
        learned.
        """
        return _vocab_size_of(self.tokenizer)


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Writes a checkpoint file. Raises ResourceError if the disk is full."""
    tensor_files.write_tensors(
        path, {"format": FORMAT, **vars(checkpoint), "config": to_dict(checkpoint.config)}
    )


def load(path: Path) -> Checkpoint:
    """Reads a checkpoint file, also one that a Lightning Trainer has written of our modules.

    Raises RefusedError if it is missing or damaged, holds no model, values of other types, or
    options that this program does not know.
    """
    try:
        payload = tensor_files.read_tensors(path)
    except RefusedError:
        from aiayn.runs.lightning_checkpoint import read_lightning

        payload = read_lightning(path)
        if payload is None:
            raise
    names = Checkpoint.__dataclass_fields__
    if missing := sorted(name for name in names if payload.get(name) is None):
        raise RefusedError(f"{path}: not a model (it lacks {', '.join(missing)})")
    if fault := _fault_of(payload):
        raise RefusedError(f"{path}: not a model of this program ({fault}); choose another file")
    try:
        payload["config"] = stored_config(payload["config"])
    except ConfigError as error:
        reason = " ".join(str(error).split())
        raise RefusedError(
            f"{path}: {reason}; it was written by another version of this program"
        ) from error
    payload["weights"] = {name: _as_float(weight) for name, weight in payload["weights"].items()}
    return Checkpoint(**{name: payload[name] for name in names})


def _fault_of(payload: Mapping[str, Any]) -> str:
    """Returns which field is not what `Checkpoint` declares; empty without any. A checksum says
    that a file is whole, not who made it.
    """
    counts = {name: payload[name] for name in ("step", "micro_batches")}
    for name, count in counts.items():
        if type(count) is not int or not 0 <= count <= MAX_COUNT:
            return f"{name} is not a count"
    steps, weights = payload["averaged"], payload["weights"]
    if not isinstance(steps, list) or not all(type(step) is int for step in steps):
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
        return "tokenizer is not the JSON of one"
    return ""


def _vocab_size_of(tokenizer: str) -> int:
    fields = json.loads(tokenizer)
    added = fields.get("added_tokens", [])
    return len(fields["model"]["vocab"]) + sum(not token["special"] for token in added)


def _as_float(weight: Tensor) -> Tensor:
    """Returns a weight stored in 16 bits as float32, and others, such as float64 and counters,
    unchanged.
    """
    return weight.float() if weight.dtype in (torch.bfloat16, torch.float16) else weight


def in_bfloat16(checkpoint: Checkpoint) -> Checkpoint:
    """Returns the checkpoint with rounded weights, of which `save` makes half as large a file."""
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
        model.load_state_dict(checkpoint.weights, strict=True)
    except RuntimeError as error:
        raise RefusedError(
            f"the checkpoint of step {checkpoint.step} does not fit the model of its own "
            f"configuration: {' '.join(str(error).split())[:300]}; it was written by another "
            "version of this program"
        ) from error


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
                f"the checkpoints of steps {other.step} and {newest.step} are of different models"
            )
    weights = dict(newest.weights)
    for name, tensor in (
        (name, tensor) for name, tensor in weights.items() if tensor.is_floating_point()
    ):
        total = torch.zeros_like(tensor, dtype=torch.float64)
        for checkpoint in checkpoints:
            total += checkpoint.weights[name]
        weights[name] = (total / len(checkpoints)).to(tensor.dtype)
    return replace(
        newest, weights=weights, averaged=[checkpoint.step for checkpoint in checkpoints]
    )
