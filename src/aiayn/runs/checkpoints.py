"""The checkpoint of a model: everything of a run except the training text, the optimizer state and the loggers.

It holds the weights, the configuration, the tokenizer, the corpus' fingerprint and the counters.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aiayn.config.model import ModelConfig
from aiayn.config.schema import Config
from aiayn.config.stored import stored_config, to_plain
from aiayn.errors import ConfigError, RefusedError
from aiayn.runs import sealed_files
from aiayn.runs.run_folder import is_count
from aiayn.runs.seal import read_seal
from aiayn.runs.sealed_files import FORMAT


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
        """Subwords of the tokenizer. Raises RefusedError if there is none."""
        try:
            return len(json.loads(self.tokenizer)["model"]["vocab"])
        except (ValueError, LookupError, TypeError) as error:
            raise RefusedError("the checkpoint's tokenizer cannot be read; take another checkpoint") from error


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Writes a checkpoint file. Raises ResourceError if the disk is full."""
    sealed_files.write_sealed(path, {"format": FORMAT, **vars(checkpoint), "config": to_plain(checkpoint.config)})


def _are_weights(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and all(isinstance(name, str) and isinstance(weight, Tensor) for name, weight in value.items())
        # A tensor that is not contiguous may have more elements than its file has bytes.
        and all(w.layout == torch.strided and w.is_contiguous() for w in value.values())
    )


# What each field must be, besides `config`, whose types and ranges are those of `aiayn.config`. A checksum
# only says that the bytes are those that were written, not by whom.
FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "step": (is_count, "a number of steps"),
    "weights": (_are_weights, "names with dense tensors"),
    "tokenizer": (lambda value: isinstance(value, str), "JSON text"),
    "corpus": (lambda value: isinstance(value, str), "a fingerprint"),
    "micro_batches": (lambda value: is_count(value) and value > 0, "a number above 0"),
    "averaged": (lambda value: isinstance(value, list) and all(map(is_count, value)), "a list of steps"),
}


def load(path: Path) -> Checkpoint:
    """Reads a checkpoint file, also one that a Lightning Trainer has written of our modules.

    Raises RefusedError if it is missing or damaged, or if a field has the wrong type.
    """
    payload = _read_lightning(path) or sealed_files.read_sealed(path)
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
    model = payload["config"].model
    if model.parts is None and not _may_fit(model, payload["weights"]):
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
    needed = (max(model.n_layers, model.decoder_layers) * widest + positions) * model.d_model
    return needed <= sum(weight.numel() for weight in weights.values())


def _as_float(weight: Tensor) -> Tensor:
    """Returns a weight stored in 16 bits as float32, and others, such as float64 and counters, unchanged."""
    return weight.float() if weight.dtype in (torch.bfloat16, torch.float16) else weight


def in_bfloat16(checkpoint: Checkpoint) -> Checkpoint:
    """Returns the checkpoint with rounded weights, of which `save` makes half as large a file."""
    rounded = {name: weight.bfloat16() for name, weight in checkpoint.weights.items() if weight.is_floating_point()}
    return replace(checkpoint, weights=checkpoint.weights | rounded)


def restore(model: nn.Module, checkpoint: Checkpoint) -> None:
    """Loads the weights into a model. Raises RefusedError if the model is not the one that was saved."""
    try:
        model.load_state_dict(checkpoint.weights, strict=True)
    except RuntimeError as error:
        raise RefusedError(
            f"the checkpoint of step {checkpoint.step} does not fit the model of its own configuration: "
            f"{' '.join(str(error).split())[:300]}; it was written by another version of this program"
        ) from error


def average(checkpoints: list[Checkpoint]) -> Checkpoint:
    """Returns the newest checkpoint with the arithmetic mean of all weights, summed in float64 (section 6.1).

    What is no floating-point number, such as a counter, stays the newest's.

    Raises RefusedError if the checkpoints are not of one model.
    """
    newest = checkpoints[-1]
    for other in checkpoints[:-1]:
        if (other.config.model, other.tokenizer) != (newest.config.model, newest.tokenizer):
            raise RefusedError(f"the checkpoints of steps {other.step} and {newest.step} are not of one model")
    weights = dict(newest.weights)
    for name, tensor in ((name, tensor) for name, tensor in weights.items() if tensor.is_floating_point()):
        total = torch.zeros_like(tensor, dtype=torch.float64)
        for checkpoint in checkpoints:
            total += checkpoint.weights[name]
        weights[name] = (total / len(checkpoints)).to(tensor.dtype)
    return replace(newest, weights=weights, averaged=[checkpoint.step for checkpoint in checkpoints])
