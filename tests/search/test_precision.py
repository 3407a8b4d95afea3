"""`precision=auto`."""

import pytest
import torch
from applications import small_model
from search.test_beam_search import transformer
from torch import nn

from aiayn.model.layers import Parts
from aiayn.model.transformer import Transformer
from aiayn.search import precision as module
from aiayn.search.precision import fastest_precision


def test_the_precision_with_the_fastest_products_is_taken(monkeypatch):
    timed = []
    costs = {torch.float32: 3.0, torch.bfloat16: 2.0}
    monkeypatch.setattr(module, "has_bfloat16", lambda device: True)
    # A CPU without bfloat16 can neither prepack nor multiply it, so nothing is multiplied here.
    monkeypatch.setattr(module, "PrepackedLinear", lambda matrix: matrix)

    def seconds(product, x):
        timed.append(product)
        return costs["int8"] if type(product) is module.Int8Linear else costs[product.dtype]

    monkeypatch.setattr(module, "_seconds", seconds)
    for int8, expected in ((1.0, "int8"), (2.5, "bfloat16")):
        costs["int8"] = int8
        assert fastest_precision(transformer(41, seed=3), torch.device("cpu")) == expected
    assert len(timed) == 2 * 3 * 2  # a matrix of a layer and that of the output, in three precisions


@pytest.mark.parametrize(("bfloat16", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_on_a_gpu_bfloat16_is_taken_where_the_hardware_has_it(monkeypatch, bfloat16, expected):
    monkeypatch.setattr(module, "has_bfloat16", lambda device: bfloat16)
    assert fastest_precision(transformer(41, seed=3), torch.device("cuda")) == expected


def test_it_is_measured_in_products():
    assert fastest_precision(transformer(41, seed=3), torch.device("cpu")) in ("float32", "bfloat16", "int8")


def test_feed_forward_networks_of_an_extension_may_have_other_names():
    parts = Parts(
        feed_forward=lambda config: nn.Sequential(nn.Linear(config.d_model, 24), nn.Linear(24, config.d_model))
    )
    model = Transformer(small_model(), 41, parts).eval()
    assert fastest_precision(model, torch.device("cpu")) in ("float32", "bfloat16", "int8")
