"""When a run saves, and when it stops."""

import pytorch_lightning as pl

from aiayn import checkpoints
from aiayn.data.batch import Batch
from aiayn.training.callbacks.steps import StepCallback, due
from aiayn.training.module import TranslationModule


class CheckpointSaver(StepCallback):
    """Checkpoints every `checkpoint_every` steps, at the end, and when asked to stop; the last of the callbacks."""

    def on_step_end(self, trainer: pl.Trainer, module: TranslationModule, batch: Batch, step: int) -> None:
        settings = self.run.config.trainer
        stopping = self.run.stop.signal_of_any_rank()
        if stopping or due(step, settings.checkpoint_every, settings.max_steps):
            with self.run.clock.paused():
                trainer.save_checkpoint(checkpoints.step_path(self.run.folder.checkpoints, step))
        if stopping:
            trainer.should_stop = True
