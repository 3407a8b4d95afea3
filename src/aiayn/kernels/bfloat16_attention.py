"""Equation (1) in a training on a CPU in bfloat16: few kernels are compiled, and little is kept for the gradients.

oneDNN compiles six kernels for every number of sentences and every length, half a megabyte each, and hardly two batches
agree in both. So all three are rounded up, as tensors are copied to be contiguous. Backpropagation needs the weights of
attention in bfloat16 only; operation by operation, torch would keep them in float32, too.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from aiayn.hardware import REGISTER

LENGTHS = 4  # queries and keys are a multiple of it; keys at least REGISTER, as in `kernels/attention.py: softmax`
MATRICES = 64  # heads of all sentences are a multiple of it, or of a lower power of two where there are few


def bfloat16_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """`attention` without dropout: q (B, H, T, d_k), k (B, H, S, d_k), v (B, H, S, d_v), all bfloat16.

    bias: broadcastable to (B, H, T, S), or None. Returns (B, H, T, d_v).
    """
    return _Attention.apply(q, k, v, bias)


def _round_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def _matrices(count: int) -> int:
    """Rounds a number of matrices up by at most an eighth, to one of few values."""
    return _round_up(count, min(MATRICES, 1 << max(0, (count // 8).bit_length() - 1)))


def _padded(x: Tensor, count: int, length: int) -> Tensor:
    """Copies x (B, H, L, d) to a contiguous (count, length, d), with zeros behind it."""
    batch, heads, real_length, size = x.shape
    real = batch * heads
    padded = x.new_empty(count, length, size)
    padded[:real].view(batch, heads, length, size)[:, :, :real_length] = x
    padded[:real, real_length:] = 0
    padded[real:] = 0
    return padded


def _real(x: Tensor, shape: tuple[int, ...], length: int) -> Tensor:
    """Returns the view (B, H, length, d) of what is not padding in x (count, L, d); shape begins with B and H."""
    return x[: shape[0] * shape[1]].view(*shape[:2], *x.shape[1:])[:, :, :length]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        shape, keys = q.shape, k.size(2)
        count = _matrices(shape[0] * shape[1])
        padded_keys = max(REGISTER, _round_up(keys, LENGTHS))
        queries = _padded(q, count, _round_up(shape[2], LENGTHS)).mul_(1 / math.sqrt(shape[3]))
        k, v = _padded(k, count, padded_keys), _padded(v, count, padded_keys)
        scores = (queries @ k.transpose(1, 2)).float()
        if bias is not None:
            _real(scores, shape, shape[2])[..., :keys] += bias
        scores[:, :, keys:] = -math.inf
        weights = scores.softmax(-1).bfloat16()
        ctx.save_for_backward(queries, k, v, weights)
        ctx.shape, ctx.keys = shape, keys
        return _real(weights @ v, shape, shape[2])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        return _gradients(ctx, *grad_outputs)


@once_differentiable
def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
    queries, k, v, weights = ctx.saved_tensors
    shape, keys = ctx.shape, ctx.keys
    grad = _padded(grad, *queries.shape[:2])
    grad_v = weights.transpose(1, 2) @ grad
    grad_weights = (grad @ v.transpose(1, 2)).float()
    softmax_backward = torch.ops.aten._softmax_backward_data
    grad_scores = softmax_backward(grad_weights, weights.float(), -1, torch.float32).bfloat16()
    grad_q = (grad_scores @ k).mul_(1 / math.sqrt(shape[3]))
    grad_k = grad_scores.transpose(1, 2) @ queries
    return _real(grad_q, shape, shape[2]), _real(grad_k, shape, keys), _real(grad_v, shape, keys), None
