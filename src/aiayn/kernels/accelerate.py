"""Replaces modules of a model with faster versions, whose results equal those of the plain modules
up to rounding.

A version stays here only if a training step of tiny or base, or `evaluate.py` with base, takes 10 %
longer without it (docs/results/performance.md has the table). It replaces only modules that are
exactly the paper's, so that an extension's code runs as written.
"""

from typing import TypeGuard, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aiayn.kernels.grouped_attention import grouped_attention
from aiayn.kernels.range_attention import fused_attention
from aiayn.model.attention import MultiHeadAttention, attention
from aiayn.model.embedding import TiedOutput
from aiayn.model.layers import FeedForward
from aiayn.model.transformer import Transformer

M = TypeVar("M", bound=nn.Module)

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
PACKED_ROWS = 128  # rows of the input, for which oneDNN chooses the layout of prepacked weights


def accelerate(model: Transformer, device: torch.device, translates: bool = False) -> Transformer:
    """Prepares a model for a device in place and returns it; weights keep their names, and nothing
    is moved.

    `translates`: the model will not be trained any more.
    """
    on_gpu = device.type == "cuda"
    for module in model.modules():
        if is_exactly(module, MultiHeadAttention) and module.attention is attention:
            module.attention = fused_attention if on_gpu else grouped_attention
    if on_gpu:
        return model
    for name, module in list(model.named_modules()):
        if is_exactly(module, nn.Dropout) and not module.inplace:
            model.set_submodule(name, FastDropout(module.p).train(module.training))
    if translates:
        prepack(model)
    return model


def is_exactly(module: object, cls: type[M]) -> TypeGuard[M]:
    """Returns whether a module is of this class and no subclass, without hooks, parametrizations or
    methods of its own.

    Only such a module may be replaced by a faster version. A parametrization changes a module's
    class. Submodules are not checked.
    """
    if type(module) is not cls:
        return False
    has_hooks = any(getattr(module, hooks) for hooks in HOOKS)
    return not has_hooks and not any(callable(getattr(cls, name, None)) for name in vars(module))


class FastDropout(nn.Module):
    """`nn.Dropout` (section 5.4) with masks that are cheap on a CPU."""

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Zeroes elements of x, of any shape, with probability p in training, and scales the others
        by 1 / (1 - p). Returns the same shape.
        """
        if not self.training or self.p == 0:
            return x
        # A model may have moved since it was accelerated.
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.p)
        # Each 64-bit random number decides four elements with 16 bits each: 3.5 times as fast as
        # torch's dropout, and p is exact to within 1e-5.
        count = (x.numel() + 3) // 4
        numbers = torch.empty(count, dtype=torch.int64).random_(-(2**63), None)
        bits = numbers.view(torch.int16)[: x.numel()].view(x.shape)
        threshold = min(round(self.p * 2**16) - 2**15, 2**15 - 1)
        keep = bits >= threshold
        return x * (keep * (1 / (1 - self.p)))


class PrepackedLinear(nn.Linear):
    """Replaces `nn.Linear`; its weights have the layout that oneDNN multiplies fastest.

    weight (M, D), bias (M,) or None, without gradients. `nn.Linear` reorders the weights at every
    call, which costs most with few rows.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        nn.Module.__init__(self)  # that of `nn.Linear` would make parameters
        self.out_features, self.in_features = weight.shape
        # Attributes rather than buffers: prepacked tensors cannot be copied to another device or
        # data type.
        dense = weight.detach().contiguous()
        self.prepacked = torch.ops.mkldnn._reorder_linear_weight(dense, PACKED_ROWS)
        self.bias = None if bias is None else bias.detach()

    @property
    def weight(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.prepacked.to_dense()

    def forward(self, input: Tensor) -> Tensor:
        """Multiplies input (..., D), which autocast may have made bfloat16. Returns (..., M)."""
        return torch.ops.mkldnn._linear_pointwise(
            input.float(), self.prepacked, self.bias, "none", [], ""
        )


def prepack(model: Transformer) -> None:
    """Prepacks the matrices of the paper's layers in place. The model cannot be trained any
    more.
    """
    is_float32 = next(model.parameters()).dtype == torch.float32
    if not (is_float32 and torch.backends.mkldnn.is_available()):
        return
    for module in list(model.modules()):
        if is_exactly(module, MultiHeadAttention) or is_exactly(module, FeedForward):
            for name, linear in module.named_children():
                if is_exactly(linear, nn.Linear):
                    setattr(module, name, PrepackedLinear(linear.weight, linear.bias))
    if is_exactly(model.output, TiedOutput):
        model.output = PrepackedLinear(model.output.weight)
