"""Options of the group `optim`: Adam, the learning rate and label smoothing."""

from dataclasses import dataclass

from aiayn.config.defaults import defaults_in_conf
from aiayn.config.rules import check_rules, fraction, option, positive, resolved


@dataclass(frozen=True, kw_only=True)
@defaults_in_conf("train", "optim")
class OptimOptions:
    """Sections 5.3 and 5.4."""

    warmup_steps: int | None = option(
        "steps during which the learning rate rises", least=1, inferred_from_data=True
    )
    lr_scale: float | None = option(
        "factor on the learning rate of equation (3)", positive, inferred_from_data=True
    )
    peak_lr: float | None = option(
        "peak learning rate, reached at the end of the warm-up; replaces lr_scale",
        positive,
    )
    beta1: float = option("of Adam", fraction)
    beta2: float = option("of Adam", fraction)
    eps: float = option("of Adam", positive)
    weight_decay: float = option(
        "decoupled weight decay of matrices (AdamW); the paper has none", fraction
    )
    label_smoothing: float = option("epsilon_ls", fraction)

    def __post_init__(self) -> None:
        check_rules("optim.", self, OptimOptions)


@dataclass(frozen=True, kw_only=True)
@defaults_in_conf("train", "optim")
class OptimConfig(OptimOptions):
    """The options of a schedule whose warm-up and factor are known."""

    warmup_steps: int = resolved()
    lr_scale: float = resolved()
