"""A linear warm-up, then half a cosine down to zero at the last step.

python train.py 'extensions=[examples/extensions/cosine.py]' extension.cosine.peak=0.001

The schedule depends on trainer.max_steps, so a run that continues with another one is refused.
"""

import math
from dataclasses import dataclass

from aiayn.training.module import TranslationModule


@dataclass
class Options:
    peak: float = 0.0007  # the highest learning rate

    def __post_init__(self) -> None:
        if self.peak <= 0:
            raise ValueError(f"peak={self.peak}: must be above 0")


class Module(TranslationModule):
    def rate(self, step: int) -> float:
        peak = self.options.peak
        warmup, end = self.config.optim.warmup_steps, self.config.trainer.max_steps
        if step <= warmup:
            return peak * step / warmup
        return peak * (1 + math.cos(math.pi * min(1, (step - warmup) / max(1, end - warmup)))) / 2
