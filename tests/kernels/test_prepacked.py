"""A model with prepacked weights against itself before."""

import copy

import pytest
import torch
from search.test_beam_search import SENTENCES, padded, transformer

from aiayn.hardware import has_bfloat16
from aiayn.kernels import prepacked
from aiayn.kernels.prepacked import PrepackedEmbedding, PrepackedLinear, prepack
from aiayn.token_ids import BOS_ID

CPU = torch.device("cpu")
DTYPES = [torch.float32] + [torch.bfloat16] * has_bfloat16(CPU)
pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_prepacked_weights_give_the_same_logits_and_the_same_steps(dtype):
    plain = transformer(41, seed=3).to(dtype)
    quick = prepack(copy.deepcopy(plain))
    assert {type(quick.embedding), type(quick.decoder[0].feed_forward.w_1)} == {PrepackedEmbedding, PrepackedLinear}
    src, mask = padded(SENTENCES)
    tgt_in = torch.tensor([[BOS_ID, 7, 5, 20]] * len(SENTENCES))
    tolerance = {"rtol": 0, "atol": 1e-5 if dtype == torch.float32 else 0.1}
    with torch.inference_mode():
        expected = plain(src, tgt_in, mask)
        torch.testing.assert_close(quick(src, tgt_in, mask), expected, **tolerance)
        cache = quick.init_cache(quick.encode(src, mask), mask, 1)
        steps = torch.stack([quick.project(quick.step(tgt_in[:, [t]], cache))[:, 0] for t in range(4)], dim=1)
        torch.testing.assert_close(steps, expected, **tolerance)


def test_a_model_stays_as_it_is_where_the_hardware_has_no_bfloat16(monkeypatch):
    monkeypatch.setattr(prepacked, "has_bfloat16", lambda device: False)
    assert not isinstance(prepack(transformer(41, seed=3).bfloat16()).embedding, PrepackedEmbedding)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows_for_mkl", [0, 4, 5])
def test_a_product_takes_relu_or_a_residual_along(dtype, biased, rows_for_mkl, monkeypatch):
    monkeypatch.setattr(prepacked, "FEW", rows_for_mkl * 6 * 7)
    linear = torch.nn.Linear(6, 7, bias=biased).to(dtype)
    quick = PrepackedLinear(linear.weight, linear.bias)
    x, residual = torch.randn(5, 6, dtype=dtype), torch.randn(5, 7, dtype=dtype)
    with torch.inference_mode():
        torch.testing.assert_close(quick(x), linear(x))
        torch.testing.assert_close(quick.relu(x), linear(x).relu())
        torch.testing.assert_close(
            quick.add(x, residual), residual + linear(x), rtol=0, atol=1e-5 if dtype == torch.float32 else 0.05
        )
        assert (quick.add(x, residual) - residual).abs().max() > 0.1
