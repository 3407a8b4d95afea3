"""A preallocated KV cache: keys and values are written in place instead of concatenated at every position.

Beams soon share their ancestors, so most cached positions belong to no beam any more. Keys and values are in slots, in
any order; whenever the cache is reallocated, it keeps only the slots that a beam still attends to.
"""

import math

import torch
from torch import Tensor

from aiayn.model.cache import DecoderCache, LayerCache
from aiayn.model.masks import Masks


class PreallocatedLayer(LayerCache):
    """Keys and values of self-attention: (N, H, R, d), of which the first `used` slots are in use."""

    returns_unused = False  # whether `append` returns unused slots, too

    def __init__(self, cross_k: Tensor, cross_v: Tensor):
        super().__init__(*self.stored(cross_k, cross_v))
        self.used = 0

    @staticmethod
    def stored(k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the source's keys (N, H, S, d_k) and values (N, H, S, d_v), laid out for a CPU's products.

        In float32: for bfloat16 oneDNN would compile a kernel for every number of keys, at every position another.
        """
        return k.float().mT.contiguous().mT, v.float().contiguous()

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """As `LayerCache.append`; the slots must have been allocated."""
        new = slice(self.used, self.used + k.size(2))
        self.self_k[:, :, new], self.self_v[:, :, new] = k, v
        self.used = new.stop
        if self.returns_unused:
            return self.self_k, self.self_v
        return self.self_k[:, :, : self.used], self.self_v[:, :, : self.used]

    def keep(self, sentences: Tensor | None, slots: Tensor, used: int) -> None:
        """Keeps these sentences (M,), or all, and their slots (M, R), the first `used` of which are in use."""
        self.used = used
        self.self_k, self.self_v = (_take(x, sentences, slots) for x in (self.self_k, self.self_v))
        if sentences is not None:
            k, v = self.cross_k.mT.index_select(0, sentences).mT, self.cross_v.index_select(0, sentences)
            self.cross_k, self.cross_v = self.stored(k, v)


class GPULayer(PreallocatedLayer):
    returns_unused = True  # kernels are chosen by shape, so shapes that rarely change are worth more than fewer slots

    @staticmethod
    def stored(k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Fused attention takes only keys that are not transposed."""
        return k.contiguous(), v.contiguous()


def _take(x: Tensor, sentences: Tensor | None, slots: Tensor) -> Tensor:
    """x (N, H, R, d). Returns the slots (M, R') of M sentences, (M, H, R', d)."""
    n, h, capacity, d = x.shape
    if not capacity:
        return x.new_zeros(len(slots), h, slots.size(1), d)
    of_sentences = torch.arange(n, device=x.device) if sentences is None else sentences
    heads = of_sentences[:, None] * h + torch.arange(h, device=x.device)  # (M, H)
    rows = heads[..., None] * capacity + slots[:, None]
    return x.view(-1, d).index_select(0, rows.flatten()).view(*rows.shape, d)


class PreallocatedCache(DecoderCache):
    """`ancestry` (N, K, R) is a bias over slots, so that no layer converts it."""

    layer_class: type[PreallocatedLayer] = PreallocatedLayer
    growth = 8  # free positions after a reallocation
    drops_slots = True

    def __init__(self, cross: list[tuple[Tensor, Tensor]], masks: Masks, src_mask: Tensor, beam_size: int):
        super().__init__(cross, masks, src_mask, beam_size)
        like = self.layers[0].cross_k
        self.itself = torch.zeros_like(self.itself, dtype=like.dtype).masked_fill_(~self.itself, -math.inf)
        self.ancestry = like.new_empty(len(src_mask), 1, 0)
        self.used = 0
        # A window counts positions, so with one every position keeps its slots.
        self.drops_slots = self.drops_slots and masks.reach is None

    def layer(self, cross_k: Tensor, cross_v: Tensor) -> LayerCache:
        return self.layer_class(cross_k, cross_v)

    def extend(self) -> Tensor:
        """As `DecoderCache.extend`, as a bias."""
        k = self.ancestry.size(1)
        if self.used + k > self.ancestry.size(2):
            self._reallocate(None)
        self.ancestry[:, :, self.used : self.used + k] = self.itself[:k, :k]
        self.used += k
        self.length += 1
        if self.masks.reach is not None:
            self.ancestry[:, :, : self.keys_out_of_reach()] = -math.inf
        return self.ancestry[:, None, :, : None if self.layer_class.returns_unused else self.used]

    def reorder(self, parents: Tensor) -> None:
        """As `DecoderCache.reorder`."""
        self.ancestry = self.ancestry.gather(1, parents[..., None].expand(-1, -1, self.ancestry.size(2)))

    def select(self, sentences: Tensor) -> None:
        """As `DecoderCache.select`."""
        self.src_mask = self.src_mask[sentences]
        self.ancestry = self.ancestry[sentences]
        self._reallocate(sentences)
        self.cross_mask = self._cross_mask()

    def _reallocate(self, sentences: Tensor | None) -> None:
        """Copies all layers into larger tensors; `ancestry` is already that of the sentences (None: of all)."""
        n, k = self.ancestry.shape[:2]
        slots, used = self._slots_in_use()
        # Fused attention needs rows of 16 elements; unused slots hold copies, which no beam attends to.
        capacity = -(-(used + self.growth * len(self.itself)) // 16) * 16
        slots = torch.cat([slots, slots.new_zeros(n, capacity - used)], 1)
        ancestry = self.ancestry.new_full((n, k, capacity), -math.inf)
        if used:
            ancestry[:, :, :used] = self.ancestry.gather(2, slots[:, None, :used].expand(-1, k, -1))
        self.ancestry, self.used = ancestry, used
        for layer in self.layers:
            assert isinstance(layer, PreallocatedLayer)
            layer.keep(sentences, slots, used)

    def _slots_in_use(self) -> tuple[Tensor, int]:
        """Returns the slots to keep, (N, R), and their number: those in use come first, and few others follow."""
        n = len(self.ancestry)
        every = torch.arange(self.used, device=self.ancestry.device).expand(n, -1)
        if not self.drops_slots or not self.used:
            return every, self.used
        unused = self.ancestry[:, :, : self.used].amax(1) == -math.inf
        most = int((~unused).sum(1).max())
        return unused.byte().argsort(dim=1, stable=True)[:, :most], most


class GPUCache(PreallocatedCache):
    layer_class = GPULayer
    growth = 64  # growing takes several kernels in every layer
    drops_slots = False
