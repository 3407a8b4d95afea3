"""What callbacks need to know of the run they are part of; each takes a RunContext as its one
argument.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from aiayn.config.rules import listed
from aiayn.config.schema import Config
from aiayn.data.batch_plan import BatchPlan
from aiayn.data.corpus import PreparedCorpus
from aiayn.runs.run_folder import RunFolder
from aiayn.runs.validations import ValidationHistory
from aiayn.search.translator import Translator
from aiayn.training.background_writer import BackgroundWriter
from aiayn.training.callbacks.display import Display
from aiayn.training.distributed.control_group import StopRequest
from aiayn.training.module import TranslationModule
from aiayn.training.research import Research


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


@dataclass(frozen=True, eq=False)
class RunContext:
    """One start of a run: fixed from before its first step to its end."""

    config: Config
    research: Research  # the module, and what is added to it
    folder: RunFolder
    prepared: PreparedCorpus
    plan: BatchPlan  # which pairs make up each training step
    validation_text: tuple[
        list[str], list[str]
    ]  # raw sources and references; empty without val/bleu
    start_step: int  # the optimizer steps that earlier starts have done
    validations: ValidationHistory  # up to now
    stop: StopRequest
    writer: BackgroundWriter  # writes checkpoints
    clock: TrainingClock
    display: Display
    check_folder: Callable[
        [], None
    ]  # raises RefusedError if the folder is no longer the one that is locked

    @property
    def epoch_steps(self) -> int:
        """Optimizer steps of an epoch."""
        return self.config.trainer.steps_of_epoch(self.plan.steps_per_epoch)

    @property
    def is_finished(self) -> bool:
        """Whether earlier starts have done all of it."""
        return self.start_step > 0 and self.end_reason is not None and self.folder.averaged.exists()

    @property
    def end_reason(self) -> str | None:
        """What ended the training at the step that this start began with; None where it goes on."""
        trainer = self.config.trainer
        if self.start_step >= trainer.max_steps:
            return f"trainer.max_steps={trainer.max_steps}"
        if self.validations.is_out_of_patience():
            return f"trainer.patience={trainer.patience}"
        return self.folder.end_reason(self.start_step, trainer)

    def translator(self, module: TranslationModule) -> Translator:
        """Translates with the model in training, greedily."""
        search = replace(self.config.search, beam_size=1)
        return Translator(module.model, self.prepared.tokenizer, search, module.device)


def validated_lines(config: Config, total: int) -> Sequence[int]:
    """Returns which lines of the validation text are translated: the first, or of several files
    some of each.
    """
    count = min(config.trainer.val_bleu_sentences, total)
    return (
        range(count)
        if len(listed(config.data.val)) == 1
        else [n * total // count for n in range(count)]
    )
