"""A key-value cache with room: keys and values are written to their place instead of copied at every position.

Beams soon have the same ancestors, so most of what was decoded belongs to no beam any more. Keys and values stand in
slots, in any order; whenever the cache is copied anyway, it keeps only the slots that a beam still attends to.
"""

import math

import torch
from torch import Tensor

from aiayn.model.cache import DecoderCache, LayerCache
from aiayn.model.masks import Masks


class RoomyLayer(LayerCache):
    """Keys and values of self-attention: (N, H, R, d), of which `used` slots are in use."""

    whole_room = False  # whether `append` returns unused slots, too

    def __init__(self, cross_k: Tensor, cross_v: Tensor):
        super().__init__(self.stored(cross_k), cross_v.contiguous())
        self.used = 0

    @staticmethod
    def stored(k: Tensor) -> Tensor:
        """Returns the source's keys (N, H, S, d_k) as a CPU's products read them best."""
        return k.mT.contiguous().mT

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """As `LayerCache.append`, once there is room."""
        new = slice(self.used, self.used + k.size(2))
        self.self_k[:, :, new], self.self_v[:, :, new] = k, v
        self.used = new.stop
        if self.whole_room:
            return self.self_k, self.self_v
        return self.self_k[:, :, : self.used], self.self_v[:, :, : self.used]

    def take(self, sentences: Tensor | None, slots: Tensor, used: int) -> None:
        """Keeps these sentences (M,), None: all, and of each its slots (M, R), `used` of which are in use."""
        self.used = used
        self.self_k, self.self_v = (_take(x, sentences, slots) for x in (self.self_k, self.self_v))
        if sentences is not None:
            self.cross_k = self.stored(self.cross_k.mT.index_select(0, sentences).mT)
            self.cross_v = self.cross_v.index_select(0, sentences)


class GPULayer(RoomyLayer):
    whole_room = True  # shapes that change rarely are worth more than fewer slots

    @staticmethod
    def stored(k: Tensor) -> Tensor:
        """Fused attention takes only keys that are not transposed."""
        return k.contiguous()


def _take(x: Tensor, sentences: Tensor | None, slots: Tensor) -> Tensor:
    """x (N, H, R, d). Returns the slots (M, R') of M sentences, (M, H, R', d)."""
    n, h, room, d = x.shape
    if not room:
        return x.new_zeros(len(slots), h, slots.size(1), d)
    of_sentences = torch.arange(n, device=x.device) if sentences is None else sentences
    heads = of_sentences[:, None] * h + torch.arange(h, device=x.device)  # (M, H)
    rows = heads[..., None] * room + slots[:, None]
    return x.view(-1, d).index_select(0, rows.flatten()).view(*rows.shape, d)


class RoomyCache(DecoderCache):
    """`ancestry` (N, K, R) is a bias over the slots, so that no layer converts it."""

    layer = RoomyLayer
    growth = 8  # positions that there is room for after a copy
    drops_slots = True

    def __init__(self, cross: list[tuple[Tensor, Tensor]], masks: Masks, src_mask: Tensor, beam_size: int):
        super().__init__(cross, masks, src_mask, beam_size)
        like = self.layers[0].cross_k
        self.itself = torch.zeros_like(self.itself, dtype=like.dtype).masked_fill_(~self.itself, -math.inf)
        self.ancestry = like.new_empty(len(src_mask), beam_size, 0)
        self.used = 0
        # A window counts positions, so with one every position keeps its slots.
        self.drops_slots = self.drops_slots and masks.reach is None

    def extend(self) -> Tensor:
        """As `DecoderCache.extend`, as a bias."""
        k = len(self.itself)
        if self.used + k > self.ancestry.size(2):
            self._take(None)
        self.ancestry[:, :, self.used : self.used + k] = self.itself
        self.used += k
        self.length += 1
        if self.masks.reach is not None:
            self.ancestry[:, :, : max(0, self.length - 1 - self.masks.reach) * k] = -math.inf
        return self.ancestry[:, None, :, : None if self.layer.whole_room else self.used]

    def reorder(self, parents: Tensor) -> None:
        """As `DecoderCache.reorder`."""
        self.ancestry = self.ancestry.gather(1, parents[..., None].expand_as(self.ancestry))

    def select(self, sentences: Tensor) -> None:
        """As `DecoderCache.select`."""
        self.src_mask = self.src_mask[sentences]
        self.ancestry = self.ancestry[sentences]
        self._take(sentences)
        self.cross_mask = self._cross_mask()

    def _take(self, sentences: Tensor | None) -> None:
        """Copies all layers, with room to grow; `ancestry` is already that of the sentences, None: all of them."""
        n, k = self.ancestry.shape[:2]
        slots, used = self._slots_in_use()
        # In rows of 16 elements, as fused attention needs its biases; unused slots hold copies, as good as anything.
        room = -(-(used + self.growth * k) // 16) * 16
        slots = torch.cat([slots, slots.new_zeros(n, room - used)], 1)
        ancestry = self.ancestry.new_full((n, k, room), -math.inf)
        if used:
            ancestry[:, :, :used] = self.ancestry.gather(2, slots[:, None, :used].expand(-1, k, -1))
        self.ancestry, self.used = ancestry, used
        for layer in self.layers:
            layer.take(sentences, slots, used)

    def _slots_in_use(self) -> tuple[Tensor, int]:
        """Returns the slots to keep, (N, R), and their number: those in use come first, and few others follow."""
        n = len(self.ancestry)
        every = torch.arange(self.used, device=self.ancestry.device).expand(n, -1)
        if not self.drops_slots or not self.used:
            return every, self.used
        unused = self.ancestry[:, :, : self.used].amax(1) == -math.inf
        most = int((~unused).sum(1).max())
        return unused.byte().argsort(dim=1, stable=True)[:, :most], most


class GPUCache(RoomyCache):
    layer = GPULayer
    growth = 64  # growing takes several kernels in every layer
    drops_slots = False
