"""Keys and values of all heads are read from one short vector, and only that is cached (multi-head
latent attention, DeepSeek 2024).
"""

from torch import nn

from aiayn.model.attention import MultiHeadAttention
from aiayn.model.layers import Parts

RANK = 6


class Latent(MultiHeadAttention):
    def __init__(self, d_model, n_heads, d_k, d_v, dropout):
        super().__init__(d_model, n_heads, d_k, d_v, dropout)
        self.down = nn.Linear(d_model, RANK, bias=False)
        self.w_k = nn.Linear(RANK, n_heads * d_k, bias=False)
        self.w_v = nn.Linear(RANK, n_heads * d_v, bias=False)

    def keys_values(self, context, position=None):
        latent = self.down(context)[:, None]
        return latent, latent

    def heads(self, q, k, v, mask):
        return super().heads(q, *super().keys_values(k[:, 0]), mask)


def latent(c, place):
    return Latent(c.d_model, c.n_heads, c.d_k, c.d_v, c.attention_dropout)


PARTS = Parts(self_attention=latent, cross_attention=latent)
