"""Where measurements go: always to the run's metrics.jsonl, and to the dashboard that `logger=`
names.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only

from aiayn.config.schema import Config
from aiayn.config.stored import flatten, to_dict
from aiayn.errors import ConfigError
from aiayn.runs.run_folder import Record, RunFolder, append_jsonl, drop_records_after, read_jsonl
from aiayn.training.distributed.ranks import global_rank


class MetricsFile(Logger):
    """One JSON object a line: {"step": 100, "train/loss": 4.2, ...}; needs no account or
    service.
    """

    def __init__(self, path: Path, start_step: int):
        """Drops lines after `start_step`: the run takes those steps again."""
        super().__init__()
        self.path = path
        if global_rank() == 0:
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


def make_loggers(config: Config, folder: RunFolder, start_step: int) -> list[Logger]:
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


def send_facts(loggers: list[Logger], facts: Mapping[str, Any]) -> None:
    """Adds what is known only at the start to the configuration that W&B shows."""
    if wandb_logger := _find(loggers, "WandbLogger"):
        wandb_logger.experiment.config.update(dict(facts), allow_val_change=True)


def send_picture(
    loggers: list[Logger], key: str, path: Path, step: int, to_wandb: bool = True
) -> None:
    """Sends a PNG to W&B, which is another machine, or TensorBoard."""
    if to_wandb and (wandb_logger := _find(loggers, "WandbLogger")):
        wandb_logger.log_image(key, [str(path)], step)
    if tensorboard := _find(loggers, "TensorBoardLogger"):
        from aiayn.reports.drawing import read_picture

        tensorboard.experiment.add_image(key, read_picture(path), step, dataformats="HWC")


def send_samples(loggers: list[Logger], path: Path, step: int, to_wandb: bool) -> None:
    """Sends translations of the validation: to TensorBoard this step's as text, to W&B those of all
    steps so far as one table, because its tables cannot be appended to.
    """
    records, columns = read_jsonl(path), ["step", "source", "reference", "hypothesis"]
    wandb_logger, tensorboard = _find(loggers, "WandbLogger"), _find(loggers, "TensorBoardLogger")
    if to_wandb and wandb_logger and records:
        rows = [[record[name] for name in columns] for record in records]
        wandb_logger.log_table("samples", columns, rows, step=step)
    if tensorboard:
        records_of_step = [record for record in records if record["step"] == step]
        tensorboard.experiment.add_text("samples", _markdown(columns[1:], records_of_step), step)


def _find(loggers: list[Logger], class_name: str) -> Any:
    """Returns the logger of this class; the classes need optional libraries, so they are compared
    by name.
    """
    return next((logger for logger in loggers if type(logger).__name__ == class_name), None)


def _tensorboard(config: Config, folder: Path, start_step: int) -> Logger:
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
    options = [
        {"option": key, "value": str(value)} for key, value in flatten(to_dict(config)).items()
    ]
    logger.experiment.add_text("config", _markdown(["option", "value"], options), start_step)
    return logger


def _markdown(keys: list[str], records: list[Record]) -> str:
    """Returns these values of the records as a table that TensorBoard displays."""
    from aiayn.reports.tables import Column, Table, markdown

    return markdown([Table("", [Column(key, key) for key in keys], records)])
