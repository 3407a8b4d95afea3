"""Weights in the layout that oneDNN multiplies fastest with, for translation on CPUs.

Plain products reorder the weights at every call, which costs most with few rows. Here they are reordered once.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from aiayn.hardware import has_bfloat16
from aiayn.model.embedding import SharedEmbedding
from aiayn.model.transformer import Transformer

ROWS = 128  # rows of the other matrix that the layout is chosen for
COLUMNS = 4096  # output columns computed at a time, so that they are still in a CPU's cache when they are copied


class PackedLinear(nn.Module):
    """Replaces `nn.Linear`: weight (M, D), bias (M,) or None. Without gradients."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        super().__init__()
        # Attributes rather than buffers: packed tensors cannot be copied to another device or data type.
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), ROWS)
        self.bias = bias
        self.out_features = len(weight)

    @property
    def weight(self) -> Tensor:
        return self.packed.to_dense()

    def forward(self, x: Tensor) -> Tensor:
        """x (..., D). Returns (..., M)."""
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")


class PackedEmbedding(SharedEmbedding):
    """Replaces `SharedEmbedding`: the same matrix for embedding, a packed copy of it for projecting."""

    def __init__(self, embedding: SharedEmbedding):
        super().__init__(*embedding.weight.shape)
        self.weight = embedding.weight
        self.blocks = [PackedLinear(block) for block in embedding.weight.split(COLUMNS)]

    def project(self, states: Tensor) -> Tensor:
        """states (..., D). Returns logits (..., V)."""
        return torch.cat([block(states) for block in self.blocks], -1)


def pack(model: Transformer) -> Transformer:
    """Packs the matrices of a model on a CPU in place and returns it. It cannot be trained any more."""
    dtype = model.embedding.weight.dtype
    if not torch.backends.mkldnn.is_available() or (dtype == torch.bfloat16 and not has_bfloat16(torch.device("cpu"))):
        return model
    replace_linears(model, PackedLinear)
    model.embedding = PackedEmbedding(model.embedding)
    return model


def replace_linears(model: Transformer, make: Callable[[Tensor, Tensor | None], nn.Module]) -> None:
    """Replaces every `nn.Linear` by make(weight, bias)."""
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear):
            model.set_submodule(name, make(module.weight, module.bias))
