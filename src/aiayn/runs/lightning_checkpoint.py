"""A checkpoint that a Trainer wrote of our modules, such as by Lightning's ModelCheckpoint."""

from pathlib import Path
from typing import Any

from aiayn.errors import RefusedError
from aiayn.runs.run_folder import read_checksum
from aiayn.runs.tensor_files import load_archive


def read_lightning(path: Path) -> dict[str, Any] | None:
    """Returns the fields of a checkpoint that Lightning's ModelCheckpoint wrote, without a
    checksum; None for others.

    Raises RefusedError if it lacks what only our data module puts into it.
    """
    try:
        if read_checksum(path):
            return None
        with open(path, "rb") as file:
            checkpoint = load_archive(file, path)
    except RefusedError:
        raise
    except Exception:  # no file of tensors either
        return None
    if not isinstance(checkpoint, dict) or "pytorch-lightning_version" not in checkpoint:
        return None
    options, state = checkpoint.get("hyper_parameters"), checkpoint.get("state_dict")
    if (
        not isinstance(options, dict)
        or not isinstance(state, dict)
        or "tokenizer" not in checkpoint
    ):
        raise RefusedError(
            f"{path}: a checkpoint of Lightning without options or tokenizer; train with "
            "TranslationModule and, as `datamodule`, TranslationDataModule, or read it with "
            "TranslationModule.load_from_checkpoint"
        )
    weights = {
        name.removeprefix("model."): value
        for name, value in state.items()
        if name.startswith("model.")
    }
    fields = {name: checkpoint.get(name) for name in ("tokenizer", "corpus", "micro_batches")}
    step = {"step": checkpoint.get("global_step"), "averaged": []}
    return {"config": options.get("config"), "weights": weights} | fields | step
