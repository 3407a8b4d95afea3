"""Products of whole numbers against 64-bit arithmetic; a model in int8 against itself before."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from search.test_beam_search import SEARCH, SENTENCES, padded, search, transformer
from torch import nn

from aiayn.errors import DivergedError
from aiayn.kernels import int8 as module
from aiayn.kernels import prepacked
from aiayn.kernels.accelerate import accelerate
from aiayn.kernels.int8 import Int8Embedding, Int8Linear, quantize_int8, quantize_ranges, quantize_rows
from aiayn.model.embedding import SharedEmbedding
from aiayn.token_ids import BOS_ID


@pytest.fixture
def pair():
    """A model of 41 vocabulary entries, and the same in int8."""
    plain = transformer(41, seed=3)
    return plain, quantize_int8(copy.deepcopy(plain))


@given(st.lists(st.lists(st.floats(-1e6, 1e6, width=32), min_size=3, max_size=3), min_size=1, max_size=4))
def test_every_number_is_rounded_to_the_nearest_of_its_rows_255_levels(rows):
    x = torch.tensor(rows)
    codes, scale = quantize_rows(x)
    assert codes.dtype == torch.int8
    assert codes.int().abs().max() <= 127
    assert ((codes * scale - x).abs() <= 0.5001 * scale).all()


def test_a_rows_largest_number_keeps_its_value_and_zeros_stay_zeros():
    x = torch.tensor([[0.0, 0.0, 0.0], [1.0, -4.0, 3.0], [1e-30, 0.0, 0.0]])
    codes, scale = quantize_rows(x)
    assert codes.tolist() == [[0, 0, 0], [32, -127, 95], [127, 0, 0]]
    torch.testing.assert_close((codes * scale).abs().amax(1), x.abs().amax(1))


@given(st.integers(1, 9), st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=9))
def test_every_number_is_rounded_to_the_nearest_of_256_levels_between_its_rows_least_and_greatest(rows, row):
    x = torch.tensor([row, *torch.randn(rows, len(row)).tolist()])
    codes, scale, least = quantize_ranges(x)
    assert torch.equal(least, x.amin(1))
    torch.testing.assert_close(scale[:, 0], (x.amax(1) - x.amin(1)) / 255, rtol=1e-5, atol=1e-12)
    levels = codes[:, : len(row)] * scale + least[:, None]
    assert ((levels - x).abs() <= 0.501 * scale + 1e-6 * x.abs() + 1e-8).all()


def test_unsigned_codes_are_the_signed_ones_plus_128():
    x = torch.tensor([[0.0, 0.0, 0.0], [1.0, -4.0, 3.0], [1e-30, 0.0, 0.0]])
    (signed, scale), (unsigned, same) = quantize_rows(x), quantize_rows(x, unsigned=True)
    assert unsigned.dtype == torch.uint8
    assert torch.equal(unsigned.int(), signed.int() + 128)
    assert torch.equal(scale, same)


@pytest.fixture(params=[True, False], ids=["onednn", "plain"])
def either_product(request, monkeypatch):
    """Both ways to multiply; the first only where oneDNN has one for this CPU."""
    if request.param and not module.onednn_is_exact():
        pytest.skip("no product of bytes for this CPU in oneDNN")
    monkeypatch.setattr(module, "onednn_is_exact", lambda: request.param)
    return "onednn" if request.param else "plain"


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("columns", [4, 5, 7, 1000])
def test_a_layers_products_are_those_of_its_codes_in_exact_arithmetic(monkeypatch, either_product, columns, biased):
    monkeypatch.setattr(module, "COLUMNS_OF_SUMS", columns)
    torch.manual_seed(0)
    linear, x, residual = nn.Linear(6, 7, bias=biased), torch.randn(2, 3, 6), torch.randn(6, 7)
    layer = Int8Linear(linear.weight, linear.bias)
    if either_product == "onednn":
        codes, scale, least = quantize_ranges(x.flatten(0, 1))
        levels = codes[:, :6].double() * scale + least[:, None]
    else:
        codes, scale = quantize_rows(x.flatten(0, 1))
        levels = codes.double() * scale
    weight_codes, weight_scale = quantize_rows(linear.weight.detach())
    expected = levels @ (weight_codes.double() * weight_scale).T + (linear.bias.double() if biased else 0)
    torch.testing.assert_close(layer(x).flatten(0, 1), expected.float())
    torch.testing.assert_close(layer.relu(x).flatten(0, 1), expected.float().relu())
    torch.testing.assert_close(layer.add(x.flatten(0, 1), residual), expected.float() + residual)


def test_the_output_layers_products_are_those_of_its_codes_in_exact_arithmetic(either_product):
    torch.manual_seed(0)
    embedding = SharedEmbedding(11, 6)
    nn.init.normal_(embedding.weight)
    small, states, ids = Int8Embedding(embedding), torch.randn(2, 3, 6), torch.tensor([[0, 10, 4]])
    codes, scale = quantize_rows(states.flatten(0, 1))
    table_codes, table_scale = quantize_rows(embedding.weight.detach())
    table = table_codes.double() * table_scale
    expected = (codes.double() * scale) @ table.T
    torch.testing.assert_close(small.project(states).flatten(0, 1), expected.float())
    torch.testing.assert_close(small(ids), (table[ids] * 6**0.5).float())


@pytest.mark.parametrize("signs", [(1, 1), (1, -1), (-1, -1)])
def test_the_largest_sums_do_not_overflow(either_product, signs):
    weight, x = torch.full((3, 2048), float(signs[0])), torch.full((5, 2048), float(signs[1]))
    x[:, 0] = 0  # without it a row has only one level
    product = Int8Linear(weight, None)(x)
    torch.testing.assert_close(product, torch.full((5, 3), 2047.0 * signs[0] * signs[1]))


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_matrix_with_a_broken_weight_gives_nothing_but_nan(either_product, broken):
    weight = torch.randn(7, 6)
    weight[4, 2] = broken
    assert Int8Linear(weight, None)(torch.randn(5, 6)).isnan().all()


def test_a_search_in_int8_notices_a_broken_weight_of_the_feed_forward_network():
    plain = transformer(41, seed=3)
    plain.decoder[0].feed_forward.w_1.weight.data[2, 1] = float("nan")
    with pytest.raises(DivergedError):
        search(accelerate(plain, torch.device("cpu"), "int8"), SENTENCES, SEARCH)


@pytest.mark.parametrize("rows_for_mkl", [0, 5])
def test_a_rows_product_does_not_depend_on_the_other_rows(either_product, rows_for_mkl, monkeypatch):
    monkeypatch.setattr(prepacked, "FEW", rows_for_mkl * 70 * (48 + module.TAIL))
    torch.manual_seed(0)
    layer, x = Int8Linear(torch.randn(70, 48), torch.randn(70)), torch.randn(33, 48)
    together = layer(x)
    for rows in (1, 5, 16):
        assert torch.equal(layer(x[:rows]), together[:rows])


def test_a_model_in_int8_says_nearly_what_it_said_before(pair):
    plain, small = pair
    src, mask = padded(SENTENCES)
    tgt_in = torch.tensor([[BOS_ID, 7, 5, 20]] * len(SENTENCES))
    with torch.no_grad():
        before, after = plain(src, tgt_in, mask), small(src, tgt_in, mask).float()
    assert 0 < (before - after).norm() / before.norm() < 0.05


def test_its_steps_say_nearly_what_its_full_computation_says(pair):
    _, small = pair
    src, mask = padded(SENTENCES)
    tgt_in = torch.tensor([[BOS_ID, 7, 5, 20]] * len(SENTENCES))
    with torch.inference_mode():
        logits = small(src, tgt_in, mask)
        cache = small.init_cache(small.encode(src, mask), mask, 1)
        steps = torch.stack([small.project(small.step(tgt_in[:, [t]], cache))[:, 0] for t in range(4)], dim=1)
    assert (steps - logits).float().norm() / logits.float().norm() < 0.05


def test_a_sentences_translations_do_not_depend_on_the_others_in_the_batch():
    small = quantize_int8(transformer(41, seed=3))
    together = search(small, SENTENCES, SEARCH)
    for sentence, found in zip(SENTENCES, together, strict=True):
        (alone,) = search(small, [sentence], SEARCH)
        assert [each.tokens for each in found] == [each.tokens for each in alone]
        assert [each.score for each in found] == pytest.approx([each.score for each in alone], abs=1e-5)


def test_all_matrices_are_of_eight_bits_and_all_the_rest_of_32(pair):
    plain, small = pair
    matrices = {name for name, weight in plain.named_parameters() if weight.dim() > 1}
    quantized = {name for name, layer in small.named_modules() if isinstance(layer, (Int8Linear, Int8Embedding))}
    assert {f"{name}.weight" for name in quantized} == matrices
    assert {weight.dtype for weight in small.parameters()} == {torch.float32}
    assert not {name for name, _ in small.named_parameters()} & matrices
