"""What the callbacks share: a hook for optimizer steps, intervals, and how measurements are
logged.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pytorch_lightning as pl
from pytorch_lightning.utilities.types import STEP_OUTPUT
from torch import Tensor

from aiayn.config.training import TrainerConfig
from aiayn.data.batch import TrainingBatch
from aiayn.training.module import TranslationModule
from aiayn.training.start import RunSpec


@dataclass(eq=False)
class StepCallback(pl.Callback):
    """A callback with a hook for optimizer steps: Lightning's own hooks count micro-batches."""

    run: RunSpec

    @property
    def settings(self) -> TrainerConfig:
        return self.run.config.trainer

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: STEP_OUTPUT,
        batch: TrainingBatch,
        batch_idx: int,
    ) -> None:
        assert isinstance(outputs, Mapping)
        self.on_micro_batch_end(outputs, batch)
        if ends_step(trainer, batch_idx):
            module = translation_module(pl_module)
            self.on_step_end(trainer, module, batch, trainer.global_step)

    def on_micro_batch_end(self, outputs: Mapping[str, Tensor], batch: TrainingBatch) -> None:
        """Is called after every micro-batch."""

    def on_step_end(
        self, trainer: pl.Trainer, module: TranslationModule, batch: TrainingBatch, step: int
    ) -> None:
        """Is called after optimizer step `step` = 1, 2, ...; `batch` is its last micro-batch."""


def translation_module(module: pl.LightningModule) -> TranslationModule:
    """Returns the module of a Trainer, which is always ours, with its own type."""
    assert isinstance(module, TranslationModule)
    return module


def ends_step(trainer: pl.Trainer, batch_idx: int) -> bool:
    """Returns whether this micro-batch of an epoch is the last one of its step."""
    return trainer.is_last_batch or (batch_idx + 1) % trainer.accumulate_grad_batches == 0


def due(step: int, every: int, max_steps: int) -> bool:
    """Returns True at every multiple of an interval, and at the end."""
    return step % every == 0 or step == max_steps


def log_metrics(trainer: pl.Trainer, metrics: dict[str, float], step: int) -> None:
    """Sends measurements to every logger, leaving out NaN and infinity (the gradient norm of a
    skipped step).
    """
    metrics = {name: value for name, value in metrics.items() if math.isfinite(value)}
    for logger in trainer.loggers:
        logger.log_metrics(metrics, step)
