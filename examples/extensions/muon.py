"""Muon (Jordan et al. 2024) for the matrices of the layers, AdamW in two groups for all else.

python train.py extensions=[examples/extensions/muon.py]
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import AdamW, Muon, Optimizer

from aiayn.training.module import TranslationModule


class MuonAndAdamW(Optimizer):
    """Both as one: Lightning steps, saves and restores a single optimizer. Rates are multiples of the schedule's."""

    def __init__(self, matrices: list, decayed: list, others: list):
        groups = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
        self.parts: list[Optimizer] = [Muon(matrices, lr=30.0), AdamW(groups, lr=1.0, betas=(0.9, 0.98))]
        super().__init__([group for part in self.parts for group in part.param_groups], {})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        with torch.enable_grad():
            loss = closure() if closure else None
        for part, groups in zip(self.parts, (self.param_groups[:1], self.param_groups[1:]), strict=True):
            part.param_groups, part.state = groups, self.state  # which a resumed training has replaced
            part.step()
        return loss


class Module(TranslationModule):
    def configure_optimizers(self) -> dict[str, Any]:
        named = list(self.named_parameters())
        matrices = [weight for name, weight in named if weight.dim() == 2 and "coder." in name]
        vectors = [weight for _, weight in named if weight.dim() == 1]
        optimizer = MuonAndAdamW(matrices, [self.model.embedding.weight], vectors)
        return {"optimizer": optimizer, "lr_scheduler": self.schedule(optimizer)}
