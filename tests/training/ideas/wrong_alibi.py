"""WRONG ON PURPOSE: a bias by distance that takes the position of the query from the number of rows,
one too far in a step.
"""

import math

import torch

from aiayn.model.attention import MultiHeadAttention
from aiayn.model.layers import Parts


class OffByOne(MultiHeadAttention):
    def heads(self, q, k, v, mask):
        last = k.size(2) - 1
        rows = torch.arange(q.size(2))[:, None] if q.size(2) == k.size(2) else last + 1
        distance = (rows - torch.arange(k.size(2))).abs()
        slopes = torch.tensor([2.0 ** -(head + 1) for head in range(self.n_heads)])
        scores = q @ k.mT / math.sqrt(q.size(-1)) - slopes[:, None, None] * (
            distance + (distance > 1)
        )
        return scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v


PARTS = Parts(self_attention=lambda c, place: OffByOne(c.d_model, c.n_heads, c.d_k, c.d_v))
