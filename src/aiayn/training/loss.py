"""Section 5.4: the loss of training and evaluation, label smoothing included.

It is computed a few rows of logits at a time, with its gradient. On a CPU the logits of all
positions are the largest tensor of a step, and moving them through memory takes longer than
computing them; a few rows stay in the cache. On a GPU three copies of them in float32 would be 11
of the 18 GB that a step of 25,000 tokens of the base model takes.
"""

from importlib.util import find_spec
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from aiayn.kernels.accelerate import is_exactly
from aiayn.model.embedding import TiedOutput
from aiayn.token_ids import PAD_ID

# 16 MB at a time: with fewer, accumulating the weight's gradient costs more than is saved
CPU_LOGITS = 2**22
GPU_ROWS = 4096  # at a time, 1 GB with 37,000 subwords: as fast as all at once
EVALUATED_ROWS = 256  # at a time: 38 MB with 37,000 subwords


class RowLosses(NamedTuple):
    smoothed: Tensor  # (N,) the training loss
    # (N,) negative log-likelihoods, the loss without smoothing: perplexity is exp of their mean
    nll: Tensor
    gradient: Tensor | None  # (N, V) of the sum of the smoothed losses, in the type of the logits


def losses_of_rows(
    logits: Tensor, targets: Tensor, label_smoothing: float, needs_gradient: bool = False
) -> RowLosses:
    """Computes the loss of N rows of logits (N, V) for the correct tokens (N,), in float32 or
    wider. Overwrites the logits.

    With smoothing eps the target distribution has 1 - eps + eps/V for the correct token y and eps/V
    for every other one:

        loss = (1 - eps) (-log p_y) + eps mean_v(-log p_v)

    Its gradient by the logits is the softmax p minus that distribution.
    """
    dtype, vocab_size = logits.dtype, logits.size(1)
    right = targets[:, None].long()
    logits = logits.to(sum_dtype(logits))
    logits = logits.sub_(logits.amax(1, keepdim=True))
    of_right, mean = logits.gather(1, right), logits.mean(1, keepdim=True)
    exponentials = logits.exp_()  # computed once, for the loss and for its gradient
    partition = exponentials.sum(1, keepdim=True)
    nll = partition.log() - of_right
    smoothed = (1 - label_smoothing) * nll + label_smoothing * (partition.log() - mean)
    if not needs_gradient:
        return RowLosses(smoothed[:, 0], nll[:, 0], None)
    gradient = exponentials.div_(partition).sub_(label_smoothing / vocab_size)
    gradient.scatter_add_(1, right, gradient.new_full(right.shape, label_smoothing - 1))
    return RowLosses(smoothed[:, 0], nll[:, 0], gradient.to(dtype))


def cross_entropy(logits: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
    """Returns the loss in nats, summed over all target tokens except padding; the caller divides by
    the step's tokens.

    logits (B, T, V), targets (B, T).
    """
    # In float32 or wider: a gradient scaler's factor is multiplied in before the gradient is
    # rounded.
    return F.cross_entropy(
        logits.flatten(0, 1).to(sum_dtype(logits)),
        targets.flatten().long(),
        ignore_index=PAD_ID,
        reduction="sum",
        label_smoothing=label_smoothing,
    )


def output_cross_entropy(
    states: Tensor, output: nn.Module, targets: Tensor, label_smoothing: float
) -> Tensor:
    """Computes the `cross_entropy` of the model's output layer: states (B, T, D), output from (...,
    D) to (..., V), targets (B, T).

    If the output layer is a matrix product, only a few rows of logits are in memory at once.
    """
    dtype = _product_dtype(states)
    is_product = is_exactly(output, TiedOutput) or (
        is_exactly(output, nn.Linear) and output.bias is None
    )
    # Gradients in float16 would be computed before the gradient scaler's factor is known, and
    # underflow.
    if not is_product or dtype == torch.float16:
        return cross_entropy(output(states), targets, label_smoothing)
    real = targets != PAD_ID
    if states.device.type == "cpu":
        states, targets = states[real], targets[real]
    else:  # to select rows, the host would wait for the device to count the real ones
        states, targets = torch.where(real[..., None], states, 0).flatten(0, 1), targets.flatten()
    weight = cast(Tensor, output.weight)
    return _LossOfStates.apply(
        states, weight, targets, label_smoothing, dtype, torch.is_grad_enabled()
    )


@torch.no_grad()
def evaluate_output(
    states: Tensor, output: nn.Module, targets: Tensor, label_smoothing: float
) -> Tensor:
    """Returns (3,) float64, summed over target tokens except padding: smoothed loss, negative
    log-likelihood, and the number of tokens that the model ranks first. Arguments are those of
    `output_cross_entropy`.
    """
    real = targets != PAD_ID
    states, targets = states[real], targets[real]
    sums = torch.zeros(3, dtype=torch.float64, device=states.device)
    for rows, right in zip(
        states.split(EVALUATED_ROWS), targets.split(EVALUATED_ROWS), strict=True
    ):
        logits = output(rows)
        n_correct = (logits.argmax(1) == right).sum()
        losses = losses_of_rows(logits, right, label_smoothing)
        sums += torch.stack([losses.smoothed.sum(), losses.nll.sum(), n_correct])
    return sums


def sum_dtype(values: Tensor) -> torch.dtype:
    """Returns the data type for sums of these values: float32, or their own if that is wider."""
    return torch.promote_types(values.dtype, torch.float32)


class _LossOfStates(torch.autograd.Function):
    """The summed loss of states (N, D), 0 where the target is padding, with weight (V, D) and
    targets (N,).

    The logits are states @ weight.T, computed in `dtype`. The forward pass also computes both
    gradients, while it has the logits.
    """

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        targets: Tensor,
        label_smoothing: float,
        dtype: torch.dtype,
        grad_enabled: bool,
    ) -> Tensor:
        w, x, real = weight.to(dtype), states.to(dtype), targets != PAD_ID
        at_once = max(1, CPU_LOGITS // len(w)) if x.device.type == "cpu" else GPU_ROWS
        losses_of = losses_of_rows
        if _runs_in_triton(x):
            from aiayn.kernels.triton_loss import losses_of_rows as losses_of
        needs_gradient = grad_enabled and any(ctx.needs_input_grad)
        loss = torch.zeros((), dtype=sum_dtype(x), device=x.device)
        grad_states = states.new_empty(x.shape if needs_gradient else 0)
        grad_weight = torch.zeros_like(
            weight if needs_gradient else grad_states, dtype=sum_dtype(weight)
        )
        for start in range(0, len(x), at_once):
            rows = slice(start, start + at_once)
            logits = _logits(x[rows], w)
            smoothed, _, grad_z = losses_of(logits, targets[rows], label_smoothing, needs_gradient)
            loss += (smoothed * real[rows]).sum()
            if grad_z is not None:
                grad_states[rows] = grad_z @ w
                grad_weight += grad_z.T @ x[rows]
        if needs_gradient:
            ctx.save_for_backward(grad_states, grad_weight.to(weight.dtype))
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        grad_states, grad_weight = ctx.saved_tensors
        return grad_states * grad_output, grad_weight * grad_output, None, None, None, None


def _logits(x: Tensor, w: Tensor) -> Tensor:
    """Returns x @ w.T; on a GPU each row begins at a multiple of 16 numbers, so that a kernel reads
    it in vectors.
    """
    if x.device.type == "cpu":
        return x @ w.T
    vocab_size = len(w)
    aligned = x.new_empty(len(x), -(-vocab_size // 16) * 16)
    return torch.mm(x, w.T, out=aligned[:, :vocab_size])


def _product_dtype(x: Tensor) -> torch.dtype:
    """Returns the data type that products of x are computed in."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def _runs_in_triton(x: Tensor) -> bool:
    return x.device.type == "cuda" and x.dtype != torch.float64 and find_spec("triton") is not None
