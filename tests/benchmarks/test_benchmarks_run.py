"""Benchmarks fit the program that they measure."""

from importlib import import_module
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.parametrize("name", [path.stem for path in sorted(BENCHMARKS.glob("*.py"))])
def test_every_benchmark_imports_what_exists(name):
    import_module(name)


@pytest.mark.parametrize("length", [5, 8, 21])
def test_restricted_attention_is_attention_with_a_mask(length):
    from table1 import restricted

    from aiayn.model.attention import attention

    q, k, v = torch.randn(3, 2, 3, length, 4, dtype=torch.float64)
    positions = torch.arange(length)
    near = (positions - positions[:, None]).abs() <= 4
    torch.testing.assert_close(
        restricted(4)(q, k, v, None, 0.0), attention(q, k, v, near, 0.0), rtol=0, atol=1e-12
    )


@pytest.mark.slow
def test_a_step_is_measured_beside_that_of_torch(tmp_path):
    from train_step import main

    sizes = ["--model", "tiny", "--tokens", "256", "--steps", "1", "--rounds", "2"]
    main([*sizes, "--float32", "--peers", "torch", "--out", str(tmp_path)])
    assert (tmp_path / "train_step_tiny_256.json").exists()
