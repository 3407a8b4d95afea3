"""Section 3.2: attention.

Masks are boolean, True = may attend, and broadcast to (B, H, T, S). Every query must be allowed at least one key.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(q kᵀ / √d_k): how much each query looks at each key.

    q (B, H, T, d_k), k (B, H, S, d_k), mask broadcastable to (B, H, T, S). Returns (B, H, T, S); rows sum to 1.
    """
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(dim=-1)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Scaled dot-product attention, equation (1): softmax(q kᵀ / √d_k) v.

    q (B, H, T, d_k), k (B, H, S, d_k), v (B, H, S, d_v), mask broadcastable to (B, H, T, S). Returns (B, H, T, d_v).
    """
    if q.is_cuda:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    # On CPUs torch's fused kernel is the slower one at the lengths of sentences, above all backward in bfloat16.
    return attention_weights(q, k, mask).to(v.dtype) @ v


class MultiHeadAttention(nn.Module):
    """Section 3.2.2: h heads attend in parallel, each through projections of its own.

    Concat(head_1, ..., head_h) W_O with head_i = Attention(q W_Q_i, k W_K_i, v W_V_i). The projections have no bias;
    d_k and d_v are free of each other and of d_model / h, as rows A and B of Table 3 need.
    """

    def __init__(self, d_model: int, n_heads: int, d_k: int, d_v: int):
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, n_heads * d_k, bias=False)
        self.w_k = nn.Linear(d_model, n_heads * d_k, bias=False)
        self.w_v = nn.Linear(d_model, n_heads * d_v, bias=False)
        self.w_o = nn.Linear(n_heads * d_v, d_model, bias=False)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
        """Queries from x (B, T, D); keys and values from memory (B, S, D). Returns (B, T, D)."""
        return self.attend(self.queries(x), *self.keys_values(memory), mask)

    def queries(self, x: Tensor) -> Tensor:
        """x (B, T, D). Returns (B, H, T, d_k)."""
        return self._split(self.w_q(x))

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """memory (B, S, D). Returns (B, H, S, d_k) and (B, H, S, d_v)."""
        return self._split(self.w_k(memory)), self._split(self.w_v(memory))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """All heads at once, concatenated and projected. Returns (B, T, D)."""
        heads = attention(q, k, v, mask)  # (B, H, T, d_v)
        return self.w_o(heads.transpose(1, 2).flatten(2))

    def _split(self, x: Tensor) -> Tensor:
        """(B, T, H * d) to (B, H, T, d)."""
        return x.unflatten(2, (self.n_heads, -1)).transpose(1, 2)


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """Section 3.2.3: position t may attend to positions up to t. Returns (T, T).

    Targets are padded on the right, so no real position ever sees padding through it.
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()
