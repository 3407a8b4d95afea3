"""Section 5.4: label smoothing.

The target distribution puts 1 - eps + eps/V on the right token and eps/V on every other one, so with logits z the loss
of a token y is logsumexp(z) - (1 - eps) z_y - (eps/V) sum(z). With eps = 0 it is the negative log-likelihood, whose
mean's exponential is the perplexity.
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aiayn.kernels import loss as kernels
from aiayn.token_ids import PAD_ID

ROWS = 256  # of logits, held in memory at once by `evaluate_output`: 38 MB with 37,000 subwords


def cross_entropy(logits: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
    """Returns the loss in nats, summed over all target tokens except padding; the caller divides by the step's tokens.

    logits (B, T, V), targets (B, T).
    """
    return F.cross_entropy(
        logits.flatten(0, 1).to(kernels.sum_dtype(logits)),
        targets.flatten(),
        ignore_index=PAD_ID,
        label_smoothing=label_smoothing,
        reduction="sum",
    )


def output_cross_entropy(
    states: Tensor, output: nn.Module, targets: Tensor, label_smoothing: float, fused: bool = False
) -> Tensor:
    """`cross_entropy` of the model's output layer: states (B, T, D), output from (..., D) to (..., V), targets (B, T).

    fused: as in `kernels.rows_at_a_time`.
    """
    if kernels.applies(states, output):
        return kernels.rows_at_a_time(states, cast(Tensor, output.weight), targets, label_smoothing, fused)
    return cross_entropy(output(states), targets, label_smoothing)


@torch.no_grad()
def evaluate_output(states: Tensor, output: nn.Module, targets: Tensor, label_smoothing: float) -> Tensor:
    """Returns (3,) float64, summed over target tokens except padding: smoothed loss, negative log-likelihood, and how
    many tokens are the model's most probable ones. Arguments are those of `output_cross_entropy`.
    """
    real = targets != PAD_ID
    x, y = states[real], targets[real][:, None]
    sums = torch.zeros(3, dtype=torch.float64, device=states.device)
    for rows, right in zip(x.split(ROWS), y.split(ROWS), strict=True):
        z = output(rows)
        z = z.to(kernels.sum_dtype(z))
        total, of_right = z.logsumexp(1, keepdim=True), z.gather(1, right)
        smoothed = total - (1 - label_smoothing) * of_right - label_smoothing / z.size(1) * z.sum(1, keepdim=True)
        found = z.argmax(1, keepdim=True) == right
        sums += torch.stack([smoothed.sum(), (total - of_right).sum(), found.sum()])
    return sums
