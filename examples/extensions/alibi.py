"""ALiBi (Press et al. 2022): each head attends less to distant words; nothing is added at the
input.

python train.py 'extensions=[examples/extensions/alibi.py]'
"""

import torch
from torch import Tensor, nn

from aiayn.config.model import ModelConfig
from aiayn.model.attention import MultiHeadAttention
from aiayn.model.layers import LayerPosition, Parts


class ALiBi(MultiHeadAttention):
    """Uses a mask of factors instead of True: their logarithm, -slope * distance, is added to the
    scores.
    """

    def __init__(self, c: ModelConfig, layer: LayerPosition):
        super().__init__(c.d_model, c.n_heads, c.d_k, c.d_v, c.attention_dropout)
        self.causal = layer.stack == "decoder"

    def heads(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Attends by distance: q (B, H, T, d), k and v (B, H, S, d), mask broadcastable to
        (B, 1, T, S). Returns (B, H, T, d).
        """
        return super().heads(q, k, v, self.factors(k, mask))

    def weights(self, q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
        return super().weights(q, k, self.factors(k, mask))

    def factors(self, k: Tensor, mask: Tensor) -> Tensor:
        # In a search, rows are beams instead of positions: only the mask knows a beam's keys.
        if self.causal:
            distance = mask.sum(-1, keepdim=True) - mask.cumsum(-1)
        else:
            rows = torch.arange(k.size(2), device=k.device)
            distance = (rows - rows[:, None]).abs()
        slopes = 2 ** (-8 * torch.arange(1, self.n_heads + 1, device=k.device) / self.n_heads)
        return torch.where(mask, torch.exp(-slopes[:, None, None] * distance), 0.0)


class NoPositions(nn.Module):
    def forward(self, start: int, length: int) -> Tensor:
        return torch.zeros(())


PARTS = Parts(self_attention=ALiBi, positions=lambda config, layer: NoPositions())
