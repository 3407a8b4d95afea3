"""What happens between optimizer steps: measuring, validating, saving, stopping. All intervals count steps."""

import json
import logging
import math
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from aiayn import checkpoint as memory
from aiayn.config import Config
from aiayn.data.batch import Batch
from aiayn.errors import DivergedError, InterruptedRunError
from aiayn.evaluation.scoring import score
from aiayn.inference.translator import Translator
from aiayn.training.module import TranslationModule

log = logging.getLogger(__name__)


class StepCallback(Callback):
    """A callback with a hook for optimizer steps: Lightning's own hooks count micro-batches."""

    def __init__(self) -> None:
        self.done = 0

    def on_train_start(self, trainer: pl.Trainer, module: TranslationModule) -> None:
        self.done = trainer.global_step

    def on_train_batch_end(self, trainer: pl.Trainer, module: TranslationModule, outputs, batch: Batch, index) -> None:
        self.on_part_end(outputs, batch)
        if trainer.global_step > self.done:
            self.done = trainer.global_step
            self.on_step_end(trainer, module, batch, self.done)

    def on_part_end(self, outputs: dict[str, torch.Tensor], batch: Batch) -> None:
        """Called after every micro-batch."""

    def on_step_end(self, trainer: pl.Trainer, module: TranslationModule, batch: Batch, step: int) -> None:
        """Called after optimizer step `step` = 1, 2, ...; `batch` is its last micro-batch."""


def due(step: int, every: int, max_steps: int) -> bool:
    """True at every multiple of an interval, and at the end."""
    return step % every == 0 or step == max_steps


def report(trainer: pl.Trainer, metrics: dict[str, float], step: int) -> None:
    """Sends measurements to every logger."""
    for logger in trainer.loggers:
        logger.log_metrics(metrics, step)


class Measure(StepCallback):
    """Loss, learning rate and speed, every `log_every` steps; on a terminal as a live line, else as plain ones."""

    def __init__(self, config: Config, steps_per_epoch: int):
        super().__init__()
        self.config = config
        self.steps_per_epoch = steps_per_epoch
        self.loss_sum: torch.Tensor | float = 0.0
        self.tokens = 0
        self.bar: Progress | None = None

    def on_train_start(self, trainer: pl.Trainer, module: TranslationModule) -> None:
        super().on_train_start(trainer, module)
        self.first_step = self.done
        self.start_time = self.last_time = time.monotonic()
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
            raise DivergedError(
                f"the loss is {loss} at step {step}; nothing of it was saved: lower optim.lr_scale or raise "
                "optim.warmup_steps, and run again from the last checkpoint"
            )
        now = time.monotonic()
        rate, elapsed = self.tokens / (now - self.last_time), now - self.start_time
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
        self.loss_sum, self.tokens, self.last_time = 0.0, 0, now


class Validate(StepCallback):
    """Loss and perplexity of the validation set, BLEU of its first sentences, and some of them to read."""

    SHOWN = 5

    def __init__(self, config: Config, translator: Translator, sources: list[str], references: list[str], folder: Path):
        super().__init__()
        self.config = config
        self.translator = translator
        self.sources, self.references = sources, references
        self.samples = folder / "samples.jsonl"

    def on_step_end(self, trainer: pl.Trainer, module: TranslationModule, batch: Batch, step: int) -> None:
        settings = self.config.trainer
        if not due(step, settings.val_every, settings.max_steps):
            return
        metrics = self._losses(trainer, module)
        text = f"val/loss {metrics['val/loss']:.3f}  val/ppl {metrics['val/ppl']:.2f}"
        if self.sources:
            hypotheses = self._translate(trainer)
            scores = score(hypotheses, self.references, self.config.data.tgt_lang, kinds=["sacrebleu"])
            metrics["val/bleu"] = scores.metrics["sacrebleu"]
            text += f"  val/bleu {metrics['val/bleu']:.1f}"
            if trainer.is_global_zero:
                self._show(step, hypotheses)
        report(trainer, metrics, step)
        log.info("step %d/%d  %s", step, settings.max_steps, text)

    @torch.no_grad()
    def _losses(self, trainer: pl.Trainer, module: TranslationModule) -> dict[str, float]:
        module.eval()
        totals = torch.zeros(3, dtype=torch.float64)
        for batch in trainer.datamodule.validation_batches():
            with trainer.precision_plugin.forward_context():
                sums = module.validation_step(batch.to(module.device))
            totals += torch.tensor([*map(float, sums), batch.n_tokens], dtype=torch.float64)
        module.train()
        loss, nll, n_tokens = trainer.strategy.reduce(totals.to(module.device), reduce_op="sum").tolist()
        return {"val/loss": loss / n_tokens, "val/ppl": math.exp(min(nll / n_tokens, 700))}

    def _translate(self, trainer: pl.Trainer) -> list[str]:
        """Every device translates its share of the sentences; all get all translations."""
        rank, world_size = trainer.global_rank, trainer.world_size
        shares = [self.translator.translate(self.sources[rank::world_size])]
        if world_size > 1:
            shares = [None] * world_size
            mine = self.translator.translate(self.sources[rank::world_size])
            torch.distributed.all_gather_object(shares, mine)
        hypotheses = [""] * len(self.sources)
        for other, share in enumerate(shares):
            hypotheses[other::world_size] = share
        return hypotheses

    def _show(self, step: int, hypotheses: list[str]) -> None:
        with open(self.samples, "a", encoding="utf-8") as file:
            for src, ref, hyp in list(zip(self.sources, self.references, hypotheses, strict=True))[: self.SHOWN]:
                record = {"step": step, "source": src, "reference": ref, "hypothesis": hyp}
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
        log.info(
            "  source      %s\n  reference   %s\n  hypothesis  %s", self.sources[0], self.references[0], hypotheses[0]
        )


class Save(StepCallback):
    """Checkpoints every `checkpoint_every` steps, at the end, and when asked to stop; runs after all others."""

    def __init__(self, config: Config, folder: Path, stop: "Stop"):
        super().__init__()
        self.config = config
        self.folder = folder
        self.stop = stop

    def on_train_start(self, trainer: pl.Trainer, module: TranslationModule) -> None:
        super().on_train_start(trainer, module)
        self.stop.listen()  # Lightning has put a handler of its own in place, which saves nothing

    def on_step_end(self, trainer: pl.Trainer, module: TranslationModule, batch: Batch, step: int) -> None:
        settings = self.config.trainer
        # All devices must decide alike, so that all enter the save together.
        asked = self.stop.requested or 0
        if trainer.world_size > 1:
            asked = int(trainer.strategy.reduce(torch.tensor(asked, device=module.device), reduce_op="max"))
            self.stop.requested = asked or None
        if not asked and not due(step, settings.checkpoint_every, settings.max_steps):
            return
        trainer.save_checkpoint(memory.step_path(self.folder, step))
        if trainer.is_global_zero:
            memory.point_last(self.folder, step)
            memory.prune(self.folder, settings.average_last)
        if asked:
            trainer.should_stop = True


class Stop:
    """A request to stop, made by a signal. While training it waits for the end of the step; else it acts at once."""

    SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def __init__(self) -> None:
        self.requested: int | None = None
        self.training = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handles the signals for as long as the context lasts."""
        before = self.listen()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def listen(self) -> dict[int, Any]:
        """Installs the handlers. Returns those that were there before."""
        return {number: signal.signal(number, self._ask) for number in self.SIGNALS}

    def check(self, message: str) -> None:
        """Raises InterruptedRunError if a stop was requested."""
        if self.requested:
            raise InterruptedRunError(message, self.requested)

    def _ask(self, number: int, frame: object) -> None:
        self.requested = number
        if not self.training:
            self.check("stopped before training; run the same command to start again")


def clock(seconds: float) -> str:
    """3725 becomes 1:02:05."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
