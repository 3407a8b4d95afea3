"""The loss of rows of logits and its gradient in one Triton kernel, which reads the logits twice
and writes once.
"""

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from torch import Tensor

VECTOR = 16  # numbers; rows that begin at multiples of it are read and written in vectors
BLOCK = 4096  # logits of a row at a time; a power of two


def losses_of_rows(
    logits: Tensor, targets: Tensor, label_smoothing: float, needs_gradient: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Computes `training/loss.py: losses_of_rows` in float32; the logits become the gradient in
    place.
    """
    rows, vocab_size = logits.shape
    stride = logits.stride(0)
    width = stride if stride % VECTOR == 0 and stride - vocab_size < VECTOR else vocab_size
    smoothed = torch.empty(rows, dtype=torch.float32, device=logits.device)
    nll = torch.empty_like(smoothed)
    block = min(BLOCK, triton.next_power_of_2(vocab_size))
    run = _kernel[(rows,)]  # pyright: ignore[reportIndexIssue]
    sizes = stride, width, vocab_size
    outputs = targets.contiguous(), smoothed, nll
    run(logits, *outputs, *sizes, label_smoothing, NEEDS_GRADIENT=needs_gradient, BLOCK=block)
    return smoothed, nll, logits if needs_gradient else None


@triton.jit
def _kernel(z, y, smoothed, nll, stride, width, vocab_size, label_smoothing, NEEDS_GRADIENT: tl.constexpr, BLOCK: tl.constexpr):  # noqa: E501  # fmt: skip
    """Computes one row: the maximum and the sum of exponentials in one pass (online softmax), then
    the gradient.

    The row has `width` numbers, a multiple of a vector, so that loads and stores need no mask for
    single numbers; those from `vocab_size` on mean nothing.
    """
    row = tl.program_id(0).to(tl.int64)
    z += row * stride
    share = label_smoothing / vocab_size
    columns = tl.arange(0, BLOCK)
    largest = tl.full((), float("-inf"), tl.float32)
    total = tl.zeros((), tl.float32)  # sum of exponentials
    plain = tl.zeros((), tl.float32)  # sum of the logits
    for start in range(0, vocab_size, BLOCK):
        numbers = start + columns
        inside = numbers < vocab_size
        part = _load_logits(z, numbers, width)
        part = tl.where(inside, part, float("-inf"))
        new = tl.maximum(largest, tl.max(part, 0))
        rescale = tl.exp(largest - new)
        exponentials = tl.exp(part - new)
        total = total * rescale + tl.sum(exponentials, 0)
        finite = tl.where(inside, part, 0.0)
        plain += tl.sum(finite, 0)
        largest = new
    target = tl.load(y + row)
    right = tl.load(z + target).to(tl.float32)
    log_total = largest + tl.log(total)
    tl.store(nll + row, log_total - right)
    tl.store(smoothed + row, log_total - (1 - label_smoothing) * right - share * plain)
    if NEEDS_GRADIENT:
        for start in range(0, vocab_size, BLOCK):
            numbers = start + columns
            part = _load_logits(z, numbers, width)
            gradient = tl.exp(part - log_total) - share
            of_target = gradient - (1 - label_smoothing)
            gradient = tl.where(numbers == target, of_target, gradient)
            rounded = gradient.to(z.dtype.element_ty)
            tl.store(z + numbers, rounded, mask=numbers < width)


@triton.jit
def _load_logits(z, numbers, width):
    logits = tl.load(z + numbers, mask=numbers < width, other=float("-inf"))
    return logits.to(tl.float32)
