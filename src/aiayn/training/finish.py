"""What a run does after its last step: the average of its last checkpoints (section 6.1), its
scores, its report.
"""

import logging
import shlex
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from aiayn.config import program
from aiayn.config.extensions import STORED, file_names, is_importable
from aiayn.config.tasks import VAL_METRICS
from aiayn.data.datamodule import TranslationDataModule
from aiayn.errors import ConfigError, RefusedError, counted, optional
from aiayn.evaluation.translation_task import short_outputs
from aiayn.files import write_json
from aiayn.runs import checkpoint_folder, checkpoints
from aiayn.runs.checkpoints import Checkpoint
from aiayn.runs.continuation import ValidationHistory, end_reason, to_continue
from aiayn.runs.results import best_and_last, last_step
from aiayn.runs.run_folder import RunFolder, is_number, saved_steps, series
from aiayn.training.callbacks.display import metrics_text
from aiayn.training.callbacks.validate import ValidationScores
from aiayn.training.checkpoint_io import steps_to_average
from aiayn.training.distributed.ranks import StopRequest, global_rank
from aiayn.training.start import RunServices, RunSpec
from aiayn.training.trainer import quiet_trainer

log = logging.getLogger(__name__)


def finish(run: RunSpec, services: RunServices, datamodule: TranslationDataModule) -> None:
    """Averages the last checkpoints, validates the average and writes the report, in this order.

    For a run that is finished it does what an earlier start could not do, and nothing else.
    Raises ConfigError if `trainer.max_time` was over before the first step.
    """
    if global_rank() != 0:
        return
    folder = services.folder
    services.check_folder()
    if not run.is_finished:
        folder.report.unlink(missing_ok=True)
        folder.validated.unlink(missing_ok=True)
        # Once it exists the run is finished
        checkpoints.save(folder.averaged, average_last(run, services))
    if folder.best.exists() and not folder.validated.exists():
        compare_with_best(run, services, checkpoints.load(folder.averaged), datamodule)
    if folder.report.exists():
        return
    # pandas and jinja2: not before the last step
    from aiayn.reports.report import write_report

    with optional(folder.report):
        write_report(folder.path)
    if run.config.logger.upload and "wandb" in run.config.logger.kinds:
        with optional("the upload to W&B"):
            from aiayn.training.wandb_run import upload

            upload(run.config, folder)
    if not run.config.trainer.fast_dev_run:  # the summary's next command needs the run's folder
        with optional("the summary"):
            log.info(summary(folder.path))


def summary(run: Path) -> str:
    """Returns the last and best scores, where the files are, and what to type next."""
    folder = RunFolder(run)
    records = folder.read_metrics()
    lines = [f"done     {run}, step {last_step(records)}"]
    scores = []
    if perplexity := best_and_last(records, "val/ppl"):
        scores.append("val/ppl {2:.2f} (lowest {0:.2f} at step {1})".format(*perplexity))
    qualities = {name: best_and_last(records, name, max) for name in VAL_METRICS}
    scores += [
        "{3} {2:.1f} (highest {0:.1f} at step {1})".format(*quality, name)
        for name, quality in qualities.items()
        if quality
    ]
    if scores:
        lines.append(f"scores   {'  '.join(scores)}")
    files = (
        folder.report,
        folder.averaged,
        folder.attention_picture,
        folder.metrics,
        folder.samples,
        folder.config,
    )
    existing = ", ".join(str(path.relative_to(run)) for path in files if path.exists())
    lines += [f"files    {existing}", *next_commands(run, folder.read_config())]
    return "\n".join(lines)


def next_commands(run: Path, config: dict[str, Any]) -> list[str]:
    """Returns lines with the commands that evaluate a run and translate with it.

    They name the files of parts, without which the model cannot be loaded; in the place of classes
    that `aiayn.train` was given, the run's own copies.
    """
    extensions, parts = config["extensions"], file_names(config.get("model", {}).get("parts"))
    own_files = {Path(name).name for name in extensions}
    for name in parts:
        if not is_importable(name):
            return [f"next     aiayn.load({str(run)!r}, module=CLASS) in Python"]
        if name.partition("#")[0] not in own_files:
            extensions = [STORED]
    evaluate = f"{program.typed('evaluate')} run={run}"
    if config["data"]["test"] is None:
        evaluate += " split=val"
    translate = f"{program.typed('translate')} {run}"
    if parts:
        evaluate += " " + shlex.quote(f"extensions=[{','.join(extensions)}]")
        translate += program.extension_flags(extensions)
    return [f"next     {evaluate}", f"         {translate}"]


def average_last(run: RunSpec, services: RunServices) -> Checkpoint:
    """Returns the average of the last checkpoints, and says why the training ended before its last
    step.
    """
    folder, settings = services.folder, run.config.trainer
    saved_checkpoints = saved_steps(folder.checkpoints)
    if not saved_checkpoints:
        if settings.max_time is None:
            raise ConfigError("a callback ended the training before its first step")
        raise ConfigError(
            f"trainer.max_time={settings.max_time}: ran out before the first step; raise it"
        )
    newest = saved_checkpoints[-1]
    if newest < settings.max_steps:
        reason = end_reason(folder, settings, newest, services.validations) or "a callback"
        log.info("stopped at step %d by %s; %s", newest, reason, to_continue(reason, settings))
    steps = steps_to_average(folder.checkpoints, settings, newest)
    # A kill may have come between the last save and these.
    checkpoint_folder.update_last(folder.checkpoints, newest)
    if services.validations.best_step == newest:
        checkpoint_folder.link_step(folder.checkpoints, newest, folder.best.name)
    checkpoint_folder.prune(folder.checkpoints, steps)
    averaged = checkpoints.average(
        [checkpoints.load(checkpoint_folder.step_path(folder.checkpoints, step)) for step in steps]
    )
    services.check_folder()
    plural = "s" if len(steps) > 1 else ""
    named = ", ".join(map(str, steps))
    log.info("average  of the checkpoint%s of step%s %s", plural, plural, named)
    could_save_more = settings.checkpoint_every > 1 and not settings.fast_dev_run
    if len(steps) < settings.average_last and could_save_more:
        log.info(
            "         trainer.average_last=%d: the run has only %s; a lower "
            "trainer.checkpoint_every saves more of them",
            *(settings.average_last, counted(len(steps), "checkpoint")),
        )
    return averaged


def compare_with_best(
    run: RunSpec, services: RunServices, averaged: Checkpoint, datamodule: TranslationDataModule
) -> None:
    """Validates the average and writes whether the best checkpoint is better, for
    `RunFolder.default_checkpoint`.
    """
    folder = services.folder
    try:  # the best of all may be lost, as with another best_metric
        best_step = checkpoints.load(folder.best).step
    except RefusedError:
        folder.validated.unlink(missing_ok=True)
        return
    measured = validate(averaged, run, services, datamodule)
    records = [record for record in folder.read_metrics() if record["step"] == best_step]
    best = {name: values[-1][1] for name in measured if (values := series(records, name))}
    worse = is_worse(measured, best, services.validations)
    services.check_folder()
    finite = {name: value if is_number(value) else None for name, value in measured.items()}
    write_json(
        folder.validated, {"averaged": finite, "best": {"step": best_step} | best, "worse": worse}
    )
    log.info("         %s", metrics_text(measured))
    by = f" by {services.validations.metric}" if best_step == services.validations.best_step else ""
    log.info(
        "best     %s, at step %d%s; checkpoint=best selects it", metrics_text(best), best_step, by
    )
    if warning := short_outputs(measured.get("val/length_ratio"), measured.get("val/bleu")):
        log.warning("warning  %s", warning)
    if worse:
        log.warning(
            "warning  the average is worse than best.ckpt, so commands read best.ckpt by default; "
            "checkpoint=averaged selects the average"
        )


def validate(
    averaged: Checkpoint, run: RunSpec, services: RunServices, datamodule: TranslationDataModule
) -> dict[str, float]:
    """Returns what a validation during training measures, in this process alone: the other ranks
    have ended.
    """
    module = run.research.module(run.config, averaged.vocab_size)
    checkpoints.restore(module.model, averaged)
    unsharded = copy(datamodule)
    unsharded.trainer = None  # else these would be the batches of one rank of several
    scores = ValidationScores(run, replace(services, stop=StopRequest()))
    trainer = quiet_trainer(
        run.hardware, devices=1, logger=False, enable_checkpointing=False, callbacks=[scores]
    )
    with torch.compiler.set_stance("force_eager"):  # as in `run_validation_loop`
        trainer.validate(module, unsharded.val_dataloader(), verbose=False)
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


def is_worse(
    averaged: Mapping[str, float], best: Mapping[str, float], validations: ValidationHistory
) -> bool:
    """Returns whether the average is worse than the best validation by `trainer.best_metric`, and
    better by no other metric.

    All count, because on small texts the loss rises while translations still get better, the BLEU
    of a few hundred sentences is noisy, and the smoothed loss punishes a model for being sure.
    """
    falling = {"val/loss", "val/ppl"}
    if validations.lower_is_better:
        falling.add(validations.metric)
    measured = {*falling, *VAL_METRICS, validations.metric} & averaged.keys() & best.keys()
    gains = {
        name: (averaged[name] - best[name]) * (-1 if name in falling else 1) for name in measured
    }
    # The loss of the same weights differs by rounding. In this form NaN is worse than everything.
    rounding = 1e-4 * abs(best.get(validations.metric, 0))
    return not gains.get(validations.metric, 0) >= -rounding and not any(
        gain > 0 for gain in gains.values()
    )
