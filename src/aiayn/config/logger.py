"""Options of the group `logger`."""

from dataclasses import dataclass

from aiayn.config.defaults import defaults_in_conf
from aiayn.config.rules import OneOrMore, check_rules, listed, one_of, option

# What W&B's own variable, which wins over `logger.mode`, may say.
WANDB_MODES = ("online", "offline", "disabled", "dryrun", "run", "shared")
LOGGERS = ("wandb", "tensorboard", "csv", "none")


@dataclass(frozen=True, kw_only=True)
@defaults_in_conf("train", "logger")
class LoggerConfig:
    """Where metrics go besides the run's own metrics.jsonl."""

    kind: OneOrMore = option("wandb | tensorboard | csv | none, or a list of the first three")
    project: str = option("wandb: project of the runs")
    entity: str | None = option("wandb: account or team; null: the default")
    group: str | None = option("wandb: group of the run; null: its sweep")
    mode: str = option(
        "auto: online where a key is found, else offline", choices=("auto", "online", "offline")
    )
    samples: bool = option(
        "wandb: also send validation sentences, their translations, pictures of their attention",
    )
    upload: bool = option("wandb: also store the final checkpoint and its tokenizer")

    def __post_init__(self) -> None:
        check_rules("logger.", self)
        for name in listed(self.kind):
            one_of("logger.kind", name, LOGGERS)

    @property
    def kinds(self) -> list[str]:
        """The loggers besides metrics.jsonl."""
        return [name for name in listed(self.kind) if name != "none"]
