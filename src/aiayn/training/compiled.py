"""Compiled forms of the layers and of the loss (`trainer.compile`)."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from aiayn.kernels.packed_attention import decoder_layer, encoder_layer, packed_states
from aiayn.model.transformer import Transformer
from aiayn.training.loss import output_cross_entropy
from aiayn.training.packed_batch import PackedStates


def compile_apart(model: Transformer) -> Callable[[Tensor, nn.Module, Tensor, float], Tensor]:
    """Compiles every layer of a model in place, and returns a compiled `output_cross_entropy`.

    One graph of each for batches of every shape: the backward pass of one graph for all of them would hand over all
    gradients at its end, and DDP could send none of them meanwhile. In the loss, the float32 copy of the logits, their
    softmax and its gradient are never stored.
    """
    for layer in (*model.encoder, *model.decoder):
        layer.compile(dynamic=True)
    torch._dynamo.config.optimize_ddp = False  # cutting the graph for DDP fails on dynamic shapes
    return torch.compile(output_cross_entropy, dynamic=True)


def compile_packed() -> PackedStates:
    """Returns `packed_states` with compiled layers, one graph for all of an encoder and one for all of a decoder."""
    layers = torch.compile(encoder_layer, dynamic=True), torch.compile(decoder_layer, dynamic=True)
    return partial(packed_states, layers=layers)
