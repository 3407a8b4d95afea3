"""When a run saves, and when it stops."""

import logging

import pytorch_lightning as pl
from torch import Tensor

from aiayn.data.batch import Batch
from aiayn.runs import checkpoints
from aiayn.training.callbacks.steps import StepCallback, due
from aiayn.training.checkpoint_io import checkpoint_of, copied, refuse_foreign_states
from aiayn.training.module import TranslationModule

log = logging.getLogger(__name__)


class CheckpointSaver(StepCallback, pl.callbacks.Checkpoint):
    """Checkpoints every `checkpoint_every` steps, at the best validation, at the end, and when asked to stop.

    Lightning calls callbacks of this kind last: what the validation of the same step found is known, and whether
    another callback, such as EarlyStopping or the Timer of `max_time`, has asked for an end.
    """

    def on_fit_start(self, trainer: pl.Trainer, module: TranslationModule) -> None:
        """Makes up for what the stop of the run kept from being done after the validation of its last step."""
        self._save_best(trainer, module, self.run.start_step, saved=self.run.start_step > 0)
        self.run.writer.wait()  # the loader's workers are forked next, and a fork copies no thread
        if self.run.validations.is_out_of_patience():
            trainer.should_stop = True

    def on_step_end(self, trainer: pl.Trainer, module: TranslationModule, batch: Batch, step: int) -> None:
        self.run.writer.raise_error()
        if step == self.run.start_step + 1:
            refuse_foreign_states(trainer)
        settings, validations = self.run.config.trainer, self.run.validations
        stopping = self.run.stop.signal_of_any_rank()
        early = validations.is_out_of_patience() or trainer.should_stop
        saving = bool(stopping or early or due(step, settings.checkpoint_every, settings.max_steps))
        if saving:
            with self.run.clock.paused():
                trainer.save_checkpoint(checkpoints.step_path(self.run.folder.checkpoints, step))
        self._save_best(trainer, module, step, saving)
        if stopping or early:
            trainer.should_stop = True

    def _save_best(self, trainer: pl.Trainer, module: TranslationModule, step: int, saved: bool) -> None:
        """Makes this step's weights best.ckpt if its validation is the best so far; `saved` if it has a checkpoint."""
        if not trainer.is_global_zero or self.run.validations.best_step != step:
            return
        if saved:
            self.run.writer.submit(self._link_best, step)
            return
        with self.run.clock.paused():
            self.run.writer.wait()  # one copy at a time
            self.run.writer.submit(self._write_best, step, copied(module.model.state_dict()))

    def _link_best(self, step: int) -> None:
        self.run.check_folder()
        checkpoints.update_best(self.run.folder.checkpoints, step)  # costs no disk space

    def _write_best(self, step: int, weights: dict[str, Tensor]) -> None:
        self.run.check_folder()
        checkpoints.save(self.run.folder.best, checkpoint_of(self.run, step, weights))
