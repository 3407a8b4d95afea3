"""A key-value cache with room: keys and values are written to their place instead of copied at every position."""

import math

import torch
from torch import Tensor

from aiayn.model.cache import DecoderCache, LayerCache
from aiayn.model.masks import Masks


class RoomyLayer(LayerCache):
    """On a CPU keys are stored transposed, as products read them."""

    growth = 8  # positions added when the room is full

    def __init__(self, cross_k: Tensor, cross_v: Tensor):
        super().__init__(self.stored(cross_k), cross_v.contiguous())
        self.self_k = self.stored(self.self_k)
        self.used = 0

    @staticmethod
    def stored(k: Tensor) -> Tensor:
        """Returns keys (N, H, S, d_k) as products read them best."""
        return k.mT.contiguous().mT

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """As `LayerCache.append`, but returns the unused room, too: it is zero and masked.

        Slicing it off would force a copy in every product.
        """
        start, self.used = self.used, self.used + k.size(2)
        if self.used > self.self_k.size(2):
            more = self.growth * k.size(2)
            self.self_k = self.stored(_append_zeros(self.self_k, more))
            self.self_v = _append_zeros(self.self_v, more)
        self.self_k[:, :, start : self.used], self.self_v[:, :, start : self.used] = k, v
        return self.self_k, self.self_v


class GPULayer(RoomyLayer):
    """On a GPU masked positions cost little, and growing takes several kernels in every layer."""

    growth = 64

    @staticmethod
    def stored(k: Tensor) -> Tensor:
        """Fused attention takes only keys that are not transposed."""
        return k.contiguous()


def _append_zeros(x: Tensor, more: int) -> Tensor:
    """x (N, H, S, d). Returns (N, H, S + more, d). F.pad would write everything twice."""
    return torch.cat([x, x.new_zeros(*x.shape[:2], more, x.size(3))], 2)


class RoomyCache(DecoderCache):
    """`ancestry` (N, K, C, K) is a bias with as much room as the layers have, so that no layer converts it."""

    layer = RoomyLayer

    def __init__(self, cross: list[tuple[Tensor, Tensor]], masks: Masks, src_mask: Tensor, beam_size: int):
        super().__init__(cross, masks, src_mask, beam_size)
        like = self.layers[0].cross_k
        self.itself = torch.zeros_like(self.itself, dtype=like.dtype).masked_fill_(~self.itself, -math.inf)
        self.ancestry = like.new_empty(*self.ancestry.shape)

    def extend(self) -> Tensor:
        """As `DecoderCache.extend`, as a bias and with the unused room."""
        if self.length == self.ancestry.size(2):
            n, k = self.ancestry.shape[:2]
            room = self.ancestry.new_full((n, k, self.layer.growth, k), -math.inf)
            self.ancestry = torch.cat([self.ancestry, room], 2)
        self.ancestry[:, :, self.length] = self.itself
        self.length += 1
        if self.masks.reach is not None:
            self.ancestry[:, :, : max(0, self.length - 1 - self.masks.reach)] = -math.inf
        return self.ancestry.flatten(2)[:, None]


class GPUCache(RoomyCache):
    layer = GPULayer
