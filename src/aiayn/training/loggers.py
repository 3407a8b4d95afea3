"""Where measurements go: always to the run's own metrics.jsonl, and to the dashboard that the configuration names."""

import logging
import os
import secrets
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only

from aiayn import checkpoints
from aiayn.config import Config
from aiayn.errors import ConfigError
from aiayn.files import atomic_write_text
from aiayn.options import flatten, to_plain
from aiayn.run_folder import drop_records_after, jsonl_line, read_jsonl

log = logging.getLogger(__name__)


class MetricsFile(Logger):
    """One JSON object a line: {"step": 100, "train/loss": 4.2, ...}; complete without any account or service."""

    def __init__(self, path: Path, start_step: int):
        """Lines after `start_step` are dropped: the run takes those steps again."""
        super().__init__()
        self.path = path
        if rank_zero_only.rank == 0:
            drop_records_after(path, start_step)

    @property
    def name(self) -> str:
        return "metrics"

    @property
    def version(self) -> str:
        return ""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(jsonl_line({"step": step, **metrics}))

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any]) -> None:
        """The run's config.yaml holds them."""


def make_loggers(config: Config, folder: Path, start_step: int) -> list[Logger]:
    """The run's own file first, then what logger=... asks for. Raises ConfigError for a logger that cannot start."""
    chosen: list[Logger] = []
    kind = config.logger.kind if rank_zero_only.rank == 0 else "none"  # only the first process writes
    if kind == "wandb":
        chosen.append(_wandb(config, folder))
    elif kind == "tensorboard":
        chosen.append(_tensorboard(config, folder, start_step))
    elif kind == "csv":
        from pytorch_lightning.loggers import CSVLogger

        # Lightning's CSV logger empties the folder it is given, so every start gets its own.
        chosen.append(CSVLogger(folder, name="csv", version=f"from_step_{start_step}"))
    return [MetricsFile(folder / "metrics.jsonl", start_step), *chosen]


def close(loggers: list[Logger]) -> None:
    """Completes what the loggers write; while an error is on its way, a W&B run is marked as failed."""
    for logger in loggers:
        logger.finalize("finished")
        if run := _wandb_run(logger):  # a process may have one of its runs at a time
            run.finish(exit_code=0 if sys.exc_info()[0] is None else 1)


def send_facts(loggers: list[Logger], facts: Mapping[str, Any]) -> None:
    """Adds what is known only at the start to the configuration that W&B shows."""
    for logger in loggers:
        if run := _wandb_run(logger):
            run.config.update(dict(facts), allow_val_change=True)


def send_picture(loggers: list[Logger], key: str, path: Path, step: int) -> None:
    """Sends a PNG to W&B."""
    for logger in loggers:
        if _wandb_run(logger):
            logger.log_image(key, [str(path)], step)


def send_samples(loggers: list[Logger], path: Path, step: int) -> None:
    """Sends translations of the validation: to TensorBoard those of this step as text, to W&B those of all steps so far
    as one table, since its tables cannot be added to."""
    columns = ["step", "source", "reference", "hypothesis"]
    records = read_jsonl(path)
    for logger in loggers:
        if _wandb_run(logger) and records:
            logger.log_table("samples", columns, [[record[name] for name in columns] for record in records], step=step)
        elif type(logger).__name__ == "TensorBoardLogger":
            shown = [[record[name] for name in columns[1:]] for record in records if record["step"] == step]
            logger.experiment.add_text("samples", _markdown(columns[1:], shown), step)


def upload(config: Config, folder: Path) -> None:
    """With `logger.upload=true`: sends the averaged checkpoint and its tokenizer to W&B, as an artifact of the run."""
    if config.logger.kind != "wandb" or not config.logger.upload:
        return
    import wandb

    run = _start_wandb(config, folder)
    artifact = wandb.Artifact(f"model-{run.id}", type="model", metadata=to_plain(config))
    checkpoint = checkpoints.load(folder / "checkpoints" / "averaged.ckpt")
    artifact.add_file(str(folder / "checkpoints" / "averaged.ckpt"), policy="immutable")  # a second copy is not needed
    with artifact.new_file("tokenizer.json", encoding="utf-8") as file:
        file.write(checkpoint.tokenizer)
    artifact.add_file(str(folder / "config.yaml"))
    run.log_artifact(artifact)
    run.finish()


def _tensorboard(config: Config, folder: Path, start_step: int) -> Logger:
    from pytorch_lightning.loggers import TensorBoardLogger

    try:
        # What was written after the checkpoint is hidden: the run takes those steps again.
        logger = TensorBoardLogger(folder, name="tensorboard", version="", purge_step=start_step + 1)
    except ModuleNotFoundError as error:
        raise ConfigError(
            "logger=tensorboard: tensorboard is not installed; pip install 'aiayn[dashboard]', or choose logger=csv"
        ) from error
    rows = [[key, str(value)] for key, value in flatten(to_plain(config)).items()]
    logger.experiment.add_text("config", _markdown(["option", "value"], rows), start_step)
    return logger


def _markdown(columns: list[str], rows: list[list[str]]) -> str:
    """A table, as TensorBoard shows it."""
    cells = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells)


def _wandb(config: Config, folder: Path) -> Logger:
    from pytorch_lightning.loggers import WandbLogger

    if wandb_mode(config.logger.mode) == "offline":
        log.info("wandb: logging off line; `wandb sync %s/wandb/offline-*` uploads it", folder)
    return WandbLogger(experiment=_start_wandb(config, folder))


def _start_wandb(config: Config, folder: Path) -> Any:
    """A run of Weights & Biases: on line where there is a key, else off line; never a prompt.

    Its id is drawn once and stays in the run's folder, so that every later start adds to the same curves.
    """
    import wandb

    mode = wandb_mode(config.logger.mode)
    row = config.name.rsplit("/", 1)[-1]
    settings = {
        "project": config.logger.project,
        "entity": config.logger.entity,
        "group": config.logger.group,
        "job_type": "train",
        "tags": [row] if config.logger.group else None,
        "name": config.name,
        "id": _run_id(folder),
        "dir": folder,
        "mode": mode,
        "resume": "allow" if mode == "online" else None,
        # Null stands for a size that follows from others: a plot over d_k needs the number.
        "config": to_plain(config) | {"row": row, "d_k": config.model.key_size, "d_v": config.model.value_size},
    }
    try:
        # Started here and handed over: the logger's own start gives options that this client warns of.
        run = wandb.init(**settings, settings=wandb.Settings(silent=True))
    except wandb.errors.Error as error:
        raise ConfigError(
            f"logger=wandb: the client did not start ({' '.join(str(error).split())}); run `wandb login`, or set "
            "logger.mode=offline"
        ) from error
    # What the logger does to a run that it starts itself: every curve by optimizer steps.
    run.define_metric("trainer/global_step")
    run.define_metric("*", step_metric="trainer/global_step", step_sync=True)
    return run


def _run_id(folder: Path) -> str:
    path = folder / "wandb" / "run_id"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        atomic_write_text(path, f"{secrets.token_hex(4)}\n")
    return path.read_text(encoding="utf-8").strip()


def _wandb_run(logger: Logger) -> Any:
    """The client's run behind a logger, None for all other loggers."""
    return logger.experiment if type(logger).__name__ == "WandbLogger" else None


def wandb_mode(chosen: str) -> str:
    """online, offline or disabled: the environment's WANDB_MODE, else what was chosen; auto asks for a key."""
    mode = os.environ.get("WANDB_MODE") or chosen
    if mode == "auto":
        return "online" if _wandb_takes_us() else "offline"
    return mode


@cache
def _wandb_takes_us() -> bool:
    """Whether the client finds a key where it looks for one, and the server takes it; asked once, never prompting."""
    import wandb

    try:
        return wandb.login(prompt=False)
    except wandb.errors.Error as error:
        log.warning("wandb: %s", " ".join(str(error).split()))
        return False
