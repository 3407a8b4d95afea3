"""Differences over seeds against scipy, formulas by hand and simulated seeds."""

import math
import random
from pathlib import Path

import pytest
from applications import slow_but
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from aiayn.reports.differences import LEVEL, Difference, Sample, compare, corrected, explained, holm, interval


def sample(*values: float, first: int = 0) -> Sample:
    return Sample(dict(enumerate(values, first)))


def the_difference(system: Sample, baseline: Sample) -> Difference:
    return compare({"base": baseline, "row": system}, "base").differences["row"]


def test_two_groups_with_the_same_seeds_have_the_paired_t_test():
    system, baseline = (10.0, 12.5, 14.0, 9.5), (9.0, 10.0, 13.5, 9.25)
    found, test = the_difference(sample(*system), sample(*baseline)), stats.ttest_rel(system, baseline)
    assert (found.p, found.df) == (pytest.approx(test.pvalue), 3)
    assert (found.low, found.high) == pytest.approx(tuple(test.confidence_interval()))
    assert found.delta == pytest.approx(sum(system) / 4 - sum(baseline) / 4)


def test_groups_with_other_seeds_have_welchs_test():
    system, baseline = (10.0, 12.0, 14.0), (9.0, 10.0)
    found = the_difference(sample(*system, first=5), sample(*baseline))
    test = stats.ttest_ind(system, baseline, equal_var=False)
    assert (found.p, found.df) == (pytest.approx(test.pvalue), pytest.approx(test.df))
    assert (found.low, found.high) == pytest.approx(tuple(test.confidence_interval()))


def test_seeds_in_any_order_are_matched_by_their_number_and_only_common_ones_are_paired():
    base = Sample({2: 9.0, 0: 10.0, 1: 13.5})
    found = the_difference(Sample({0: 10.5, 1: 14.5, 2: 9.25, 7: 99.0}), base)
    test = stats.ttest_rel([10.5, 14.5, 9.25], [10.0, 13.5, 9.0])
    assert (found.delta, found.p) == (pytest.approx(7 / 12), pytest.approx(test.pvalue))


def test_several_groups_have_a_two_way_analysis_of_variance_by_hand():
    rows = {"base": (30.0, 31.5, 30.5), "a": (31.0, 32.0, 31.75), "b": (28.0, 30.25, 29.0), "c": (30.0, 31.0, 30.0)}
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
    f = 4 * sum((one - mean) ** 2 for one in of_seed) / 2 / sd**2
    assert found.seed is not None
    assert (found.seed.f, found.seed.df, found.seed.sd) == (pytest.approx(f), (2, 6), pytest.approx(sd))
    assert found.seed.p == pytest.approx(stats.f.sf(f, 2, 6))
    within = sum((value - of_group[name]) ** 2 for name, values in rows.items() for value in values)
    assert found.seed.sd_without == pytest.approx(math.sqrt(within / 8))
    t = (of_group["b"] - of_group["base"]) / (sd * math.sqrt(2 / 3))
    assert found.differences["b"].p == pytest.approx(2 * stats.t.sf(abs(t), 6))
    assert found.differences["b"].df == 6


def test_the_published_quarter_of_table_3_has_the_seed_as_a_block():
    """57 runs, the same three seeds in 19 rows."""
    from aiayn.reports.comparison import compare_groups
    from aiayn.reports.groups import group_runs
    from aiayn.reports.metrics import Metric
    from aiayn.reports.runs import read_runs

    groups = group_runs(read_runs([Path(__file__).parents[2] / "results/table3_quarter"])[0])
    assert [len(group.seeds) for group in groups] == [3] * 19
    [base] = [group for group in groups if group.name == "base"]
    [found] = compare_groups(groups, [Metric("bleu_compound_split", "val")], base).values()
    assert found.seed is not None
    assert (found.seed.df, round(found.seed.f, 1)) == ((2, 36), 10.7)
    assert (round(found.seed.sd_without, 3), round(found.seed.sd, 3)) == (0.484, 0.394)


def test_one_run_or_no_spread_claims_nothing():
    one, three, equal = sample(7.0), sample(1.0, 2.0, 3.0), sample(4.0, 4.0)
    for found in (the_difference(one, three), the_difference(three, one), the_difference(equal, equal)):
        assert (found.low, found.high, found.p, found.survives) == (None, None, None, False)
    assert the_difference(one, three).delta == 5
    assert (one.sd, three.sd) == (None, 1)


def test_holms_correction_is_worked_out_by_hand():
    ps = [0.01, 0.04, None, 0.03, 0.005]
    found = holm([Difference(0, p=p) for p in ps])
    assert [one.p_holm for one in found] == [pytest.approx(0.03), 0.06, None, 0.06, pytest.approx(0.02)]
    assert [one.survives for one in found] == [True, False, False, False, True]


def said(samples: dict[str, Sample]) -> str:
    found = compare(samples, "base")
    return "\n".join(explained("base (3 seeds)", {"val/ppl": found}, corrected({"val/ppl": found})))


def test_it_is_said_when_no_comparison_could_reach_significance_and_what_could_have_been_marked():
    base, near = sample(7.0, 7.5, 8.0), {f"row {n}": sample(7.1 + n / 9, 7.9, 7.7 - n / 7) for n in range(18)}
    two, others = sample(7.0, 8.0), {f"row {n}": Sample({7: 7.0 + n / 9, 8: 8.0 + n / 9}) for n in range(18)}
    hopeless = said({"base": two, **others})
    assert "No comparison could reach significance with so few seeds: it takes 19 standard errors" in hopeless
    assert "Welch's t-test" in hopeless
    blocked = said({"base": base, **near})
    assert "No difference is significant; the least that could be marked is " in blocked
    least = float(blocked.rpartition("marked is ")[2].split(" in ")[0])
    [shift] = [one.delta for one in compare({"base": base, "row": near["row 0"]}, "base").differences.values()]
    found = said(
        {"base": base, **near, "row 0": Sample({s: v - shift + 1.1 * least for s, v in near["row 0"].by_seed.items()})}
    )
    assert "significan" not in found


def test_a_row_that_diverged_hides_no_other():
    rows = {"base": sample(5.0, 5.2, 5.1), "better": sample(4.0, 4.25, 4.1), "like": sample(5.1, 5.2, 5.2)}
    without = compare(rows, "base").differences
    found = compare({**rows, "runs/diverged": sample(3e5, 9.0, 7e7)}, "base")
    assert found.diverging == ("runs/diverged",)
    assert {name: found.differences[name] for name in without} == without
    assert found.differences["runs/diverged"].p == pytest.approx(
        stats.ttest_rel((3e5, 9.0, 7e7), (5.0, 5.2, 5.1)).pvalue
    )
    assert "their seeds spread far more: diverged in val/ppl." in said({**rows, "runs/diverged": sample(3e5, 9.0, 7e7)})


@pytest.mark.slow
def test_intervals_of_a_row_that_spreads_far_more_hold_although_seeds_move_all_rows():
    generator = random.Random(5)
    held = alarms = 0
    for _ in range(TRIALS):
        of_seed = [generator.gauss(0, 1) for _ in range(3)]
        rows = {name: draw(generator, of_seed, 30, 0.1) for name in ("base", "one", "two", "three")}
        found = compare({**rows, "noisy": draw(generator, of_seed, 30, 3)}, "base").differences
        held += found["noisy"].low <= 0 <= found["noisy"].high
        alarms += any(one.p_holm < LEVEL for one in holm([*found.values()]))
    assert held / TRIALS > 0.95 - SLACK
    assert alarms / TRIALS < 0.05 + SLACK


def test_a_mean_has_the_interval_of_students_t():
    values = (3.0, 4.5, 4.0, 6.0)
    found = interval(sum(values) / 4, float(stats.sem(values)), 3)
    low, high = stats.t.interval(0.95, 3, sum(values) / 4, stats.sem(values))
    assert (found.low, found.delta, found.high) == pytest.approx((low, sum(values) / 4, high))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(ps):
    corrected = [one.p_holm for one in holm([Difference(0, p=p) for p in ps])]
    assert all(before <= after <= 1 for before, after in zip(ps, corrected, strict=True))
    ordered = [after for _, after in sorted(zip(ps, corrected, strict=True))]
    assert ordered == sorted(ordered)


def draw(generator: random.Random, of_seed: list[float], mean: float, sd: float = 0.4) -> Sample:
    return sample(*(mean + effect + generator.gauss(0, sd) for effect in of_seed))


TRIALS = 300
SLACK = 3.5 * math.sqrt(0.05 * 0.95 / TRIALS)  # three and a half standard errors of the share of false alarms


@pytest.mark.slow
def test_at_three_seeds_blocks_find_what_welchs_test_misses_and_raise_no_false_alarms():
    """Rows of a sweep whose seeds move all rows together, as they do in the published quarter of Table 3."""
    generator = random.Random(3)
    alarms = found = missed = tables = 0
    for _ in range(TRIALS):
        of_seed = [generator.gauss(0, 1.5) for _ in range(3)]
        rows = {f"row {n}": draw(generator, of_seed, 30) for n in range(5)}
        samples = {"base": draw(generator, of_seed, 30), "worse": draw(generator, of_seed, 28), **rows}
        differences = compare(samples, "base").differences
        alarms += differences["row 0"].p < LEVEL
        names = [*differences]
        corrected = dict(zip(names, holm([differences[name] for name in names]), strict=True))
        tables += any(corrected[name].survives for name in rows)
        found += corrected["worse"].survives
        apart = {name: sample(*one.values, first=9) for name, one in samples.items() if name != "base"}
        welch = compare({"base": samples["base"], **apart}, "base").differences
        missed += not dict(zip(names, holm([welch[name] for name in names]), strict=True))["worse"].survives
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
    assert held["welch"] / TRIALS > 0.95 - SLACK - 0.01  # Welch's own approximation is off by up to a point
