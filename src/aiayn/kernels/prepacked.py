"""Weights in the layout that oneDNN multiplies fastest with, for translation on CPUs.

Plain products reorder the weights at every call, which costs most with few rows. Here they are reordered once.
"""

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor, nn

from aiayn.hardware import has_bfloat16
from aiayn.model.embedding import SharedEmbedding
from aiayn.model.layers import FeedForward
from aiayn.model.transformer import Transformer

ROWS = 128  # rows of the other matrix that the layout is chosen for
FEW = 300_000  # multiply-adds that MKL takes less time for than calling oneDNN takes, ten microseconds


def round_up(sentences: int) -> int:
    """Rounds a number of sentences up to one of few values.

    oneDNN compiles a kernel for every number of rows, which takes as long as two products and half a megabyte.
    """
    unit = 1 if sentences <= 4 else 4 if sentences <= 32 else 16
    return -(-sentences // unit) * unit


def round_down(most: int) -> int:
    """Rounds a number of sentences down to one of few values, at least one; see `round_up`."""
    return max(most // 16 * 16 or most, 1)


def few_rows(weight: Tensor) -> int:
    """Returns how many rows MKL multiplies with the matrix before oneDNN would have been called; 0 for a large one."""
    return FEW // weight.numel() if torch.backends.mkl.is_available() and weight.numel() <= FEW / 2 else 0


class PrepackedLinear(nn.Module):
    """Replaces `nn.Linear`: weight (M, D), bias (M,) or None. Without gradients."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        super().__init__()
        # Attributes rather than buffers: prepacked tensors cannot be copied to another device or data type.
        self.prepacked = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), ROWS)
        self.bias = None if bias is None else bias.detach()
        self.out_features = len(weight)
        self.few_rows = few_rows(weight) if weight.dtype == torch.float32 else 0

    @property
    def weight(self) -> Tensor:
        return self.prepacked.to_dense()

    @cached_property
    def transposed(self) -> Tensor:
        """The weight (D, M) for few rows, made when there are some: an encoder has none."""
        return self.weight.t().contiguous()

    def forward(self, x: Tensor) -> Tensor:
        """x (..., D). Returns (..., M)."""
        if self._has_few_rows(x):
            return torch.mm(x, self.transposed) if self.bias is None else torch.addmm(self.bias, x, self.transposed)
        return torch.ops.mkldnn._linear_pointwise(x, self.prepacked, self.bias, "none", [], "")

    def relu(self, x: Tensor) -> Tensor:
        """Returns relu(self(x)), in one operation."""
        if self._has_few_rows(x):
            return self(x).relu_()
        return torch.ops.mkldnn._linear_pointwise(x, self.prepacked, self.bias, "relu", [], "")

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """Returns residual + self(x), in one operation."""
        if self._has_few_rows(x):
            y = torch.addmm(residual, x, self.transposed)
            return y if self.bias is None else y.add_(self.bias)
        return torch.ops.mkldnn._linear_pointwise.binary(x, residual, self.prepacked, self.bias, "add")

    def _has_few_rows(self, x: Tensor) -> bool:
        return x.dim() == 2 and x.size(0) <= self.few_rows


class PrepackedFeedForward(FeedForward):
    """Replaces `FeedForward`: its first product and ReLU are one operation."""

    def __init__(self, plain: FeedForward):
        nn.Module.__init__(self)
        self.w_1, self.w_2 = plain.w_1, plain.w_2

    def forward(self, x: Tensor) -> Tensor:
        """x (B, T, D). Returns (B, T, D)."""
        assert isinstance(self.w_1, PrepackedLinear)
        return self.w_2(self.w_1.relu(x))


class PrepackedEmbedding(SharedEmbedding):
    """Replaces `SharedEmbedding`: the same matrix for embedding, a prepacked copy of it for projecting."""

    def __init__(self, embedding: SharedEmbedding):
        super().__init__(*embedding.weight.shape)
        self.weight = embedding.weight
        self.prepacked = PrepackedLinear(embedding.weight)

    def project(self, states: Tensor) -> Tensor:
        """states (..., D). Returns logits (..., V)."""
        return self.prepacked(states)


def prepack(model: Transformer) -> Transformer:
    """Prepacks the matrices of a model on a CPU in place and returns it. It cannot be trained any more."""
    dtype = model.embedding.weight.dtype
    if not torch.backends.mkldnn.is_available() or (dtype == torch.bfloat16 and not has_bfloat16(torch.device("cpu"))):
        return model
    for layer in (*model.encoder, *model.decoder):
        if type(layer.feed_forward) is FeedForward:
            layer.feed_forward = PrepackedFeedForward(layer.feed_forward)
    replace_linears(model, PrepackedLinear)
    model.embedding = PrepackedEmbedding(model.embedding)
    return model


def replace_linears(model: Transformer, make: Callable[[Tensor, Tensor | None], nn.Module]) -> None:
    """Replaces every `nn.Linear` by make(weight, bias)."""
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear):
            model.set_submodule(name, make(module.weight, module.bias))
