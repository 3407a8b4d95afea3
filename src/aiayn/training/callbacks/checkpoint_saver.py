"""When a run saves, and when it stops."""

from pathlib import Path

import pytorch_lightning as pl

from aiayn import checkpoints
from aiayn.config import Config, TrainerConfig
from aiayn.data.batch import Batch
from aiayn.training.callbacks.non_finite_guard import NonFiniteGuard
from aiayn.training.callbacks.steps import StepCallback, TrainingClock, due
from aiayn.training.distributed.stop_request import StopRequest
from aiayn.training.module import TranslationModule


class CheckpointSaver(StepCallback):
    """Checkpoints every `checkpoint_every` steps, at the end, and when asked to stop; runs after all others."""

    def __init__(self, config: Config, folder: Path, stop: StopRequest, finite: NonFiniteGuard, time: TrainingClock):
        super().__init__()
        self.time = time
        self.config = config
        self.folder = folder
        self.stop = stop
        self.finite = finite

    def on_step_end(self, trainer: pl.Trainer, module: TranslationModule, batch: Batch, step: int) -> None:
        settings = self.config.trainer
        asked = self.stop.agreed()
        if not asked and not due(step, settings.checkpoint_every, settings.max_steps):
            return
        self.finite.look(trainer, module, step)
        with self.time.stopped():
            if trainer.is_global_zero:
                checkpoints.set_aside_average(self.folder)
            trainer.save_checkpoint(checkpoints.step_path(self.folder, step))
            if trainer.is_global_zero:
                checkpoints.update_last(self.folder, step)
                checkpoints.prune(self.folder, to_average(self.folder, settings))
        if asked:
            trainer.should_stop = True


def to_average(folder: Path, settings: TrainerConfig) -> list[int]:
    """Steps of the last regular checkpoints; one that was saved because of a signal would make the average another."""
    regular = [
        step for step in checkpoints.saved_steps(folder) if due(step, settings.checkpoint_every, settings.max_steps)
    ]
    return regular[-settings.average_last :]
