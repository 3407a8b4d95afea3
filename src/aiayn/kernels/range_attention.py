"""Equation (1) in one kernel of a GPU."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from aiayn.model.attention import attention_weights
from aiayn.model.masks import Mask, Ranges


def fused_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask, p_drop: float = 0.0) -> Tensor:
    """Computes `attention` in one kernel; for packed sentences B is 1, and `p_drop` must be 0."""
    if not isinstance(mask, Ranges):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p_drop)
    q, k, v = (heads[0].transpose(0, 1) for heads in (q, k, v))
    out, _ = torch.ops.aiayn.range_attention(q, k, v, *mask)
    return out.transpose(0, 1)[None]


# A graph that is compiled or captured calls these two as a whole. On a CPU they are the definition,
# for tests.


@torch.library.custom_op("aiayn::range_attention", mutates_args=(), device_types="cuda")
def range_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_start: Tensor,
    key_end: Tensor,
    query_start: Tensor,
    query_end: Tensor,
) -> tuple[Tensor, Tensor]:
    """Computes attention within ranges: q (T, H, d_k), k (S, H, d_k), v (S, H, d_v), and `Ranges`.

    Returns the attended values (T, H, d_v), and the logarithm of each softmax's denominator (H, T),
    for the gradient.
    """
    from aiayn.kernels.triton_attention import forward

    return forward(q, k, v, key_start, key_end)


@torch.library.custom_op("aiayn::range_attention_gradient", mutates_args=(), device_types="cuda")
def range_attention_gradient(
    grad_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    log_sums: Tensor,
    key_start: Tensor,
    key_end: Tensor,
    query_start: Tensor,
    query_end: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradients of q, k and v."""
    from aiayn.kernels.triton_attention import backward

    ranges = Ranges(key_start, key_end, query_start, query_end)
    return backward(q, k, v, out, log_sums, grad_out, ranges)


@range_attention.register_kernel("cpu")
def _(q: Tensor, k: Tensor, v: Tensor, *ranges: Tensor) -> tuple[Tensor, Tensor]:
    weights = _weights(q, k, Ranges(*ranges))
    attended = weights @ _swapped(v)
    return _swapped(attended), _empty_log_sums(q)


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


@range_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *ranges: Tensor) -> tuple[Tensor, Tensor]:
    n_queries, n_heads, _ = q.shape
    out = q.new_empty(n_queries, n_heads, v.size(2))
    return out, _empty_log_sums(q)


@range_attention_gradient.register_fake
def _(
    grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, *others: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _empty_log_sums(q: Tensor) -> Tensor:
    n_queries, n_heads, _ = q.shape
    return q.new_empty(n_heads, n_queries, dtype=torch.float32)


def _save_for_gradient(ctx, inputs, output) -> None:
    q, k, v, *ranges = inputs
    ctx.save_for_backward(q, k, v, *output, *ranges)


def _gradient(ctx, grad_out: Tensor, _: Tensor | None):
    gradients = torch.ops.aiayn.range_attention_gradient(grad_out, *ctx.saved_tensors)
    return *gradients, None, None, None, None  # no gradients of the ranges


range_attention.register_autograd(_gradient, setup_context=_save_for_gradient)
