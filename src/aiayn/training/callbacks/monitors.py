"""Loss, learning rate, gradient, speed and memory while training; NaN and infinite gradients."""

import logging
import math
import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from aiayn.config.resolve import usual_peak
from aiayn.config.training import OptimConfig
from aiayn.data.batch import TrainingBatch
from aiayn.data.corpus import unigram_loss
from aiayn.data.datamodule import numbers_from
from aiayn.errors import ConfigError, DivergedError
from aiayn.files import atomic_write
from aiayn.hardware import peak_memory, peak_rate
from aiayn.training.callbacks.steps import StepCallback, due, log_metrics, translation_module
from aiayn.training.module import TranslationModule
from aiayn.training.start import RunServices

log = logging.getLogger(__name__)


def lower_rate(optim: OptimConfig) -> str:
    """Returns the advice to lower the learning rate, by the option that sets it."""
    return f"lower optim.{optim.peak_option} or raise optim.warmup_steps and choose another name="


@dataclass(eq=False)
class NonFiniteGuard(StepCallback):
    """Ends the run when more steps were skipped than `trainer.max_skipped_steps`; the first
    callback that sees steps.

    The module skips a step whose gradient is NaN or infinite on the device, without asking the
    host. Here the host reads the number of such steps, every `log_every` steps and before every
    save, so that nothing that came after too many of them is ever saved.
    """

    services: RunServices

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.seen = int(translation_module(pl_module).skipped)

    def on_step_end(
        self, trainer: pl.Trainer, module: TranslationModule, batch: TrainingBatch, step: int
    ) -> None:
        if due(step, self.settings.log_every, self.settings.max_steps):
            self.check(trainer, module)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self.check(trainer, translation_module(pl_module))
        checkpoint["skipped_steps"] = self.seen

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        translation_module(pl_module).skipped.fill_(checkpoint["skipped_steps"])

    def check(self, trainer: pl.Trainer, module: TranslationModule) -> None:
        """Raises DivergedError for one skipped step too many, or for weights that are NaN or
        infinite.
        """
        finite = torch.nn.utils.get_total_norm(module.parameters(), torch.inf).isfinite()
        # In one tensor: the host waits once
        counters = torch.stack([module.skipped, module.fatal_step, finite.long()])
        skipped, fatal, finite = counters.tolist()
        step, allowed = trainer.global_step, self.settings.max_skipped_steps
        remedy = lower_rate(self.run.config.optim)
        if self.run.config.model.parts:
            remedy = f"check the parts of extensions= (docs/ideas.md, Scores); else {remedy}"
        if fatal:
            earlier = f" ({skipped} such steps, trainer.max_skipped_steps={allowed})"
            raise DivergedError(
                f"the loss or its gradient is NaN or infinite at step {fatal}"
                f"{earlier if allowed else ''}; this step was not saved, and its sentences are in "
                f"{self._write_pairs(trainer, fatal)}: {remedy}, or let the same command skip such "
                f"steps with trainer.max_skipped_steps={skipped}"
            )
        if not finite:
            raise DivergedError(
                f"a weight is NaN or infinite at step {step}; this step was not saved: {remedy}"
            )
        if skipped > self.seen:
            self.seen = skipped
            log_metrics(trainer, {"train/skipped_steps": skipped}, step)
            log.warning(
                "step %d: steps skipped so far, because loss or gradient was NaN or infinite: %d",
                *(step, skipped),
            )

    def _write_pairs(self, trainer: pl.Trainer, step: int) -> Path:
        """Writes the step's pairs as the model reads them: number in the prepared corpus, source,
        target.
        """
        path, plan = self.services.folder.non_finite_pairs(step), self.run.plan
        if trainer.is_global_zero:
            split, tokenizer, lines = self.run.corpus.train, self.run.corpus.tokenizer, []
            for number in numbers_from(plan, trainer, step - 1)[: plan.micro_batches]:
                for pair in plan.micro_batch(number).pairs.tolist():
                    src, tgt = (ids.tolist() for ids in split.pair(pair))
                    texts = tokenizer.source.decode([src]) + tokenizer.decode([tgt])
                    lines.append("\t".join([str(pair), *texts]) + "\n")
            atomic_write(path, "".join(lines))
        return path


@dataclass(eq=False)
class ThroughputMonitor(StepCallback):
    """Measures every step and logs every `log_every` steps.

    The sums stay on the device until then: reading a number makes the host wait. A micro-batch
    whose loss is NaN or infinite counts in `train/loss` with its tokens and a loss of 0; its step
    is skipped.

    Ends the run with DivergedError where the mean loss is above 2 log V + 10: log V is that of a
    uniform guess, about where every training begins. Spikes of a healthy training stay below,
    because a single bad update cannot raise the loss this far. Warns once, some time after the
    warm-up, where the loss is still the unigram loss: a learning rate that was too high leaves it
    there for good.
    """

    STUCK = 0.05  # nats below the unigram loss; a training that works is a nat or more below
    EARLIEST = 500  # steps; before, a healthy training may still be there

    services: RunServices
    loss_sum: Tensor | float = 0.0
    tokens: int = 0
    # Seconds a step, of the last intervals
    paces: deque[float] = field(default_factory=lambda: deque(maxlen=9))

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.module = translation_module(pl_module)
        self.peak_rate = peak_rate(pl_module.device, str(trainer.precision))
        self.untimed = self.tokens  # tokens of steps before this start, which took time elsewhere
        self._begin_interval(self.run.start_step, self.services.clock.now())
        if trainer.is_global_zero:
            self.services.display.start(self.run.start_step)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.services.display.stop()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        self.services.display.stop()

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        # A logged mean covers the same steps whether or not the run was interrupted among them.
        loss_sum = self._loss_of_all_ranks(trainer)
        checkpoint["since_last_log"] = {"loss_sum": loss_sum, "tokens": self.tokens}

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        since_last_log = checkpoint["since_last_log"]
        mine = since_last_log["loss_sum"] if trainer.is_global_zero else 0.0
        self.loss_sum = torch.tensor(mine, dtype=torch.float64, device=pl_module.device)
        self.tokens = since_last_log["tokens"]

    def on_micro_batch_end(self, outputs: Mapping[str, Tensor], batch: TrainingBatch) -> None:
        if "loss_sum" not in outputs:
            raise ConfigError(
                f"{type(self.module).__name__}.training_step returns no loss_sum; override "
                "training_loss instead, or return what super().training_step returns"
            )
        self.loss_sum = self.loss_sum + outputs["loss_sum"].double()
        self.real += batch.n_src_tokens + batch.n_tokens
        self.padded += batch.n_positions
        if self.peak_rate and batch.n_tokens:
            self.flops += self.module.flops(batch) or math.nan  # unknown of this loss or model

    def on_step_end(
        self, trainer: pl.Trainer, module: TranslationModule, batch: TrainingBatch, step: int
    ) -> None:
        self.tokens += batch.step_tokens
        self.services.display.advance(step)
        is_logged = due(step, self.settings.log_every, self.settings.max_steps)
        # Steps 1, 2, 4, ... of a start are shown, too, and not logged: log_every steps may take
        # minutes.
        done = step - self.run.start_step
        is_early = done < self.settings.log_every and done.bit_count() == 1
        if not (is_logged or is_early):
            return
        time = self.services.clock.now()
        pace = (time - self.last_time) / (step - self.last_step)
        metrics = self._measure(trainer, step, time - self.last_time)
        if is_logged:
            self.services.check_folder()
            log_metrics(trainer, metrics, step)
            loss, uniform = metrics["train/loss"], math.log(module.vocab_size)
            if loss > 2 * uniform + 10:
                raise DivergedError(
                    f"the training diverged: its loss up to step {step} is {loss:.4g} per token, "
                    f"and a uniform guess over the vocabulary would have {uniform:.2f}: "
                    + lower_rate(self.run.config.optim)
                )
            self.paces.append(pace)
            self.loss_sum, self.tokens, self.untimed = 0.0, 0, 0
            self._begin_interval(step, time)
        if trainer.is_global_zero:
            # The median, because a machine that slept or was busy for a while says nothing of the
            # steps to come.
            left = statistics.median(self.paces or [pace]) * (self.settings.max_steps - step)
            self.services.display.show_training(step, metrics, left)
            warmed_up = max(2 * self.run.config.optim.warmup_steps, self.EARLIEST)
            if is_logged and step - self.settings.log_every < warmed_up <= step:
                self._warn_if_stuck(step, metrics["train/loss"])

    def _begin_interval(self, step: int, time: float) -> None:
        self.last_step, self.last_time = step, time
        # Of this rank: tokens without and with padding, and useful FLOPs
        self.real = self.padded = 0
        self.flops = 0.0

    def _loss_of_all_ranks(self, trainer: pl.Trainer) -> float:
        """Returns the loss of the interval; a collective call."""
        loss_sum = torch.as_tensor(self.loss_sum, device=trainer.strategy.root_device)
        # `reduce` works in place
        return float(trainer.strategy.reduce(loss_sum.clone(), reduce_op="sum"))

    def _measure(self, trainer: pl.Trainer, step: int, seconds: float) -> dict[str, float]:
        """Measures the work of the interval, on all ranks; a collective call."""
        work = [self.flops, self.real, self.padded]
        work = torch.tensor(work, dtype=torch.float64, device=self.module.device)
        flops, real, padded = trainer.strategy.reduce(work, reduce_op="sum").tolist()
        metrics = {
            "train/loss": self._loss_of_all_ranks(trainer) / self.tokens,
            "train/lr": self.module.applied_rate,
            "train/grad_norm": float(self.module.gradient_norm),
            "train/epoch": step / self.run.epoch_steps,
            "perf/tokens_per_sec": (self.tokens - self.untimed) / seconds,
            "perf/padding": 1 - real / padded,
            "perf/memory_gb": peak_memory(self.module.device) / 1e9,
        }
        if self.peak_rate:
            metrics["perf/mfu"] = flops / (seconds * self.peak_rate * trainer.world_size)
        return metrics

    def _warn_if_stuck(self, step: int, loss: float) -> None:
        config = self.run.config
        optim, d_model = config.optim, config.model.d_model
        train, vocab_size = self.run.corpus.train, self.module.vocab_size
        level = unigram_loss(train, vocab_size, optim.label_smoothing)
        if loss > level - self.STUCK:
            rate = self.module.rate(optim.warmup_steps)
            log.warning(
                "step %d: the training loss (%.2f) is still the unigram loss (%.2f), that of a "
                "model that knows only token frequencies. The peak learning rate is %.2g; about "
                "%.2g is usual for d_model=%d: start another run (name=) with another "
                "optim.peak_lr",
                *(step, loss, level, rate, usual_peak(d_model), d_model),
            )
