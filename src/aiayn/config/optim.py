"""Options of the group `optim`: Adam, the learning rate and label smoothing."""

from dataclasses import dataclass

from aiayn.config.rules import check_rules, fraction, option, positive


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """Sections 5.3 and 5.4."""

    warmup_steps: int = option(4000, least=1, by_text=True)  # null: a tenth of the steps
    lr_scale: float = option(1.0, positive, by_text=True)  # multiplies equation (3); null: by d_model and warm-up
    peak_lr: float | None = option(None, positive)  # the highest learning rate, after the warm-up, instead of lr_scale
    beta1: float = option(0.9, fraction)
    beta2: float = option(0.98, fraction)
    eps: float = option(1e-9, positive)
    weight_decay: float = option(0.0, fraction)  # of matrices, decoupled from the gradient (AdamW); the paper has none
    label_smoothing: float = option(0.1, fraction)

    def __post_init__(self) -> None:
        check_rules("optim.", self)
