"""Which positions may attend to which. Masks are boolean, True = may attend, and leave every query at least one key."""

import torch
from torch import Tensor

from aiayn.kernels.windowed_attention import window_mask


def encoder_mask(src_mask: Tensor, window: int | None) -> Tensor:
    """Returns the mask of the encoder's self-attention: no padding, src_mask (B, 1, 1, S), within the window if any."""
    if window is None:
        return src_mask
    return window_mask(src_mask.size(-1), window, causal=False, real=src_mask, device=src_mask.device)


def decoder_mask(length: int, window: int | None, device: torch.device | None = None) -> Tensor:
    """Returns the mask of the decoder's self-attention over T positions: causal, within the window if any."""
    if window is None:
        return causal_mask(length, device)
    return window_mask(length, window, causal=True, device=device)


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """Section 3.2.3: position t may attend to positions up to t. Returns (T, T).

    Targets are padded on the right, so a real position never attends to padding.
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()
