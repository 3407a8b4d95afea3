"""Differences between means over a few seeds, with 95 % intervals and p-values.

Seeds are blocks: a seed draws the order of the text and the initial weights, and moves the scores
of all rows of a sweep together. Groups that were trained with the same seeds are therefore compared
seed by seed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from statistics import fmean, stdev
from typing import Any, TypeVar

from aiayn.errors import counted

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
        """Returns the standard deviation with n - 1 degrees of freedom; None for a single
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
        """Returns whether the difference is significant after correction for all comparisons of its
        table.
        """
        return self.p_holm is not None and self.p_holm < LEVEL


def compare(samples: Mapping[str, Sample], base: str) -> dict[str, Difference]:
    """Compares groups with a baseline, seed by seed where they share at least two seeds, else by
    Welch's t-test.

    All groups that share seeds with the baseline are taken to have one standard deviation around
    the sum of an effect of the group and one of the seed (two-way analysis of variance; of two
    groups it is the paired t-test). Single seeds have a difference without an interval.
    """
    baseline = samples[base]
    others = {name: sample for name, sample in samples.items() if name != base}
    differences = {name: _welch(sample, baseline) for name, sample in others.items()}
    by_seed = {
        name: sample
        for name, sample in others.items()
        if len(sample.by_seed.keys() & baseline.by_seed.keys()) > 1
    }
    return differences | (_blocked(by_seed, baseline) if by_seed else {})


def _welch(sample: Sample, base: Sample) -> Difference:
    delta = sample.mean - base.mean
    if sample.n < 2 or base.n < 2 or not (sample.sd or base.sd):
        return Difference(delta)  # equal values of all seeds say nothing of their spread
    from scipy import stats

    test: Any = stats.ttest_ind(sample.values, base.values, equal_var=False)
    low, high = test.confidence_interval(1 - LEVEL)
    return Difference(delta, float(low), float(high), float(test.pvalue))


def _blocked(samples: Mapping[str, Sample], base: Sample) -> dict[str, Difference]:
    """Returns the effects of the groups in a least-squares fit of group + seed, the baseline's
    being 0.
    """
    import numpy as np
    import pandas as pd

    groups, seeds, scores = [], [], []
    for name, sample in ((None, base), *samples.items()):
        groups += [name] * sample.n
        seeds += sample.by_seed
        scores += sample.values
    of_group = pd.get_dummies(pd.Series(groups))[[*samples]]
    of_seed = pd.get_dummies(pd.Series(seeds))
    design = np.hstack([of_group, of_seed]).astype(float)
    inverse = np.linalg.inv(design.T @ design)
    effects = inverse @ design.T @ scores
    squares = np.sum((scores - design @ effects) ** 2)
    if squares <= 1e-18 * np.sum(np.square(scores)):
        squares = 0.0  # only rounding errors are left
    df = len(design) - len(effects)
    errors = np.sqrt(squares / df * np.diag(inverse))
    differences = {}
    for name, effect, error in zip(samples, effects, errors, strict=False):
        difference = interval(float(effect), float(error), df)
        differences[name] = replace(difference, is_paired=True)
    return differences


def interval(delta: float, error: float, df: float) -> Difference:
    """Returns a difference with the interval and the p-value of Student's t; without these if the
    error is 0.
    """
    if not error:
        return Difference(delta)
    from scipy import stats

    half = float(stats.t.isf(LEVEL / 2, df)) * error
    p = 2 * float(stats.t.sf(abs(delta) / error, df))
    return Difference(delta, delta - half, delta + half, p)


def corrected(families: Mapping[T, Mapping[str, Difference]]) -> dict[T, dict[str, Difference]]:
    """Returns the differences of each metric, with p-values corrected for all of them together
    (Holm 1979); those without p stay as they are.
    """
    all_corrected = {}
    tested = []
    for key, family in families.items():
        all_corrected[key] = {**family}
        tested += [(family[name].p, key, name) for name in family if family[name].p is not None]
    largest = 0.0
    for rank, (p, key, name) in enumerate(sorted(tested, key=itemgetter(0))):
        largest = max(largest, min(1.0, p * (len(tested) - rank)))
        all_corrected[key][name] = replace(families[key][name], p_holm=largest)
    return all_corrected


def explained(base: str, families: Mapping[Any, Mapping[str, Difference]]) -> list[str]:
    """Returns how differences were tested, and a line if none is significant.

    `families` are all that the correction is for, as `corrected` returns them.
    """
    changes = [change for family in families.values() for change in family.values()]
    tested = [change for change in changes if change.p is not None]
    if not tested:
        return [f"Differences are from {base}. Intervals need two seeds on both sides."]
    methods = []
    if any(change.is_paired for change in tested):
        methods.append("between runs of the same seed, with one pooled standard deviation")
    if not all(change.is_paired for change in tested):
        methods.append("by Welch's t-test where the seeds differ")
    lines = [
        f"Differences from {base} are tested {'; '.join(methods)}; intervals are 95 % (Student's "
        f"t). A mark means p below {LEVEL} after Holm's correction for "
        f"{counted(len(tested), 'comparison')}."
    ]
    if not any(change.is_significant for change in tested):
        lines.append("No difference is significant.")
    return lines


def p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 2 * LEVEL else f"{p:.2f}"
