"""Validates between training steps; writes and shows the results."""

import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.types import LRSchedulerConfig
from torch.optim.lr_scheduler import ReduceLROnPlateau

from aiayn.config.extensions import measure
from aiayn.data.batch import Batch, TrainingBatch
from aiayn.data.languages import target_language
from aiayn.errors import ConfigError, DivergedError, NonFiniteOutputError
from aiayn.evaluation.translation_task import task_of
from aiayn.runs.run_folder import append_jsonl, drop_records_after, read_jsonl
from aiayn.search.translator import evaluating
from aiayn.training.callbacks.monitors import lower_rate
from aiayn.training.callbacks.steps import StepCallback, due, log_metrics, translation_module
from aiayn.training.distributed.ranks import ValidationInterrupted, global_rank
from aiayn.training.module import TranslationModule
from aiayn.training.start import RunServices, RunSpec, validated_lines

log = logging.getLogger(__name__)


class ValidationScores(pl.Callback):
    """The task's score of some validation sentences, for Lightning's callbacks to see as they see
    `val/loss`.

    Comes before callbacks of extensions, which may put other weights in place for a validation.
    """

    def __init__(self, run: RunSpec, services: RunServices):
        self.run, self.services = run, services
        lines = validated_lines(run.config, len(run.validation_text[0]))
        self.sources, self.references = ([side[n] for n in lines] for side in run.validation_text)
        self.hypotheses: list[str] = []  # of the current validation
        # Metrics without a number in it; Lightning's callbacks still see their previous values
        self.failed: list[str] = []
        self.task = task_of(run.config.data.task)
        self.language = target_language(self.sources, run.config.data.tgt_lang)
        # Text that cannot be scored is refused before training.
        self.task.check_text(self.sources, self.references, self.language)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Ends the validation if it was interrupted, before the ranks add up their losses, which
        must not wait.
        """
        if trainer.sanity_checking:
            return
        if self.services.stop.signal_of_any_rank():
            raise ValidationInterrupted(agreed=True)
        if not self.sources:
            return
        self.hypotheses = self._translate(trainer, translation_module(pl_module))
        scores = self.task.val_scores(self.hypotheses, self.sources, self.references, self.language)
        metrics = self.run.research.metrics if trainer.is_global_zero else {}
        measured = measure(metrics, self.hypotheses, self.references, self.sources)
        # All ranks take the values of rank 0: a metric that samples would give each its own, and
        # they would stop at different steps.
        measured = trainer.strategy.broadcast(measured)
        own_scores = {f"val/{name}": value for name, value in measured.items()}
        self.failed = [name for name, value in own_scores.items() if value is None]
        for name, value in [*scores.items(), *own_scores.items()]:
            if value is not None:
                trainer.callback_metrics[name] = torch.tensor(value)

    def _translate(self, trainer: pl.Trainer, module: TranslationModule) -> list[str]:
        """Translates each rank's share of the sentences; all ranks get all translations.

        Raises ValidationInterrupted on all ranks if a signal has interrupted any of them.
        """
        rank, world_size = trainer.global_rank, trainer.world_size
        translator, share = self.run.translator(module), self.sources[rank::world_size]
        try:
            with suppress(ValidationInterrupted):
                share = translator.translate(share, self._after_batch)
        except NonFiniteOutputError as error:
            raise DivergedError(
                "the model's output is NaN or infinite in a validation: "
                f"{lower_rate(self.run.config.optim)}"
            ) from error
        if self.services.stop.signal_of_any_rank():
            raise ValidationInterrupted
        shares = [share]
        if world_size > 1:
            shares = [[] for _ in range(world_size)]
            torch.distributed.all_gather_object(shares, share)
        hypotheses = [""] * len(self.sources)
        for other, translated in enumerate(shares):
            hypotheses[other::world_size] = translated
        return hypotheses

    def _after_batch(self, done: int, lines: int) -> None:
        self.services.stop.interrupt_if_requested()
        if global_rank() == 0:
            self.services.display.show_translating(done, lines)


@dataclass(eq=False)
class Validate(StepCallback):
    """Loss and perplexity of the validation set, its scores, and some of its sentences to read.

    Comes after callbacks of extensions: those that average weights have seen the step. A
    ReduceLROnPlateau takes its step after every validation: Lightning would take it after the
    checkpoint, and none in an epoch that was resumed.
    """

    SHOWN = 5

    services: RunServices
    scores: ValidationScores
    repeated: bool = False  # a validation before the first step of this start
    plateaus: list[LRSchedulerConfig] = field(default_factory=list)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Repeats a validation that an interruption cut off, also at the end of a training; with
        `init_from`, validates the initial weights.
        """
        step, folder = self.run.start_step, self.services.folder
        if trainer.is_global_zero and folder.samples.exists():
            drop_records_after(folder.samples, step)
        is_due = self._is_due(step) or (self.run.end_reason and self.settings.limit_val_batches)
        if not is_due or not (step or self.run.config.init_from):
            return
        if any(
            record["step"] == step and "val/loss" in record for record in read_jsonl(folder.metrics)
        ):
            return
        try:
            self._validate(trainer, translation_module(pl_module), step)
            self.repeated = True
        except ValidationInterrupted:
            self.services.stop.raise_if_requested(
                f"in the validation of step {step}" + (", which is saved" if step else "")
            )

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.plateaus = [
            schedule for schedule in trainer.lr_scheduler_configs if schedule.reduce_on_plateau
        ]
        for schedule in self.plateaus:
            schedule.interval = "validation"  # which Lightning never finds due
        if self.repeated:  # only now are the schedules restored
            self._step_plateaus(trainer)

    def on_step_end(
        self, trainer: pl.Trainer, module: TranslationModule, batch: TrainingBatch, step: int
    ) -> None:
        if self._is_due(step):
            with self.services.clock.paused(), suppress(ValidationInterrupted):
                self._validate(trainer, module, step)
                self._step_plateaus(trainer)

    def validate_end(self, trainer: pl.Trainer, module: TranslationModule, step: int) -> None:
        """Validates the step at which a callback or `max_time` ends the training, unless that is
        done.
        """
        is_done = self._is_due(step) or step in self.services.validations.values
        if self.settings.limit_val_batches > 0 and not is_done:
            with self.services.clock.paused(), suppress(ValidationInterrupted):
                self._validate(trainer, module, step)

    def _step_plateaus(self, trainer: pl.Trainer) -> None:
        for schedule in self.plateaus:
            if schedule.monitor not in trainer.callback_metrics:
                known = ", ".join(trainer.callback_metrics)
                raise ConfigError(
                    f"ReduceLROnPlateau cannot monitor {schedule.monitor}; choose one of {known}"
                )
            plateau = cast(ReduceLROnPlateau, schedule.scheduler)
            plateau.step(float(trainer.callback_metrics[schedule.monitor]))

    def _is_due(self, step: int) -> bool:
        settings = self.settings
        return settings.limit_val_batches > 0 and due(step, settings.val_every, settings.max_steps)

    def _validate(self, trainer: pl.Trainer, module: TranslationModule, step: int) -> None:
        """Validates on all ranks in Lightning's validation loop, and logs what the module logs."""
        self.scores.hypotheses = []
        try:
            run_validation_loop(trainer)
        except ValidationInterrupted as interrupted:
            if not interrupted.agreed:
                # a collective call: the other ranks learn of the signal
                self.services.stop.signal_of_any_rank()
            # What others have put in place at the start of the validation, such as averaged
            # weights, goes.
            for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
                if callback is not self.scores:
                    callback.on_validation_epoch_end(trainer, module)
            raise
        metrics = {
            name: float(value)
            for name, value in trainer.callback_metrics.items()
            if name.startswith("val/") and name not in self.scores.failed
        }
        if "val/loss" not in metrics:
            raise ConfigError(
                f"{type(module).__name__} does not log val/loss: call super() in its "
                "validation_step and validation hooks, or log it there"
            )
        self.services.check_folder()
        log_metrics(trainer, metrics, step)
        self.services.validations.add(step, metrics)
        if trainer.is_global_zero:
            self.services.display.show_validation(step, metrics)
            if self.scores.hypotheses:
                self._show(step)

    def on_validation_batch_start(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        translation_module(pl_module).note(batch, in_validation=True)
        if not trainer.sanity_checking:
            self.services.stop.interrupt_if_requested()

    def _show(self, step: int) -> None:
        """Stores some translations, and shows the first one."""
        scores, names = self.scores, ("source", "reference", "hypothesis")
        texts = zip(scores.sources, scores.references, scores.hypotheses, strict=True)
        samples = [{"step": step} | dict(zip(names, sentence, strict=True)) for sentence in texts]
        append_jsonl(self.services.folder.samples, samples[: self.SHOWN])
        log.info(
            "  source      %(source)s\n  reference   %(reference)s\n  hypothesis  %(hypothesis)s",
            samples[0],
        )


def run_validation_loop(trainer: pl.Trainer) -> None:
    """Runs Lightning's own validation loop between two training steps: steps and hooks of the
    module and all callbacks.

    Lightning itself starts the loop after the callbacks of a step, one of which has saved the step
    by then, and not after the last step. What was logged is in `trainer.callback_metrics`, and is
    left to the caller to send to loggers: Lightning would count the step from 0.
    """
    connector, loggers = trainer._logger_connector, trainer.loggers
    first = connector._first_loop_iter
    trainer.validating, trainer.loggers = True, []
    try:
        # Compiling its graphs, and those of the search, takes longer than they save.
        with torch.compiler.set_stance("force_eager"), evaluating(trainer.lightning_module):
            trainer.fit_loop.epoch_loop.val_loop.run()
    finally:
        trainer.training, trainer.loggers = True, loggers
        connector._first_loop_iter = first
