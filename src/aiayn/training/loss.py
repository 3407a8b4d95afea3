"""Section 5.4: label smoothing.

The target distribution puts 1 - eps + eps/V on the right token and eps/V on every other one, so with logits z the loss
of a token y is logsumexp(z) - (1 - eps) z_y - (eps/V) sum(z). With eps = 0 it is the negative log-likelihood, whose
mean's exponential is the perplexity.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from aiayn.kernels import loss as kernels
from aiayn.kernels.linear import linear
from aiayn.token_ids import PAD_ID

LOGITS = 2**22  # held in memory at once by `evaluate_output`: 16 MB


def cross_entropy(logits: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
    """Returns the loss in nats, summed over all target tokens except padding; the caller divides by the step's tokens.

    logits (B, T, V), targets (B, T).
    """
    return F.cross_entropy(
        logits.flatten(0, 1).float(),
        targets.flatten(),
        ignore_index=PAD_ID,
        label_smoothing=label_smoothing,
        reduction="sum",
    )


def output_cross_entropy(
    states: Tensor, embedding: Tensor, targets: Tensor, label_smoothing: float, fused: bool = False
) -> Tensor:
    """`cross_entropy` of the logits states @ embedding.T: states (B, T, D), embedding (V, D), targets (B, T).

    fused: as in `kernels.rows_at_a_time`.
    """
    if kernels.applies(states):
        return kernels.rows_at_a_time(states, embedding, targets, label_smoothing, fused)
    return cross_entropy(F.linear(states, embedding), targets, label_smoothing)


@torch.no_grad()
def evaluate_output(states: Tensor, embedding: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
    """Returns (3,) float64, summed over target tokens except padding: smoothed loss, negative log-likelihood, and how
    many tokens are the model's most probable ones. Arguments are those of `output_cross_entropy`.
    """
    real, vocab_size = targets != PAD_ID, len(embedding)
    x, y = states[real], targets[real][:, None]
    sums = torch.zeros(3, dtype=torch.float64, device=states.device)
    rows = max(1, LOGITS // vocab_size)
    for start in range(0, len(x), rows):
        z, right = linear(x[start : start + rows], embedding).float(), y[start : start + rows]
        total, of_right = z.logsumexp(1, keepdim=True), z.gather(1, right)
        smoothed = total - (1 - label_smoothing) * of_right - label_smoothing / vocab_size * z.sum(1, keepdim=True)
        found = z.argmax(1, keepdim=True) == right
        sums += torch.stack([smoothed.sum(), (total - of_right).sum(), found.sum()])
    return sums
