"""Student's t against closed forms and printed tables, and the intervals against simulated seeds."""

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiayn.reports.intervals import (
    LEVEL,
    Difference,
    Sample,
    Spread,
    holm,
    incomplete_beta,
    pooled,
    pooled_spread,
    t_quantile,
    t_two_sided,
    welch,
)


@pytest.mark.parametrize("t", [0.0, 0.1, 1.0, 2.5, 12.7, 300.0])
def test_the_distribution_has_its_closed_forms_for_one_two_and_four_degrees_of_freedom(t):
    assert t_two_sided(t, 1) == pytest.approx(1 - 2 * math.atan(t) / math.pi, rel=1e-9, abs=1e-15)
    assert t_two_sided(t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-9, abs=1e-15)
    four = t / math.sqrt(4 + t * t)
    assert t_two_sided(-t, 4) == pytest.approx(1 - 1.5 * four + 0.5 * four**3, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("df", [1.3, 2.7, 9.4, 38.0, 500.0])
def test_the_distribution_is_the_integral_of_its_density(df):
    t, steps = 1.7, 20_000
    factor = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)
    heights = [factor * (1 + (t * n / steps) ** 2 / df) ** (-(df + 1) / 2) for n in range(steps + 1)]
    area = sum((left + right) / 2 for left, right in pairwise(heights)) * t / steps
    assert t_two_sided(t, df) == pytest.approx(1 - 2 * area, abs=1e-9)


@pytest.mark.parametrize(
    ("df", "printed"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (10, 2.228), (38, 2.024), (1e6, 1.960)],
)
def test_the_quantiles_of_95_per_cent_are_those_of_printed_tables(df, printed):
    assert t_quantile(df) == pytest.approx(printed, abs=5e-4)


@given(st.floats(0.5, 60), st.floats(0.5, 60), st.floats(0.5, 1))  # 1 - x is exact
def test_the_incomplete_beta_function_is_symmetric_and_within_0_and_1(a, b, x):
    assert -1e-12 <= incomplete_beta(a, b, x) <= 1 + 1e-12
    assert incomplete_beta(a, b, x) + incomplete_beta(b, a, 1 - x) == pytest.approx(1, abs=1e-9)


def test_two_standard_deviations_of_three_seeds_are_exceeded_in_18_per_cent_of_cases():
    assert t_two_sided(2, 2) == pytest.approx(0.184, abs=5e-4)


def test_welch_is_worked_out_by_hand():
    # Variances 4 / 3 and 1 / 2; means 12 and 9.5.
    found = welch(Sample((10.0, 12.0, 14.0)), Sample((9.0, 10.0)))
    variance = 4 / 3 + 0.25
    df = variance**2 / ((4 / 3) ** 2 / 2 + 0.25**2 / 1)
    assert (found.delta, found.df) == (2.5, pytest.approx(df))
    assert found.p == pytest.approx(t_two_sided(2.5 / math.sqrt(variance), df))
    assert (found.high - found.low) / 2 == pytest.approx(t_quantile(df) * math.sqrt(variance))


def test_a_pooled_spread_weighs_groups_by_their_degrees_of_freedom():
    spread = pooled_spread([Sample((1.0, 2.0, 3.0)), Sample((5.0,)), Sample((0.0, 4.0))])
    assert spread == Spread(pytest.approx(math.sqrt((2 * 1 + 1 * 8) / 3)), 3)
    found = pooled(Sample((7.0,)), Sample((1.0, 2.0, 3.0)), spread)
    assert (found.high - found.delta) == pytest.approx(t_quantile(3) * spread.sd * math.sqrt(1 + 1 / 3))


def test_one_run_or_no_spread_claims_nothing():
    one, three, equal = Sample((7.0,)), Sample((1.0, 2.0, 3.0)), Sample((4.0, 4.0))
    for found in (welch(one, three), welch(three, one), welch(equal, equal), pooled(one, one, None)):
        assert (found.low, found.high, found.p, found.survives) == (None, None, None, False)
    assert welch(one, three).delta == 5
    assert (one.sd, three.sd) == (None, 1)
    assert pooled_spread([one, one]) is None


def test_holms_correction_is_worked_out_by_hand():
    ps = [0.01, 0.04, None, 0.03, 0.005]
    found = holm([Difference(0, p=p) for p in ps])
    assert [one.p_holm for one in found] == [pytest.approx(0.03), 0.06, None, 0.06, pytest.approx(0.02)]
    assert [one.survives for one in found] == [True, False, False, False, True]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(ps):
    corrected = [one.p_holm for one in holm([Difference(0, p=p) for p in ps])]
    assert all(before <= after <= 1 for before, after in zip(ps, corrected, strict=True))
    ordered = [after for _, after in sorted(zip(ps, corrected, strict=True))]
    assert ordered == sorted(ordered)


TRIALS = 2000
SLACK = 3.5 * math.sqrt(0.05 * 0.95 / TRIALS)  # three and a half standard errors of the share of false alarms


@pytest.mark.parametrize("n", [2, 3, 5])
def test_seeds_of_equal_systems_are_called_different_in_5_per_cent_of_cases(n):
    """Welch stays below for very few seeds, as it must where it guesses both variances; pooled is exact."""
    generator = random.Random(n)
    draw = lambda count: Sample(tuple(generator.gauss(30, 0.6) for _ in range(count)))  # noqa: E731
    alarms = {"welch": 0, "pooled": 0, "single": 0, "two standard deviations": 0}
    for _ in range(TRIALS):
        system, baseline, single = draw(n), draw(n), draw(1)
        spread = pooled_spread([system, baseline])
        of_base = pooled_spread([baseline])
        alarms["welch"] += welch(system, baseline).p < LEVEL
        alarms["pooled"] += pooled(system, baseline, spread).p < LEVEL
        alarms["single"] += pooled(single, baseline, of_base).p < LEVEL
        limit = 2 * of_base.sd * math.sqrt(1 + 1 / n)
        alarms["two standard deviations"] += abs(single.mean - baseline.mean) > limit
    shares = {name: count / TRIALS for name, count in alarms.items()}
    assert shares["pooled"] == pytest.approx(0.05, abs=SLACK)
    assert shares["single"] == pytest.approx(0.05, abs=SLACK)
    assert 0.01 < shares["welch"] < 0.05 + SLACK
    assert shares["two standard deviations"] > 0.1  # what must not come back


@pytest.mark.parametrize("n", [2, 3, 5])
def test_intervals_hold_the_true_difference_of_unequal_spreads_in_95_per_cent_of_cases(n):
    generator = random.Random(10 + n)
    held = 0
    for _ in range(TRIALS):
        system = Sample(tuple(generator.gauss(31, 0.3) for _ in range(n)))
        baseline = Sample(tuple(generator.gauss(30, 0.9) for _ in range(n + 1)))
        found = welch(system, baseline)
        held += found.low <= 1 <= found.high
    assert held / TRIALS > 0.95 - SLACK - 0.01  # Welch's own approximation is off by up to a point


def test_holm_keeps_false_alarms_of_a_whole_table_at_5_per_cent():
    generator = random.Random(7)
    tables = 0
    for _ in range(1000):
        groups = [Sample(tuple(generator.gauss(7, 0.1) for _ in range(3))) for _ in range(12)]
        spread = pooled_spread(groups)
        tables += any(one.survives for one in holm([pooled(group, groups[0], spread) for group in groups[1:]]))
    assert tables / 1000 < 0.05 + 3.5 * math.sqrt(0.05 * 0.95 / 1000)
