"""The step of a decoder layer on a CPU in few operations, for translation.

With few sentences most of a step's time is spent calling operations, about five microseconds for each. Here a residual
is added by the product before it, a bias by the product of queries and keys, and beams and heads are one dimension.
"""

import math
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from aiayn.kernels.attention import JoinedSelfAttention, JointAttention, cpu_attention
from aiayn.kernels.cache import PreallocatedLayer
from aiayn.kernels.int8 import Int8Linear
from aiayn.kernels.prepacked import PrepackedLinear
from aiayn.model.cache import LayerCache
from aiayn.model.layers import AddNorm, DecoderLayer, FeedForward
from aiayn.model.transformer import Transformer

Linear = PrepackedLinear | Int8Linear


class _Norm(NamedTuple):
    """What `torch.layer_norm` takes after its input."""

    shape: list[int]
    weight: Tensor
    bias: Tensor
    eps: float


class _Parts(NamedTuple):
    """What a step computes with. Calling modules, and looking them up in dictionaries, would take longer."""

    n_heads: int
    sizes: list[int]
    w_qkv: Linear
    w_o: Linear
    cross_q: Linear
    cross_o: Linear
    w_1: Linear
    w_2: Linear
    norms: list[_Norm]


class QuickDecoderLayer(DecoderLayer):
    """Replaces a `DecoderLayer` of the paper's parts with prepacked or quantized matrices."""

    def __init__(self, plain: DecoderLayer, parts: _Parts):
        """Shares the modules of `plain`, of which `parts` are."""
        nn.Module.__init__(self)
        for name, module in plain.named_children():
            self.add_module(name, module)
        self.training = plain.training
        self.parts = parts

    def step(self, x: Tensor, cache: LayerCache, position: int, ancestry: Tensor | None, src_mask: Tensor) -> Tensor:
        """As `DecoderLayer.step`; ancestry (N, H, K, R) and src_mask (N, H, 1, S) are biases."""
        assert isinstance(cache, PreallocatedLayer)
        n, k, d_model = x.shape
        n_heads, sizes, w_qkv, w_o, cross_q, cross_o, w_1, w_2, (norm_1, norm_2, norm_3) = self.parts
        x = x.flatten(0, 1)

        q, new_k, new_v = w_qkv.forward(x).split_with_sizes(sizes, 1)
        keys, values = cache.append(_heads(new_k, n, k, n_heads), _heads(new_v, n, k, n_heads))
        heads = _attend(_split(q, n, k, n_heads), keys.flatten(0, 1), values.flatten(0, 1), ancestry)
        x = torch.layer_norm(w_o.add(_merge(heads, n, k).to(x.dtype), x), *norm_1)

        keys, values = cache.cross_k.flatten(0, 1), cache.cross_v.flatten(0, 1)
        heads = _attend(_split(cross_q.forward(x), n, k, n_heads), keys, values, src_mask)
        x = torch.layer_norm(cross_o.add(_merge(heads, n, k).to(x.dtype), x), *norm_2)

        return torch.layer_norm(w_2.add(w_1.relu(x), x), *norm_3).view(n, k, d_model)


def _heads(y: Tensor, n: int, k: int, n_heads: int) -> Tensor:
    """y (N * K, H * d). Returns (N, H, K, d), for one beam without a transposition."""
    return y.view(n, n_heads, 1, -1) if k == 1 else y.view(n, k, n_heads, -1).transpose(1, 2)


def _split(q: Tensor, n: int, k: int, n_heads: int) -> Tensor:
    """q (N * K, H * d_k). Returns (N * H, K, d_k), float32."""
    heads = q.reshape(n * n_heads, 1, -1) if k == 1 else _heads(q, n, k, n_heads).flatten(0, 1)
    return heads.float()


def _merge(heads: Tensor, n: int, k: int) -> Tensor:
    """heads (N * H, K, d_v). Returns (N * K, H * d_v)."""
    return heads.view(n, -1) if k == 1 else heads.view(n, -1, k, heads.size(2)).transpose(1, 2).reshape(n * k, -1)


def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Equation (1): q (B, K, d_k), k (B, R, d_k), v (B, R, d_v), bias None or (N, H, K or 1, R), of which N * H is B.

    Returns (B, K, d_v).
    """
    scale, keys = 1 / math.sqrt(q.size(2)), k.mT
    scores = torch.bmm(q, keys).mul_(scale) if bias is None else torch.baddbmm(bias.flatten(0, 1), q, keys, alpha=scale)
    return torch.bmm(scores.softmax(-1), v)


def quicken(model: Transformer) -> None:
    """Replaces the decoder layers of a model on a CPU in place, if all are the paper's and their matrices prepacked."""
    parts = [_parts(layer) for layer in model.decoder]
    if None not in parts:
        layers = [QuickDecoderLayer(layer, part) for layer, part in zip(model.decoder, parts, strict=True) if part]
        model.decoder = cast(list[DecoderLayer], nn.ModuleList(layers))


def _parts(layer: DecoderLayer) -> _Parts | None:
    """Returns the parts of a layer; None if it has others than the paper's, or matrices that are not prepacked."""
    own, cross, feed_forward = layer.self_attention, layer.cross_attention, layer.feed_forward
    add_norms = [layer.norm_1, layer.norm_2, layer.norm_3]
    if type(layer) is not DecoderLayer or type(own) is not JoinedSelfAttention or type(cross) is not JointAttention:
        return None
    if not (own.attention is cross.attention is cpu_attention) or not isinstance(feed_forward, FeedForward):
        return None
    norms = [add_norm.norm for add_norm in add_norms if type(add_norm) is AddNorm]
    norms = [norm for norm in norms if type(norm) is nn.LayerNorm]
    linears: list[nn.Module] = [own.w_qkv, own.w_o, cross.w_q, cross.w_o, feed_forward.w_1, feed_forward.w_2]
    quick = [linear for linear in linears if isinstance(linear, Linear)]
    if len(norms) < len(add_norms) or len(quick) < len(linears):
        return None
    w_qkv, w_o, cross_q, cross_o, w_1, w_2 = quick
    arguments = [_Norm(list(norm.normalized_shape), norm.weight, norm.bias, norm.eps) for norm in norms]
    return _Parts(own.n_heads, own.sizes, w_qkv, w_o, cross_q, cross_o, w_1, w_2, arguments)
