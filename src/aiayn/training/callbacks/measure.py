"""Loss, learning rate and speed while training."""

import logging
import math
import sys
from typing import Any

import pytorch_lightning as pl
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from aiayn.config import Config
from aiayn.data.batch import Batch
from aiayn.training.callbacks.steps import StepCallback, TrainingClock, diverged, due, report
from aiayn.training.module import TranslationModule

log = logging.getLogger(__name__)


class Measure(StepCallback):
    """Loss, learning rate and speed, every `log_every` steps; on a terminal as a live line, else as plain ones."""

    def __init__(self, config: Config, steps_per_epoch: int, time: TrainingClock):
        super().__init__()
        self.config = config
        self.time = time
        self.steps_per_epoch = steps_per_epoch
        self.loss_sum: torch.Tensor | float = 0.0
        self.tokens = 0
        self.bar: Progress | None = None

    def on_train_start(self, trainer: pl.Trainer, module: TranslationModule) -> None:
        super().on_train_start(trainer, module)
        self.first_step = self.done
        self.untimed = self.tokens  # of steps before this start
        self.start_time = self.last_time = self.time.now()
        if trainer.is_global_zero and sys.stderr.isatty():
            columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
            self.bar = Progress(*columns, console=Console(stderr=True))
            self.task = self.bar.add_task("", total=self.config.trainer.max_steps, completed=self.done)
            self.bar.start()

    def on_train_end(self, trainer: pl.Trainer, module: TranslationModule) -> None:
        if self.bar:
            self.bar.stop()

    def on_exception(self, trainer: pl.Trainer, module: TranslationModule, exception: BaseException) -> None:
        self.on_train_end(trainer, module)

    def on_save_checkpoint(self, trainer: pl.Trainer, module: TranslationModule, checkpoint: dict[str, Any]) -> None:
        # So that a line of the log means the same steps, whether or not the run was interrupted among them.
        loss_sum = trainer.strategy.reduce(torch.as_tensor(self.loss_sum, device=module.device), reduce_op="sum")
        checkpoint["since_last_log"] = {"loss_sum": float(loss_sum), "tokens": self.tokens}

    def on_load_checkpoint(self, trainer: pl.Trainer, module: TranslationModule, checkpoint: dict[str, Any]) -> None:
        since = checkpoint["since_last_log"]
        self.loss_sum = torch.tensor(since["loss_sum"] if trainer.is_global_zero else 0.0, device=module.device)
        self.tokens = since["tokens"]

    def on_part_end(self, outputs: dict[str, torch.Tensor], batch: Batch) -> None:
        self.loss_sum = self.loss_sum + outputs["loss_sum"]

    def on_step_end(self, trainer: pl.Trainer, module: TranslationModule, batch: Batch, step: int) -> None:
        self.tokens += batch.step_tokens
        settings = self.config.trainer
        if self.bar:
            self.bar.update(self.task, completed=step)
        if not due(step, settings.log_every, settings.max_steps):
            return
        loss = float(trainer.strategy.reduce(self.loss_sum, reduce_op="sum")) / self.tokens
        if not math.isfinite(loss):
            raise diverged(f"the loss is {loss}", step)
        now = self.time.now()
        rate, elapsed = (self.tokens - self.untimed) / (now - self.last_time), now - self.start_time
        remaining = elapsed / (step - self.first_step) * (settings.max_steps - step)
        metrics = {
            "train/loss": loss,
            "train/lr": module.rate(step),
            "train/epoch": step / self.steps_per_epoch,
            "perf/tokens_per_sec": rate,
        }
        report(trainer, metrics, step)
        text = f"loss {loss:.3f}  lr {metrics['train/lr']:.2e}  {rate:,.0f} tokens/s  ETA {clock(remaining)}"
        if self.bar:
            self.bar.update(self.task, description=text)
        else:
            log.info("step %d/%d  epoch %.1f  %s", step, settings.max_steps, metrics["train/epoch"], text)
        self.loss_sum, self.tokens, self.untimed, self.last_time = 0.0, 0, 0, now


def clock(seconds: float) -> str:
    """3725 becomes 1:02:05."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
