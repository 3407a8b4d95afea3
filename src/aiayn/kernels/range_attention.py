"""Equation (1) in one kernel of a GPU."""

import torch
from torch import Tensor
from torch.nn import functional as F

from aiayn.model.masks import Mask, Ranges


def fused_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask, p_drop: float = 0.0) -> Tensor:
    """Computes `attention` in one kernel; for packed sentences B is 1, and `p_drop` must be 0."""
    if not isinstance(mask, Ranges):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p_drop)
    q, k, v = (heads[0].transpose(0, 1) for heads in (q, k, v))
    out, _ = torch.ops.aiayn.range_attention(q, k, v, *mask)
    return out.transpose(0, 1)[None]


# A graph that is compiled or captured calls these two as a whole.


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


@range_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *ranges: Tensor) -> tuple[Tensor, Tensor]:
    n_queries, n_heads, _ = q.shape
    out = q.new_empty(n_queries, n_heads, v.size(2))
    log_sums = q.new_empty(n_heads, n_queries, dtype=torch.float32)
    return out, log_sums


@range_attention_gradient.register_fake
def _(
    grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, *others: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _save_for_gradient(ctx, inputs, output) -> None:
    q, k, v, *ranges = inputs
    ctx.save_for_backward(q, k, v, *output, *ranges)


def _gradient(ctx, grad_out: Tensor, _: Tensor | None):
    gradients = torch.ops.aiayn.range_attention_gradient(grad_out, *ctx.saved_tensors)
    return *gradients, None, None, None, None  # no gradients of the ranges


range_attention.register_autograd(_gradient, setup_context=_save_for_gradient)
