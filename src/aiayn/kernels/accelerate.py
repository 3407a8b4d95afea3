"""Puts faster forms in place of a model's parts, whose results equal those of the plain parts up to rounding.

A form stays here only if a training step of tiny or base, or `evaluate.py` with base, takes 10 % longer without it
(docs/results/performance.md has the table). It takes the place of modules that are exactly the paper's, so that code
of an extension runs as it was written.
"""

import torch
from torch import nn

from aiayn.kernels.attention import fused_attention, fused_causal_attention
from aiayn.kernels.dropout import FastDropout
from aiayn.kernels.masks import GPUMasks
from aiayn.model.attention import MultiHeadAttention, attention
from aiayn.model.layers import DecoderLayer, EncoderLayer
from aiayn.model.masks import Masks
from aiayn.model.overrides import is_exactly
from aiayn.model.transformer import Transformer


def accelerate(model: Transformer, device: torch.device, translates: bool = False) -> Transformer:
    """Prepares a model for a device in place and returns it; weights keep their names, and nothing is moved.

    `translates`: it will not be trained any more.
    """
    on_gpu = device.type == "cuda"
    if attends_as_the_paper(model):
        _replace_attention(model, on_gpu)
    if not on_gpu:
        for name, module in list(model.named_modules()):
            if is_exactly(module, nn.Dropout) and not module.inplace:
                model.set_submodule(name, FastDropout(module.p).train(module.training))
        if translates:
            from aiayn.kernels.prepacked import prepack

            prepack(model)
    return model


def attends_as_the_paper(model: Transformer) -> bool:
    """Whether no code of an extension sees a mask: only then may masks be of another kind."""
    usual = Masks(model.config.attention_window)
    if not is_exactly(model, Transformer) or type(model.masks) is not Masks or vars(model.masks) != vars(usual):
        return False
    layers = [*((layer, EncoderLayer) for layer in model.encoder), *((layer, DecoderLayer) for layer in model.decoder)]
    if not all(is_exactly(layer, kind) for layer, kind in layers):
        return False
    return all(is_exactly(each, MultiHeadAttention) and each.attention is attention for each in _attentions(model))


def _attentions(model: Transformer) -> list[MultiHeadAttention]:
    layers = [*model.encoder, *model.decoder]
    return [layer.self_attention for layer in layers] + [layer.cross_attention for layer in model.decoder]


def _replace_attention(model: Transformer, on_gpu: bool) -> None:
    window = model.config.attention_window
    if window is not None:  # which none of the paper's own models has
        from aiayn.kernels import windowed_attention as windowed

        model.masks = windowed.GPUBlockMasks(window) if on_gpu else windowed.BlockMasks(window)
        for module in _attentions(model):
            module.attention = windowed.fused_block_attention if on_gpu else windowed.block_attention
    elif on_gpu:
        model.masks = GPUMasks()
        for module in _attentions(model):
            module.attention = fused_attention
        for layer in model.decoder:
            layer.self_attention.attention = fused_causal_attention
