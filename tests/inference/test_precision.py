"""`precision=auto`."""

import pytest
import torch
from inference.test_beam_search import transformer

from aiayn.inference import precision as module
from aiayn.inference.precision import fastest_precision


def test_the_precision_with_the_fastest_products_is_taken(monkeypatch):
    seen = []
    costs = {torch.float32: 3.0, torch.bfloat16: 2.0}
    monkeypatch.setattr(module, "has_bfloat16", lambda device: True)

    def seconds(product, x):
        product(x)
        seen.append((type(product).__name__, x.dtype))
        return costs["int8" if type(product) is module.Int8Linear else x.dtype]

    monkeypatch.setattr(module, "_seconds", seconds)
    for int8, expected in ((1.0, "int8"), (2.5, "bfloat16")):
        costs["int8"] = int8
        assert fastest_precision(transformer(41, seed=3), torch.device("cpu")) == expected
    assert len(seen) == 2 * 3 * 2  # a matrix of a layer and that of the output, in three precisions


@pytest.mark.parametrize(("bfloat16", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_on_a_gpu_bfloat16_is_taken_where_the_hardware_has_it(monkeypatch, bfloat16, expected):
    monkeypatch.setattr(module, "has_bfloat16", lambda device: bfloat16)
    assert fastest_precision(transformer(41, seed=3), torch.device("cuda")) == expected


def test_it_is_measured_in_products():
    assert fastest_precision(transformer(41, seed=3), torch.device("cpu")) in ("float32", "bfloat16", "int8")
