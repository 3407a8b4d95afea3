"""What callbacks need to know of the run they are part of; each takes a RunContext as its one argument."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from aiayn.config.schema import Config
from aiayn.config.trainer import TrainerConfig
from aiayn.data.batch_plan import BatchPlan
from aiayn.data.corpus import PreparedCorpus
from aiayn.runs.run_folder import RunFolder
from aiayn.search.translator import Translator
from aiayn.training.background_writer import BackgroundWriter
from aiayn.training.callbacks.display import Display
from aiayn.training.distributed.control_group import StopRequest
from aiayn.training.module import TranslationModule
from aiayn.training.research import Research


class ValidationHistory:
    """One metric of all validations so far: a pure function of metrics.jsonl.

    So a run that was killed and resumed has the same best checkpoint, and stops at the same step, as one that was not.
    Every rank has its own; all have the same values.
    """

    def __init__(self, settings: TrainerConfig, records: Iterable[Mapping[str, Any]] = (), falls: bool = False):
        """`falls`: the metric is better where it is lower, as the loss is."""
        self.falls = falls or settings.best_metric == "val/loss"
        self.metric, self.patience = settings.best_metric, settings.patience
        self.values: dict[int, float] = {}
        for record in records:
            self.add(record["step"], record)

    def add(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Adds a validation. Ignores one whose metric is missing, NaN or infinite."""
        value = metrics.get(self.metric)
        if isinstance(value, (int, float)) and math.isfinite(value):
            self.values[step] = value

    @property
    def best_step(self) -> int | None:
        """The step of the best validation, the first of equals; None before the first."""
        sign = 1 if self.falls else -1
        return min(self.values, key=lambda step: (sign * self.values[step], step), default=None)

    def is_out_of_patience(self) -> bool:
        """True after `trainer.patience` validations in a row that were no better than the best before them."""
        best = self.best_step
        if self.patience is None or best is None:
            return False
        return sum(step > best for step in self.values) >= self.patience


class TrainingClock:
    """Seconds spent on training steps: validations and saves are left out."""

    def __init__(self) -> None:
        self._paused = 0.0

    def now(self) -> float:
        return time.monotonic() - self._paused

    @contextmanager
    def paused(self) -> Iterator[None]:
        start = time.monotonic()
        yield
        self._paused += time.monotonic() - start


def epoch_steps(settings: TrainerConfig, plan: BatchPlan) -> int:
    """Returns the optimizer steps of an epoch, as `overfit_steps` or `limit_train_steps` limits them."""
    limit, steps = settings.overfit_steps or settings.limit_train_steps, plan.steps_per_epoch
    return min(limit, steps) if isinstance(limit, int) else max(1, int(limit * steps))


@dataclass(frozen=True, eq=False)
class RunContext:
    """One start of a run: fixed from before its first step to its end."""

    config: Config
    research: Research  # the module, and what is added to it
    folder: RunFolder
    prepared: PreparedCorpus
    plan: BatchPlan  # which pairs make up each training step
    validation_text: tuple[list[str], list[str]]  # raw sources and references; empty without val/bleu
    start_step: int  # the optimizer steps that earlier starts have done
    validations: ValidationHistory  # up to now
    stop: StopRequest
    writer: BackgroundWriter  # writes checkpoints
    clock: TrainingClock
    display: Display
    check_folder: Callable[[], None]  # raises RefusedError if the folder is no longer the one that is locked

    @property
    def epoch_steps(self) -> int:
        """Optimizer steps of an epoch."""
        return epoch_steps(self.config.trainer, self.plan)

    @property
    def is_finished(self) -> bool:
        """Whether earlier starts have done all of it."""
        is_trained = self.start_step >= self.config.trainer.max_steps or self.validations.is_out_of_patience()
        return self.start_step > 0 and is_trained and self.folder.averaged.exists()

    def translator(self, module: TranslationModule) -> Translator:
        """Translates with the model in training, greedily."""
        search = replace(self.config.search, beam_size=1)
        return Translator(module.model, self.prepared.tokenizer, search, module.device)
