"""Weights in the layout that oneDNN multiplies fastest with, for translation on CPUs.

Plain products reorder the weights at every call, which costs most with few rows. Here they are
reordered once.
"""

import torch
from torch import Tensor, nn

from aiayn.model.attention import MultiHeadAttention
from aiayn.model.embedding import TiedOutput
from aiayn.model.layers import FeedForward
from aiayn.model.overrides import is_exactly
from aiayn.model.transformer import Transformer

ROWS = 128  # rows of the other matrix that the layout is chosen for


class PrepackedLinear(nn.Linear):
    """Takes the place of `nn.Linear`: weight (M, D), bias (M,) or None. Without gradients."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        nn.Module.__init__(self)  # that of `nn.Linear` would make parameters
        self.out_features, self.in_features = weight.shape
        # Attributes rather than buffers: prepacked tensors cannot be copied to another device or
        # data type.
        self.prepacked = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), ROWS)
        self.bias = None if bias is None else bias.detach()

    @property
    def weight(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.prepacked.to_dense()

    def forward(self, input: Tensor) -> Tensor:
        """Multiplies input (..., D), also what autocast has made bfloat16. Returns (..., M)."""
        return torch.ops.mkldnn._linear_pointwise(
            input.float(), self.prepacked, self.bias, "none", [], ""
        )


def prepack(model: Transformer) -> None:
    """Prepacks the matrices of the paper's layers in place. The model cannot be trained any
    more.
    """
    if not torch.backends.mkldnn.is_available() or model.embedding.weight.dtype != torch.float32:
        return
    for module in list(model.modules()):
        if is_exactly(module, MultiHeadAttention) or is_exactly(module, FeedForward):
            for name, linear in module.named_children():
                if is_exactly(linear, nn.Linear):
                    setattr(module, name, PrepackedLinear(linear.weight, linear.bias))
    if is_exactly(model.output, TiedOutput):
        model.output = PrepackedLinear(model.output.weight)
