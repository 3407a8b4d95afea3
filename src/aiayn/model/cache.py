"""Key-value cache for decoding one position at a time."""

import torch
from torch import Tensor


class KeyValueCache:
    """Keys and values of one attention for N sentences.

    In cross-attention they are (N, H, S, d), shared by a sentence's beams. In self-attention they
    grow, (N, H, R, d), with the beams of a position side by side. Reordering beams moves no keys or
    values: `DecoderCache.ancestry` records which of them belong to which beam. The attention
    determines H and d.
    """

    k: Tensor
    v: Tensor

    def __init__(self, k: Tensor | None = None, v: Tensor | None = None):
        self.grows = k is None
        self.is_empty = k is None
        if k is not None and v is not None:
            self.k, self.v = k, v

    def append(self, k: Tensor, v: Tensor) -> None:
        """Adds the newest position, k and v (N, H, K, d)."""
        if not self.is_empty:
            k, v = torch.cat([self.k, k], 2), torch.cat([self.v, v], 2)
        self.k, self.v, self.is_empty = k, v, False

    def select(self, sentences: Tensor) -> None:
        """Keeps only these sentences; sentences (M,)."""
        if not self.is_empty:
            self.k, self.v = self.k.index_select(0, sentences), self.v.index_select(0, sentences)


class LayerCache:
    """The caches of one decoder layer."""

    def __init__(self, source_keys: Tensor, source_values: Tensor):
        self.self_attention = KeyValueCache()
        self.cross_attention = KeyValueCache(source_keys, source_values)


class DecoderCache:
    """The KV cache of all decoder layers, for N sentences with K beams each.

    A search starts with one beam, the empty hypothesis, and has K beams from the second position
    on, so R = 1 + (T - 1) K keys are cached for T positions. `ancestry` (N, K, R) is a mask:
    [n, k, r] is True if key r belongs to beam k.
    """

    def __init__(
        self, layers: list[LayerCache], src_mask: Tensor, beam_size: int, window: int | None
    ):
        """src_mask (N, 1, 1, S); `window`: the attention window of section 4."""
        self.layers = layers
        self.src_mask = src_mask
        self.reach = None if window is None else window // 2
        self.length = 0  # target positions so far
        self.itself = torch.eye(beam_size, dtype=torch.bool, device=src_mask.device)  # (K, K)
        self.ancestry = self.itself[:1, :0].repeat(len(src_mask), 1, 1)

    def extend(self) -> Tensor:
        """Adds one position. Returns the mask of the cached keys, its own included, that each beam
        attends to: (N, 1, K, R).
        """
        n, k, _ = self.ancestry.shape
        itself = self.itself[:k, :k].expand(n, -1, -1)
        self.ancestry = torch.cat([self.ancestry, itself], 2)
        self.length += 1
        if self.reach is not None and self.length > self.reach + 1:
            out_of_reach = self.length - self.reach - 1  # positions; the first has one key
            self.ancestry[:, :, : 1 + (out_of_reach - 1) * len(self.itself)] = False
        return self.ancestry[:, None]

    def reorder(self, parents: Tensor) -> None:
        """Lets beam k of sentence n continue the former beam parents[n, k]; parents (N, K)."""
        index = parents[:, :, None].expand(-1, -1, self.ancestry.size(2))
        self.ancestry = self.ancestry.gather(1, index)

    def select(self, sentences: Tensor) -> None:
        """Keeps only these sentences, in this order; sentences (M,)."""
        self.src_mask, self.ancestry = self.src_mask[sentences], self.ancestry[sentences]
        for layer in self.layers:
            layer.self_attention.select(sentences)
            layer.cross_attention.select(sentences)
