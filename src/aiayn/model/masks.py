"""Which positions may attend to which. Masks are boolean, True = may attend, and leave every query at least one key."""

import torch
from torch import Tensor

SMALLEST_BLOCK = 32  # positions; matrices much smaller than this cost as much as these
FEWEST_BLOCKS = 6  # below that, blocks save nothing


def encoder_mask(src_mask: Tensor, window: int | None) -> Tensor:
    """What the encoder's self-attention may see: src_mask (B, 1, 1, S), within the window if there is one."""
    if window is None:
        return src_mask
    return window_mask(src_mask.size(-1), window, causal=False, real=src_mask, device=src_mask.device)


def decoder_mask(length: int, window: int | None, device: torch.device | None = None) -> Tensor:
    """What the decoder's self-attention may see of T positions: those before and itself, within the window if any."""
    if window is None:
        return causal_mask(length, device)
    return window_mask(length, window, causal=True, device=device)


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """Section 3.2.3: position t may attend to positions up to t. Returns (T, T).

    Targets are padded on the right, so no real position ever sees padding through it.
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def window_mask(
    length: int, window: int, *, causal: bool, real: Tensor | None = None, device: torch.device | None = None
) -> Tensor:
    """Section 4: only a neighbourhood of `window` positions around one's own, window // 2 to each side.

    With `causal` only the positions up to one's own; with `real` (B, 1, 1, T) no padding, except that each position
    sees itself. Returns (B or 1, 1, T, T). Of a sequence much longer than the window it returns what is near the
    diagonal only, (B or 1, N, 1, W, K): the queries are cut into N blocks of W, and each block is shown the K keys of
    the block before it, of its own and, unless `causal`, of the next. So time and memory grow as T times `window`.
    """
    reach = window // 2
    width = max(reach, SMALLEST_BLOCK)
    n_blocks = -(-length // width)
    if n_blocks < FEWEST_BLOCKS:
        queries = torch.arange(length, device=device)[:, None]  # (T, 1)
        keys = torch.arange(length, device=device)[None, :]  # (1, T)
    else:
        starts = torch.arange(0, length, width, device=device)[:, None, None]
        queries = starts + torch.arange(width, device=device)[:, None]  # (N, W, 1)
        keys = starts + torch.arange(-width, width if causal else 2 * width, device=device)  # (N, 1, K)
    distance = keys - queries
    mask = (distance.abs() <= reach) & (keys >= 0) & (keys < length)
    if causal:
        mask = mask & (distance <= 0)
    mask = mask[None]
    if real is not None:
        mask = mask & real.flatten(1)[:, keys.clamp(0, length - 1)]
    return (mask | (distance == 0)).unsqueeze(-3)
