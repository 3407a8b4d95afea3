"""WRONG ON PURPOSE: a learned bias by offset from `arange`, of keys that a search holds for all
beams. It starts at zero, where nothing shows.
"""

import math

import torch
from torch import nn

from aiayn.model.attention import MultiHeadAttention
from aiayn.model.layers import Parts

REACH = 4


class Offsets(MultiHeadAttention):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.bias = nn.Parameter(torch.zeros(2 * REACH + 1, self.n_heads))

    def heads(self, q, k, v, mask):
        offset = torch.arange(k.size(2)) - torch.arange(q.size(2))[:, None]
        bias = self.bias[offset.clamp(-REACH, REACH) + REACH].permute(2, 0, 1)
        scores = q @ k.mT / math.sqrt(q.size(-1)) + bias
        return scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v


PARTS = Parts(self_attention=lambda c, place: Offsets(c.d_model, c.n_heads, c.d_k, c.d_v))
