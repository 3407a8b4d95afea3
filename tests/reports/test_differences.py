"""Differences over seeds against scipy, formulas by hand and simulated seeds."""

import math
import random

import pytest
from applications import slow_but
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from aiayn.reports.differences import (
    LEVEL,
    Difference,
    Sample,
    compare,
    corrected,
    explained,
    interval,
)


def sample(*values: float, first: int = 0) -> Sample:
    return Sample(dict(enumerate(values, first)))


def the_difference(system: Sample, baseline: Sample) -> Difference:
    return compare({"base": baseline, "row": system}, "base")["row"]


def test_two_groups_with_the_same_seeds_have_the_paired_t_test():
    system, baseline = (10.0, 12.5, 14.0, 9.5), (9.0, 10.0, 13.5, 9.25)
    found, test = (
        the_difference(sample(*system), sample(*baseline)),
        stats.ttest_rel(system, baseline),
    )
    assert found.p == pytest.approx(test.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(test.confidence_interval()))
    assert found.delta == pytest.approx(sum(system) / 4 - sum(baseline) / 4)


def test_groups_with_other_seeds_have_welchs_test():
    system, baseline = (10.0, 12.0, 14.0), (9.0, 10.0)
    found = the_difference(sample(*system, first=5), sample(*baseline))
    test = stats.ttest_ind(system, baseline, equal_var=False)
    assert found.p == pytest.approx(test.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(test.confidence_interval()))


def test_seeds_in_any_order_are_matched_by_their_number_and_only_common_ones_are_paired():
    base = Sample({2: 9.0, 0: 10.0, 1: 13.5})
    found = the_difference(Sample({0: 10.5, 1: 14.5, 2: 9.25, 7: 99.0}), base)
    test = stats.ttest_rel([10.5, 14.5, 9.25], [10.0, 13.5, 9.0])
    assert (found.delta, found.p) == (pytest.approx(7 / 12), pytest.approx(test.pvalue))


def test_several_groups_have_a_two_way_analysis_of_variance_by_hand():
    rows = {
        "base": (30.0, 31.5, 30.5),
        "a": (31.0, 32.0, 31.75),
        "b": (28.0, 30.25, 29.0),
        "c": (30.0, 31.0, 30.0),
    }
    found = compare({name: sample(*values) for name, values in rows.items()}, "base")
    mean = sum(map(sum, rows.values())) / 12
    of_group = {name: sum(values) / 3 for name, values in rows.items()}
    of_seed = [sum(values[seed] for values in rows.values()) / 4 for seed in range(3)]
    rest = sum(
        (values[seed] - of_group[name] - of_seed[seed] + mean) ** 2
        for name, values in rows.items()
        for seed in range(3)
    )
    sd = math.sqrt(rest / 6)
    error = sd * math.sqrt(2 / 3)
    difference = of_group["b"] - of_group["base"]
    half = stats.t.isf(0.025, 6) * error
    assert found["b"].p == pytest.approx(2 * stats.t.sf(abs(difference) / error, 6))
    assert (found["b"].low, found["b"].high) == pytest.approx(
        (difference - half, difference + half)
    )


def test_one_run_or_no_spread_claims_nothing():
    one, three, equal = sample(7.0), sample(1.0, 2.0, 3.0), sample(4.0, 4.0)
    for found in (
        the_difference(one, three),
        the_difference(three, one),
        the_difference(equal, equal),
    ):
        assert (found.low, found.high, found.p, found.is_significant) == (None, None, None, False)
    assert the_difference(one, three).delta == 5
    assert (one.sd, three.sd) == (None, 1)


def corrected_for_all(differences: list[Difference]) -> list[Difference]:
    return [*corrected({"val/ppl": dict(enumerate(differences))})["val/ppl"].values()]


def test_holms_correction_is_worked_out_by_hand():
    ps = [0.01, 0.04, None, 0.03, 0.005]
    differences = corrected_for_all([Difference(0, p=p) for p in ps])
    assert [difference.p_holm for difference in differences] == [
        pytest.approx(0.03),
        0.06,
        None,
        0.06,
        pytest.approx(0.02),
    ]
    assert [difference.is_significant for difference in differences] == [
        True,
        False,
        False,
        False,
        True,
    ]


def said(samples: dict[str, Sample]) -> str:
    return "\n".join(explained("base (3 seeds)", corrected({"val/ppl": compare(samples, "base")})))


def test_one_line_says_how_rows_were_tested_and_another_that_nothing_was_found():
    base, near, far = sample(7.0, 7.5, 8.0), sample(7.1, 7.5, 7.9), sample(17.1, 17.5, 17.9)
    by_seed = said({"base": base, "row": far})
    method = "between runs of the same seed, with one pooled standard deviation; intervals are 95 %"
    assert method in by_seed
    assert "No difference" not in by_seed
    assert "No difference is significant." in said({"base": base, "row": near})
    assert "Welch's t-test" in said({"base": base, "row": sample(8.0, 8.5, first=7)})
    assert "Intervals need two seeds on both sides" in said({"base": base, "row": sample(9.0)})


def test_a_mean_has_the_interval_of_students_t():
    values = (3.0, 4.5, 4.0, 6.0)
    found = interval(sum(values) / 4, float(stats.sem(values)), 3)
    low, high = stats.t.interval(0.95, 3, sum(values) / 4, stats.sem(values))
    assert (found.low, found.delta, found.high) == pytest.approx((low, sum(values) / 4, high))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(ps):
    p_values = [one.p_holm for one in corrected_for_all([Difference(0, p=p) for p in ps])]
    assert all(before <= after <= 1 for before, after in zip(ps, p_values, strict=True))
    ordered = [after for _, after in sorted(zip(ps, p_values, strict=True))]
    assert ordered == sorted(ordered)


def draw(generator: random.Random, of_seed: list[float], mean: float, sd: float = 0.4) -> Sample:
    return sample(*(mean + effect + generator.gauss(0, sd) for effect in of_seed))


TRIALS = 300
# Three and a half standard errors of the share of false alarms
SLACK = 3.5 * math.sqrt(0.05 * 0.95 / TRIALS)


@pytest.mark.slow
def test_at_three_seeds_blocks_find_what_welchs_test_misses_and_raise_no_false_alarms():
    """Rows of a sweep whose seeds move all rows together, as they do in the published quarter of
    Table 3.
    """
    generator = random.Random(3)
    alarms = found = missed = tables = 0
    for _ in range(TRIALS):
        of_seed = [generator.gauss(0, 1.5) for _ in range(3)]
        rows = {f"row {n}": draw(generator, of_seed, 30) for n in range(5)}
        samples = {
            "base": draw(generator, of_seed, 30),
            "worse": draw(generator, of_seed, 28),
            **rows,
        }
        differences = compare(samples, "base")
        alarms += differences["row 0"].p < LEVEL
        of_table = corrected({"score": differences})["score"]
        tables += any(of_table[name].is_significant for name in rows)
        found += of_table["worse"].is_significant
        apart = {
            name: sample(*one.values, first=9) for name, one in samples.items() if name != "base"
        }
        welch = compare({"base": samples["base"], **apart}, "base")
        missed += not corrected({"score": welch})["score"]["worse"].is_significant
    assert alarms / TRIALS == pytest.approx(0.05, abs=SLACK)
    assert tables / TRIALS < 0.05 + SLACK
    assert found / TRIALS > 0.9
    assert missed / TRIALS > 0.9


@pytest.mark.parametrize("n", slow_but([3], [2, 3, 5]))
def test_intervals_hold_the_true_difference_in_95_per_cent_of_cases(n):
    generator = random.Random(10 + n)
    held = {"blocked": 0, "welch": 0}
    for _ in range(TRIALS):
        of_seed = [generator.gauss(0, 1) for _ in range(n)]
        system, base = draw(generator, of_seed, 31, 0.3), draw(generator, of_seed, 30, 0.9)
        blocked = the_difference(system, base)
        other = sample(*(generator.gauss(30, 0.9) for _ in range(n + 1)), first=50)
        welch = the_difference(sample(*(generator.gauss(31, 0.3) for _ in range(n))), other)
        held["blocked"] += blocked.low <= 1 <= blocked.high
        held["welch"] += welch.low <= 1 <= welch.high
    assert held["blocked"] / TRIALS == pytest.approx(0.95, abs=SLACK)
    # Welch's own approximation is off by up to a point
    assert held["welch"] / TRIALS > 0.95 - SLACK - 0.01
