"""A model with weights of eight bits: faster than bfloat16 where a CPU multiplies bytes, in half of its memory.

Every row of a matrix, and every row of what it multiplies, is rounded to 255 levels with a scale of its own; the sums
of products of these whole numbers are exact. So a sentence's result does not depend on the others in its batch.
"""

import torch
from torch import Tensor, nn

from aiayn.model.embedding import SharedEmbedding
from aiayn.model.transformer import Transformer

COLUMNS = 1024  # of a product at a time: its 32-bit sums are scaled while they are in a CPU's cache


def rounded(x: Tensor) -> tuple[Tensor, Tensor]:
    """x (R, D) as whole numbers from -127 to 127 (R, D) and a float32 scale for each row (R, 1)."""
    x = x.float()
    tiny = torch.finfo(torch.float32).tiny  # for a row of zeros
    scale = x.abs().amax(-1, keepdim=True).div_(127).clamp_(min=tiny)
    return (x / scale).round_().to(torch.int8), scale


class Int8Matrix(nn.Module):
    """A weight matrix (M, D), rounded; results, and what stands beside it in the model, are of `dtype`."""

    def __init__(self, weight: Tensor, dtype: torch.dtype):
        super().__init__()
        codes, scale = rounded(weight.detach())
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)
        self.dtype = dtype

    @property
    def weight(self) -> Tensor:
        """What the codes stand for, (M, D)."""
        return (self.codes * self.scale).to(self.dtype)

    def multiply(self, x: Tensor) -> Tensor:
        """The product of x (..., D) and the transposed matrix: (..., M)."""
        out = x.new_empty(*x.shape[:-1], len(self.codes))
        self.multiply_into(out.flatten(0, -2), x.flatten(0, -2))
        return out

    def multiply_into(self, out: Tensor, x: Tensor) -> None:
        """Writes the product of x (R, D) and the transposed matrix to out (R, M)."""
        codes, scale = rounded(x)
        for start in range(0, out.size(1), COLUMNS):
            part = slice(start, start + COLUMNS)
            sums = torch._int_mm(codes, self.codes[part].t())
            out[:, part] = sums.float().mul_(scale).mul_(self.scale[part, 0])


class Int8Linear(Int8Matrix):
    """Stands where a linear layer stood."""

    def __init__(self, linear: nn.Linear, dtype: torch.dtype):
        super().__init__(linear.weight, dtype)
        self.bias = linear.bias
        self.out_features = linear.out_features

    def forward(self, x: Tensor) -> Tensor:
        """x (..., D). Returns (..., M)."""
        out = self.multiply(x)
        return out if self.bias is None else out.add_(self.bias)


class Int8Embedding(Int8Matrix):
    """Stands where the embedding stood that is the output layer, too."""

    def __init__(self, embedding: SharedEmbedding, dtype: torch.dtype):
        super().__init__(embedding.weight, dtype)
        self.factor = embedding.scale

    def forward(self, ids: Tensor) -> Tensor:
        """ids (B, T). Returns their vectors times sqrt(d_model), (B, T, D)."""
        return (self.codes[ids] * (self.scale[ids] * self.factor)).to(self.dtype)

    def project(self, states: Tensor) -> Tensor:
        """states (..., D). Returns logits (..., V)."""
        return self.multiply(states)

    def project_into(self, logits: Tensor, states: Tensor) -> None:
        """The same for states (R, D), written to logits (R, V)."""
        self.multiply_into(logits, states)


def quantize_int8(model: Transformer, dtype: torch.dtype) -> Transformer:
    """The model itself, its matrices replaced and the rest of it turned to `dtype`; it cannot be trained any more."""
    linear = [
        (parent, name, Int8Linear(child, dtype))
        for parent in model.modules()
        for name, child in parent.named_children()
        if isinstance(child, nn.Linear)
    ]
    embedding = Int8Embedding(model.embedding, dtype)
    model.to(dtype)  # only now: matrices are rounded once
    for parent, name, replacement in linear:
        setattr(parent, name, replacement)
    model.embedding = embedding
    return model
