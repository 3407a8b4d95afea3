"""Section 5.4: dropout, with masks that are cheap on a CPU."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class FastDropout(nn.Module):
    """Takes the place of `nn.Dropout`."""

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape. Returns the same shape."""
        return dropout(x, self.p) if self.training else x


def dropout(x: Tensor, p: float) -> Tensor:
    """Zeroes elements of x with probability p and scales the others by 1 / (1 - p). Returns the
    same shape.
    """
    if p == 0:
        return x
    if (
        x.device.type != "cpu" or torch.compiler.is_compiling()
    ):  # a model may have moved since it was accelerated
        return F.dropout(x, p)
    # Each 64-bit random number decides four elements with 16 bits each: 3.5 times as fast as
    # torch's dropout, and p is exact to within 1e-5.
    numbers = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    bits = numbers.view(torch.int16)[: x.numel()].view(x.shape)
    keep = bits >= min(round(p * 2**16) - 2**15, 2**15 - 1)
    return x * (keep * (1 / (1 - p)))
