"""Attention among sentences that lie one after the other, without padding: one kernel for all lengths of a step."""

import math
from typing import NamedTuple, cast

from torch import Tensor
from torch.nn import functional as F


class Segments(NamedTuple):
    """In the place of a mask: where the sentences of queries and keys begin, (B + 1,) int32, and the longest of each.

    `causal`: a query attends to no key behind it.
    """

    q_starts: Tensor
    k_starts: Tensor
    q_longest: int
    k_longest: int
    causal: bool = False


def packed_attention(q: Tensor, k: Tensor, v: Tensor, segments: Segments) -> Tensor:
    """Equation (1) within each sentence.

    q (1, H, T, d_k), k (1, H, S, d_k), v (1, H, S, d_v), d_k and d_v at most 256. Returns (1, H, T, d_v).
    """
    from torch.nn.attention.varlen import varlen_attn  # takes a second, and no CPU has it

    d_k, d_v = q.size(-1), v.size(-1)
    width = 8 * math.ceil(max(d_k, d_v) / 8)  # the kernel's, for all three; zeros change no product
    q, k, v = (_widened(each.squeeze(0).transpose(0, 1), width) for each in (q, k, v))
    window = (-1, 0) if segments.causal else (-1, -1)  # how far to the left and to the right; -1: all
    found = varlen_attn(q, k, v, *segments[:4], scale=1 / math.sqrt(d_k), window_size=window)
    return cast(Tensor, found)[..., :d_v].transpose(0, 1).unsqueeze(0)


def _widened(x: Tensor, width: int) -> Tensor:
    return x if x.size(-1) == width else F.pad(x, (0, width - x.size(-1)))
