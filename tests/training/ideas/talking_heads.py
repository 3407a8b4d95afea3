"""Talking heads: scores are mixed across heads before the softmax, and weights after it (Shazeer et
al. 2020).
"""

import math

import torch
from torch import nn

from aiayn.model.attention import MultiHeadAttention
from aiayn.model.layers import Parts


class TalkingHeads(MultiHeadAttention):
    def __init__(self, d_model, n_heads, d_k, d_v):
        super().__init__(d_model, n_heads, d_k, d_v)
        self.mix_scores = nn.Parameter(torch.eye(n_heads))
        self.mix_weights = nn.Parameter(torch.eye(n_heads))

    def heads(self, q, k, v, mask):
        scores = q @ k.mT / math.sqrt(q.size(-1))
        scores = torch.einsum("bhqk,hg->bgqk", scores, self.mix_scores)
        weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
        return torch.einsum("bhqk,hg->bgqk", weights, self.mix_weights) @ v


def attention(config, place):
    return TalkingHeads(config.d_model, config.n_heads, config.d_k, config.d_v)


PARTS = Parts(self_attention=attention, cross_attention=attention)
