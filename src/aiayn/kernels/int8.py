"""8-bit weights: faster than bfloat16 on CPUs with int8 instructions, in half of its memory.

Every row of a weight matrix is quantized to 255 levels with its own scale, and every row that is multiplied with it to
256 levels between its least and its greatest number. Sums of the integer products are exact, so a sentence's result
does not depend on the others in its batch. All else is computed in float32.

oneDNN multiplies, and scales its 32-bit sums before they leave the CPU's registers. It takes one scale for all rows of
a product, so it gets 1, and its result is multiplied by the scale of each row.
"""

import platform
from functools import cache, cached_property, partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aiayn.kernels.prepacked import ROWS, few_rows, replace_linears
from aiayn.model.embedding import SharedEmbedding
from aiayn.model.transformer import Transformer

ZERO = 128  # added to the integers of a product's rows: CPUs multiply unsigned with signed bytes
TAIL = 8  # bytes that follow a row's own: its scale and its least number, of which a product takes none
COLUMNS_OF_SUMS = 1024  # without oneDNN: output columns at a time, so that their sums are scaled in a CPU's cache


def quantize_rows(x: Tensor, unsigned: bool = False) -> tuple[Tensor, Tensor]:
    """x (R, D), float32. Returns integers (R, D) and a scale for each row (R, 1), symmetric around 0.

    The integers are -127 to 127 as int8, or 1 to 255 as `unsigned` bytes, with 128 added to them.
    """
    tiny = torch.finfo(torch.float32).tiny  # for a row of zeros
    scale = x.abs().amax(-1, keepdim=True).div_(127).clamp_(min=tiny)
    codes = (x / scale).round_().to(torch.int8)
    # Flipping the highest bit adds 128; converting to uint8 is several times as slow.
    return (codes.view(torch.uint8).bitwise_xor_(ZERO) if unsigned else codes), scale


def quantize_ranges(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """x (R, D), float32. Returns bytes (R, D + TAIL), the scale of each row (R, 1) and its least number (R,).

    x is about scale * bytes + least; the last bytes of a row have no meaning. It is one operation, made for tables of
    embeddings, where symmetric levels take seven.
    """
    packed = torch.ops.quantized.embedding_bag_byte_prepack(x)
    tail = packed[:, -TAIL:]
    if x.size(1) % 4:  # floats must be aligned
        tail = tail.clone(memory_format=torch.contiguous_format)
    scale, least = tail.view(torch.float32).unbind(1)
    return packed, scale[:, None], least


@cache
def onednn_is_exact() -> bool:
    """Whether oneDNN has a product of bytes for this CPU, and its sums do not overflow, as they do without VNNI."""
    if platform.machine() not in ("x86_64", "AMD64") or not hasattr(torch.ops.onednn, "qlinear_pointwise"):
        return False
    product = OneDNNProduct(torch.full((64, 256), 127, dtype=torch.int8), torch.ones(64, 1), 0)
    product.few_rows = 0  # the question is about oneDNN
    return bool((product(torch.full((32, 256), 255, dtype=torch.uint8)) == 127 * 255 * 256).all())


class OneDNNProduct:
    """Bytes (R, D) minus `zero`, times a matrix of codes (M, D) with a scale for each of its rows (M, 1): (R, M).

    Few rows of a small matrix with `zero` = 0 are MKL's, because calling oneDNN takes 20 microseconds: in float32 sums
    below 2^24 are exact, too, so the result is the same to the bit.
    """

    def __init__(self, codes: Tensor, scale: Tensor, zero: int):
        self.matrix = torch.ops.onednn.qlinear_prepack(codes, [ROWS, codes.size(1)])
        self.scale, self.zero = scale.flatten(), zero
        self.zeros = torch.zeros(len(codes), dtype=torch.int32)
        self.few_rows = few_rows(codes) if zero == 0 and codes.size(1) * 255 * 127 < 2**24 else 0
        self.codes = codes if self.few_rows else None

    @cached_property
    def transposed(self) -> Tensor:
        """The codes (D, M) for few rows, made when there are some."""
        assert self.codes is not None
        return self.codes.t().float().contiguous()

    def __call__(self, x: Tensor) -> Tensor:
        if len(x) <= self.few_rows:
            return torch.mm(x.float(), self.transposed).mul_(self.scale)
        return torch.ops.onednn.qlinear_pointwise(
            x, 1.0, self.zero, self.matrix, self.scale, self.zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )


class PlainProduct:
    """The same of signed codes (R, D), where oneDNN has none."""

    def __init__(self, codes: Tensor, scale: Tensor):
        self.matrix, self.scale = codes, scale.flatten()

    def __call__(self, x: Tensor) -> Tensor:
        out = torch.empty(len(x), len(self.matrix))
        for start in range(0, len(self.matrix), COLUMNS_OF_SUMS):
            columns = slice(start, start + COLUMNS_OF_SUMS)
            out[:, columns] = torch.ops.aten._int_mm(x, self.matrix[columns].t()).float().mul_(self.scale[columns])
        return out


class Int8Linear(nn.Module):
    """Replaces `nn.Linear`: weight (M, D), bias (M,) or None, float32."""

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__()
        codes, scale = quantize_rows(weight.detach())
        if not weight.isfinite().all():
            scale = torch.full_like(scale, torch.nan)  # a single NaN would be lost where the next rows are quantized
        # Attributes rather than buffers: prepacked tensors cannot be copied to another device or data type.
        self.bias = None if bias is None else bias.detach()
        self.out_features = len(weight)
        self.sums = codes.sum(1) * scale.flatten()
        self.onednn = onednn_is_exact()
        self.product = OneDNNProduct(F.pad(codes, (0, TAIL)), scale, 0) if self.onednn else PlainProduct(codes, scale)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., D). Returns (..., M)."""
        rows = x.flatten(0, -2)
        if self.bias is None:
            product, scale, least = self._multiply(rows)
            out = product.mul_(scale)
            out = out if least is None else out.addr_(least, self.sums)
        else:
            out = self._add(rows, self.bias)
        return out.unflatten(0, x.shape[:-1])

    def relu(self, x: Tensor) -> Tensor:
        """Returns relu(self(x))."""
        return self(x).relu_()

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """x (R, D), residual (R, M). Returns `residual + self(x)`."""
        out = self._add(x, residual)
        return out if self.bias is None else out.add_(self.bias)

    def _add(self, x: Tensor, terms: Tensor) -> Tensor:
        """Adds terms (R, M) or (M,) to the product without the bias."""
        product, scale, least = self._multiply(x)
        if least is None:
            return torch.addcmul(terms, product, scale)
        return torch.addr(terms, least, self.sums).addcmul_(product, scale)

    def _multiply(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """x (R, D). Returns (R, M), to be multiplied by the scale of each row (R, 1), and after that to be added to the
        products of the least number of each row (R,), if not None, with `sums`.
        """
        if self.onednn:
            codes, scale, least = quantize_ranges(x)
            return self.product(codes), scale, least
        codes, scale = quantize_rows(x)
        return self.product(codes), scale, None


class Int8Embedding(SharedEmbedding):
    """Replaces `SharedEmbedding`."""

    def __init__(self, embedding: SharedEmbedding):
        nn.Module.__init__(self)
        self.codes, self.row_scales = quantize_rows(embedding.weight.detach().float())
        self.scale = embedding.scale
        self.onednn = onednn_is_exact()
        # Symmetric levels need one pass less over the logits, which are many.
        kind = partial(OneDNNProduct, zero=ZERO) if self.onednn else PlainProduct
        self.product = kind(self.codes, self.row_scales)

    def forward(self, ids: Tensor) -> Tensor:
        """ids (B, T). Returns their embeddings times sqrt(d_model), (B, T, D)."""
        return self.codes[ids] * (self.row_scales[ids] * self.scale)

    def project(self, states: Tensor) -> Tensor:
        """states (..., D). Returns logits (..., V)."""
        codes, scale = quantize_rows(states.flatten(0, -2), unsigned=self.onednn)
        return self.product(codes).mul_(scale).unflatten(0, states.shape[:-1])


def quantize_int8(model: Transformer) -> Transformer:
    """Quantizes the model's matrices in place, converts the rest to float32, and returns it. It cannot be trained."""
    model = model.float()
    replace_linears(model, Int8Linear)
    model.embedding = Int8Embedding(model.embedding)
    return model
