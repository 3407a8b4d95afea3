"""Faster forms of multi-head attention: joined projections, and equation (1) with biases for masks.

A bias is 0 where a mask is True and -inf elsewhere, so it is added to the scores; `kernels/masks.py` makes them.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aiayn.hardware import REGISTER
from aiayn.kernels.bfloat16_attention import bfloat16_attention
from aiayn.kernels.dropout import dropout
from aiayn.kernels.linear import in_bfloat16, linear
from aiayn.kernels.windowed_attention import merge_blocks, split_blocks
from aiayn.model.attention import MultiHeadAttention


def cpu_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, p_drop: float = 0.0) -> Tensor:
    """`attention` with a bias or None, or block by block with a block bias (B or 1, N, 1, W, K).

    Keys and values of a search are float32 in any precision (`kernels/cache.py`); the result is of the type of q. On a
    CPU torch's fused kernel is slower at sentence lengths, most of all its backward pass in bfloat16.
    """
    if bias is not None and bias.dim() == 5:
        blocks = split_blocks(q, k, v, bias)
        return merge_blocks(cpu_attention(*blocks, p_drop), q.size(0), q.size(2))
    all_bfloat16 = q.dtype == k.dtype == v.dtype == torch.bfloat16  # an extension's need not be
    if torch.is_grad_enabled() and p_drop == 0 and all_bfloat16 and in_bfloat16(q):
        return bfloat16_attention(q, k, v, bias)
    scores = (q.to(k.dtype) * (1 / math.sqrt(q.size(-1)))) @ k.transpose(-2, -1)
    if bias is not None:
        scores = scores + bias if torch.is_grad_enabled() else scores.add_(bias)
    heads = dropout(softmax(scores), p_drop).to(v.dtype) @ v
    return heads if torch.is_grad_enabled() else heads.to(q.dtype)


def softmax(scores: Tensor) -> Tensor:
    """softmax over the last dimension; scores (..., S), float32.

    torch computes a row that is shorter than a vector register element by element, so such rows are padded: that is
    about seven times as fast.
    """
    missing = REGISTER - scores.size(-1)
    if missing <= 0:
        return scores.softmax(-1)
    return F.pad(scores, (0, missing), value=-math.inf).softmax(-1)[..., : scores.size(-1)]


def fused_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, p_drop: float = 0.0) -> Tensor:
    """`attention` with a bias or None, in one kernel of a GPU, or block by block with a block bias."""
    if bias is not None and bias.dim() == 5:
        blocks = split_blocks(q, k, v, bias)
        return merge_blocks(fused_attention(*blocks, p_drop), q.size(0), q.size(2))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=p_drop)


def fused_causal_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, p_drop: float = 0.0) -> Tensor:
    """`fused_attention`, where None means the causal mask: kernels that know it skip what it hides."""
    if bias is None:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=p_drop, is_causal=True)
    return fused_attention(q, k, v, bias, p_drop)


class JointAttention(MultiHeadAttention):
    """Projections of the same tensor share one product: the tensor is read, and under autocast converted, once."""

    def __init__(self, plain: MultiHeadAttention):
        """Takes the weights of `plain`, under the same names."""
        nn.Module.__init__(self)
        self.training, self.n_heads, self.p_drop, self.attention = (
            plain.training,
            plain.n_heads,
            plain.p_drop,
            plain.attention,
        )
        self.w_q, self.w_k, self.w_v, self.w_o = plain.w_q, plain.w_k, plain.w_v, plain.w_o

    def project(self, x: Tensor, context: Tensor, position: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """As `MultiHeadAttention.project`."""
        if position is not None:  # joining the weights would take longer than the product of one position
            return super().project(x, context)
        if x is context:
            q, k, v = self._joint(x, self.w_q, self.w_k, self.w_v)
            return q, k, v
        k, v = self._joint(context, self.w_k, self.w_v)
        return self.queries(x), k, v

    def _joint(self, x: Tensor, *projections: nn.Linear) -> list[Tensor]:
        """Applies each projection to x (B, T, D), all in one product. Returns (B, H, T, d) for each."""
        projected = linear(x, torch.cat([projection.weight for projection in projections]))
        sizes = [projection.out_features for projection in projections]
        return [self._split(y) for y in projected.split(sizes, dim=2)]


class JoinedSelfAttention(MultiHeadAttention):
    """Self-attention whose projections were joined once and for all, for translation only."""

    def __init__(self, plain: MultiHeadAttention):
        """Takes the weights of `plain`, joined to one matrix."""
        nn.Module.__init__(self)
        self.training, self.n_heads, self.p_drop, self.attention = False, plain.n_heads, 0.0, plain.attention
        projections = (plain.w_q, plain.w_k, plain.w_v)
        self.sizes = [projection.out_features for projection in projections]
        self.w_qkv = nn.Linear(plain.w_q.in_features, sum(self.sizes), bias=False, device="meta")
        self.w_qkv.weight = nn.Parameter(torch.cat([projection.weight.detach() for projection in projections]), False)
        self.w_o = plain.w_o

    def project(self, x: Tensor, context: Tensor, position: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """As `MultiHeadAttention.project`, of x alone."""
        q, k, v = (self._split(y) for y in self.w_qkv(x).split(self.sizes, dim=2))
        return q, k, v
