"""8-bit weights: faster than bfloat16 on CPUs with int8 instructions, in half of its memory.

Every row of a weight matrix, and every row that is multiplied with it, is quantized to 255 levels with its own scale.
Sums of the integer products are exact, so a sentence's result does not depend on the others in its batch.

oneDNN multiplies, and scales its 32-bit sums before they leave the CPU's registers. It takes one scale for all rows of
a product, so it gets 1, and its result is multiplied by the scale of each row.
"""

import platform
from functools import cache, partial

import torch
from torch import Tensor, nn

from aiayn.kernels.prepacked import ROWS, replace_linears
from aiayn.model.embedding import SharedEmbedding
from aiayn.model.transformer import Transformer

ZERO = 128  # added to the integers of a product's rows: CPUs multiply unsigned with signed bytes
COLUMNS_OF_SUMS = 1024  # without oneDNN: output columns at a time, so that their sums are scaled in a CPU's cache


def quantize_rows(x: Tensor, dtype: torch.dtype = torch.float32, unsigned: bool = False) -> tuple[Tensor, Tensor]:
    """x (R, D). Returns integers (R, D) and a scale of `dtype` for each row (R, 1).

    The integers are -127 to 127 as int8, or 1 to 255 as `unsigned` bytes, with 128 added to them.
    """
    tiny = torch.finfo(torch.float32).tiny  # for a row of zeros
    scale = x.abs().amax(-1, keepdim=True).float().div_(127).clamp_(min=tiny).to(dtype)
    # Fewer temporary tensors are faster; only a converted copy may be divided in place.
    quotients = x / scale.float() if x.dtype == torch.float32 else x.float().div_(scale.float())
    codes = quotients.round_().to(torch.int8)
    # Flipping the highest bit adds 128; converting to uint8 is several times as slow.
    return (codes.view(torch.uint8).bitwise_xor_(ZERO) if unsigned else codes), scale


@cache
def onednn_is_exact() -> bool:
    """Whether oneDNN has a product of bytes for this CPU, and its sums do not overflow, as they do without VNNI."""
    if platform.machine() not in ("x86_64", "AMD64") or not hasattr(torch.ops.onednn, "qlinear_pointwise"):
        return False
    weight = torch.full((64, 256), 127, dtype=torch.int8)
    prepacked = torch.ops.onednn.qlinear_prepack(weight, [ROWS, 256])
    codes, zeros = torch.full((32, 256), 255, dtype=torch.uint8), torch.zeros(64, dtype=torch.int32)
    return bool((_onednn(codes, prepacked, torch.ones(64), zeros, torch.float32) == 127 * 127 * 256).all())


def _onednn(codes: Tensor, prepacked: Tensor, scale: Tensor, zeros: Tensor, dtype: torch.dtype) -> Tensor:
    """Unsigned codes (R, D), a prepacked matrix (M, D), scale and zero (M,) of its rows. Returns the product (R, M)."""
    return torch.ops.onednn.qlinear_pointwise(
        codes, 1.0, ZERO, prepacked, scale, zeros, None, 1.0, 0, dtype, "none", [], ""
    )


class Int8Linear(nn.Module):
    """Replaces `nn.Linear`: weight (M, D), bias (M,) or None; results are of `dtype`."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype):
        super().__init__()
        codes, scale = quantize_rows(weight.detach())
        # Attributes rather than buffers: prepacked tensors cannot be copied to another device or data type.
        self.codes, self.scale = codes, scale.flatten()
        self.bias = None if bias is None else bias.detach().to(dtype)
        self.out_features = len(weight)
        self.dtype = dtype
        self.onednn = onednn_is_exact()
        if self.onednn:
            self.zeros = torch.zeros(len(weight), dtype=torch.int32)
            self.codes = torch.ops.onednn.qlinear_prepack(codes, [ROWS, codes.size(1)])

    def forward(self, x: Tensor) -> Tensor:
        """x (..., D). Returns (..., M)."""
        codes, scale = quantize_rows(x.flatten(0, -2), self.dtype, self.onednn)
        out = self.product(codes)
        out = out.mul_(scale) if self.bias is None else torch.addcmul(self.bias, out, scale)
        return out.unflatten(0, x.shape[:-1])

    def product(self, codes: Tensor) -> Tensor:
        """codes (R, D) of `quantize_rows`. Returns the product (R, M), not yet multiplied by the scales of its rows."""
        if self.onednn:
            return _onednn(codes, self.codes, self.scale, self.zeros, self.dtype)
        out = torch.empty(len(codes), len(self.scale), dtype=self.dtype)
        for start in range(0, len(self.scale), COLUMNS_OF_SUMS):
            columns = slice(start, start + COLUMNS_OF_SUMS)
            out[:, columns] = torch.ops.aten._int_mm(codes, self.codes[columns].t()).float().mul_(self.scale[columns])
        return out


class Int8Embedding(SharedEmbedding):
    """Replaces `SharedEmbedding`."""

    def __init__(self, embedding: SharedEmbedding, dtype: torch.dtype):
        nn.Module.__init__(self)
        weight = embedding.weight.detach()
        self.codes, self.row_scales = quantize_rows(weight)
        self.layer = Int8Linear(weight, None, torch.float32)
        self.scale = embedding.scale
        self.dtype = dtype

    def forward(self, ids: Tensor) -> Tensor:
        """ids (B, T). Returns their embeddings times sqrt(d_model), (B, T, D)."""
        return (self.codes[ids] * (self.row_scales[ids] * self.scale)).to(self.dtype)

    def project(self, states: Tensor) -> Tensor:
        """states (..., D). Returns logits (..., V), float32."""
        codes, scale = quantize_rows(states.flatten(0, -2), unsigned=self.layer.onednn)
        return self.layer.product(codes).mul_(scale).unflatten(0, states.shape[:-1])


def quantize_int8(model: Transformer, dtype: torch.dtype) -> Transformer:
    """Quantizes the model's matrices in place, converts the rest to `dtype`, and returns it. It cannot be trained."""
    replace_linears(model, partial(Int8Linear, dtype=dtype))
    model.embedding = Int8Embedding(model.embedding, dtype)
    return model.to(dtype)
