"""Where measurements go: always to the run's own metrics.jsonl, and to the dashboard that the configuration names."""

import json
import logging
import netrc
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only

from aiayn.config import Config, to_plain
from aiayn.files import write_text

log = logging.getLogger(__name__)


class MetricsFile(Logger):
    """One JSON object a line: {"step": 100, "train/loss": 4.2, ...}; complete without any account or service."""

    def __init__(self, path: Path, start_step: int):
        """Lines after `start_step` are dropped: the run takes those steps again."""
        super().__init__()
        self.path = path
        self._forget_after(start_step)

    @property
    def name(self) -> str:
        return "metrics"

    @property
    def version(self) -> str:
        return ""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **metrics}) + "\n")

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any]) -> None:
        """The run's config.yaml holds them."""

    @rank_zero_only
    def _forget_after(self, step: int) -> None:
        kept = [record for record in read_metrics(self.path) if record["step"] <= step]
        write_text(self.path, "".join(json.dumps(record) + "\n" for record in kept))


def read_metrics(path: Path) -> list[dict[str, float]]:
    """The records of a metrics.jsonl, in order; a line torn by a kill is passed over."""
    if not path.exists():
        return []
    records = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        records.append(record)
    return records


def make_loggers(config: Config, folder: Path, start_step: int) -> list[Logger]:
    """The run's own file first, then what logger=... asks for."""
    loggers: list[Logger] = [MetricsFile(folder / "metrics.jsonl", start_step)]
    if rank_zero_only.rank != 0:  # only the first process writes
        return loggers
    if config.logger.kind == "wandb":
        loggers.append(_wandb(config, folder))
    elif config.logger.kind == "tensorboard":
        from pytorch_lightning.loggers import TensorBoardLogger

        loggers.append(TensorBoardLogger(folder, name="tensorboard", version=""))
    elif config.logger.kind == "csv":
        from pytorch_lightning.loggers import CSVLogger

        # Lightning's CSV logger empties the folder it is given, so every start gets its own.
        loggers.append(CSVLogger(folder, name="csv", version=f"from_step_{start_step}"))
    return loggers


def close(loggers: list[Logger]) -> None:
    """Completes what the loggers write."""
    for logger in loggers:
        logger.finalize("finished")
        if type(logger).__name__ == "WandbLogger":  # a process may have one of its runs at a time
            logger.experiment.finish()


def _wandb(config: Config, folder: Path) -> Logger:
    """Weights & Biases: on line where there is a key, else off line; never a prompt."""
    import wandb
    from pytorch_lightning.loggers import WandbLogger

    mode = os.environ.get("WANDB_MODE") or config.logger.mode
    if mode == "auto":
        mode = "online" if _has_wandb_key() else "offline"
        if mode == "offline":
            log.info("wandb: no key found, logging off line; `wandb sync %s/wandb/offline-*` uploads it", folder)
    # Started here and handed over: the logger's own start gives options that this client warns of.
    run = wandb.init(
        project=config.logger.project,
        entity=config.logger.entity,
        group=config.logger.group,
        name=config.name,
        id=config.name.replace("/", "-"),
        dir=folder,
        mode=mode,
        resume="allow" if mode == "online" else None,
        config=to_plain(config),
        settings=wandb.Settings(silent=True),
    )
    return WandbLogger(experiment=run)


def _has_wandb_key() -> bool:
    """Where the client itself would look without asking: the environment and the user's netrc."""
    import wandb

    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(wandb.Settings().base_url).hostname
    try:
        known = netrc.netrc(os.environ.get("NETRC") or Path("~/.netrc").expanduser())
    except (OSError, netrc.NetrcParseError):
        return False
    return host is not None and known.authenticators(host) is not None
