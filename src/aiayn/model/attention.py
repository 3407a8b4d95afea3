"""Section 3.2: attention."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aiayn.kernels.dropout import dropout
from aiayn.kernels.windowed_attention import merge_blocks, split_blocks


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(q kᵀ / √d_k): how much each query attends to each key.

    q (B, H, T, d_k), k (B, H, S, d_k), mask broadcastable to (B, H, T, S). Returns (B, H, T, S); rows sum to 1.
    """
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(dim=-1)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p_drop: float = 0.0) -> Tensor:
    """Scaled dot-product attention, equation (1): softmax(q kᵀ / √d_k) v.

    q (B, H, T, d_k), k (B, H, S, d_k), v (B, H, S, d_v), mask broadcastable to (B, H, T, S), True = may attend.
    `p_drop` is the dropout of section 6.3, on the weights. Returns (B, H, T, d_v).
    """
    if q.is_cuda:
        bias = None if mask is None else additive_mask(mask, q.dtype)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=p_drop)
    # On a CPU torch's fused kernel is slower at sentence lengths, most of all its backward pass in bfloat16.
    return dropout(attention_weights(q, k, mask), p_drop).to(v.dtype) @ v


def additive_mask(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns 0 where the mask is True and -inf elsewhere, in rows that begin at multiples of 16 elements.

    The fused kernels of GPUs ask for such rows. They would copy others, and a compiled graph would be compiled twice,
    for lengths that are multiples and for those that are not.
    """
    bias = torch.zeros(*mask.shape[:-1], (mask.size(-1) + 15) // 16 * 16, dtype=dtype, device=mask.device)
    return bias[..., : mask.size(-1)].masked_fill_(~mask, -math.inf)


class MultiHeadAttention(nn.Module):
    """Section 3.2.2: h heads attend in parallel, each through its own projections.

    Concat(head_1, ..., head_h) W_O with head_i = Attention(q W_Q_i, k W_K_i, v W_V_i). The projections have no bias;
    d_k and d_v need not equal each other or d_model / h (rows A and B of Table 3).
    """

    def __init__(self, d_model: int, n_heads: int, d_k: int, d_v: int, dropout: float = 0.0):
        super().__init__()
        self.n_heads = n_heads
        self.p_drop = dropout  # on the attention weights, while training
        self.w_q = nn.Linear(d_model, n_heads * d_k, bias=False)
        self.w_k = nn.Linear(d_model, n_heads * d_k, bias=False)
        self.w_v = nn.Linear(d_model, n_heads * d_v, bias=False)
        self.w_o = nn.Linear(n_heads * d_v, d_model, bias=False)
        self.w_qkv: nn.Module | None = None  # w_q, w_k and w_v in one, packed for translation (kernels/packed.py)

    def forward(self, x: Tensor, context: Tensor, mask: Tensor | None) -> Tensor:
        """Queries from x (B, T, D); keys and values from context (B, S, D). Returns (B, T, D)."""
        # Projections of the same tensor share one product: the tensor is read, and under autocast converted, once.
        if x is context:
            q, k, v = self._project(x, self.w_q, self.w_k, self.w_v)
        elif not isinstance(self.w_k, nn.Linear):  # packed
            q, (k, v) = self.queries(x), self.keys_values(context)
        else:
            q, (k, v) = self.queries(x), self._project(context, self.w_k, self.w_v)
        return self.attend(q, k, v, mask)

    def queries(self, x: Tensor) -> Tensor:
        """x (B, T, D). Returns (B, H, T, d_k)."""
        return self._split(self.w_q(x))

    def keys_values(self, context: Tensor) -> tuple[Tensor, Tensor]:
        """context (B, S, D). Returns (B, H, S, d_k) and (B, H, S, d_v)."""
        return self._split(self.w_k(context)), self._split(self.w_v(context))

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x (B, T, D). Returns (B, H, T, d_k) twice and (B, H, T, d_v), without joining weights first."""
        if self.w_qkv is None:
            return self.queries(x), *self.keys_values(x)
        q, k, v = self._project(x, self.w_q, self.w_k, self.w_v)
        return q, k, v

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Concatenates all heads and projects them. Returns (B, T, D)."""
        return self.w_o(self.heads(q, k, v, mask).transpose(1, 2).flatten(2))

    def heads(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Equation (1) for each head, block by block if `window_mask` made a block mask. Returns (B, H, T, d_v)."""
        p_drop = self.p_drop if self.training else 0.0
        if mask is not None and mask.dim() == 5:
            return merge_blocks(attention(*split_blocks(q, k, v, mask), p_drop), q.size(0), q.size(2))
        return attention(q, k, v, mask, p_drop)

    def _project(self, x: Tensor, *projections: nn.Linear) -> list[Tensor]:
        """Applies each projection to x (B, T, D), all in one product. Returns (B, H, T, d) for each."""
        sizes = [projection.out_features for projection in projections]
        if self.w_qkv is not None:
            projected = self.w_qkv(x)
        else:
            projected = F.linear(x, torch.cat([projection.weight for projection in projections]))
        return [self._split(y) for y in projected.split(sizes, dim=2)]

    def _split(self, x: Tensor) -> Tensor:
        """(B, T, H * d) to (B, H, T, d)."""
        return x.unflatten(2, (self.n_heads, -1)).transpose(1, 2)
