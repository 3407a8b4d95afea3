"""Loss, learning rate, gradient, speed and memory while training."""

import logging
import math
import statistics
from collections import deque
from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from aiayn.config.resolve import usual_peak
from aiayn.data.batch import Batch
from aiayn.data.corpus import unigram_loss
from aiayn.errors import DivergedError
from aiayn.hardware import peak_memory, peak_rate
from aiayn.training.callbacks.non_finite_guard import lower_rate
from aiayn.training.callbacks.steps import StepCallback, due, log_metrics, translation_module
from aiayn.training.module import TranslationModule
from aiayn.training.start import RunServices, RunSpec

log = logging.getLogger(__name__)


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

    def __init__(self, run: RunSpec, services: RunServices):
        super().__init__(run)
        self.services = services
        self.loss_sum: Tensor | float = 0.0
        self.tokens = 0
        self.paces: deque[float] = deque(maxlen=9)  # seconds a step, of the last intervals
        self.peak_rate: float | None = None
        self._reset_work()

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.module = translation_module(pl_module)
        self.vocab_size = self.module.vocab_size
        self.peak_rate = peak_rate(pl_module.device, str(trainer.precision))
        self._reset_work()
        self.untimed = self.tokens  # tokens of steps before this start, which took time elsewhere
        self.last_step, self.last_time = self.run.start_step, self.services.clock.now()
        if trainer.is_global_zero:
            self.services.display.start(self.done)

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
        # `reduce` works in place
        loss_sum = torch.as_tensor(self.loss_sum, device=pl_module.device).clone()
        loss_sum = trainer.strategy.reduce(loss_sum, reduce_op="sum")
        checkpoint["since_last_log"] = {"loss_sum": float(loss_sum), "tokens": self.tokens}

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        since_last_log = checkpoint["since_last_log"]
        mine = since_last_log["loss_sum"] if trainer.is_global_zero else 0.0
        self.loss_sum = torch.tensor(mine, dtype=torch.float64, device=pl_module.device)
        self.tokens = since_last_log["tokens"]

    def on_micro_batch_end(self, outputs: Mapping[str, Tensor], batch: Batch) -> None:
        self.loss_sum = self.loss_sum + outputs["loss_sum"].double()
        self.real += batch.n_src_tokens + batch.n_tokens
        self.padded += batch.n_positions
        if batch.n_tokens and self.flops is not None:
            flops = self.module.flops(batch)
            self.flops = None if flops is None else self.flops + flops

    def on_step_end(
        self, trainer: pl.Trainer, module: TranslationModule, batch: Batch, step: int
    ) -> None:
        self.tokens += batch.step_tokens
        self.services.display.advance(step)
        settings = self.run.config.trainer
        logging_now = due(step, settings.log_every, settings.max_steps)
        if not logging_now and step != self.run.start_step + 1:
            return
        # The first step is shown, too, and not logged: log_every steps may take minutes.
        seconds = self.services.clock.now()
        metrics = self._measure(trainer, module, step, seconds)
        pace = (seconds - self.last_time) / (step - self.last_step)
        if logging_now:
            self.paces.append(pace)
            self._log(trainer, metrics, step)
            self.loss_sum, self.tokens, self.untimed = 0.0, 0, 0
            self.last_step, self.last_time = step, seconds
            self._reset_work()
        if trainer.is_global_zero:
            # The median, because a machine that slept or was busy for a while says nothing of the
            # steps to come.
            left = statistics.median(self.paces or [pace]) * (settings.max_steps - step)
            self.services.display.show_training(step, metrics, left)
            warmed_up = max(2 * self.run.config.optim.warmup_steps, self.EARLIEST)
            if logging_now and step - settings.log_every < warmed_up <= step:
                self._warn_if_stuck(module, step, metrics["train/loss"])

    def _measure(
        self, trainer: pl.Trainer, module: TranslationModule, step: int, time: float
    ) -> dict[str, float]:
        """Measures the work since the last log, on all ranks; a collective call."""
        loss_sum = torch.as_tensor(self.loss_sum).clone()  # `reduce` works in place
        work = [self.flops or 0.0, self.real, self.padded]
        work = torch.tensor(work, dtype=torch.float64, device=module.device)
        flops, real, padded = trainer.strategy.reduce(work, reduce_op="sum").tolist()
        seconds = time - self.last_time
        metrics = {
            "train/loss": float(trainer.strategy.reduce(loss_sum, reduce_op="sum")) / self.tokens,
            "train/lr": module.applied_rate,
            "train/grad_norm": float(module.gradient_norm),
            "train/epoch": step / self.run.epoch_steps,
            "perf/tokens_per_sec": (self.tokens - self.untimed) / seconds,
            "perf/padding": 1 - real / padded,
            "perf/memory_gb": peak_memory(module.device) / 1e9,
        }
        if self.flops is not None and self.peak_rate:
            metrics["perf/mfu"] = flops / (seconds * self.peak_rate * trainer.world_size)
        return metrics

    def _log(self, trainer: pl.Trainer, metrics: dict[str, float], step: int) -> None:
        """Raises DivergedError where the loss is far above that of a uniform guess."""
        self.services.check_folder()
        log_metrics(trainer, metrics, step)
        loss, uniform = metrics["train/loss"], math.log(self.vocab_size)
        if loss > 2 * uniform + 10:
            raise DivergedError(
                f"the training loss up to step {step} is {loss:.4g} per token, and a uniform "
                f"guess over the vocabulary would have {uniform:.2f}: "
                + lower_rate(self.run.config.optim)
            )

    def _warn_if_stuck(self, module: TranslationModule, step: int, loss: float) -> None:
        optim, d_model = self.run.config.optim, self.run.config.model.d_model
        level = unigram_loss(self.run.corpus.train, self.vocab_size, optim.label_smoothing)
        if loss > level - self.STUCK:
            log.warning(
                "step %d: the training loss, %.2f, is still the unigram loss, %.2f, of a model "
                "that knows only token frequencies: start another run (name=) with another peak "
                "learning rate (optim.warmup_steps or optim.lr_scale); it is %.2g here, and "
                "usually %.2g for d_model=%d",
                *(step, loss, level, module.rate(optim.warmup_steps), usual_peak(d_model), d_model),
            )

    def _reset_work(self) -> None:
        """Resets the work of this rank since the last log: useful FLOPs, tokens, and positions
        including padding.
        """
        # None: not known of this device, loss or model
        self.flops: float | None = 0.0 if self.peak_rate else None
        self.real = self.padded = 0
