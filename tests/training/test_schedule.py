"""Section 5.3 against values computed by hand."""

import itertools
from dataclasses import replace

import pytest
import torch
from applications import composed

from aiayn.training.module import TranslationModule, learning_rate

# d_model, step, rate: equation (3) with 4000 steps of warm-up.
BY_HAND = [
    (512, 1, 1.7469e-7),  # 0.0441942 * 3.95285e-6
    (512, 2000, 3.4939e-4),  # half of the peak
    (512, 4000, 6.9877e-4),  # 0.0441942 * 0.0158114
    (512, 16_000, 3.4939e-4),  # four times as late, half as large
    (512, 100_000, 1.3975e-4),  # 0.0441942 * 0.00316228
    (1024, 4000, 4.9411e-4),  # 0.03125 * 0.0158114
    (1024, 300_000, 5.7054e-5),  # 0.03125 * 0.00182574
]


@pytest.mark.parametrize(("d_model", "step", "rate"), BY_HAND)
def test_the_rate_is_equation_3(d_model, step, rate):
    assert learning_rate(step, d_model, 4000) == pytest.approx(rate, rel=1e-4)


def test_the_rate_rises_linearly_peaks_at_the_end_of_warm_up_and_falls():
    rates = [learning_rate(step, 512, 100) for step in range(1, 400)]
    assert rates.index(max(rates)) + 1 == 100
    assert rates[:100] == pytest.approx([rates[0] * step for step in range(1, 101)])
    assert all(later < earlier for earlier, later in itertools.pairwise(rates[99:]))


def test_the_optimizers_first_step_has_the_rate_of_step_1_and_so_on(tiny_config):
    config = replace(composed("optim.warmup_steps=3", "optim.lr_scale=2"), model=tiny_config)
    chosen = TranslationModule(config, 17).configure_optimizers()
    adam, scheduler = chosen["optimizer"], chosen["lr_scheduler"]["scheduler"]
    assert chosen["lr_scheduler"]["interval"] == "step"
    assert (adam.defaults["betas"], adam.defaults["eps"]) == ((0.9, 0.98), 1e-9)
    for step in range(1, 8):
        [group] = adam.param_groups
        assert group["lr"] == pytest.approx(2 * 12**-0.5 * min(step**-0.5, step * 3**-1.5))
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
        adam.step()
        scheduler.step()
