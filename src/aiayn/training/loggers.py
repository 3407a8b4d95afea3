"""Where measurements, pictures and translations go: always to the run's folder, and to the
dashboard that `logger=` names.
"""

import sys
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only
from pytorch_lightning.utilities.types import STEP_OUTPUT

from aiayn.config.resolve import RunConfig
from aiayn.config.stored import flatten, to_dict
from aiayn.data.batch import TrainingBatch
from aiayn.data.batch_plan import describe_corpus
from aiayn.errors import ConfigError, optional
from aiayn.files import lines_sha256, write_json
from aiayn.hardware import describe_machine
from aiayn.runs.run_folder import (
    Record,
    RunFolder,
    append_jsonl,
    drop_records_after,
    read_json,
    read_jsonl,
)
from aiayn.training.callbacks.steps import due, ends_step, translation_module
from aiayn.training.distributed.ranks import global_rank
from aiayn.training.start import RunServices, RunSpec


class MetricsFile(Logger):
    """One JSON object a line: {"step": 100, "train/loss": 4.2, ...}; needs no account or
    service.
    """

    def __init__(self, path: Path, start_step: int):
        """Drops lines after `start_step`: the run takes those steps again."""
        super().__init__()
        self.path = path
        if global_rank() == 0 and path.exists():
            drop_records_after(path, start_step)

    @property
    def name(self) -> str:
        return "metrics"

    @property
    def version(self) -> str:
        return ""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        append_jsonl(self.path, [{"step": step or 0, **metrics}])

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        """Does nothing: they are in the run's config.yaml."""


def make_loggers(config: RunConfig, folder: RunFolder, start_step: int) -> list[Logger]:
    """Returns the logger of the run's own file first, then what `logger=` asks for. Raises
    ConfigError for a logger that cannot start.
    """
    loggers: list[Logger] = []
    kinds = config.logger.kinds if global_rank() == 0 else []
    if "wandb" in kinds:
        from aiayn.training.wandb_run import wandb_logger

        loggers.append(wandb_logger(config, folder.path))
    if "tensorboard" in kinds:
        loggers.append(_tensorboard(config, folder.path, start_step))
    if "csv" in kinds:
        from pytorch_lightning.loggers import CSVLogger

        # Lightning's CSV logger empties the folder it is given, so every start gets its own. It
        # would keep in memory what comes at other steps than 99, 199, ..., and a kill would lose
        # all of it.
        names = {"name": "csv", "version": f"from_step_{start_step}"}
        loggers.append(CSVLogger(folder.path, **names, flush_logs_every_n_steps=1))
    return [MetricsFile(folder.metrics, start_step), *loggers]


def close(loggers: list[Logger]) -> None:
    """Ends a W&B run, during an error as failed; Lightning completes what the others write."""
    if wandb_logger := _find(loggers, "WandbLogger"):
        wandb_logger.experiment.finish(exit_code=0 if sys.exc_info()[0] is None else 1)


def _find(loggers: list[Logger], class_name: str) -> Any:
    """Returns the logger of this class; the classes need optional libraries, so they are compared
    by name.
    """
    return next((logger for logger in loggers if type(logger).__name__ == class_name), None)


def _tensorboard(config: RunConfig, folder: Path, start_step: int) -> Logger:
    from pytorch_lightning.loggers import TensorBoardLogger

    try:
        # Hides what was written after the checkpoint: the run takes those steps again.
        logger = TensorBoardLogger(
            folder, name="tensorboard", version="", purge_step=start_step + 1
        )
    except ModuleNotFoundError as error:
        raise ConfigError(
            "logger=tensorboard: tensorboard is not installed; pip install 'aiayn[dashboard]', "
            "or choose logger=csv"
        ) from error
    options = flatten(to_dict(config)).items()
    records = [{"option": key, "value": str(value)} for key, value in options]
    logger.experiment.add_text("config", _markdown(records, "option", "value"), start_step)
    return logger


def _markdown(records: list[Record], *keys: str) -> str:
    """Returns these values of the records as a table that TensorBoard displays."""
    from aiayn.reports.tables import Column, Table, markdown

    return markdown([Table("", [*map(Column, keys)], records)])


class RunArtifacts(Checkpoint):
    """Writes corpus.json at the first start and machine.json at every one; draws attention.png.

    The attention is that of one validation sentence: at the end, and with W&B and TensorBoard at
    every validation, where a slider leads through the pictures of one name.

    Lightning calls callbacks of this kind last, and this one after CheckpointSaver: a picture or a
    dashboard that fails costs one line, and no checkpoint.
    """

    def __init__(self, run: RunSpec, services: RunServices):
        self.run, self.services = run, services
        sentences = [line for line in run.validation_text[0][:5] if line.strip()]
        self.sentence = min(sentences, key=len, default=None)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        folder = self.services.folder
        with self.services.clock.paused():
            machine = describe_machine(pl_module.device, trainer.precision, trainer.world_size)
            write_json(folder.machine, machine)
            corpus = read_json(folder.corpus)
            if "fingerprint" not in corpus:
                corpus = describe_corpus(self.run.corpus, self.run.plan)
                corpus["val_text_sha256"] = lines_sha256(*self.run.validation_text)
                write_json(folder.corpus, corpus)
            wandb_logger = _find(trainer.loggers, "WandbLogger")
            if wandb_logger:  # which got the configuration before these were known
                with optional("the description of data and machine for the dashboard"):
                    facts = {"corpus": corpus["splits"], "padding": corpus["padding"]}
                    facts["machine"] = machine
                    wandb_logger.experiment.config.update(facts, allow_val_change=True)

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: STEP_OUTPUT,
        batch: TrainingBatch,
        batch_idx: int,
    ) -> None:
        if not (ends_step(trainer, batch_idx) and trainer.is_global_zero):
            return
        step, settings = trainer.global_step, self.run.config.trainer
        is_stopped = trainer.should_stop and not self.services.stop.signal
        if not (is_stopped or due(step, settings.val_every, settings.max_steps)):
            return
        tensorboard = _find(trainer.loggers, "TensorBoardLogger")
        # W&B is another machine, and samples and pictures hold text.
        sends_text = self.run.config.logger.samples
        wandb_logger = _find(trainer.loggers, "WandbLogger") if sends_text else None
        with self.services.clock.paused():
            with optional("the translations for the dashboard"):
                self._send_samples(wandb_logger, tensorboard, step)
            ends = is_stopped or step == settings.max_steps
            if self.sentence and (ends or wandb_logger or tensorboard):
                path = self.services.folder.attention_picture
                with optional(path):
                    from aiayn.reports.drawing import read_picture
                    from aiayn.visualize.figures import draw_cross_attention
                    from aiayn.visualize.maps import attention_maps

                    translator = self.run.translator(translation_module(pl_module))
                    draw_cross_attention(attention_maps(translator, self.sentence), path)
                    if wandb_logger:
                        wandb_logger.log_image("attention", [str(path)], step)
                    if tensorboard:
                        picture = read_picture(path)
                        tensorboard.experiment.add_image(
                            "attention", picture, step, dataformats="HWC"
                        )

    def _send_samples(self, wandb_logger: Any, tensorboard: Any, step: int) -> None:
        """Sends translations of the validation: to TensorBoard this step's as text, to W&B those of
        all steps so far as one table, because its tables cannot be appended to.
        """
        records = read_jsonl(self.services.folder.samples)
        columns = ["step", "source", "reference", "hypothesis"]
        if wandb_logger and records:
            rows = [[record[name] for name in columns] for record in records]
            wandb_logger.log_table("samples", columns, rows, step=step)
        if tensorboard:
            records_of_step = [record for record in records if record["step"] == step]
            table = _markdown(records_of_step, *columns[1:])
            tensorboard.experiment.add_text("samples", table, step)
