"""Replaces modules of a model with faster versions, whose results equal those of the plain modules
up to rounding.

A version stays here only if a training step of tiny or base, or `evaluate.py` with base, takes 10 %
longer without it (docs/results/performance.md has the table). It replaces only modules that are
exactly the paper's, so that an extension's code runs as written.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aiayn.kernels.range_attention import fused_attention
from aiayn.model.attention import MultiHeadAttention, attention
from aiayn.model.overrides import is_exactly
from aiayn.model.transformer import Transformer


def accelerate(model: Transformer, device: torch.device, translates: bool = False) -> Transformer:
    """Prepares a model for a device in place and returns it; weights keep their names, and nothing
    is moved.

    `translates`: the model will not be trained any more.
    """
    if device.type == "cuda":
        for module in model.modules():
            if is_exactly(module, MultiHeadAttention) and module.attention is attention:
                module.attention = fused_attention
        return model
    for name, module in list(model.named_modules()):
        if is_exactly(module, nn.Dropout) and not module.inplace:
            model.set_submodule(name, FastDropout(module.p).train(module.training))
    if translates:
        from aiayn.kernels.prepacked import prepack

        prepack(model)
    return model


class FastDropout(nn.Module):
    """`nn.Dropout` (section 5.4) with masks that are cheap on a CPU."""

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Drops elements of x, of any shape, in training. Returns the same shape."""
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
