"""Puts faster forms in place of a model's parts, whose results equal those of the plain parts up to
rounding.

A form stays here only if a training step of tiny or base, or `evaluate.py` with base, takes 10 %
longer without it (docs/results/performance.md has the table). It takes the place of modules that
are exactly the paper's, so that code of an extension runs as it was written.
"""

import torch
from torch import nn

from aiayn.kernels.attention import fused_attention
from aiayn.kernels.dropout import FastDropout
from aiayn.model.attention import MultiHeadAttention, attention
from aiayn.model.overrides import is_exactly
from aiayn.model.transformer import Transformer


def accelerate(model: Transformer, device: torch.device, translates: bool = False) -> Transformer:
    """Prepares a model for a device in place and returns it; weights keep their names, and nothing
    is moved.

    `translates`: it will not be trained any more.
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
