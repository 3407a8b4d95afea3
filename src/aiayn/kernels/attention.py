"""Equation (1) in one kernel of a GPU, with biases for masks: 0 where a mask is True and -inf elsewhere."""

from torch import Tensor
from torch.nn import functional as F

from aiayn.kernels.packed import Segments, packed_attention


def fused_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, p_drop: float = 0.0) -> Tensor:
    """`attention` with a bias of `GPUMasks`, a mask or None."""
    if isinstance(bias, Segments):
        return packed_attention(q, k, v, bias)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=p_drop)


def fused_causal_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, p_drop: float = 0.0) -> Tensor:
    """`fused_attention`, where None means the causal mask: kernels that know it skip what it hides."""
    if bias is None:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=p_drop, is_causal=True)
    return fused_attention(q, k, v, bias, p_drop)
