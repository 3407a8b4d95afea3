"""Decides when a run saves and when it stops."""

import logging
import math
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint, Timer
from pytorch_lightning.utilities.types import STEP_OUTPUT
from torch import Tensor

from aiayn.config.extensions import constraining
from aiayn.data.batch import TrainingBatch
from aiayn.errors import ConfigError
from aiayn.runs import checkpoint_folder, checkpoints
from aiayn.runs.continuation import store_end
from aiayn.search.translator import evaluating
from aiayn.training.callbacks.steps import due, ends_step, translation_module
from aiayn.training.callbacks.validate import Validate
from aiayn.training.checkpoint_io import warn_of_unsaved
from aiayn.training.log_start import warn_of_unused_options
from aiayn.training.module import TranslationModule
from aiayn.training.proof import holds, loss_faults, prove, refuse_unequal_buffers
from aiayn.training.research import refuse_manual_optimization
from aiayn.training.start import RunServices, RunSpec

log = logging.getLogger(__name__)


@dataclass(eq=False)
class CheckpointSaver(Checkpoint):
    """Checkpoints every `checkpoint_every` steps, at the best validation, at the end, and when
    asked to stop.

    Weights are saved by steps, because they are averaged. The optimizer's state, of twice their
    size and needed only to resume, goes with the checkpoints that come `optimizer_state_minutes`
    after the last one that has it: on fast GPUs writing it every time would take as long as
    training.

    Lightning calls callbacks of this kind last. So the step has been validated, and another
    callback, such as EarlyStopping or the Timer of `max_time`, may have asked for a stop.
    """

    SMALL = 100e6  # bytes of an optimizer's state that is saved every time

    run: RunSpec
    services: RunServices
    validate: Validate
    is_asked: bool = False  # to stop, by another callback
    ended_at: int | None = None  # the step at which this start ends, for whatever reason
    state_saved: float = -math.inf  # when the optimizer's state was saved, by `time.monotonic`
    # Of optimizers and callbacks of one's own, at the first save of this start
    attributes: dict[int, dict[str, Any] | None] = field(default_factory=dict)
    weights_at_end: Tensor | None = None  # sums of each, at the last step

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Does what an interruption after the last validation skipped, and updates best.ckpt if
        `best_metric` has changed.
        """
        step, validations = self.run.start_step, self.services.validations
        folder = self.services.folder.checkpoints
        # Options and module are checked before they are stored.
        if not trainer.optimizers[0].state_dict():  # Lightning's stand-in for none
            raise ConfigError(
                f"{type(pl_module).__name__}: configure_optimizers returns no optimizer"
            )
        translation_module(pl_module).check_rates()
        if trainer.is_global_zero:  # all ranks have read the checkpoint
            self.services.check_folder()
            self.services.folder.write_config(self.run.config)
            if self.run.research.ids:  # code of one's own, perhaps with another optimizer
                self.services.folder.store_sources(self.run.research.sources)
                warn_of_unused_options(self.run.config.optim, trainer.optimizers[0])
            if self.run.checkpoint:
                checkpoint_folder.remove_after(folder, step)
        best = validations.best_step
        if best is not None and (
            best == step or checkpoint_folder.step_path(folder, best).exists()
        ):
            self._save_best(trainer, best, saved=step > 0)
            # The loader's workers are forked next, and a fork copies no thread.
            self.services.writer.wait()
        if self.run.end_reason is not None:
            self.ended_at = step
        if self.run.end_reason is not None or validations.is_out_of_patience():
            trainer.should_stop = True
        if trainer.should_stop and self._is_early_end(step):  # such as by the Timer of max_time
            self._store_early_end(trainer, translation_module(pl_module), step)
            self._save_best(trainer, step, saved=True)
            self.services.writer.wait()

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Raises RefusedError for counters of another step, and for a restored state that differs
        in shape from its weight, where the optimizer's fused kernel would read beyond its end.
        """
        [optimizer], resumed = trainer.optimizers, self.run.checkpoint
        if resumed and trainer.global_step != self.run.start_step:
            raise resumed.refusal(f"it is of step {trainer.global_step}")
        if not resumed or not any(group.get("fused") for group in optimizer.param_groups):
            return
        for weight, state in optimizer.state.items():
            for name, value in state.items():
                if not isinstance(value, Tensor) or value.shape not in ((), weight.shape):
                    raise resumed.refusal(f"{name} differs in shape from its weight")

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if self.run.research.ids and trainer.is_global_zero:
            callbacks = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
            with suppress(Exception):  # of attributes of whatever kind; the step is saved
                warn_of_unsaved(trainer.optimizers[0], callbacks, checkpoint, self.attributes)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Raises ConfigError if a hook, such as `on_fit_start`, has switched to manual
        optimization.
        """
        refuse_manual_optimization(pl_module)

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: STEP_OUTPUT,
        batch: TrainingBatch,
        batch_idx: int,
    ) -> None:
        """Defers a stop that is asked for between micro-batches to the end of the step: half a step
        cannot be saved.
        """
        is_step_end = ends_step(trainer, batch_idx)
        self.is_asked = self.is_asked or trainer.should_stop
        trainer.should_stop = self.is_asked and is_step_end
        if is_step_end:
            module = translation_module(pl_module)
            self.on_step_end(trainer, module, batch, trainer.global_step)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Saves the step at which a callback has ended the training between two steps, as at the
        end of an epoch. Saves the last step again if another callback has changed its weights in
        this hook, as some averages do, and no file holds them.
        """
        module, step = translation_module(pl_module), trainer.global_step
        folder = self.services.folder.checkpoints
        if trainer.should_stop and self._is_early_end(step):
            self._store_early_end(trainer, module, step)
            self._save(trainer, checkpoint_folder.step_path(folder, step), with_state=True)
            self._save_best(trainer, step, saved=True)
        if self.weights_at_end is None:
            return
        path = checkpoint_folder.step_path(folder, step)
        is_lost = trainer.is_global_zero and not torch.equal(self.weights_at_end, sums_of(module))
        if is_lost:
            self.services.writer.wait()
            is_lost = not holds(module.model, checkpoints.load(path, just_written=True).weights)
        if self.services.stop.on_any_rank(is_lost):
            log.warning(
                "warning  a callback changed the weights after step %d was saved: saved again, as "
                "last.ckpt; for averaged.ckpt to hold only these, set trainer.average_last=1",
                step,
            )
            self._save(trainer, path, with_state=True)

    def on_step_end(
        self, trainer: pl.Trainer, module: TranslationModule, batch: TrainingBatch, step: int
    ) -> None:
        """Saves the step if it is due, and stops the training after it if asked to."""
        settings, folder = self.run.config.trainer, self.services.folder.checkpoints
        self.services.writer.raise_error()
        if step == self.run.start_step + 1 and trainer.world_size > 1:
            refuse_unequal_buffers(trainer.world_size, module)
        if step == 1:
            self._prove(trainer, module, batch)
        stop, validations = self.services.stop, self.services.validations
        is_last = step == settings.max_steps
        is_end = is_last or validations.is_out_of_patience() or trainer.should_stop
        if is_end and not is_last:
            self._store_early_end(trainer, module, step)
        signal = stop.signal_of_any_rank()
        stopping = bool(signal or is_end)
        saving = stopping or due(step, settings.checkpoint_every, settings.max_steps)
        if saving:
            with self.services.clock.paused():
                with_state = self._saves_state(trainer, last=stopping)
                self._save(trainer, checkpoint_folder.step_path(folder, step), with_state)
        self._save_best(trainer, step, saving)
        if stopping:
            self.ended_at, trainer.should_stop = step, True
            self.weights_at_end = None if signal else sums_of(module)

    def _is_early_end(self, step: int) -> bool:
        """Returns whether a training that stops at this step has an end that is not stored yet."""
        return self.ended_at != step and 0 < step < self.run.config.trainer.max_steps

    def _store_early_end(self, trainer: pl.Trainer, module: TranslationModule, step: int) -> None:
        """Validates a step at which the training ends before its last one, and stores what ended it
        and which options let it go on.

        Before the step is saved: a kill between the two would let the run go on beyond its end. A
        validation that a signal cuts off is repeated by the next start.
        """
        settings, services = self.run.config.trainer, self.services
        if not services.stop.signal_of_any_rank():
            self.validate.validate_end(trainer, module, step)
        self.ended_at = step
        if not trainer.is_global_zero:
            return
        callbacks = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
        timers = [callback for callback in callbacks if isinstance(callback, Timer)]
        reason, limits = "a callback", ("max_steps", "max_time")
        if services.validations.is_out_of_patience():
            reason, limits = f"trainer.patience={settings.patience}", ("patience", "best_metric")
        elif settings.max_time and any((timer.time_remaining() or 0.0) <= 0 for timer in timers):
            reason = f"trainer.max_time={settings.max_time}"
        services.writer.submit(store_end, services.folder, settings, step, reason, limits)

    def _saves_state(self, trainer: pl.Trainer, last: bool) -> bool:
        """Returns whether the optimizer's state is saved now, the same on all ranks; `last`: it is
        this start's last chance.
        """
        seconds, minutes = time.monotonic(), self.run.config.trainer.optimizer_state_minutes
        size = checkpoints.n_bytes([optimizer.state for optimizer in trainer.optimizers])
        is_late = seconds - self.state_saved >= 60 * minutes
        if saves := last or size <= self.SMALL or self.services.stop.on_any_rank(is_late):
            self.state_saved = seconds
        return saves

    def _save_best(self, trainer: pl.Trainer, step: int, saved: bool) -> None:
        """Makes this step's weights best.ckpt if its validation is the best so far; `saved` if it
        has a checkpoint.
        """
        folder = self.services.folder
        if self.services.validations.best_step != step:
            return
        if not saved:
            with self.services.clock.paused():
                self._save(trainer, folder.best, with_state=False)
        elif trainer.is_global_zero:  # a link: costs no disk space
            self.services.writer.submit(
                checkpoint_folder.link_step, folder.checkpoints, step, folder.best.name
            )

    def _save(self, trainer: pl.Trainer, path: Path, with_state: bool) -> None:
        """Saves without Lightning's `weights_only`, which skips callbacks that save other weights,
        such as a moving average.

        The checks of `NonFiniteGuard` are among them.
        """
        trainer.save_checkpoint(path, storage_options={"with_state": with_state})

    def _prove(self, trainer: pl.Trainer, module: TranslationModule, batch: TrainingBatch) -> None:
        """Writes a checkpoint, reads it back and removes it. Translates a sentence if an extension
        constrains searches: else the first one that fails would be that of a validation.
        """
        path = self.services.folder.checkpoints / checkpoint_folder.PROOF
        with self.services.clock.paused():
            self._save(trainer, path, with_state=True)
            faults = loss_faults(module, batch)  # on all ranks: a loss may gather from them
            if trainer.is_global_zero:
                try:
                    self.services.writer.wait()
                    prove(path, trainer, module, batch, faults)
                    if constraining(self.run.research.extensions):
                        with evaluating(module):
                            self.run.translator(module).translate(self.run.validation_text[0][:1])
                finally:
                    path.unlink(missing_ok=True)
                    checkpoint_folder.optimizer_path(path).unlink(missing_ok=True)


def sums_of(module: TranslationModule) -> Tensor:
    """Returns the sum of each weight, which tells whether any has changed."""
    return torch.stack([weight.detach().double().sum() for weight in module.model.parameters()])
