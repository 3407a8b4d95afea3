"""What the callbacks share: optimizer steps instead of micro-batches, and a clock that runs in training alone."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback

from aiayn.data.batch import Batch
from aiayn.training.module import TranslationModule


class StepCallback(Callback):
    """A callback with a hook for optimizer steps: Lightning's own hooks count micro-batches."""

    def __init__(self) -> None:
        self.done = 0

    def on_train_start(self, trainer: pl.Trainer, module: TranslationModule) -> None:
        self.done = trainer.global_step

    def on_train_batch_end(self, trainer: pl.Trainer, module: TranslationModule, outputs, batch: Batch, index) -> None:
        self.on_micro_batch_end(outputs, batch)
        if trainer.global_step > self.done:
            self.done = trainer.global_step
            self.on_step_end(trainer, module, batch, self.done)

    def on_micro_batch_end(self, outputs: dict[str, torch.Tensor], batch: Batch) -> None:
        """Called after every micro-batch."""

    def on_step_end(self, trainer: pl.Trainer, module: TranslationModule, batch: Batch, step: int) -> None:
        """Called after optimizer step `step` = 1, 2, ...; `batch` is its last micro-batch."""


class TrainingClock:
    """Seconds spent on training steps: the clock stands while a validation or a save is going on."""

    def __init__(self) -> None:
        self._lost = 0.0

    def now(self) -> float:
        return time.monotonic() - self._lost

    @contextmanager
    def stopped(self) -> Iterator[None]:
        start = time.monotonic()
        yield
        self._lost += time.monotonic() - start


def due(step: int, every: int, max_steps: int) -> bool:
    """True at every multiple of an interval, and at the end."""
    return step % every == 0 or step == max_steps


def report(trainer: pl.Trainer, metrics: dict[str, float], step: int) -> None:
    """Sends measurements to every logger, without those that are no finite number (the norm of a skipped gradient)."""
    metrics = {name: value for name, value in metrics.items() if math.isfinite(value)}
    for logger in trainer.loggers:
        logger.log_metrics(metrics, step)
