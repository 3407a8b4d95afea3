"""Proves at the first step that what a run saves can be read back, before hours are trained that nobody can use."""

from copy import copy
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from aiayn.data.batch import Batch, source_mask
from aiayn.errors import ConfigError, UserError
from aiayn.runs import checkpoint_folder, checkpoints, tensor_files
from aiayn.runs.checkpoints import Checkpoint
from aiayn.search.build import load_model
from aiayn.search.translator import evaluating
from aiayn.training.module import TranslationModule


def prove(path: Path, trainer: pl.Trainer, module: TranslationModule, batch: Batch) -> None:
    """Reads a checkpoint of the present step as a translator does, and the states beside it as a resumed run does.

    Raises ConfigError if the model or an optimizer is not the one in training then.
    """
    try:
        with torch.random.fork_rng(devices=[]):  # building a model draws weights
            _prove_model(checkpoints.load(path), module, batch)
        stored = tensor_files.read_tensors(checkpoint_folder.optimizer_path(path))["lightning"]["optimizer_states"]
    except UserError as error:
        raise ConfigError(f"the checkpoint of the first step cannot be read back: {error}") from error
    for optimizer, state in zip(trainer.optimizers, stored, strict=True):
        other = copy(optimizer)  # which has states of its own once it has loaded some
        other.load_state_dict(state)
        if not same(other.state_dict(), state):
            raise ConfigError(f"{type(optimizer).__name__}: its load_state_dict gives another state than was saved")


def refuse_unequal_buffers(world_size: int, module: pl.LightningModule) -> None:
    """Raises ConfigError, on all ranks, for what a part counts or averages on each rank by itself.

    A checkpoint holds the buffers of rank 0: the others would be lost, and no resumed run would be the same.
    """
    mine = {name: buffer.cpu() for name, buffer in module.named_buffers() if name in module.state_dict()}
    ranks = [mine] * world_size
    torch.distributed.all_gather_object(ranks, mine)
    if unequal := [name for name in mine if not all(same(mine[name], other[name]) for other in ranks)]:
        raise ConfigError(
            f"the buffers {', '.join(unequal[:3])} differ between the ranks, and a checkpoint holds those of rank 0: "
            "all-reduce them where they change, register them with persistent=False, or set trainer.devices=1"
        )


def _prove_model(checkpoint: Checkpoint, module: TranslationModule, batch: Batch) -> None:
    model, trained = load_model(checkpoint).eval(), module.model
    weights = trained.state_dict()
    if not same(dict(weights), {name: weight.to(weights[name].dtype) for name, weight in checkpoint.weights.items()}):
        return  # an `on_save_checkpoint` has saved others, such as running means
    src, tgt_in = batch.few()
    mask = source_mask(src)
    dtype = next(trained.parameters()).dtype
    with torch.no_grad(), evaluating(trained):
        expected = trained(src, tgt_in, mask).double().cpu()
        found = model.to(src.device, dtype)(src, tgt_in, mask).double().cpu()
    if not expected.isfinite().all():
        return  # `NonFiniteGuard` ends such runs
    tolerance = 0.1 if dtype in (torch.bfloat16, torch.float16) else 1e-4 if src.device.type == "cpu" else 0.01
    if not torch.allclose(found, expected, tolerance, tolerance * float(expected.abs().max())):
        raise ConfigError(
            f"{type(module).__name__}: its model computes otherwise once it is loaded; what changes it belongs into "
            "build_model, or into what a checkpoint holds"
        )


def same(one: Any, other: Any) -> bool:
    """Whether two states hold the same keys and values, whatever device they are on."""
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and one.shape == other.shape and bool(torch.equal(one.cpu(), other.cpu()))
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other
