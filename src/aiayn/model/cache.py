"""Key-value cache for decoding one position at a time."""

import torch
from torch import Tensor
from torch.nn import functional as F

GROWTH = 8  # positions added to a cache that is full
GPU_GROWTH = 64  # on a GPU: masked positions cost little there, and growing takes several kernels in every layer


def growth(device: torch.device) -> int:
    """Returns how many positions are added to a full cache on this device."""
    return GPU_GROWTH if device.type == "cuda" else GROWTH


def stored_keys(k: Tensor) -> Tensor:
    """Returns keys (N, H, S, d_k) as they are best stored.

    A CPU's matmul reads keys transposed, and would otherwise copy them every step. A GPU's fused attention takes only
    keys that are not.
    """
    return k.contiguous() if k.device.type == "cuda" else k.mT.contiguous().mT


def _append_zeros(x: Tensor, more: int) -> Tensor:
    """x (N, H, S, d). Returns (N, H, S + more, d). F.pad would write everything twice."""
    return torch.cat([x, x.new_zeros(*x.shape[:2], more, x.size(3))], 2)


class LayerCache:
    """Keys and values of one decoder layer for N sentences with K beams each.

    Cross-attention: (N, H, S, d), shared by a sentence's beams. Self-attention: (N, H, C * K, d), the K beams side by
    side at each of C positions. Reordering beams moves no keys or values: `DecoderCache.ancestry` says which of them
    belong to which beam.
    """

    def __init__(self, cross_k: Tensor, cross_v: Tensor):
        """cross_k (N, H, S, d_k) and cross_v (N, H, S, d_v)."""
        self.cross_k, self.cross_v = stored_keys(cross_k), cross_v.contiguous()
        self.self_k, self.self_v = stored_keys(cross_k[:, :, :0]), cross_v[:, :, :0]
        self.used = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Adds the newest position, k and v (N, H, K, d). Returns all keys and values, (N, H, C * K, d).

        They are returned with their unused tail, which is zero and masked: slicing it off would force a copy in every
        matmul.
        """
        start, self.used = self.used, self.used + k.size(2)
        if self.used > self.self_k.size(2):
            more = growth(k.device) * k.size(2)
            self.self_k = stored_keys(_append_zeros(self.self_k, more))
            self.self_v = _append_zeros(self.self_v, more)
        self.self_k[:, :, start : self.used], self.self_v[:, :, start : self.used] = k, v
        return self.self_k, self.self_v

    def select(self, sentences: Tensor) -> None:
        """Keeps only these sentences; sentences (M,)."""
        self.cross_k, self.cross_v = self.cross_k[sentences], self.cross_v[sentences]
        self.self_k, self.self_v = self.self_k[sentences], self.self_v[sentences]


class DecoderCache:
    """The KV cache of all decoder layers for N sentences with K beams each, and what the beams share.

    `ancestry` (N, K, C, K) is a mask: [n, k, t, j] is True if beam k's token at position t was decoded as beam j.
    `logits` (N, K, V) is the buffer that every step writes its result to.
    """

    def __init__(self, layers: list[LayerCache], src_mask: Tensor, logits: Tensor):
        """src_mask (N, 1, 1, S), logits (N, K, V) with any content."""
        self.layers = layers
        self.src_mask = src_mask
        self.logits = logits
        self.length = 0  # target positions so far
        self.itself = torch.eye(logits.size(1), dtype=torch.bool, device=src_mask.device)  # (K, K)
        self.ancestry = self.itself[:, None][:, :0].repeat(len(src_mask), 1, 1, 1)

    def extend(self) -> Tensor:
        """Adds one position. Returns which cached positions, it included, each beam attends to: (N, 1, K, C * K)."""
        if self.length == self.ancestry.size(2):
            self.ancestry = F.pad(self.ancestry, (0, 0, 0, growth(self.ancestry.device)))
        self.ancestry[:, :, self.length] = self.itself
        self.length += 1
        return self.ancestry.flatten(2)[:, None]

    def reorder(self, parents: Tensor) -> None:
        """Lets beam k of sentence n continue what was its beam parents[n, k]; parents (N, K)."""
        self.ancestry = self.ancestry.gather(1, parents[:, :, None, None].expand_as(self.ancestry))

    def select(self, sentences: Tensor) -> None:
        """Keeps only these sentences, in this order; sentences (M,)."""
        self.src_mask, self.ancestry = self.src_mask[sentences], self.ancestry[sentences]
        self.logits = self.logits[: len(sentences)]
        for layer in self.layers:
            layer.select(sentences)
