"""Key-value cache for decoding one position at a time."""

import torch
from torch import Tensor

from aiayn.model.masks import Masks


class LayerCache:
    """Keys and values of one decoder layer for N sentences with K beams each.

    Cross-attention: (N, H, S, d), shared by a sentence's beams. Self-attention: (N, H, R, d), the beams side by side at
    each position. Reordering beams moves no keys or values: `DecoderCache.ancestry` says which of them belong to which
    beam.
    """

    def __init__(self, cross_k: Tensor, cross_v: Tensor):
        """cross_k (N, H, S, d_k) and cross_v (N, H, S, d_v)."""
        self.cross_k, self.cross_v = cross_k, cross_v
        self.self_k: Tensor | None = None
        self.self_v: Tensor | None = None

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Adds the newest position, k and v (N, H, K, d). Returns all keys and values, (N, H, R, d)."""
        if self.self_k is not None and self.self_v is not None:
            k, v = torch.cat([self.self_k, k], 2), torch.cat([self.self_v, v], 2)
        self.self_k, self.self_v = k, v
        return k, v

    def select(self, sentences: Tensor) -> None:
        """Keeps only these sentences; sentences (M,)."""
        self.cross_k, self.cross_v = self.cross_k.index_select(0, sentences), self.cross_v.index_select(0, sentences)
        if self.self_k is not None and self.self_v is not None:
            self.self_k, self.self_v = self.self_k.index_select(0, sentences), self.self_v.index_select(0, sentences)


class DecoderCache:
    """The KV cache of all decoder layers for N sentences with K beams each, and what the beams share.

    A search starts with one beam, the empty hypothesis, and has K beams from the second position on, so R = 1 +
    (T - 1) K keys are cached for T positions. `ancestry` (N, K, R) is a mask: [n, k, r] is True if key r belongs to
    beam k.
    """

    def __init__(self, cross: list[tuple[Tensor, Tensor]], masks: Masks, src_mask: Tensor, beam_size: int):
        """cross: keys (N, H, S, d_k) and values (N, H, S, d_v) of each layer; src_mask (N, 1, 1, S)."""
        self.layers = [LayerCache(k, v) for k, v in cross]
        self.masks = masks
        self.src_mask = src_mask
        self.length = 0  # target positions so far
        self.itself = torch.eye(beam_size, dtype=torch.bool, device=src_mask.device)  # (K, K)
        self.ancestry = self.itself[:1, :0].repeat(len(src_mask), 1, 1)
        self.cross_mask = self._cross_mask()

    def extend(self) -> Tensor | None:
        """Adds one position. Returns which cached keys, its own included, each beam attends to: (N, 1, K, R)."""
        k = self.ancestry.size(1)
        self.ancestry = torch.cat([self.ancestry, self.itself[:k, :k].expand(len(self.ancestry), -1, -1)], 2)
        self.length += 1
        self.ancestry[:, :, : self.keys_out_of_reach()] = False
        return self.ancestry[:, None]

    def keys_out_of_reach(self) -> int:
        """Returns how many of the cached keys, from the first on, are further back than the attention window."""
        positions = self.length - 1 - (self.length if self.masks.reach is None else self.masks.reach)
        return 0 if positions <= 0 else 1 + (positions - 1) * len(self.itself)

    def reorder(self, parents: Tensor) -> None:
        """Beam k of sentence n now continues the former beam parents[n, k]; parents (N, K)."""
        self.ancestry = self.ancestry.gather(1, parents[:, :, None].expand(-1, -1, self.ancestry.size(2)))

    def select(self, sentences: Tensor) -> None:
        """Keeps only these sentences, in this order; sentences (M,)."""
        self.src_mask, self.ancestry = self.src_mask[sentences], self.ancestry[sentences]
        for layer in self.layers:
            layer.select(sentences)
        self.cross_mask = self._cross_mask()

    def _cross_mask(self) -> Tensor:
        return self.masks.source(self.src_mask, self.layers[0].cross_k)
