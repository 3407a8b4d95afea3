"""Section 4: self-attention restricted to a window around each position, for long sequences.

A sequence is cut into blocks of W queries, each of which is compared only with the K keys of its own and adjacent
blocks, so that time and memory grow as T times the window and not as T squared.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from aiayn.kernels.attention import fused_attention
from aiayn.kernels.masks import GPUMasks
from aiayn.model.attention import attention
from aiayn.model.masks import Masks

MIN_BLOCK_SIZE = 32  # positions; smaller matrix products take about as long
MIN_BLOCKS = 6  # with fewer blocks the ordinary mask is as fast


def is_long(length: int, reach: int) -> bool:
    """Whether blocks are faster than an ordinary mask."""
    return -(-length // max(reach, MIN_BLOCK_SIZE)) >= MIN_BLOCKS


def window_mask(
    length: int, reach: int, *, causal: bool, real: Tensor | None = None, device: torch.device | None = None
) -> Tensor:
    """Returns the block mask (B or 1, N, 1, W, K) of T = length positions that reach so many positions to each side.

    The K keys of each of N blocks of W queries are those of the block before it, of the block itself and, unless
    `causal`, of the block after it. If `causal`, a position attends only to itself and what came before. With `real`
    (B, 1, 1, T) padding is hidden, except that every position attends to itself.
    """
    size = max(reach, MIN_BLOCK_SIZE)
    starts = torch.arange(0, length, size, device=device)[:, None, None]
    queries = starts + torch.arange(size, device=device)[:, None]  # (N, W, 1)
    keys = starts + torch.arange(-size, size if causal else 2 * size, device=device)  # (N, 1, K)
    distance = keys - queries
    mask = (distance.abs() <= reach) & (keys >= 0) & (keys < length)
    if causal:
        mask = mask & (distance <= 0)
    mask = mask[None]
    if real is not None:
        mask = mask & real.flatten(1)[:, keys.clamp(0, length - 1)]
    return (mask | (distance == 0)).unsqueeze(-3)


class BlockMasks(Masks):
    """Long sequences get block masks (B or 1, N, 1, W, K)."""

    def encoder(self, src_mask: Tensor, x: Tensor) -> Tensor:
        if self.reach is not None and is_long(x.size(1), self.reach):
            return window_mask(x.size(1), self.reach, causal=False, real=src_mask, device=x.device)
        return super().encoder(src_mask, x)

    def decoder(self, x: Tensor) -> Tensor | None:
        if self.reach is not None and is_long(x.size(1), self.reach):
            return window_mask(x.size(1), self.reach, causal=True, device=x.device)
        return super().decoder(x)


class GPUBlockMasks(GPUMasks, BlockMasks):
    """The same as biases."""

    def decoder(self, x: Tensor) -> Tensor | None:
        mask = BlockMasks.decoder(self, x)
        assert mask is not None, "there is a window"
        return self.bias(mask, x)


def split_blocks(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Cuts q and k (B, H, T, d_k) and v (B, H, T, d_v) into the blocks of a block mask (B or 1, N, 1, W, K).

    Returns q (B * N, H, W, d_k), k (B * N, H, K, d_k), v (B * N, H, K, d_v) and the mask (B * N, 1, W, K).
    """
    _, n_blocks, _, size, n_keys = mask.shape
    length = q.size(2)

    def blocks(x: Tensor, before: int, after: int) -> Tensor:
        """Pads (B, H, T, d) with zeros to (B, before + N + after, H, W, d)."""
        padding = (0, 0, before * size, (n_blocks + after) * size - length)
        return F.pad(x, padding).unflatten(2, (-1, size)).transpose(1, 2)

    visible = n_keys // size  # blocks of keys for each block of queries, beginning with the one before it
    k, v = (blocks(x, 1, visible - 2) for x in (k, v))
    k, v = (torch.cat([x[:, i : i + n_blocks] for i in range(visible)], dim=3).flatten(0, 1) for x in (k, v))
    mask = mask.expand(len(q), -1, -1, -1, -1).flatten(0, 1)
    return blocks(q, 0, 0).flatten(0, 1), k, v, mask


def merge_blocks(heads: Tensor, batch_size: int, length: int) -> Tensor:
    """Puts the blocks (B * N, H, W, d_v) of `split_blocks` back together as (B, H, T, d_v)."""
    return heads.unflatten(0, (batch_size, -1)).transpose(1, 2).flatten(2, 3)[:, :, :length]


def block_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p_drop: float = 0.0) -> Tensor:
    """`attention`, block by block where the mask is a block mask."""
    if mask is None or mask.dim() != 5:
        return attention(q, k, v, mask, p_drop)
    return merge_blocks(attention(*split_blocks(q, k, v, mask), p_drop), q.size(0), q.size(2))


def fused_block_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, p_drop: float = 0.0) -> Tensor:
    """`fused_attention`, block by block where the bias is that of a block mask."""
    if bias is None or bias.dim() != 5:
        return fused_attention(q, k, v, bias, p_drop)
    return merge_blocks(fused_attention(*split_blocks(q, k, v, bias), p_drop), q.size(0), q.size(2))
