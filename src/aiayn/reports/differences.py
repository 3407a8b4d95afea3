"""Differences between means over a few seeds, their 95 % intervals and p-values.

Seeds are blocks: a seed draws the order of the text and the initial weights, and moves the scores of all rows of a
sweep together. Groups that were trained with the same seeds are therefore compared seed by seed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from statistics import fmean, median, median_low, stdev
from typing import Any, TypeVar

T = TypeVar("T")
LEVEL = 0.05  # significance level; intervals are 95 % confidence intervals
DIVERGING = 0.02  # level of an F test against the median of the groups' spreads: such a group is compared by itself
HOPELESS = 10  # standard errors: with so few seeds that a difference needs more, hardly any will ever be significant


@dataclass(frozen=True)
class Sample:
    """Measurements of one quantity by seed."""

    by_seed: Mapping[Any, float]

    @property
    def values(self) -> list[float]:
        return [*self.by_seed.values()]

    @property
    def n(self) -> int:
        return len(self.by_seed)

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def sd(self) -> float | None:
        """Standard deviation with n - 1 degrees of freedom; None for a single measurement."""
        return stdev(self.values) if self.n > 1 else None


@dataclass(frozen=True)
class Difference:
    """A mean minus the baseline's, with its 95 % interval and two-sided p-value; None where nothing can be claimed."""

    delta: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    df: float | None = None
    p_holm: float | None = None  # corrected for all comparisons of a table

    @property
    def survives(self) -> bool:
        """Whether the difference is significant after correction for all comparisons of its table."""
        return self.p_holm is not None and self.p_holm < LEVEL

    def needed(self, comparisons: int) -> tuple[float, float]:
        """Returns how large the difference had to be to survive as the clearest of so many, also in standard errors."""
        from scipy import stats

        assert self.high is not None
        assert self.df is not None
        error = (self.high - self.delta) / float(stats.t.isf(LEVEL / 2, self.df))
        errors = float(stats.t.isf(LEVEL / 2 / comparisons, self.df))
        return errors * error, errors


@dataclass(frozen=True)
class SeedEffect:
    """How much of a metric the seeds explain: F(df[0], df[1]), and the standard deviation without and with them."""

    f: float
    df: tuple[int, int]
    p: float
    sd_without: float
    sd: float


@dataclass(frozen=True)
class Comparison:
    """Differences of a metric from the baseline by group, how they were tested, and the effect of the seed."""

    differences: dict[str, Difference] = field(default_factory=dict)
    seed: SeedEffect | None = None
    by_seed: frozenset[str] = frozenset()  # groups that were compared seed by seed; of the others Welch's test
    diverging: tuple[str, ...] = ()  # those of them that were compared by themselves, because they spread so much more


def compare(samples: Mapping[str, Sample], base: str) -> Comparison:
    """Compares groups with a baseline, seed by seed where they share at least two seeds, else by Welch's t-test.

    All groups that share seeds with the baseline are taken to have one standard deviation around the sum of an effect
    of the group and one of the seed (two-way analysis of variance; of two groups it is the paired t-test), but for
    those that spread far more than most: one that diverged would hide all others, and has a paired t-test of its own.
    Nothing is claimed of single seeds.
    """
    from scipy import stats

    differences = {name: _welch(one, samples[base]) for name, one in samples.items() if name != base}
    seeds = set(samples[base].by_seed)
    shared = [name for name in differences if len(seeds & set(samples[name].by_seed)) > 1]
    spreads = {name: _spread(samples, name, (base, *shared)) for name in (base, *shared) if shared}
    times = {name: math.sqrt(stats.f.isf(DIVERGING, samples[name].n - 1, samples[name].n - 1)) for name in spreads}
    far = [name for name, spread in spreads.items() if 0 < times[name] * median(spreads.values()) < spread]
    diverging = tuple(name for name in shared if name in far or base in far)
    for name in diverging:
        differences |= _blocked({key: samples[key] for key in (base, name)}, base)[0]
    together = [name for name in shared if name not in diverging]
    found, effect = _blocked({name: samples[name] for name in (base, *together)}, base) if together else ({}, None)
    return Comparison(differences | found, effect, frozenset(shared), diverging)


def _spread(samples: Mapping[str, Sample], name: str, groups: Sequence[str]) -> float:
    """The standard deviation of a group's differences from most others, seed by seed: what seeds do to all cancels."""
    own, others = samples[name].by_seed, [samples[other].by_seed for other in groups if other != name]
    apart = [[own[seed] - other[seed] for seed in own.keys() & other.keys()] for other in others]
    return median_low(stdev(one) for one in apart if len(one) > 1)


def _welch(sample: Sample, base: Sample) -> Difference:
    delta = sample.mean - base.mean
    if sample.n < 2 or base.n < 2 or not (sample.sd or base.sd):
        return Difference(delta)  # equal values of all seeds say nothing of their spread
    from scipy import stats

    test: Any = stats.ttest_ind(sample.values, base.values, equal_var=False)
    low, high = test.confidence_interval(1 - LEVEL)
    return Difference(delta, float(low), float(high), float(test.pvalue), float(test.df))


def _blocked(samples: Mapping[str, Sample], base: str) -> tuple[dict[str, Difference], SeedEffect | None]:
    """Fits group + seed by least squares. Returns the differences between groups and the effect of the seed."""
    import numpy as np
    from scipy import stats

    groups, seeds = [*samples], [*dict.fromkeys(seed for one in samples.values() for seed in one.by_seed)]
    places = [(groups.index(name), seeds.index(seed)) for name, one in samples.items() for seed in one.by_seed]
    measured = np.array([value for one in samples.values() for value in one.values])
    design = np.zeros((len(places), len(groups) + len(seeds)))
    for row, (group, seed) in enumerate(places):
        design[row, [group, len(groups) + seed]] = 1
    effects, _, rank, _ = np.linalg.lstsq(design, measured, rcond=None)
    deltas = {name: float(effects[groups.index(name)] - effects[groups.index(base)]) for name in groups if name != base}
    squares, df = float(np.sum((measured - design @ effects) ** 2)), len(measured) - int(rank)
    if df < 1 or squares <= 1e-18 * float(np.sum(measured**2)):
        return {name: Difference(delta) for name, delta in deltas.items()}, None
    sd, inverse = math.sqrt(squares / df), np.linalg.pinv(design.T @ design)
    differences = {}
    for name, delta in deltas.items():
        contrast = np.zeros(design.shape[1])
        contrast[groups.index(name)], contrast[groups.index(base)] = 1, -1
        differences[name] = interval(delta, sd * math.sqrt(contrast @ inverse @ contrast), df)
    without = math.fsum((value - one.mean) ** 2 for one in samples.values() for value in one.values)
    df_without = len(measured) - len(groups)
    f = (without - squares) / (df_without - df) / sd**2
    p = float(stats.f.sf(f, df_without - df, df))
    return differences, SeedEffect(f, (df_without - df, df), p, math.sqrt(without / df_without), sd)


def interval(delta: float, error: float, df: float) -> Difference:
    """Returns a difference with the interval and the p-value of Student's t."""
    from scipy import stats

    if not error:
        return Difference(delta)
    half = float(stats.t.isf(LEVEL / 2, df)) * error
    return Difference(delta, delta - half, delta + half, 2 * float(stats.t.sf(abs(delta) / error, df)), df)


def holm(differences: Sequence[Difference]) -> list[Difference]:
    """Returns the differences with p-values corrected for all of them (Holm 1979); those without p stay as they are."""
    tested = sorted((p, place) for place, one in enumerate(differences) if (p := one.p) is not None)
    corrected, least = list(differences), 0.0
    for rank, (p, place) in enumerate(tested):
        least = max(least, min(1.0, p * (len(tested) - rank)))
        corrected[place] = replace(differences[place], p_holm=least)
    return corrected


def corrected(found: Mapping[T, Comparison]) -> dict[T, dict[str, Difference]]:
    """Returns the differences of each comparison, with p-values corrected for all of them together."""
    after = iter(holm([one for comparison in found.values() for one in comparison.differences.values()]))
    return {key: {name: next(after) for name in comparison.differences} for key, comparison in found.items()}


def minus(measured: Sample | float | None, published: float | None) -> float | None:
    """Returns measured - published; None where one is missing."""
    value = measured.mean if isinstance(measured, Sample) else measured
    return None if value is None or published is None else value - published


def explained(base: str, found: Mapping[str, Comparison], family: Mapping[Any, Mapping[str, Difference]]) -> list[str]:
    """Returns how the differences of these metrics were tested, what the seed explains, and what could be found.

    `family` are all differences that the correction is for, as `corrected` returns them.
    """
    tested = [one for of in family.values() for one in of.values() if one.p is not None]
    if not tested:
        return [f"Differences are from {base}; without two seeds on both sides there is no interval."]
    effects = {name: one.seed for name, one in found.items() if one.seed}
    how = "Welch's t-test"
    if any(one.by_seed for one in found.values()):
        how = "paired t-tests" if not effects else "seed by seed, with one standard deviation for all groups"
        alone = [of for one in found.values() for name, of in one.differences.items() if name not in one.by_seed]
        how += ", Welch's t-test where the seeds are others" if any(of.p is not None for of in alone) else ""
    shown = {name: [of for of in one.differences.values() if of.p is not None] for name, one in found.items()}
    also = ", also of metrics that are not shown" * (len(tested) > sum(map(len, shown.values())))
    lines = [
        f"Differences are from {base}: {how}. Intervals hold 95 % (Student's t); p is corrected for {len(tested)} "
        f"comparisons (Holm){also}; what stays below {LEVEL} is marked."
    ]
    lines += [
        f"The seed explains F({one.df[0]}, {one.df[1]}) = {one.f:.1f} of {name} (p {p_text(one.p)}): its standard "
        f"deviation is {one.sd_without:.2g} without it, {one.sd:.2g} with it."
        for name, one in effects.items()
    ]
    if diverging := [f"{PurePath(name).name} in {metric}" for metric, one in found.items() for name in one.diverging]:
        lines.append(f"By paired t-tests of their own, because their seeds spread far more: {', '.join(diverging)}.")
    if not any(one.survives for one in tested):
        least = {name: min(of.needed(len(tested)) for of in ones) for name, ones in shown.items() if ones}
        sizes = ", ".join(f"{size:.2g} in {name}" for name, (size, _) in least.items())
        errors = min((errors for _, errors in least.values()), default=math.inf)
        begin = "No difference is significant"
        if errors > HOPELESS:
            begin = f"No comparison could reach significance with so few seeds: it takes {errors:.0f} standard errors"
        lines.append(f"{begin}; the least that could be marked is {sizes or 'unknown'}.")
    return lines


def p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 2 * LEVEL else f"{p:.2f}"
