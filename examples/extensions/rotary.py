"""Rotary positions (Su et al. 2021) in self-attention instead of sinusoids at the input.

python train.py 'extensions=[examples/extensions/rotary.py]'
"""

import torch
from torch import Tensor, nn

from aiayn.config.model import ModelConfig
from aiayn.model.attention import MultiHeadAttention
from aiayn.model.layers import LayerPosition, Parts


def rotate(x: Tensor, position: int | None) -> Tensor:
    """Rotates x (B, H, T, d), d even; rows are positions 0, 1, ..., or all at `position`. Returns the same
    shape.
    """
    rows = (
        torch.arange(x.size(2), device=x.device)
        if position is None
        else torch.tensor([position], device=x.device)
    )
    angles = rows[:, None] * 10_000.0 ** (
        -torch.arange(0, x.size(3), 2, device=x.device) / x.size(3)
    )
    even, odd = x[..., 0::2], x[..., 1::2]
    sin, cos = angles.sin().to(x.dtype), angles.cos().to(x.dtype)
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


class RotaryAttention(MultiHeadAttention):
    def queries(self, x: Tensor, position: int | None = None) -> Tensor:
        return rotate(super().queries(x), position)

    def keys_values(self, context: Tensor, position: int | None = None) -> tuple[Tensor, Tensor]:
        k, v = super().keys_values(context)
        return rotate(k, position), v


class NoPositions(nn.Module):
    def forward(self, start: int, length: int) -> Tensor:
        return torch.zeros(())


def attention(c: ModelConfig, layer: LayerPosition) -> RotaryAttention:
    return RotaryAttention(c.d_model, c.n_heads, c.d_k, c.d_v, c.attention_dropout)


PARTS = Parts(self_attention=attention, positions=lambda config, layer: NoPositions())
