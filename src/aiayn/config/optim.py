"""Options of the group `optim`: Adam, the learning rate and label smoothing."""

import math
from dataclasses import dataclass

from aiayn.config.rules import at_least, by_text, fraction, require


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """Sections 5.3 and 5.4."""

    warmup_steps: int = by_text(4000)  # null: a tenth of the steps
    lr_scale: float = by_text(1.0)  # multiplies equation (3); null: by d_model and warm-up
    peak_lr: float | None = None  # the highest learning rate, at the end of the warm-up, instead of lr_scale
    beta1: float = 0.9
    beta2: float = 0.98
    eps: float = 1e-9
    weight_decay: float = 0.0  # of matrices, decoupled from the gradient (AdamW); the paper has none
    label_smoothing: float = 0.1

    def __post_init__(self) -> None:
        at_least("optim.warmup_steps", self.warmup_steps, 1)
        for name in ("lr_scale", "peak_lr", "eps"):
            value = getattr(self, name)
            require(value is None or 0 < value < math.inf, f"optim.{name}={value}: must be above 0 and finite")
        for name in ("beta1", "beta2", "label_smoothing", "weight_decay"):
            fraction(f"optim.{name}", getattr(self, name))
