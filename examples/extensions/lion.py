"""An optimizer of your own: Lion (Chen et al. 2023), which steps by the sign of its momentum.

python train.py 'extensions=[examples/extensions/lion.py]' extension.lion.scale=0.1
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer

from aiayn.training.module import TranslationModule


@dataclass
class Options:
    scale: float = 0.1  # factor on the learning rate: Lion's steps are larger than Adam's
    beta1: float = 0.9
    beta2: float = 0.99


class Lion(Optimizer):
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        with torch.enable_grad():
            loss = closure() if closure else None
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    momentum = self.state[weight].setdefault("momentum", torch.zeros_like(weight))
                    update = torch.lerp(weight.grad, momentum, group["beta1"]).sign()
                    weight.sub_(update, alpha=group["lr"])
                    momentum.lerp_(weight.grad, 1 - group["beta2"])
        return loss


class Module(TranslationModule):
    def configure_optimizers(self) -> dict[str, Any]:
        own = self.options
        optimizer = Lion(
            self.parameters(), {"lr": own.scale, "beta1": own.beta1, "beta2": own.beta2}
        )
        return {"optimizer": optimizer, "lr_scheduler": self.schedule(optimizer)}
