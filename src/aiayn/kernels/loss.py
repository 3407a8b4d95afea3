"""The loss of the output layer without holding all logits in memory at once.

On a CPU the logits of all positions are the largest tensor of a step, and moving them through memory is slower than
computing them, so loss and gradients are computed for a few rows of logits at a time, which stay in the cache.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from aiayn.config.schema import PAD_ID


def applies(states: Tensor) -> bool:
    """Whether rows at a time are faster: a compiled graph stores the logits once and computes all else from them."""
    return states.device.type == "cpu" and not torch.compiler.is_compiling()


def rows_at_a_time(states: Tensor, embedding: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
    """The summed loss of the logits states @ embedding.T: states (B, T, D), embedding (V, D), targets (B, T).

    With logits z that of a token y is logsumexp(z) - (1 - eps) z_y - (eps / V) sum(z).
    """
    real = targets != PAD_ID
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else states.dtype
    return _RowsAtATime.apply(states[real], embedding, targets[real], label_smoothing, dtype, torch.is_grad_enabled())


class _RowsAtATime(torch.autograd.Function):
    """states (N, D), embedding (V, D), targets (N,). Returns the summed loss."""

    LOGITS = 2**22  # at a time, 16 MB: with fewer, accumulating the embedding's gradient costs more than it saves

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        embedding: Tensor,
        targets: Tensor,
        label_smoothing: float,
        dtype: torch.dtype,
        grad_enabled: bool,
    ) -> Tensor:
        x, w, vocab_size = states.to(dtype), embedding.to(dtype), len(embedding)
        rows = max(1, _RowsAtATime.LOGITS // vocab_size)
        loss = torch.zeros((), dtype=torch.float32)
        needs_gradient = grad_enabled and any(ctx.needs_input_grad)
        if needs_gradient:
            grad_x, grad_w = torch.empty_like(states), torch.zeros_like(embedding)
        for start in range(0, len(x), rows):
            x_rows, y = x[start : start + rows], targets[start : start + rows, None]
            z = (x_rows @ w.T).float()
            smoothed = (1 - label_smoothing) * z.gather(1, y) + label_smoothing / vocab_size * z.sum(1, keepdim=True)
            largest = z.amax(1, keepdim=True)
            exponentials = z.sub_(largest).exp_()  # once, for the loss and for its gradient
            total = exponentials.sum(1, keepdim=True)
            loss += (total.log() + largest - smoothed).sum()
            if needs_gradient:
                grad_z = exponentials.mul_(1 / total).sub_(label_smoothing / vocab_size)
                grad_z.scatter_add_(1, y, grad_z.new_full(y.shape, label_smoothing - 1))
                grad_z = grad_z.to(dtype)
                grad_x[start : start + rows] = grad_z @ w
                grad_w += grad_z.T @ x_rows
        if needs_gradient:
            ctx.save_for_backward(grad_x, grad_w)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grad_x, grad_w = ctx.saved_tensors
        return grad_x * grad, grad_w * grad, None, None, None, None
