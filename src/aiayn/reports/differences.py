"""Differences between means over a few seeds, with 95 % intervals and p-values.

Seeds are blocks: a seed draws the order of the text and the initial weights, and moves the scores
of all rows of a sweep together. Groups that were trained with the same seeds are therefore compared
seed by seed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any, TypeVar

T = TypeVar("T")
LEVEL = 0.05  # significance level; intervals are 95 % confidence intervals


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
        """Return the standard deviation with n - 1 degrees of freedom; None for a single
        measurement.
        """
        return stdev(self.values) if self.n > 1 else None


@dataclass(frozen=True)
class Difference:
    """A mean minus the baseline's, with its 95 % interval and two-sided p-value; None without two
    seeds.
    """

    delta: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_holm: float | None = None  # corrected for all comparisons of a table
    is_paired: bool = False  # tested seed by seed, else by Welch's test

    @property
    def is_significant(self) -> bool:
        """Return whether the difference is significant after correction for all comparisons of its
        table.
        """
        return self.p_holm is not None and self.p_holm < LEVEL


def compare(samples: Mapping[str, Sample], base: str) -> dict[str, Difference]:
    """Compare groups with a baseline, seed by seed where they share at least two seeds, else by
    Welch's t-test.

    All groups that share seeds with the baseline are taken to have one standard deviation around
    the sum of an effect of the group and one of the seed (two-way analysis of variance; of two
    groups it is the paired t-test). Single seeds have a difference without an interval.
    """
    seeds = set(samples[base].by_seed)
    others = {name: sample for name, sample in samples.items() if name != base}
    shared = [name for name, sample in others.items() if len(seeds & set(sample.by_seed)) > 1]
    differences = {name: _welch(sample, samples[base]) for name, sample in others.items()}
    if shared:
        differences |= _blocked({name: samples[name] for name in (base, *shared)}, base)
    return differences


def _welch(sample: Sample, base: Sample) -> Difference:
    delta = sample.mean - base.mean
    if sample.n < 2 or base.n < 2 or not (sample.sd or base.sd):
        return Difference(delta)  # equal values of all seeds say nothing of their spread
    from scipy import stats

    test: Any = stats.ttest_ind(sample.values, base.values, equal_var=False)
    low, high = test.confidence_interval(1 - LEVEL)
    return Difference(delta, float(low), float(high), float(test.pvalue))


def _blocked(samples: Mapping[str, Sample], base: str) -> dict[str, Difference]:
    """Return the differences from the baseline in a least-squares fit of group + seed."""
    import numpy as np

    groups = [*samples]
    seeds = [*dict.fromkeys(seed for sample in samples.values() for seed in sample.by_seed)]
    cells = [(group, seed) for group in groups for seed in samples[group].by_seed]
    measurements = np.array([samples[group].by_seed[seed] for group, seed in cells])
    design = np.zeros((len(cells), len(groups) + len(seeds)))
    for row, (group, seed) in enumerate(cells):
        design[row, [groups.index(group), len(groups) + seeds.index(seed)]] = 1
    effects, _, rank, _ = np.linalg.lstsq(design, measurements, rcond=None)
    squares = float(np.sum((measurements - design @ effects) ** 2))
    df = len(measurements) - int(rank)
    is_exact = df < 1 or squares <= 1e-18 * float(np.sum(measurements**2))
    variance = 0.0 if is_exact else squares / df
    inverse = np.linalg.pinv(design.T @ design)

    differences = {}
    for name in [group for group in groups if group != base]:
        contrast = np.zeros(design.shape[1])
        contrast[groups.index(name)] = 1
        contrast[groups.index(base)] = -1
        error = math.sqrt(variance * (contrast @ inverse @ contrast))
        difference = interval(float(contrast @ effects), error, df)
        differences[name] = replace(difference, is_paired=True)
    return differences


def interval(delta: float, error: float, df: float) -> Difference:
    """Return a difference with the interval and the p-value of Student's t; without these if the
    error is 0.
    """
    if not error:
        return Difference(delta)
    from scipy import stats

    half = float(stats.t.isf(LEVEL / 2, df)) * error
    p = 2 * float(stats.t.sf(abs(delta) / error, df))
    return Difference(delta, delta - half, delta + half, p)


def holm(differences: Sequence[Difference]) -> list[Difference]:
    """Return the differences with p-values corrected for all of them (Holm 1979); those without p
    stay as they are.
    """
    tested = [number for number, difference in enumerate(differences) if difference.p is not None]
    ordered = sorted(tested, key=lambda number: differences[number].p or 0.0)
    corrected, largest = list(differences), 0.0
    for rank, number in enumerate(ordered):
        p = differences[number].p or 0.0
        largest = max(largest, min(1.0, p * (len(ordered) - rank)))
        corrected[number] = replace(differences[number], p_holm=largest)
    return corrected


def corrected(families: Mapping[T, Mapping[str, Difference]]) -> dict[T, dict[str, Difference]]:
    """Return the differences of each metric, with p-values corrected for all of them together."""
    in_order = iter(holm([change for family in families.values() for change in family.values()]))
    return {key: {name: next(in_order) for name in family} for key, family in families.items()}


def minus(measured: Sample | float | None, published: float | None) -> float | None:
    """Return measured - published; None where one is missing."""
    value = measured.mean if isinstance(measured, Sample) else measured
    return None if value is None or published is None else value - published


def explained(base: str, families: Mapping[Any, Mapping[str, Difference]]) -> list[str]:
    """Return how differences were tested, and a line if none is significant.

    `families` are all that the correction is for, as `corrected` returns them.
    """
    tested = [change for family in families.values() for change in family.values()]
    tested = [change for change in tested if change.p is not None]
    if not tested:
        return [f"Differences are from {base}. Intervals need two seeds on both sides."]
    by_seed, welch = "seed by seed, with one pooled standard deviation", "by Welch's t-test"
    if not any(change.is_paired for change in tested):
        method = welch
    elif all(change.is_paired for change in tested):
        method = by_seed
    else:
        method = f"{by_seed}; {welch} where the seeds differ"
    lines = [
        f"Differences from {base} are tested {method}; intervals are 95 % (Student's t). Bold or "
        f"*: p below {LEVEL} after Holm's correction for {len(tested)} comparisons."
    ]
    if not any(change.is_significant for change in tested):
        lines.append("No difference is significant.")
    return lines


def p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 2 * LEVEL else f"{p:.2f}"
