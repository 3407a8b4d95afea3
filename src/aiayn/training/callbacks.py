"""What happens between optimizer steps: measuring, validating, saving, stopping. All intervals count steps."""

import json
import logging
import math
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
from aiayn.config import Config, TrainerConfig
from aiayn.data.batch import Batch
from aiayn.errors import DivergedError
from aiayn.evaluation.scoring import score
from aiayn.inference.translator import Translator
from aiayn.training.module import TranslationModule
from aiayn.training.stop import Stop

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


def to_average(folder: Path, settings: TrainerConfig) -> list[int]:
    """Steps of the last regular checkpoints; one that was saved because of a signal would make the average another."""
    regular = [step for step in memory.steps(folder) if due(step, settings.checkpoint_every, settings.max_steps)]
    return regular[-settings.average_last :]


def diverged(what: str, step: int) -> DivergedError:
    return DivergedError(
        f"{what} at step {step}; nothing of it was saved: lower optim.lr_scale or raise optim.warmup_steps and choose "
        "another name="
    )


def report(trainer: pl.Trainer, metrics: dict[str, float], step: int) -> None:
    """Sends measurements to every logger."""
    for logger in trainer.loggers:
        logger.log_metrics(metrics, step)


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


class Validate(StepCallback):
    """Loss and perplexity of the validation set, BLEU of its first sentences, and some of them to read."""

    SHOWN = 5

    def __init__(
        self,
        config: Config,
        translator: Translator,
        sources: list[str],
        references: list[str],
        folder: Path,
        time: TrainingClock,
    ):
        super().__init__()
        self.config = config
        self.time = time
        self.translator = translator
        self.sources, self.references = sources, references
        self.samples = folder / "samples.jsonl"

    def on_step_end(self, trainer: pl.Trainer, module: TranslationModule, batch: Batch, step: int) -> None:
        settings = self.config.trainer
        if not due(step, settings.val_every, settings.max_steps):
            return
        with self.time.stopped():
            self._validate(trainer, module, step)

    def _validate(self, trainer: pl.Trainer, module: TranslationModule, step: int) -> None:
        settings = self.config.trainer
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

    def __init__(self, config: Config, folder: Path, stop: Stop, time: TrainingClock):
        super().__init__()
        self.time = time
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
        if not all(parameter.isfinite().all() for parameter in module.parameters()):
            raise diverged("a weight is no finite number", step)
        with self.time.stopped():
            trainer.save_checkpoint(memory.step_path(self.folder, step))
            if trainer.is_global_zero:
                memory.point_last(self.folder, step)
                memory.prune(self.folder, to_average(self.folder, settings))
        if asked:
            trainer.should_stop = True


def clock(seconds: float) -> str:
    """3725 becomes 1:02:05."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
