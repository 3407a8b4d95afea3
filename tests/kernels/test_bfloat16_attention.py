"""Attention of a training in bfloat16, against the plain form in float64."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kernels.test_linear import relative_error

from aiayn.hardware import REGISTER
from aiayn.kernels.attention import cpu_attention
from aiayn.kernels.bfloat16_attention import MATRICES, _matrices, bfloat16_attention
from aiayn.model.attention import attention

B, H, T, S, D_K, D_V = 3, 5, 9, 13, 8, 12
MASKS = {
    "none": None,
    "padding": (torch.arange(S) < torch.tensor([13, 2, 7])[:, None])[:, None, None],
    "causal": torch.ones(T, S, dtype=torch.bool).tril()[None, None],
}


def example(batch: int, heads: int, queries: int, keys: int) -> list[torch.Tensor]:
    """q, k and v as projections give them: heads are the third dimension in memory."""
    sizes = [(queries, D_K), (keys, D_K), (keys, D_V)]
    return [torch.randn(batch, length, heads, size).bfloat16().transpose(1, 2) for length, size in sizes]


@pytest.mark.parametrize("mask", MASKS)
def test_heads_and_gradients_are_those_of_float64_to_the_precision_of_bfloat16(mask):
    seen, inputs = MASKS[mask], [x.requires_grad_() for x in example(B, H, T, S)]
    bias = None if seen is None else torch.zeros(seen.shape).masked_fill(~seen, -math.inf)
    grad = torch.randn(B, T, H, D_V).bfloat16().transpose(1, 2)
    heads = bfloat16_attention(*inputs, bias)
    exact_inputs = [x.detach().double().requires_grad_() for x in inputs]
    exact = attention(*exact_inputs, seen)
    assert heads.dtype == torch.bfloat16
    assert relative_error(heads.detach(), exact.detach()) < 0.01
    found_all = torch.autograd.grad(heads, inputs, grad)
    for found, expected in zip(found_all, torch.autograd.grad(exact, exact_inputs, grad.double()), strict=True):
        assert found.shape == expected.shape
        assert relative_error(found, expected) < 0.01


def test_a_training_takes_it_under_autocast_unless_weights_are_dropped():
    inputs = [x.requires_grad_() for x in example(B, H, T, S)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        names = [cpu_attention(*inputs, None, p_drop).grad_fn.name() for p_drop in (0.0, 0.1)]
        mixed = cpu_attention(inputs[0].float(), *inputs[1:], None)  # queries that an extension computed in float32
        with torch.no_grad():
            assert cpu_attention(*inputs, None).grad_fn is None
    assert names[0] == "_AttentionBackward"
    assert names[1] != names[0]
    assert mixed.grad_fn.name() != names[0]
    mixed.float().sum().backward()


@given(st.integers(0, 5000))
def test_numbers_of_matrices_are_rounded_up_by_an_eighth_at_most_to_few_values(count):
    assert count <= _matrices(count) <= max(count, 1.125 * count)
    assert _matrices(_matrices(count)) == _matrices(count)
    if count >= 8 * MATRICES:
        assert _matrices(count) % MATRICES == 0


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch is built without oneDNN")
def test_batches_of_other_sizes_need_no_new_kernels(capfd):
    def compiled(batch: int, queries: int, keys: int) -> int:
        inputs = [x.requires_grad_() for x in example(batch, 16, queries, keys)]
        capfd.readouterr()
        with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON_CREATION):
            bfloat16_attention(*inputs, None).sum().backward()
        return capfd.readouterr().out.count("cache_miss")

    compiled(41, 21, REGISTER + 5)
    others = [(44, 24, REGISTER + 8), (43, 22, REGISTER + 6), (42, 23, REGISTER + 7)]
    assert [compiled(*sizes) for sizes in others] == [0, 0, 0]
    assert compiled(41, 25, REGISTER + 5) > 0
