"""Linear layers of a training on a CPU in bfloat16, of which oneDNN compiles few kernels.

oneDNN compiles a kernel for every number of rows that a product has, half a megabyte each, and nearly every batch has
another number of tokens. So rows of zeros are added up to a multiple of `ROWS`, as a tensor is converted to bfloat16.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

ROWS = 128


class Linear(nn.Linear):
    """Takes the place of `nn.Linear`."""

    def forward(self, input: Tensor) -> Tensor:
        """input (..., D). Returns (..., M)."""
        return linear(input, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weightᵀ + bias, as `torch.nn.functional.linear`: x (..., D), weight (M, D), bias (M,). Returns (..., M)."""
    if in_bfloat16(x) and x.numel() >= ROWS * x.size(-1):
        return _Linear.apply(x, weight, bias)
    return F.linear(x, weight, bias)


def in_bfloat16(x: Tensor) -> bool:
    """Whether products of x are computed by a CPU in bfloat16, operation by operation."""
    if x.device.type != "cpu" or not torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling():
        return False
    return torch.get_autocast_dtype("cpu") == torch.bfloat16


def padded_rows(x: Tensor) -> Tensor:
    """Returns x (..., D) in bfloat16 as a matrix (R, D), with rows of zeros at its end; R is a multiple of `ROWS`."""
    x = x.flatten(0, -2)
    missing = -len(x) % ROWS
    if not missing:
        return x.bfloat16()
    padded = x.new_empty(len(x) + missing, x.size(1), dtype=torch.bfloat16)
    padded[: len(x)] = x
    padded[len(x) :] = 0
    return padded


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows, w = padded_rows(x), weight.bfloat16()
        ctx.save_for_backward(rows, w)
        ctx.shape, ctx.dtypes = x.shape, (x.dtype, weight.dtype, None if bias is None else bias.dtype)
        y = F.linear(rows, w, None if bias is None else bias.bfloat16())
        return y[: x.shape[:-1].numel()].view(*x.shape[:-1], len(w))

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        return _gradients(ctx, *grad_outputs)


@once_differentiable
def _gradients(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    rows, w = ctx.saved_tensors
    x_dtype, w_dtype, bias_dtype = ctx.dtypes
    grad_rows = padded_rows(grad_y)
    grad_x = grad_w = grad_bias = None
    if ctx.needs_input_grad[0]:
        grad_x = (grad_rows @ w)[: ctx.shape[:-1].numel()].view(ctx.shape).to(x_dtype)
    if ctx.needs_input_grad[1]:
        grad_w = (grad_rows.T @ rows).to(w_dtype)
    if ctx.needs_input_grad[2]:
        grad_bias = grad_rows.sum(0).to(bias_dtype)
    return grad_x, grad_w, grad_bias
