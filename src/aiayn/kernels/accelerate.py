"""Replaces a model's parts by faster forms, whose results equal those of the plain parts up to rounding."""

import torch
from torch import nn

from aiayn.errors import ConfigError
from aiayn.kernels.attention import (
    JoinedSelfAttention,
    JointAttention,
    cpu_attention,
    fused_attention,
    fused_causal_attention,
)
from aiayn.kernels.cache import GPUCache, PreallocatedCache
from aiayn.kernels.decoder_step import quicken
from aiayn.kernels.dropout import Dropout
from aiayn.kernels.int8 import quantize_int8
from aiayn.kernels.linear import Linear
from aiayn.kernels.masks import AlignedBiases, Biases
from aiayn.kernels.packed_attention import check
from aiayn.kernels.prepacked import prepack
from aiayn.model.attention import MultiHeadAttention, attention
from aiayn.model.transformer import Transformer


def accelerate(
    model: Transformer, device: torch.device, precision: str | None = None, packed: bool = False
) -> Transformer:
    """Prepares a model for a device in place and returns it; weights keep their names, and nothing is moved.

    With a precision (float32, bfloat16, int8) it can only translate: on a CPU its matrices are prepacked for products.
    `packed`: it will be trained without padding, by `kernels/packed_attention.py`.
    Parts that an extension brought stay as they are. Raises ConfigError for int8 on a GPU, and for a model that cannot
    be packed.
    """
    if packed:
        check(model)
    on_gpu = device.type == "cuda"
    if on_gpu and precision == "int8":
        raise ConfigError("precision=int8 is for CPUs; set accelerator=cpu, or precision=bfloat16")
    _replace_attention(model, on_gpu)
    if not on_gpu:
        for name, module in list(model.named_modules()):
            if type(module) is nn.Dropout:
                model.set_submodule(name, Dropout(module.p).train(module.training))
            elif type(module) is nn.Linear and precision is None:
                module.__class__ = Linear  # rather than another module: an extension's may have hooks
    if precision is None:
        return model
    for layer in [*model.encoder, *model.decoder]:
        if type(layer.self_attention) is JointAttention:
            layer.self_attention = JoinedSelfAttention(layer.self_attention)
    if on_gpu:
        return model.to(getattr(torch, precision))
    model = quantize_int8(model) if precision == "int8" else prepack(model.to(getattr(torch, precision)))
    quicken(model)
    return model


def _replace_attention(model: Transformer, on_gpu: bool) -> None:
    """Equation (1) with biases for masks, unless an extension has attention of its own, which needs the masks."""
    names = [(layer, "self_attention") for layer in (*model.encoder, *model.decoder)]
    names += [(layer, "cross_attention") for layer in model.decoder]
    modules = [getattr(layer, name) for layer, name in names]
    if not all(isinstance(module, MultiHeadAttention) and module.attention is attention for module in modules):
        return
    for (layer, name), module in zip(names, modules, strict=True):
        module.attention = fused_attention if on_gpu else cpu_attention
        if type(module) is MultiHeadAttention:
            setattr(layer, name, JointAttention(module))
    if on_gpu:
        for layer in model.decoder:
            layer.self_attention.attention = fused_causal_attention
    window = model.config.attention_window
    model.masks = AlignedBiases(window) if on_gpu else Biases(window)
    model.new_cache = GPUCache if on_gpu else PreallocatedCache
