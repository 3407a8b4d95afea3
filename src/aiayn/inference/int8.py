"""8-bit weights: faster than bfloat16 on CPUs with int8 instructions, in half of its memory.

Every row of a weight matrix, and every row that is multiplied with it, is quantized to 255 levels with its own scale.
Sums of the integer products are exact, so a sentence's result does not depend on the others in its batch.
"""

import torch
from torch import Tensor, nn

from aiayn.model.embedding import SharedEmbedding
from aiayn.model.transformer import Transformer

COLUMNS = 1024  # output columns computed at a time, so that their 32-bit sums are scaled in a CPU's cache


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """x (R, D). Returns integers from -127 to 127 (R, D) and a float32 scale for each row (R, 1)."""
    x = x.float()
    tiny = torch.finfo(torch.float32).tiny  # for a row of zeros
    scale = x.abs().amax(-1, keepdim=True).div_(127).clamp_(min=tiny)
    return (x / scale).round_().to(torch.int8), scale


class Int8Matrix(nn.Module):
    """A quantized weight matrix (M, D); results, and the weights that are not quantized, are of `dtype`."""

    def __init__(self, weight: Tensor, dtype: torch.dtype):
        super().__init__()
        codes, scale = quantize_rows(weight.detach())
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)
        self.dtype = dtype

    @property
    def weight(self) -> Tensor:
        """The dequantized matrix, (M, D)."""
        return (self.codes * self.scale).to(self.dtype)

    def project(self, x: Tensor) -> Tensor:
        """x (..., D). Returns x times the transposed matrix, (..., M)."""
        out = x.new_empty(*x.shape[:-1], len(self.codes))
        self.project_into(out.flatten(0, -2), x.flatten(0, -2))
        return out

    def project_into(self, out: Tensor, x: Tensor) -> None:
        """Writes x (R, D) times the transposed matrix to out (R, M)."""
        codes, scale = quantize_rows(x)
        for start in range(0, out.size(1), COLUMNS):
            columns = slice(start, start + COLUMNS)
            sums = torch._int_mm(codes, self.codes[columns].t())
            out[:, columns] = sums.float().mul_(scale).mul_(self.scale[columns, 0])


class Int8Linear(Int8Matrix):
    """Replaces `nn.Linear`."""

    def __init__(self, linear: nn.Linear, dtype: torch.dtype):
        super().__init__(linear.weight, dtype)
        self.bias = linear.bias
        self.out_features = linear.out_features

    def forward(self, x: Tensor) -> Tensor:
        """x (..., D). Returns (..., M)."""
        out = self.project(x)
        return out if self.bias is None else out.add_(self.bias)


class Int8Embedding(Int8Matrix):
    """Replaces `SharedEmbedding`."""

    def __init__(self, embedding: SharedEmbedding, dtype: torch.dtype):
        super().__init__(embedding.weight, dtype)
        self.factor = embedding.scale

    def forward(self, ids: Tensor) -> Tensor:
        """ids (B, T). Returns their embeddings times sqrt(d_model), (B, T, D)."""
        return (self.codes[ids] * (self.scale[ids] * self.factor)).to(self.dtype)


def quantize_int8(model: Transformer, dtype: torch.dtype) -> Transformer:
    """Quantizes the model's matrices in place, converts the rest to `dtype`, and returns it. It cannot be trained."""
    quantized = {n: Int8Linear(m, dtype) for n, m in model.named_modules() if isinstance(m, nn.Linear)}
    quantized["embedding"] = Int8Embedding(model.embedding, dtype)
    model.to(dtype)  # after quantizing, so that matrices are rounded only once
    for name, module in quantized.items():
        model.set_submodule(name, module)
    return model
