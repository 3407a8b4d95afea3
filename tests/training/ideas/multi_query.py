"""Heads of self-attention share one pair of keys and values (Shazeer 2019); those over the source
keep their own.
"""

from torch import nn

from aiayn.model.attention import MultiHeadAttention
from aiayn.model.layers import Parts


class MultiQuery(MultiHeadAttention):
    def __init__(self, d_model, n_heads, d_k, d_v, dropout):
        super().__init__(d_model, n_heads, d_k, d_v, dropout)
        self.w_k, self.w_v = (nn.Linear(d_model, size, bias=False) for size in (d_k, d_v))

    def keys_values(self, context, position=None):
        return self.w_k(context)[:, None], self.w_v(context)[:, None]

    def heads(self, q, k, v, mask):
        shape = -1, q.size(1), -1, -1
        return super().heads(q, k.expand(shape), v.expand(shape), mask)


PARTS = Parts(
    self_attention=lambda c, place: MultiQuery(
        c.d_model, c.n_heads, c.d_k, c.d_v, c.attention_dropout
    )
)
