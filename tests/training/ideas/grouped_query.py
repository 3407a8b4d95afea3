"""Two heads share the keys and values of a group, in self-attention and over the source
(grouped-query attention, Ainslie et al. 2023). The caches hold those of the groups.
"""

from torch import nn

from aiayn.model.attention import MultiHeadAttention
from aiayn.model.layers import Parts

HEADS_OF_GROUP = 2


class GroupedQuery(MultiHeadAttention):
    def __init__(self, d_model, n_heads, d_k, d_v, dropout):
        super().__init__(d_model, n_heads, d_k, d_v, dropout)
        self.groups = n_heads // HEADS_OF_GROUP
        self.w_k = nn.Linear(d_model, self.groups * d_k, bias=False)
        self.w_v = nn.Linear(d_model, self.groups * d_v, bias=False)

    def keys_values(self, context, position=None):
        k, v = (w(context).unflatten(2, (self.groups, -1)) for w in (self.w_k, self.w_v))
        return k.transpose(1, 2), v.transpose(1, 2)

    def heads(self, q, k, v, mask):
        return super().heads(q, of_heads(k), of_heads(v), mask)

    def weights(self, q, k, mask):
        return super().weights(q, of_heads(k), mask)


def of_heads(groups):
    return groups.repeat_interleave(HEADS_OF_GROUP, 1)


def grouped_query(c, place):
    return GroupedQuery(c.d_model, c.n_heads, c.d_k, c.d_v, c.attention_dropout)


PARTS = Parts(self_attention=grouped_query, cross_attention=grouped_query)
