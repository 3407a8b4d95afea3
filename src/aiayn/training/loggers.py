"""Where measurements go: always to the run's metrics.jsonl, and to the dashboard that `logger=` names."""

import logging
import math
import os
import secrets
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only

from aiayn.config.schema import Config
from aiayn.config.stored import flatten, to_plain
from aiayn.errors import ConfigError
from aiayn.files import atomic_write_text
from aiayn.runs import checkpoints
from aiayn.runs.run_folder import Record, RunFolder, append_jsonl, drop_records_after, read_jsonl
from aiayn.training.distributed.rank import global_rank

log = logging.getLogger(__name__)


WandbMode = Literal["online", "offline", "disabled", "shared"]


class MetricsFile(Logger):
    """One JSON object a line: {"step": 100, "train/loss": 4.2, ...}; needs no account or service."""

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
        step = step or 0
        if "epoch" in metrics:  # by Lightning, for what a module has logged: it numbers the step under way from 0
            step += 1
            metrics = {name: value for name, value in metrics.items() if name != "epoch" and math.isfinite(value)}
        append_jsonl(self.path, [{"step": step, **metrics}])

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        """Nothing to do: they are in the run's config.yaml."""


def make_loggers(config: Config, folder: RunFolder, start_step: int) -> list[Logger]:
    """The run's own file first, then what `logger=` asks for. Raises ConfigError for a logger that cannot start."""
    loggers: list[Logger] = []
    kinds = config.logger.kinds if global_rank() == 0 else []
    if "wandb" in kinds:
        from pytorch_lightning.loggers import WandbLogger

        experiment = _start_wandb(config, folder.path)
        log.info("wandb    %s", _what_is_sent(config, experiment.url, folder.path))
        loggers.append(WandbLogger(experiment=experiment))
    if "tensorboard" in kinds:
        loggers.append(_tensorboard(config, folder.path, start_step))
    if "csv" in kinds:
        from pytorch_lightning.loggers import CSVLogger

        # Lightning's CSV logger empties the folder it is given, so every start gets its own.
        loggers.append(CSVLogger(folder.path, name="csv", version=f"from_step_{start_step}"))
    return [MetricsFile(folder.metrics, start_step), *loggers]


def _what_is_sent(config: Config, url: str | None, folder: Path) -> str:
    """Returns what leaves this machine, and where it goes."""
    sent = ["curves", "options", "machine"]
    if config.logger.samples:
        sent.append("validation sentences with translations and attention")
    if config.logger.upload:
        sent.append("the final checkpoint")
    text = "" if config.logger.samples else "; no text (logger.samples=true sends validation sentences)"
    if wandb_mode(config.logger.mode) == "disabled":
        return "nothing is sent (disabled)"
    kept = f"kept in {folder}/wandb until `wandb sync {folder}/wandb/offline-*` sends them"
    where = f"sent to {url}" if url else kept
    return f"{', '.join(sent)} are {where}{text}"


def close(loggers: list[Logger]) -> None:
    """Completes what the loggers write; during an error a W&B run is marked as failed."""
    for logger in loggers:
        logger.finalize("finished")
    if wandb_logger := _find(loggers, "WandbLogger"):
        wandb_logger.experiment.finish(exit_code=0 if sys.exc_info()[0] is None else 1)


def send_facts(loggers: list[Logger], facts: Mapping[str, Any]) -> None:
    """Adds what is known only at the start to the configuration that W&B shows."""
    if wandb_logger := _find(loggers, "WandbLogger"):
        wandb_logger.experiment.config.update(dict(facts), allow_val_change=True)


def send_picture(loggers: list[Logger], key: str, path: Path, step: int, to_wandb: bool = True) -> None:
    """Sends a PNG to W&B, which is another machine, or TensorBoard."""
    if to_wandb and (wandb_logger := _find(loggers, "WandbLogger")):
        wandb_logger.log_image(key, [str(path)], step)
    if tensorboard := _find(loggers, "TensorBoardLogger"):
        from aiayn.reports.drawing import read_picture

        tensorboard.experiment.add_image(key, read_picture(path), step, dataformats="HWC")


def send_samples(loggers: list[Logger], path: Path, step: int, to_wandb: bool) -> None:
    """Sends translations of the validation: to TensorBoard this step's as text, to W&B those of all steps so far as one
    table, because its tables cannot be appended to."""
    records, columns = read_jsonl(path), ["step", "source", "reference", "hypothesis"]
    wandb_logger, tensorboard = _find(loggers, "WandbLogger"), _find(loggers, "TensorBoardLogger")
    if to_wandb and wandb_logger and records:
        rows = [[record[name] for name in columns] for record in records]
        wandb_logger.log_table("samples", columns, rows, step=step)
    if tensorboard:
        shown = [record for record in records if record["step"] == step]
        tensorboard.experiment.add_text("samples", _markdown(columns[1:], shown), step)


def upload(config: Config, folder: RunFolder) -> None:
    """With `logger.upload=true`: sends the averaged checkpoint and its tokenizer to W&B, as an artifact of the run."""
    if "wandb" not in config.logger.kinds or not config.logger.upload:
        return
    import wandb

    run = _start_wandb(config, folder.path)
    artifact = wandb.Artifact(f"model-{run.id}", type="model", metadata=to_plain(config))
    artifact.add_file(str(folder.averaged), policy="immutable")  # without a second copy
    with artifact.new_file("tokenizer.json", encoding="utf-8") as file:
        file.write(checkpoints.load(folder.averaged).tokenizer)
    artifact.add_file(str(folder.config))
    run.log_artifact(artifact)
    run.finish()


def _find(loggers: list[Logger], kind: str) -> Any:
    """The logger of this class; the classes need optional libraries, so they are compared by name."""
    return next((logger for logger in loggers if type(logger).__name__ == kind), None)


def _tensorboard(config: Config, folder: Path, start_step: int) -> Logger:
    from pytorch_lightning.loggers import TensorBoardLogger

    try:
        # Hides what was written after the checkpoint: the run takes those steps again.
        logger = TensorBoardLogger(folder, name="tensorboard", version="", purge_step=start_step + 1)
    except ModuleNotFoundError as error:
        raise ConfigError(
            "logger=tensorboard: tensorboard is not installed; pip install 'aiayn[dashboard]', or choose logger=csv"
        ) from error
    options = [{"option": key, "value": str(value)} for key, value in flatten(to_plain(config)).items()]
    logger.experiment.add_text("config", _markdown(["option", "value"], options), start_step)
    return logger


def _markdown(keys: list[str], records: list[Record]) -> str:
    """Returns these values of the records as a table that TensorBoard displays."""
    from aiayn.reports.tables import Column, Table, markdown

    return markdown([Table("", [Column(key, key) for key in keys], records)])


def _start_wandb(config: Config, folder: Path) -> Any:
    """A run of Weights & Biases: online if there is a key, else offline; never prompts.

    Its id is drawn once and stored in the run's folder, so that every later start adds to the same curves.
    """
    import wandb
    from wandb.errors import Error

    mode = wandb_mode(config.logger.mode)
    row = config.run_name.rsplit("/", 1)[-1]
    run_id = folder / "wandb" / "run_id"
    if not run_id.exists():
        run_id.parent.mkdir(exist_ok=True)
        atomic_write_text(run_id, f"{secrets.token_hex(4)}\n")
    try:
        # The logger's own start passes options that this client warns about.
        run = wandb.init(
            project=config.logger.project,
            entity=config.logger.entity,
            group=config.logger.group,
            job_type="train",
            tags=[row] if config.logger.group else None,
            name=config.name,
            id=run_id.read_text(encoding="utf-8").strip(),
            dir=folder,
            mode=mode,
            resume="allow" if mode == "online" else None,
            config=to_plain(config) | {"row": row, "d_k": config.model.d_k, "d_v": config.model.d_v},
            # What is printed holds validation sentences.
            settings=wandb.Settings(silent=True, console="auto" if config.logger.samples else "off"),
        )
    except Error as error:
        raise ConfigError(
            f"logger=wandb: the client did not start ({' '.join(str(error).split())}); run `wandb login`, or set "
            "logger.mode=offline"
        ) from error
    # As the logger does for a run that it starts itself: all curves over optimizer steps.
    run.define_metric("trainer/global_step")
    run.define_metric("*", step_metric="trainer/global_step", step_sync=True)
    return run


def wandb_mode(chosen: str) -> WandbMode:
    """online, offline or disabled: WANDB_MODE if it is set, else what was chosen; auto is online if there is a key."""
    mode = os.environ.get("WANDB_MODE") or chosen
    if mode == "auto":
        return "online" if _has_wandb_key() else "offline"
    return cast(WandbMode, mode)  # the client refuses others


@cache
def _has_wandb_key() -> bool:
    """Whether the client finds a key that the server accepts; asked once, without a prompt."""
    import wandb
    from wandb.errors import Error

    try:
        return wandb.login(prompt=False)
    except Error as error:
        log.warning("wandb: %s", " ".join(str(error).split()))
        return False
