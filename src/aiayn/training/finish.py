"""What a run does after its last step: the average of its last checkpoints (section 6.1), and its report."""

import logging

from aiayn.data.datamodule import TranslationDataModule
from aiayn.errors import ConfigError
from aiayn.reports.plots import draw_learning_curve
from aiayn.reports.report import summary, write_report
from aiayn.runs import checkpoint_folder, checkpoints
from aiayn.runs.run_folder import read_jsonl, saved_steps
from aiayn.training.average import compare_with_best
from aiayn.training.checkpoint_io import steps_to_average
from aiayn.training.context import RunContext
from aiayn.training.distributed.rank import global_rank
from aiayn.training.loggers import upload

log = logging.getLogger(__name__)


def finish(run: RunContext, data: TranslationDataModule, precision: str) -> None:
    """Averages the last checkpoints, validates the average in `precision` and draws what was measured.

    Raises ConfigError if `trainer.max_time` was over before the first step.
    """
    if global_rank() != 0:
        return
    folder, settings = run.folder, run.config.trainer
    run.check_folder()
    saved = saved_steps(folder.checkpoints)
    if not saved:
        raise ConfigError(f"trainer.max_time={settings.max_time}: was over before the first step; raise it")
    newest = saved[-1]
    if run.validations.is_out_of_patience():
        log.info("stopped early at step %d: trainer.patience=%d", newest, settings.patience)
    elif newest < settings.max_steps:
        log.info("stopped at step %d by a callback or trainer.max_time; the same command trains on", newest)
    steps = steps_to_average(folder.checkpoints, settings, newest)
    # A kill may have come between the last save and these two.
    checkpoint_folder.update_last(folder.checkpoints, newest)
    checkpoint_folder.prune(folder.checkpoints, steps)
    averaged = checkpoints.average(
        [checkpoints.load(checkpoint_folder.step_path(folder.checkpoints, step)) for step in steps]
    )
    log.info("average  of the checkpoints of steps %s", ", ".join(map(str, steps)))
    compare_with_best(run, averaged, data, precision)
    draw_learning_curve(read_jsonl(folder.metrics), folder.learning_curve)
    write_report(folder.path)
    run.check_folder()
    checkpoints.save(folder.averaged, averaged)  # last: once it exists the run is finished
    upload(run.config, folder)
    log.info(summary(folder.path))
