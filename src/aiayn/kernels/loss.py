"""The loss of the output layer without holding all logits in memory at once: by rows, with their gradients.

On a CPU the logits of all positions are the largest tensor of a step, and moving them through memory is slower than
computing them; a few rows stay in the cache. On a GPU three copies of them in float32 would be 11 of the 18 GB that a
step of 25,000 tokens of the base model takes.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from aiayn.kernels.masks import product_dtype
from aiayn.model.embedding import TiedOutput
from aiayn.model.overrides import is_exactly
from aiayn.token_ids import PAD_ID

CPU_LOGITS = 2**22  # at a time, 16 MB: with fewer, accumulating the weight's gradient costs more than it saves
GPU_ROWS = 4096  # at a time, 1 GB with 37,000 subwords: as fast as all at once


def applies(states: Tensor, output: nn.Module) -> bool:
    """Whether the loss is computed by rows: if the output layer is a product with its weight and nothing else.

    Gradients in float16 would be computed before the gradient scaler's factor is known, and underflow.
    """
    is_product = is_exactly(output, TiedOutput) or (is_exactly(output, nn.Linear) and output.bias is None)
    return is_product and product_dtype(states) != torch.float16


def _on_cpu(states: Tensor) -> bool:
    return states.device.type == "cpu"


def sum_dtype(values: Tensor) -> torch.dtype:
    """Returns the data type in which these are added up: float32, or their own if that is wider."""
    return torch.promote_types(values.dtype, torch.float32)


def rows_at_a_time(
    states: Tensor, weight: Tensor, targets: Tensor, label_smoothing: float, fused: bool = False
) -> Tensor:
    """The summed loss of the logits states @ weight.T: states (B, T, D), weight (V, D), targets (B, T).

    With logits z that of a token y is logsumexp(z) - (1 - eps) z_y - (eps / V) sum(z). `fused`: on a GPU, loss and
    gradient of a row are one Triton kernel, `kernels/triton_loss.py`, which computes in float32.
    """
    real = targets != PAD_ID
    dtype = product_dtype(states)
    settings = label_smoothing, dtype, torch.is_grad_enabled(), fused and dtype != torch.float64
    if _on_cpu(states):
        return _RowsAtATime.apply(states[real], weight, targets[real], None, *settings)
    # How many tokens are real is not known to the host: rows of padding get states and weights of 0.
    states = torch.where(real[..., None], states, 0)
    return _RowsAtATime.apply(states.flatten(0, 1), weight, targets.flatten(), real.flatten().float(), *settings)


class _RowsAtATime(torch.autograd.Function):
    """states (N, D), weight (V, D), targets (N,), row_weights (N,) or None. Returns the summed loss."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        targets: Tensor,
        row_weights: Tensor | None,
        label_smoothing: float,
        dtype: torch.dtype,
        grad_enabled: bool,
        fused: bool,
    ) -> Tensor:
        w = weight.to(dtype)
        x = states.to(dtype)
        rows = max(1, CPU_LOGITS // len(w)) if row_weights is None else GPU_ROWS
        losses_and_gradient = _in_place if row_weights is None else _in_few_kernels
        if fused and row_weights is not None:
            from aiayn.kernels.triton_loss import losses_and_gradient
        loss = torch.zeros((), dtype=sum_dtype(x), device=states.device)
        needs_gradient = grad_enabled and any(ctx.needs_input_grad)
        gradients = None
        if needs_gradient:
            gradients = states.new_empty(x.shape), torch.zeros_like(weight, dtype=sum_dtype(weight))
        for start in range(0, len(x), rows):
            here = slice(start, start + rows)
            z = _product(x[here], w) if fused else x[here] @ w.T
            losses, grad_z = losses_and_gradient(z, targets[here, None], label_smoothing, needs_gradient)
            loss += (losses if row_weights is None else losses * row_weights[here, None]).sum()
            if gradients is not None and grad_z is not None:
                grad_x, grad_w = gradients
                grad_x[here] = grad_z @ w
                grad_w += grad_z.T @ x[here]
        if gradients is not None:
            grad_x, grad_w = gradients
            ctx.save_for_backward(grad_x, grad_w.to(weight.dtype))
        return loss

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        return _scale_gradients(ctx, *grad_outputs)


def _product(x: Tensor, w: Tensor) -> Tensor:
    """x @ w.T, whose rows begin at multiples of 16 numbers, so that the kernel reads them in vectors."""
    z = x.new_empty(len(x), -(-len(w) // 16) * 16)[:, : len(w)]
    return torch.mm(x, w.T, out=z)


@once_differentiable
def _scale_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    grad_x, grad_w = ctx.saved_tensors
    return grad_x * grad, grad_w * grad, None, None, None, None, None, None


def _in_place(z: Tensor, y: Tensor, label_smoothing: float, needs_gradient: bool) -> tuple[Tensor, Tensor | None]:
    """Returns the losses (N, 1) of logits z (N, V) and targets y (N, 1), and if needed the gradients of their sum by z,
    in the type of z.
    """
    dtype, vocab_size = z.dtype, z.size(1)
    z = z.to(sum_dtype(z))
    smoothed = (1 - label_smoothing) * z.gather(1, y) + label_smoothing / vocab_size * z.sum(1, keepdim=True)
    largest = z.amax(1, keepdim=True)
    exponentials = z.sub_(largest).exp_()  # once, for the loss and for its gradient
    total = exponentials.sum(1, keepdim=True)
    losses = total.log() + largest - smoothed
    if not needs_gradient:
        return losses, None
    grad_z = exponentials.mul_(1 / total).sub_(label_smoothing / vocab_size)
    grad_z.scatter_add_(1, y, grad_z.new_full(y.shape, label_smoothing - 1))
    return losses, grad_z.to(dtype)


def _in_few_kernels(z: Tensor, y: Tensor, label_smoothing: float, needs_gradient: bool) -> tuple[Tensor, Tensor | None]:
    """As `_in_place`, in as few kernels of a GPU as torch has for it; z is overwritten by the gradient."""
    share = label_smoothing / z.size(1)
    log_probs = z.log_softmax(1, dtype=sum_dtype(z))
    losses = (label_smoothing - 1) * log_probs.gather(1, y) - share * log_probs.sum(1, keepdim=True)
    if not needs_gradient:
        return losses, None
    probs = log_probs.exp_()
    probs.scatter_add_(1, y, probs.new_full(y.shape, label_smoothing - 1))
    return losses, torch.sub(probs, share, out=z)
