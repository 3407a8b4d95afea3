"""Options of the group `logger`."""

from dataclasses import dataclass

from aiayn.config.rules import OneOrMore, check_rules, listed, one_of, option

# What W&B's own variable, which wins over `logger.mode`, may say.
WANDB_MODES = ("online", "offline", "disabled", "dryrun", "run", "shared")


@dataclass(frozen=True, kw_only=True)
class LoggerConfig:
    """Where metrics go besides the run's own metrics.jsonl."""

    kind: OneOrMore = "wandb"  # wandb | tensorboard | csv | none, or a list of the first three
    project: str = "aiayn"
    entity: str | None = None
    group: str | None = None
    mode: str = option("auto", choices=("auto", "online", "offline"))  # auto: online where a key is found, else offline
    samples: bool = False  # wandb: also send text: validation sentences, their translations, pictures of attention
    upload: bool = False  # wandb: also store the final checkpoint and its tokenizer there

    def __post_init__(self) -> None:
        check_rules("logger.", self)
        for kind in self.kind if isinstance(self.kind, list) else [self.kind]:
            one_of("logger.kind", kind, ("wandb", "tensorboard", "csv", "none"))

    @property
    def kinds(self) -> list[str]:
        """The loggers besides metrics.jsonl."""
        return [kind for kind in listed(self.kind) if kind != "none"]
