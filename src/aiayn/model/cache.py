"""What decoding one position at a time remembers, so that no position is computed twice."""

import torch
from torch import Tensor
from torch.nn import functional as F

ROOM = 8  # positions that a store grows by when it is full


class LayerCache:
    """Keys and values of one decoder layer, one store per sentence.

    Of the source: (N, H, S, d), shared by the sentence's beams. Of the target: (N, H, C * K, d), those of its K beams
    side by side at each of C positions; `DecoderCache.past` knows which of them are whose, so that nothing is moved.
    """

    def __init__(self, cross_k: Tensor, cross_v: Tensor):
        """cross_k (N, H, S, d_k) and cross_v (N, H, S, d_v)."""
        # In the order in which projections come, every step's product would copy them anew; and it transposes keys.
        self.cross_k, self.cross_v = cross_k.mT.contiguous().mT, cross_v.contiguous()
        self.self_k, self.self_v = cross_k.mT[..., :0].contiguous().mT, cross_v[:, :, :0]
        self.used = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Adds the newest position, k and v (N, H, K, d). Returns the whole store, (N, H, C * K, d).

        Products take it as it is; its beginning alone they would copy at every step. What is not used yet is zero.
        """
        start, self.used = self.used, self.used + k.size(2)
        if self.used > self.self_k.size(2):
            more = ROOM * k.size(2)
            self.self_k, self.self_v = F.pad(self.self_k.mT, (0, more)).mT, F.pad(self.self_v, (0, 0, 0, more))
        self.self_k[:, :, start : self.used], self.self_v[:, :, start : self.used] = k, v
        return self.self_k, self.self_v

    def select(self, sentences: Tensor) -> None:
        """Keeps these sentences only; sentences (M,)."""
        self.cross_k, self.cross_v = self.cross_k.mT[sentences].mT, self.cross_v[sentences]
        self.self_k, self.self_v = self.self_k.mT[sentences].mT, self.self_v[sentences]


class DecoderCache:
    """The decoder's memory of N sentences with K beams each: one `LayerCache` per layer, the source mask, the pasts.

    `past` (N, K, C, K) is True where beam k's token at position t is the one that stands there in place j. `logits`
    (N, K, V) is where every step writes its result.
    """

    def __init__(self, layers: list[LayerCache], src_mask: Tensor, logits: Tensor):
        """src_mask (N, 1, 1, S), logits (N, K, V) with any content."""
        self.layers = layers
        self.src_mask = src_mask
        self.logits = logits
        self.length = 0  # target positions so far
        beam_size = logits.size(1)
        self.newest = torch.eye(beam_size, dtype=torch.bool, device=src_mask.device)  # (K, K)
        self.past = self.newest[:, None][:, :0].repeat(len(src_mask), 1, 1, 1)

    def extend(self) -> Tensor:
        """Makes place for one more position. Returns what each beam may attend to, with itself: (N, 1, K, C * K)."""
        if self.length == self.past.size(2):
            self.past = F.pad(self.past, (0, 0, 0, ROOM))
        self.past[:, :, self.length] = self.newest
        self.length += 1
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
