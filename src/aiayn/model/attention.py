"""Section 3.2: attention."""

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

    q (B, H, T, d_k), k (B, H, S, d_k), v (B, H, S, d_v), mask broadcastable to (B, H, T, S) or, where S = T, one of
    blocks (B or 1, N, 1, W, K). Returns (B, H, T, d_v).
    """
    if mask is not None and mask.dim() == 5:
        return attention_in_blocks(q, k, v, mask)
    if q.is_cuda:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    # On CPUs torch's fused kernel is the slower one at the lengths of sentences, above all backward in bfloat16.
    return attention_weights(q, k, mask).to(v.dtype) @ v


def attention_in_blocks(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Equation (1) near the diagonal: each block of W queries attends to the keys of its own and adjoining blocks.

    q and k (B, H, T, d_k), v (B, H, T, d_v), mask (B or 1, N, 1, W, K) of `window_mask`. Returns (B, H, T, d_v).
    """
    batch, _, length, _ = q.shape
    _, n_blocks, _, width, n_keys = mask.shape

    def blocks(x: Tensor, before: int, after: int) -> Tensor:
        """(B, H, T, d) to (B, before + N + after, H, W, d), zeros in the added blocks and behind the end."""
        padding = (0, 0, before * width, (n_blocks + after) * width - length)
        return F.pad(x, padding).unflatten(2, (-1, width)).transpose(1, 2)

    shown = n_keys // width  # blocks of keys that a block of queries sees, the first being the one before its own
    k, v = (blocks(x, 1, shown - 2) for x in (k, v))
    k, v = (torch.cat([x[:, i : i + n_blocks] for i in range(shown)], dim=3) for x in (k, v))
    q, k, v, mask = (x.flatten(0, 1) for x in (blocks(q, 0, 0), k, v, mask.expand(batch, -1, -1, -1, -1)))
    heads = attention(q, k, v, mask)  # (B * N, H, W, d_v)
    return heads.unflatten(0, (batch, n_blocks)).transpose(1, 2).flatten(2, 3)[:, :, :length]


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
        # What is projected several times goes through one product: read once, and under autocast rounded once.
        if x is memory:
            q, k, v = self._project(x, self.w_q, self.w_k, self.w_v)
        else:
            q, (k, v) = self.queries(x), self._project(memory, self.w_k, self.w_v)
        return self.attend(q, k, v, mask)

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

    def _project(self, x: Tensor, *projections: nn.Linear) -> list[Tensor]:
        """x (B, T, D) through each of them. Returns (B, H, T, d) for each."""
        sizes = [projection.out_features for projection in projections]
        projected = F.linear(x, torch.cat([projection.weight for projection in projections]))
        return [self._split(part) for part in projected.split(sizes, dim=2)]

    def _split(self, x: Tensor) -> Tensor:
        """(B, T, H * d) to (B, H, T, d)."""
        return x.unflatten(2, (self.n_heads, -1)).transpose(1, 2)
