"""A mixture of experts: each word takes one of four networks (Switch, Fedus et al. 2021), in every
second layer.

python train.py 'extensions=[examples/extensions/experts.py]'
"""

import torch
from torch import Tensor, nn

from aiayn.config.model import ModelConfig
from aiayn.data.batch import Batch
from aiayn.model.layers import FeedForward, LayerPosition, Parts
from aiayn.token_ids import PAD_ID
from aiayn.training.module import TranslationModule


class Experts(nn.Module):
    def __init__(self, d_model: int, d_ff: int, n: int = 4):
        super().__init__()
        self.router = nn.Linear(d_model, n, bias=False)
        self.experts = nn.ModuleList(FeedForward(d_model, d_ff) for _ in range(n))

    def forward(self, x: Tensor) -> Tensor:
        """Returns, for x (B, T, D), the chosen expert's output times the probability of the choice,
        (B, T, D).
        """
        self.shares = self.router(x).softmax(-1)
        weight, chosen = self.shares.max(-1, keepdim=True)
        return sum(
            expert(x) * weight * (chosen == i) for i, expert in enumerate(self.experts)
        ) + torch.zeros_like(x)


def feed_forward(config: ModelConfig, layer: LayerPosition) -> nn.Module:
    return (Experts if layer.number % 2 else FeedForward)(config.d_model, config.d_ff)


class Module(TranslationModule):
    def training_loss(self, batch: Batch) -> Tensor:
        """Adds a loss that is least if the experts share the words evenly; padding does not count."""
        loss, real = (
            super().training_loss(batch),
            {"encoder": batch.src != PAD_ID, "decoder": batch.tgt_out != PAD_ID},
        )
        for name, module in self.model.named_modules():
            if isinstance(module, Experts) and batch.n_tokens:
                shares = module.shares[real[name.split(".")[0]]]
                most = nn.functional.one_hot(shares.argmax(-1), shares.size(-1)).to(shares).mean(0)
                loss = (
                    loss + 0.01 * batch.n_tokens * shares.size(-1) * (most * shares.mean(0)).sum()
                )
        return loss


PARTS = Parts(feed_forward=feed_forward)
