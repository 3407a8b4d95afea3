"""Which positions may attend to which. Masks are boolean, True = may attend, and leave every query at least one key."""

import torch
from torch import Tensor


class Masks:
    """Makes each mask of a model once, for all of its layers; x (B, T, D) is what attends.

    Where all attention of a model is the paper's, `kernels/accelerate.py` puts a subclass here whose masks its faster
    attention takes; code of an extension gets these.
    """

    def __init__(self, window: int | None = None):
        """With `window`, self-attention reaches window // 2 positions to each side (section 4)."""
        self.reach = None if window is None else window // 2

    def encoder(self, src_mask: Tensor, x: Tensor) -> Tensor:
        """The encoder's self-attention hides padding; src_mask (B, 1, 1, S). Returns it or (B, 1, S, S)."""
        if self.reach is None:
            return src_mask
        distance = distances(x)
        return (distance.abs() <= self.reach) & src_mask | (distance == 0)

    def decoder(self, x: Tensor) -> Tensor | None:
        """The decoder's self-attention is causal (section 3.2.3): position t attends to positions up to t. (T, T).

        Targets are padded on the right, so a real position never attends to padding.
        """
        distance = distances(x)
        mask = distance <= 0
        return mask if self.reach is None else mask & (distance >= -self.reach)

    def source(self, src_mask: Tensor, x: Tensor) -> Tensor:
        """The decoder's attention over the encoder's output hides padding. Takes and returns (B, 1, 1, S)."""
        return src_mask


def distances(x: Tensor) -> Tensor:
    """x (B, T, D). Returns how far each key lies behind each query, (T, T)."""
    positions = torch.arange(x.size(1), device=x.device)
    return positions - positions[:, None]
