"""What decoding one position at a time remembers, so that no position is computed twice."""

import torch
from torch import Tensor


class LayerCache:
    """Keys and values of one decoder layer.

    Of the target: one past per beam, rows (N * K, H, t, d). Of the source: one per sentence, (N, H, S, d), never copied
    for its beams and never reordered.
    """

    def __init__(self, cross_k: Tensor, cross_v: Tensor, beam_size: int, max_length: int):
        """cross_k (N, H, S, d_k) and cross_v (N, H, S, d_v); room for `max_length` target positions."""
        n, h, _, d_k = cross_k.shape
        self.cross_k, self.cross_v = cross_k, cross_v
        self.self_k = cross_k.new_empty(n * beam_size, h, max_length, d_k)
        self.self_v = cross_v.new_empty(n * beam_size, h, max_length, cross_v.size(-1))
        self.length = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Adds the newest position, k and v (N * K, H, 1, d). Returns all positions so far, (N * K, H, t, d)."""
        t = self.length
        self.self_k[:, :, t], self.self_v[:, :, t] = k[:, :, 0], v[:, :, 0]
        self.length = t + 1
        return self.self_k[:, :, : t + 1], self.self_v[:, :, : t + 1]

    def reorder(self, rows: Tensor) -> None:
        """Row i goes on from the past of row rows[i]; rows (N * K,)."""
        t = self.length
        self.self_k[:, :, :t] = self.self_k[rows, :, :t]
        self.self_v[:, :, :t] = self.self_v[rows, :, :t]

    def select(self, sentences: Tensor, rows: Tensor) -> None:
        """Keeps these sentences, and the rows of their beams, only."""
        self.cross_k, self.cross_v = self.cross_k[sentences], self.cross_v[sentences]
        self.self_k, self.self_v = self.self_k[rows], self.self_v[rows]


class DecoderCache:
    """The decoder's memory of N sentences with K beams each: one `LayerCache` per layer, and the source mask."""

    def __init__(self, layers: list[LayerCache], src_mask: Tensor, beam_size: int):
        """src_mask (N, 1, 1, S)."""
        self.layers = layers
        self.src_mask = src_mask
        self.beam_size = beam_size

    @property
    def length(self) -> int:
        """Target positions so far."""
        return self.layers[0].length

    def reorder(self, parents: Tensor) -> None:
        """Beam k of sentence n goes on from what was its beam parents[n, k]; parents (N, K)."""
        rows = self._rows(torch.arange(len(parents), device=parents.device), parents)
        for layer in self.layers:
            layer.reorder(rows)

    def select(self, sentences: Tensor) -> None:
        """Keeps only these sentences, in this order; sentences (M,)."""
        rows = self._rows(sentences, torch.arange(self.beam_size, device=sentences.device))
        self.src_mask = self.src_mask[sentences]
        for layer in self.layers:
            layer.select(sentences, rows)

    def _rows(self, sentences: Tensor, beams: Tensor) -> Tensor:
        """Where these beams (K,) or (M, K) of these sentences (M,) lie among all rows. Returns (M * K,)."""
        return (sentences[:, None] * self.beam_size + beams).flatten()
