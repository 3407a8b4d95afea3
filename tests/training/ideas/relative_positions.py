"""Keys and values have a learned part for each clipped distance (Shaw et al. 2018), which a decoder
reads from its mask: in a search, rows are beams.
"""

import math

import torch
from torch import nn

from aiayn.model.attention import MultiHeadAttention
from aiayn.model.layers import Parts

REACH = 3


class Relative(MultiHeadAttention):
    def __init__(self, c, place):
        super().__init__(c.d_model, c.n_heads, c.d_k, c.d_v, c.attention_dropout)
        self.is_causal = place.stack == "decoder"
        self.relative_k = nn.Parameter(torch.randn(2 * REACH + 1, c.d_k) / 10)
        self.relative_v = nn.Parameter(torch.randn(2 * REACH + 1, c.d_v) / 10)

    def distances(self, k, mask):
        if self.is_causal:
            rows = mask.cumsum(-1) - mask.sum(-1, keepdim=True)
        else:
            rows = torch.arange(k.size(2)) - torch.arange(k.size(2))[:, None]
        return rows.clamp(-REACH, REACH) + REACH

    def weights(self, q, k, mask):
        of_distance = (q[..., None, :] * self.relative_k[self.distances(k, mask)]).sum(-1)
        scores = (q @ k.mT + of_distance) / math.sqrt(q.size(-1))
        return scores.masked_fill(~mask, -torch.inf).softmax(-1)

    def heads(self, q, k, v, mask):
        weights, of_distance = self.weights(q, k, mask), self.relative_v[self.distances(k, mask)]
        return weights @ v + (weights[..., None] * of_distance).sum(-2)


PARTS = Parts(self_attention=Relative)
