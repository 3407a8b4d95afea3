"""Fine-tuning: a new run from the weights of another one (`init_from`), with its model and its
tokenizer.
"""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from aiayn.config.compose import chosen_options
from aiayn.config.data import OF_VOCABULARY
from aiayn.config.extensions import warn_of_changed_files
from aiayn.config.resolve import open_options
from aiayn.config.schema import Config
from aiayn.config.stored import as_option, flatten, to_dict
from aiayn.errors import ConfigError, RefusedError
from aiayn.runs import checkpoint_folder, checkpoints
from aiayn.runs.checkpoints import Checkpoint
from aiayn.runs.run_folder import RunFolder, find_checkpoint, saved_steps, similar_run

# No weight depends on it; and code of one's own may be added to the source's.
MAY_DIFFER = ("model.dropout", "model.parts")


def resolve_init_from(
    config: Config, init_from: str, folder: RunFolder, chosen: Collection[str] | None
) -> tuple[Config, Checkpoint]:
    """Returns the configuration with model and vocabulary of `init_from`, and the checkpoint that
    they come from.

    If the run has checkpoints of its own they are taken instead, and its source need not exist any
    more. `chosen` are the arguments that the user gave, None: all options are the user's. Raises
    RefusedError if one of these contradicts the source, if code that built its model is not named,
    or if there is no source.
    """
    if source := _own_checkpoint(folder, init_from):
        fingerprint = source.config.init_fingerprint
    else:
        source = _load(init_from)
        fingerprint = weights_sha256(source.weights)
    source_files, own_files = (
        {part.partition(":")[0] for part in (parts or "").split(",")}
        for parts in (source.config.model.parts, config.model.parts)
    )
    # Others may be added to the source's
    if missing_parts := sorted(filter(None, source_files - own_files)):
        raise RefusedError(
            f"init_from={init_from}: its model has the parts {', '.join(missing_parts)}, but "
            f"extensions= provides {config.model.parts or 'none'}; name the same files"
        )
    warn_of_changed_files(source.config.extensions_sha256, source.config.model.parts)
    vocabulary = {name: getattr(source.config.data, name) for name in OF_VOCABULARY}
    vocabulary |= {"vocab_size": source.vocab_size, "tokenizer_pairs": None}
    inherited = flatten({"model": to_dict(source.config.model), "data": vocabulary})
    if not chosen:  # a default does not contradict the source's tokenizer
        del inherited["data.tokenizer"]
    current = flatten(to_dict(config))
    kept = current.keys() - open_options(config)
    if chosen is not None:
        kept &= chosen_options(chosen, config)
    changed = [
        f"{key}: {as_option(value)} -> {as_option(current[key])}"
        for key, value in inherited.items()
        if key in kept and key not in MAY_DIFFER and current[key] != value
    ]
    if changed:
        raise RefusedError(
            f"init_from={init_from} determines model and tokenizer ({'; '.join(changed)}); leave "
            "these options out"
        )
    if config.init_fingerprint not in (None, fingerprint):
        raise RefusedError(
            f"init_fingerprint={config.init_fingerprint}: the weights of init_from={init_from} "
            f"have the SHA-256 {fingerprint}; name a run with the expected weights, or leave out "
            "init_fingerprint"
        )
    dropout_of = config if "model.dropout" in kept else source.config
    own_options = {"dropout": dropout_of.model.dropout, "parts": config.model.parts}
    model = replace(source.config.model, **own_options)
    data_options = replace(config.data, **vocabulary)
    return replace(config, model=model, data=data_options, init_fingerprint=fingerprint), source


def _own_checkpoint(folder: RunFolder, init_from: str) -> Checkpoint | None:
    """Returns the newest checkpoint of the run itself, if it can be read and began from the same
    source.
    """
    for step in reversed(saved_steps(folder.checkpoints)):
        try:
            checkpoint = checkpoints.load(checkpoint_folder.step_path(folder.checkpoints, step))
        except RefusedError:
            continue
        return checkpoint if checkpoint.config.init_from == init_from else None
    return None


def _load(init_from: str) -> Checkpoint:
    """Loads the file, or of a run's folder `RunFolder.default_checkpoint`."""
    path = Path(init_from).expanduser()
    if not path.exists():
        remedy = similar_run(path) or (
            "; name the folder of a run, outputs/NAME, or a file of its checkpoints/"
        )
        raise ConfigError(f"init_from={init_from}: no such run or checkpoint{remedy}")
    try:
        return checkpoints.load(find_checkpoint(path, None))
    except (ConfigError, RefusedError) as error:
        raise type(error)(f"init_from={init_from}: {error}") from error


def weights_sha256(weights: Mapping[str, Tensor]) -> str:
    """Returns the SHA-256 of names, types, shapes and values, as hexadecimal digits."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
