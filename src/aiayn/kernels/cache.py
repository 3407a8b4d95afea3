"""A preallocated KV cache: keys and values are written in place instead of concatenated at every position.

Beams soon share their ancestors, so most cached positions belong to no beam any more. Keys and values are in slots, in
any order; whenever the cache is reallocated, it keeps only the slots that a beam still attends to.
"""

import math
import sys

import torch
from torch import Tensor
from torch.nn import functional as F

from aiayn.hardware import REGISTER
from aiayn.model.cache import DecoderCache, LayerCache
from aiayn.model.masks import Masks

NAIVE = 400  # multiply-adds of a product below which torch.bmm runs a plain loop, several times as slow as its library


def least_keys(beam_size: int, cross: list[tuple[Tensor, Tensor]]) -> int:
    """Returns how many keys a beam should attend to at least on a CPU, some of them hidden.

    With fewer softmax would need padding, or products would be too small to be fast.
    """
    return max(REGISTER, -(-NAIVE // (beam_size * min(x.size(-1) for x in cross[0]))))


class PreallocatedLayer(LayerCache):
    """Keys and values of self-attention are in R slots, of which the first `used` are in use."""

    def __init__(self, cross_k: Tensor, cross_v: Tensor, least: int = 0):
        """`append` returns at least so many slots, in use or not, as far as there are any."""
        super().__init__(self.stored(cross_k), self.stored(cross_v))
        self.used = 0
        self.least = least

    @staticmethod
    def stored(x: Tensor) -> Tensor:
        """Returns the source's keys or values (N, H, S, d), laid out for a CPU's products.

        In float32: for bfloat16 oneDNN would compile a kernel for every number of keys, at every position another.
        """
        return x.float().contiguous()

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """As `LayerCache.append`; the slots must have been allocated."""
        new = slice(self.used, self.used + k.size(2))
        self.self_k[:, :, new], self.self_v[:, :, new] = k, v
        self.used = new.stop
        returned = slice(max(self.used, self.least))
        return self.self_k[:, :, returned], self.self_v[:, :, returned]

    def grow(self, capacity: int) -> None:
        """Allocates so many slots, free ones after those in use."""
        missing = capacity - self.self_k.size(2)
        self.self_k, self.self_v = (F.pad(x, (0, 0, 0, missing)) for x in (self.self_k, self.self_v))

    def keep(self, sentences: Tensor | None, rows: Tensor, used: int) -> None:
        """Keeps these sentences (M,), or all, and of each head the slots with these numbers among all, rows (M, H, R).

        The first `used` of them are in use.
        """
        self.used = used
        self.self_k, self.self_v = _take(self.self_k, rows), _take(self.self_v, rows)
        if sentences is not None:
            self.cross_k, self.cross_v = (x.index_select(0, sentences) for x in (self.cross_k, self.cross_v))


class GPULayer(PreallocatedLayer):
    @staticmethod
    def stored(x: Tensor) -> Tensor:
        """As `PreallocatedLayer.stored`, in the model's precision."""
        return x.contiguous()


def _take(slots: Tensor, rows: Tensor) -> Tensor:
    """Returns the rows (M, H, R') of slots (N, H, R, d), counted over all of them: (M, H, R', d)."""
    if not slots.size(2):
        return slots.new_zeros(*rows.shape, slots.size(3))
    return slots.view(-1, slots.size(3)).index_select(0, rows.flatten()).view(*rows.shape, slots.size(3))


class PreallocatedCache(DecoderCache):
    """`ancestry` (N, K, R) is a bias over slots, so that no layer converts it."""

    layer_class: type[PreallocatedLayer] = PreallocatedLayer
    growth = 8  # free positions after a reallocation
    drops_slots = True
    returns_unused = False  # whether layers attend to all slots, and hide those that are not in use

    def __init__(self, cross: list[tuple[Tensor, Tensor]], masks: Masks, src_mask: Tensor, beam_size: int):
        self.least = sys.maxsize if self.returns_unused else least_keys(beam_size, cross)
        if not self.returns_unused and (missing := self.least - src_mask.size(-1)) > 0:
            src_mask = F.pad(src_mask, (0, missing))
            cross = [(F.pad(k, (0, 0, 0, missing)), F.pad(v, (0, 0, 0, missing))) for k, v in cross]
        super().__init__(cross, masks, src_mask, beam_size)
        like = self.layers[0].cross_k
        self.itself = torch.zeros_like(self.itself, dtype=like.dtype).masked_fill_(~self.itself, -math.inf)
        self.ancestry = like.new_empty(len(src_mask), 1, 0)
        self.used = 0
        # A window counts positions, so with one every position keeps its slots. A single beam uses all.
        self.drops_slots = self.drops_slots and masks.reach is None and beam_size > 1

    def layer(self, cross_k: Tensor, cross_v: Tensor) -> LayerCache:
        return self.layer_class(cross_k, cross_v, self.least)

    def extend(self) -> Tensor | None:
        """As `DecoderCache.extend`, as a bias; None if it is 0 everywhere, as in greedy search."""
        k = self.ancestry.size(1)
        if self.used + k > self.ancestry.size(2):
            self._drop_slots(None) if self.drops_slots else self._grow()
        self.ancestry[:, :, self.used : self.used + k] = self.itself[:k, :k]
        self.used += k
        self.length += 1
        if self.masks.reach is not None:
            self.ancestry[:, :, : self.keys_out_of_reach()] = -math.inf
        elif len(self.itself) == 1 and self.used >= self.least:
            return None
        return self._for_heads(self.ancestry[:, None, :, : max(self.used, self.least)])

    def _for_heads(self, bias: Tensor) -> Tensor:
        """bias (N, 1, T, S). On a CPU it is repeated for all heads, (N, H, T, S), once for all layers."""
        return bias if self.returns_unused else bias.expand(-1, self.layers[0].cross_k.size(1), -1, -1).contiguous()

    def _cross_mask(self) -> Tensor:
        return self._for_heads(super()._cross_mask())

    def reorder(self, parents: Tensor) -> None:
        """As `DecoderCache.reorder`."""
        self.ancestry = self.ancestry.gather(1, parents[..., None].expand(-1, -1, self.ancestry.size(2)))

    def _select_layers(self, sentences: Tensor) -> None:
        self._drop_slots(sentences) if self.drops_slots else super()._select_layers(sentences)

    def _capacity(self) -> int:
        """Returns how many slots to allocate."""
        wanted = self.used + self.growth * len(self.itself)
        # Fused attention needs rows of 16 elements.
        return -(-(wanted if self.returns_unused else max(wanted, self.least)) // 16) * 16

    def _grow(self) -> None:
        capacity = self._capacity()
        self.ancestry = F.pad(self.ancestry, (0, capacity - self.ancestry.size(2)), value=-math.inf)
        for layer in self.layers:
            assert isinstance(layer, PreallocatedLayer)
            layer.grow(capacity)

    def _drop_slots(self, sentences: Tensor | None) -> None:
        """Copies all layers, with free slots; `ancestry` is already that of the sentences (None: of all)."""
        n, k = self.ancestry.shape[:2]
        slots, self.used = self._slots_in_use()
        capacity = self._capacity()
        slots = torch.cat([slots, slots.new_zeros(n, capacity - self.used)], 1)  # free ones hold copies
        ancestry = self.ancestry.new_full((n, k, capacity), -math.inf)
        if self.used:
            ancestry[:, :, : self.used] = self.ancestry.gather(2, slots[:, None, : self.used].expand(-1, k, -1))
        rows = self._rows(sentences, slots)
        self.ancestry = ancestry
        for layer in self.layers:
            assert isinstance(layer, PreallocatedLayer)
            layer.keep(sentences, rows, self.used)

    def _rows(self, sentences: Tensor | None, slots: Tensor) -> Tensor:
        """slots (M, R) of these sentences. Returns their numbers among those of all sentences and heads, (M, H, R)."""
        n_heads, capacity = self.layers[0].cross_k.size(1), self.ancestry.size(2)
        if sentences is None:
            sentences = torch.arange(len(slots), device=slots.device)
        heads = sentences[:, None] * n_heads + torch.arange(n_heads, device=slots.device)
        return heads[..., None] * capacity + slots[:, None]

    def _slots_in_use(self) -> tuple[Tensor, int]:
        """Returns the slots to keep, (N, R), and their number: those in use come first, and few others follow."""
        unused = self.ancestry[:, :, : self.used].amax(1) == -math.inf
        most = int((~unused).sum(1).max())
        return unused.byte().argsort(dim=1, stable=True)[:, :most], most


class GPUCache(PreallocatedCache):
    layer_class = GPULayer
    growth = 64  # growing takes several kernels in every layer
    drops_slots = False
    returns_unused = True  # kernels are chosen by shape, so shapes that rarely change are worth more than fewer slots
