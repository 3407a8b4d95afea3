"""What decoding one position at a time remembers, so that no position is computed twice."""

import torch
from torch import Tensor


class LayerCache:
    """Keys and values of one decoder layer, one store per sentence.

    Of the source: (N, H, S, d), shared by the sentence's beams. Of the target: (N, H, t * K, d), those of its K beams
    side by side at every position; `DecoderCache.past` knows which of them are whose, so that nothing is ever moved.
    """

    def __init__(self, cross_k: Tensor, cross_v: Tensor, beam_size: int, max_length: int):
        """cross_k (N, H, S, d_k) and cross_v (N, H, S, d_v); room for `max_length` target positions."""
        n, h, _, d_k = cross_k.shape
        # In the order in which projections come, every step's product would copy them anew; and it transposes keys.
        self.cross_k, self.cross_v = cross_k.mT.contiguous().mT, cross_v.contiguous()
        self.self_k = cross_k.new_empty(n, h, d_k, max_length * beam_size).mT
        self.self_v = cross_v.new_empty(n, h, max_length * beam_size, cross_v.size(-1))
        self.used = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Adds the newest position, k and v (N, H, K, d). Returns all positions so far, (N, H, t * K, d)."""
        start, self.used = self.used, self.used + k.size(2)
        self.self_k[:, :, start : self.used], self.self_v[:, :, start : self.used] = k, v
        return self.self_k[:, :, : self.used], self.self_v[:, :, : self.used]

    def select(self, sentences: Tensor) -> None:
        """Keeps these sentences only; sentences (M,)."""
        self.cross_k, self.cross_v = self.cross_k.mT[sentences].mT, self.cross_v[sentences]
        self.self_k, self.self_v = (self._selected(store, sentences) for store in (self.self_k, self.self_v))

    def _selected(self, store: Tensor, sentences: Tensor) -> Tensor:
        kept = store.new_empty(len(sentences), *store.shape[1:])
        kept[:, :, : self.used] = store[:, :, : self.used][sentences]  # the rest is still unwritten
        return kept


class DecoderCache:
    """The decoder's memory of N sentences with K beams each: one `LayerCache` per layer, the source mask, the pasts.

    `past` (N, K, t, K) is True where beam k's token at position t is the one that stands there in place j. `logits`
    (N, K, V) is where every step writes its result.
    """

    def __init__(self, layers: list[LayerCache], src_mask: Tensor, logits: Tensor):
        """src_mask (N, 1, 1, S), logits (N, K, V) with any content."""
        self.layers = layers
        self.src_mask = src_mask
        self.logits = logits
        beam_size = logits.size(1)
        self.newest = torch.eye(beam_size, dtype=torch.bool, device=src_mask.device)[:, None]  # (K, 1, K)
        self.past = self.newest[:, :0].repeat(len(src_mask), 1, 1, 1)

    @property
    def length(self) -> int:
        """Target positions so far."""
        return self.past.size(2)

    def extend(self) -> Tensor:
        """Makes place for one more position. Returns what each beam may attend to, with itself: (N, 1, K, t * K)."""
        self.past = torch.cat([self.past, self.newest.expand(len(self.past), -1, -1, -1)], dim=2)
        return self.past.flatten(2)[:, None]

    def reorder(self, parents: Tensor) -> None:
        """Beam k of sentence n goes on from what was its beam parents[n, k]; parents (N, K)."""
        self.past = self.past.gather(1, parents[:, :, None, None].expand_as(self.past))

    def select(self, sentences: Tensor) -> None:
        """Keeps only these sentences, in this order; sentences (M,)."""
        self.src_mask, self.past = self.src_mask[sentences], self.past[sentences]
        self.logits = self.logits[: len(sentences)]
        for layer in self.layers:
            layer.select(sentences)
