"""Sections 3.1 and 3.3, and torch's own layers as an oracle: post-norm, ReLU, no bias in
attention.
"""

import random

import pytest
import torch
from torch import Tensor, nn

from aiayn.config.model import ModelConfig
from aiayn.model.layers import AddNorm, DecoderLayer, EncoderLayer, FeedForward
from aiayn.model.masks import causal_mask


def random_sizes(seed: int) -> tuple[ModelConfig, tuple[int, int, int]]:
    """A layer's sizes such as torch's layers can have, all different, and B, S and T."""
    draw = random.Random(seed)
    n_heads = draw.choice([1, 2, 3, 5])
    d_model = 2 * n_heads * draw.randint(1, 6)
    config = ModelConfig(
        n_layers=1,
        d_model=d_model,
        d_ff=d_model + draw.randint(1, 30),
        n_heads=n_heads,
        d_k=None,
        d_v=None,
        dropout=0.0,
        positions="sinusoidal",
        max_positions=1,
        attention_window=None,
        attention_dropout=0.0,
    )
    return config, (draw.randint(2, 4), draw.randint(5, 9), draw.randint(10, 12))


def randomise(module: nn.Module) -> None:
    """Everything different from its initial value, biases and norms too."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)


def gradients(ours: EncoderLayer | DecoderLayer, theirs: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Gradients of every weight, paired."""
    pairs = []
    for mine, other in [("self_attention", "self_attn"), ("cross_attention", "multihead_attn")]:
        if hasattr(ours, mine):
            a, b = getattr(ours, mine), getattr(theirs, other)
            stacked = torch.cat([a.w_q.weight.grad, a.w_k.weight.grad, a.w_v.weight.grad])
            pairs += [(stacked, b.in_proj_weight.grad), (a.w_o.weight.grad, b.out_proj.weight.grad)]
    modules = [(ours.feed_forward.w_1, theirs.linear1), (ours.feed_forward.w_2, theirs.linear2)]
    modules += [(ours.norm_1.norm, theirs.norm1), (ours.norm_2.norm, theirs.norm2)]
    modules += [(ours.norm_3.norm, theirs.norm3)] if hasattr(ours, "norm_3") else []
    return pairs + [
        (getattr(a, n).grad, getattr(b, n).grad) for a, b in modules for n in ("weight", "bias")
    ]


def padding_mask(b: int, s: int) -> Tensor:
    """(B, S), True at real positions: rows of different lengths, the first one full."""
    lengths = torch.randint(1, s + 1, (b,))
    lengths[0] = s
    return torch.arange(s) < lengths[:, None]


def assert_parity(
    ours: nn.Module, theirs: nn.Module, inputs: list[Tensor], mine: Tensor, other: Tensor
) -> None:
    torch.testing.assert_close(mine, other, rtol=0, atol=1e-5)
    weight = torch.randn_like(mine)
    of_inputs = [
        torch.autograd.grad((y * weight).sum(), inputs, retain_graph=True) for y in (mine, other)
    ]
    (mine * weight).sum().backward()
    (other * weight).sum().backward()
    for a, b in [*zip(*of_inputs, strict=True), *gradients(ours, theirs)]:
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", range(10))
def test_the_encoder_layer_is_torchs_with_the_same_weights_under_padding(seed, torch_twin):
    torch.manual_seed(seed)
    config, (b, s, _) = random_sizes(seed)
    ours = EncoderLayer(config)
    randomise(ours)
    theirs = torch_twin(ours)
    x, real = torch.randn(b, s, config.d_model, requires_grad=True), padding_mask(b, s)
    mine, other = ours(x, real[:, None, None, :]), theirs(x, src_key_padding_mask=~real)
    assert_parity(ours, theirs, [x], mine, other)


@pytest.mark.parametrize("seed", range(10))
def test_the_decoder_layer_is_torchs_with_the_same_weights_under_both_masks(seed, torch_twin):
    torch.manual_seed(seed)
    config, (b, s, t) = random_sizes(seed)
    ours = DecoderLayer(config)
    randomise(ours)
    theirs = torch_twin(ours)
    x = torch.randn(b, t, config.d_model, requires_grad=True)
    memory = torch.randn(b, s, config.d_model, requires_grad=True)
    real = padding_mask(b, s)
    causal = causal_mask(x.size(1), x.device)
    mine = ours(x, memory, causal, real[:, None, None, :])
    other = theirs(x, memory, tgt_mask=~causal, memory_key_padding_mask=~real)
    assert_parity(ours, theirs, [x, memory], mine, other)


def test_the_feed_forward_network_is_equation_2():
    network, x = FeedForward(6, 10), torch.randn(2, 3, 6)
    randomise(network)
    inner = torch.clamp(x @ network.w_1.weight.T + network.w_1.bias, min=0)
    torch.testing.assert_close(network(x), inner @ network.w_2.weight.T + network.w_2.bias)


def test_dropout_acts_on_the_sublayer_before_the_sum_and_never_on_the_residual():
    add_norm = AddNorm(6, 0.25)
    add_norm.norm = nn.Identity()
    x, sublayer = torch.randn(2, 300, 6), torch.rand(2, 300, 6) + 1
    added = add_norm(x, lambda x: sublayer) - x
    dropped = added.abs() < 1e-6
    torch.testing.assert_close(added[~dropped], sublayer[~dropped] / 0.75)
    assert float(dropped.float().mean()) == pytest.approx(0.25, abs=0.03)
