import math

import pytest
import torch
from torch import Tensor

from aiayn.kernels.accelerate import FastDropout


def kept(p: float, n: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Which of n elements survive."""
    torch.manual_seed(seed)
    return FastDropout(p)(torch.ones(n, dtype=dtype)) != 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_the_rate_is_p_within_binomial_bounds(p, dtype):
    n = 400_003
    assert abs(int(kept(p, n, dtype=dtype).sum()) - n * (1 - p)) < 5 * math.sqrt(n * p * (1 - p))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1,), (3,), (3, 5, 7), (2, 9, 5), (0, 4), (4, 6)])
def test_survivors_are_scaled_by_the_inverse_of_their_share_and_the_others_are_zero(shape, dtype):
    x = torch.randn(shape).to(dtype)
    y = FastDropout(0.3)(x)
    assert y.shape == x.shape
    expected = torch.where(y != 0, x.float() / 0.7, 0.0)
    torch.testing.assert_close(
        y.float(), expected, rtol=1e-6 if dtype == torch.float32 else 2**-8, atol=0
    )


def test_gradients_pass_where_values_passed_on_strided_inputs_too():
    x = torch.rand(7, 5, 3).add(1).transpose(0, 2).requires_grad_()
    y = FastDropout(0.4)(x)
    y.sum().backward()
    assert 0 < int((y == 0).sum()) < y.numel()
    torch.testing.assert_close(x.grad, (y != 0) / 0.6)


def test_it_is_the_identity_while_evaluating_and_at_rate_zero():
    x = torch.randn(3, 5)
    assert FastDropout(0.5).eval()(x) is x
    assert FastDropout(0.0)(x) is x


def test_torchs_seed_alone_decides_what_is_dropped():
    assert torch.equal(kept(0.3, 10_001, seed=1), kept(0.3, 10_001, seed=1))
    agreement = (kept(0.3, 10_001, seed=1) == kept(0.3, 10_001, seed=2)).float().mean()
    assert float(agreement) == pytest.approx(0.7**2 + 0.3**2, abs=0.03)


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_elements_that_share_a_random_word_are_dropped_independently(p):
    n = 400_000
    flags = kept(p, n)
    # All 16 outcomes of four neighbours, as often as independence has it: chi-squared, 15 degrees
    # of freedom.
    outcomes = torch.bincount(
        (flags.view(-1, 4).long() * torch.tensor([8, 4, 2, 1])).sum(1), minlength=16
    )
    expected = torch.tensor(
        [(1 - p) ** i.bit_count() * p ** (4 - i.bit_count()) * n / 4 for i in range(16)]
    )
    assert float(((outcomes - expected) ** 2 / expected).sum()) < 50
    centred = flags.double() - (1 - p)
    for lag in range(1, 17):
        correlation = float((centred[:-lag] * centred[lag:]).mean()) / (p * (1 - p))
        assert abs(correlation) < 5 / math.sqrt(n)
