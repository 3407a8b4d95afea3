"""Attention among packed sentences on a CPU, as equation (1) defines it: importing this module lets
tests compute what a GPU computes in one kernel.
"""

import math

from torch import Tensor

from aiayn.kernels.range_attention import range_attention, range_attention_gradient
from aiayn.model.attention import attention_weights
from aiayn.model.masks import Ranges


@range_attention.register_kernel("cpu")
def _(q: Tensor, k: Tensor, v: Tensor, *ranges: Tensor) -> tuple[Tensor, Tensor]:
    weights = _weights(q, k, Ranges(*ranges))
    attended = weights @ _swapped(v)
    return _swapped(attended), q.new_empty(q.size(1), q.size(0))


@range_attention_gradient.register_kernel("cpu")
def _(
    grad_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    log_sums: Tensor,
    *ranges: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    weights = _weights(q, k, Ranges(*ranges))
    grad_attended = _swapped(grad_out)
    grad_weights = grad_attended @ _swapped(v).mT
    share = (grad_weights * weights).sum(-1, keepdim=True)
    grad_products = weights * (grad_weights - share)
    grad_scores = grad_products / math.sqrt(q.size(2))
    grad_q = grad_scores @ _swapped(k)
    grad_k = grad_scores.mT @ _swapped(q)
    grad_v = weights.mT @ grad_attended
    return _swapped(grad_q), _swapped(grad_k), _swapped(grad_v)


def _weights(q: Tensor, k: Tensor, ranges: Ranges) -> Tensor:
    queries, keys = _swapped(q), _swapped(k)
    return attention_weights(queries[None], keys[None], ranges)[0]


def _swapped(x: Tensor) -> Tensor:
    """Swaps (T, H, d) to (H, T, d), or back."""
    return x.transpose(0, 1).contiguous()
