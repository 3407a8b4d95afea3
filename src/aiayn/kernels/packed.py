"""Attention among sentences that lie one after the other, without padding: one kernel for all lengths of a step."""

from typing import NamedTuple, cast

from torch import Tensor


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
    """Equation (1) within each sentence: q (1, H, T, d), k (1, H, S, d), v (1, H, S, d). Returns (1, H, T, d)."""
    from torch.nn.attention.varlen import varlen_attn  # takes a second, and no CPU has it

    q, k, v = (each.squeeze(0).transpose(0, 1) for each in (q, k, v))
    q_starts, k_starts, q_longest, k_longest, causal = segments
    window = (-1, 0) if causal else (-1, -1)  # how far to the left and to the right; -1: all
    found = varlen_attn(q, k, v, q_starts, k_starts, q_longest, k_longest, window_size=window)
    return cast(Tensor, found).transpose(0, 1).unsqueeze(0)
