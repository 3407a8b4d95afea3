"""Which positions may attend to which.

A mask is boolean, True = may attend, and leaves every real query at least one key. Packed
sentences, which follow each other in one row, have `Ranges` instead.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Ranges(NamedTuple):
    """A mask among packed sentences: query i may attend to the keys `key_start[i] <= j <
    key_end[i]`.

    `query_start` and `query_end` are the inverse: the queries `query_start[j] <= i < query_end[j]`
    may attend to key j. No bound decreases from one position to the next.
    """

    key_start: Tensor  # (T,) int32
    key_end: Tensor  # (T,)
    query_start: Tensor  # (S,)
    query_end: Tensor  # (S,)

    def dense(self) -> Tensor:
        """Returns the boolean mask, (T, S)."""
        keys = torch.arange(len(self.query_start), device=self.key_start.device)
        return (keys >= self.key_start[:, None]) & (keys < self.key_end[:, None])


Mask = Tensor | Ranges | None  # a tensor is broadcastable to (B, H, T, S); None hides nothing


def causal_mask(length: int, device: torch.device) -> Tensor:
    """Returns the mask (T, T) of section 3.2.3: position t attends to positions up to t.

    Targets are padded on the right, so a real position never attends to padding.
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def within_window(mask: Tensor | Ranges, length: int, window: int | None) -> Tensor | Ranges:
    """Restricts self-attention to `window // 2` positions on each side (section 4); None: no
    restriction.

    mask: Ranges, or broadcastable to (B, 1, T, T) with T = length. A position always attends to
    itself.
    """
    if window is None:
        return mask
    reach = window // 2
    if isinstance(mask, Ranges):
        position = torch.arange(length, dtype=torch.int32, device=mask.key_start.device)
        first, end = position - reach, position + reach + 1
        return Ranges(
            key_start=mask.key_start.maximum(first),
            key_end=mask.key_end.minimum(end),
            query_start=mask.query_start.maximum(first),
            query_end=mask.query_end.minimum(end),
        )
    position = torch.arange(length, device=mask.device)
    distance = (position - position[:, None]).abs()
    return (distance <= reach) & mask | (distance == 0)
