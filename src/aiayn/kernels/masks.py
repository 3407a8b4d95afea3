"""Masks as a GPU's fused attention takes them, made once for all layers."""

import torch
from torch import Tensor

from aiayn.model.masks import Masks


def product_dtype(x: Tensor) -> torch.dtype:
    """Returns the data type that products of x are computed in."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


class GPUMasks(Masks):
    """Biases, 0 where a mask is True and -inf elsewhere, in rows that begin at multiples of 16 elements.

    Fused kernels need such rows and copy others. The decoder's causal mask is None: its attention knows it.
    """

    def encoder(self, src_mask: Tensor, x: Tensor) -> Tensor:
        return self.bias(super().encoder(src_mask, x), x)

    def decoder(self, x: Tensor) -> Tensor | None:
        return None

    def source(self, src_mask: Tensor, x: Tensor) -> Tensor:
        return self.bias(src_mask, x)

    def bias(self, mask: Tensor, x: Tensor) -> Tensor:
        """Returns the bias of a mask, in the data type of products of x."""
        width = (mask.size(-1) + 15) // 16 * 16
        rows = torch.zeros(*mask.shape[:-1], width, dtype=product_dtype(x), device=mask.device)
        return rows[..., : mask.size(-1)].masked_fill_(~mask, -torch.inf)
