"""Section 3.2: attention."""

import math
from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from aiayn.model.cache import KeyValueCache
from aiayn.model.masks import Mask, Ranges


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask, p_drop: float = 0.0) -> Tensor:
    """Computes scaled dot-product attention, equation (1): softmax(q kᵀ / √d_k) v.

    q (B, H, T, d_k), k (B, H, S, d_k), v (B, H, S, d_v), mask broadcastable to (B, H, T, S), True =
    may attend. `p_drop` is the dropout of attention weights (section 6.3). Returns (B, H, T, d_v).
    """
    return F.dropout(attention_weights(q, k, mask), p_drop) @ v


def attention_weights(q: Tensor, k: Tensor, mask: Mask) -> Tensor:
    """Returns softmax(q kᵀ / √d_k), (B, H, T, S): how much each query attends to each key.

    Rows sum to 1. Under `Ranges`, the row of a query that may attend to nothing is 0.
    """
    scores = (q / math.sqrt(q.size(-1))) @ k.transpose(-2, -1)
    if isinstance(mask, Ranges):
        mask = mask.dense()
        weights = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
        return weights.masked_fill(~mask.any(-1, keepdim=True), 0.0)
    if mask is not None:
        # Its log is 0 where the mask is True and -inf elsewhere. It is added, because masks are
        # smaller than scores and the gradient of a sum needs no pass over the scores.
        scores = scores + mask.log().to(scores.dtype)
    return scores.softmax(dim=-1)


Attention = Callable[[Tensor, Tensor, Tensor, Mask, float], Tensor]  # (q, k, v, mask, p_drop)


class MultiHeadAttention(nn.Module):
    """Section 3.2.2: h heads attend in parallel, each through its own projections.

    Concat(head_1, ..., head_h) W_O with head_i = Attention(q W_Q_i, k W_K_i, v W_V_i). The
    projections have no bias; d_k and d_v need not equal each other or d_model / h (rows A and B of
    Table 3).
    """

    def __init__(self, d_model: int, n_heads: int, d_k: int, d_v: int, dropout: float = 0.0):
        super().__init__()
        self.n_heads = n_heads
        self.p_drop = dropout  # on the attention weights, while training
        self.w_q = nn.Linear(d_model, n_heads * d_k, bias=False)
        self.w_k = nn.Linear(d_model, n_heads * d_k, bias=False)
        self.w_v = nn.Linear(d_model, n_heads * d_v, bias=False)
        self.w_o = nn.Linear(n_heads * d_v, d_model, bias=False)
        self.attention: Attention = attention  # or a fused version (kernels/accelerate.py)

    def forward(self, x: Tensor, context: Tensor, mask: Mask) -> Tensor:
        """Attends with queries from x (B, T, D) to keys and values from context (B, S, D). Returns
        (B, T, D).
        """
        return self.attend(self.queries(x), *self.keys_values(context), mask)

    def step(self, x: Tensor, cache: KeyValueCache, position: int, mask: Mask) -> Tensor:
        """Computes `forward` for the newest position of a search: x (N, K, D), K beams instead of
        T.

        The cache holds the keys and values of the source, or of this position and all before it.
        Returns (N, K, D).
        """
        if cache.grows:
            cache.append(*self.keys_values(x, position))
        return self.attend(self.queries(x, position), cache.k, cache.v, mask)

    def queries(self, x: Tensor, position: int | None = None) -> Tensor:
        """Projects x (B, T, D) to queries (B, H, T, d_k).

        Row t is at position t. With `position`, all rows are at that one, like the beams of a
        search. The paper's attention ignores it; rotary positions use it.
        """
        return self._split(self.w_q(x))

    def keys_values(self, context: Tensor, position: int | None = None) -> tuple[Tensor, Tensor]:
        """Projects context (B, S, D) to keys (B, H, S, d_k) and values (B, H, S, d_v)."""
        return self._split(self.w_k(context)), self._split(self.w_v(context))

    def heads(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """Computes equation (1) for each head. Returns (B, H, T, d_v)."""
        return self.attention(q, k, v, mask, self.p_drop if self.training else 0.0)

    def weights(self, q: Tensor, k: Tensor, mask: Mask) -> Tensor:
        """Returns the weights by which `heads` multiplies the values, (B, H, T, S), for attention
        maps and word alignment.

        A subclass whose `heads` uses other weights overrides this, too; else it has no maps and no
        alignment.
        """
        return attention_weights(q, k, mask)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """Concatenates all heads and projects them. Returns (B, T, D)."""
        return self.w_o(self.heads(q, k, v, mask).transpose(1, 2).flatten(2))

    def _split(self, x: Tensor) -> Tensor:
        """Splits (B, T, H * d) into (B, H, T, d)."""
        return x.unflatten(2, (self.n_heads, -1)).transpose(1, 2)
