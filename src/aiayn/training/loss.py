"""Section 5.4: label smoothing; and the loss of the output layer without holding all logits in memory at once.

The target distribution puts 1 - eps + eps/V on the right token and eps/V on every other one, so with logits z the loss
of a token y is logsumexp(z) - (1 - eps) z_y - (eps/V) sum(z). With eps = 0 it is the negative log-likelihood, whose
mean's exponential is the perplexity.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from aiayn.config.schema import PAD_ID


def cross_entropy(logits: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
    """Returns the loss summed over all target tokens but padding, in nats; the caller divides, by the whole step's.

    logits (B, T, V), targets (B, T).
    """
    return F.cross_entropy(
        logits.flatten(0, 1).float(),
        targets.flatten(),
        ignore_index=PAD_ID,
        label_smoothing=label_smoothing,
        reduction="sum",
    )


def output_cross_entropy(states: Tensor, embedding: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
    """`cross_entropy` of the logits states @ embedding.T: states (B, T, D), embedding (V, D), targets (B, T).

    On a CPU the logits of all positions are the largest tensor of a step, and moving them through memory is slower than
    computing them, so loss and gradients are computed for a few rows of logits at a time, which stay in the cache.
    With `trainer.compile` they are stored once, in the precision of the product; all else is computed from them in the
    kernels that read them.
    """
    if states.device.type != "cpu" or torch.compiler.is_compiling():
        return cross_entropy(F.linear(states, embedding), targets, label_smoothing)
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
