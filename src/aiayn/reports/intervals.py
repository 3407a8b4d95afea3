"""Student's t: intervals and p-values of differences between means over a few seeds, and Holm's correction."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean, stdev

LEVEL = 0.05  # significance level; intervals are 95 % confidence intervals


@dataclass(frozen=True)
class Sample:
    """Independent measurements of one quantity, one per seed."""

    values: tuple[float, ...]

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def sd(self) -> float | None:
        """Standard deviation with n - 1 degrees of freedom; None for a single measurement."""
        return stdev(self.values) if self.n > 1 else None


def less(measured: Sample | float | None, published: float | None) -> float | None:
    """Returns measured - published; None where one is missing."""
    value = measured.mean if isinstance(measured, Sample) else measured
    return None if value is None or published is None else value - published


@dataclass(frozen=True)
class Spread:
    """A standard deviation that several groups share, and the degrees of freedom it was estimated with."""

    sd: float
    df: float


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


def welch(sample: Sample, baseline: Sample) -> Difference:
    """Welch's t-test: unequal variances, degrees of freedom after Satterthwaite. Needs two seeds on both sides."""
    delta = sample.mean - baseline.mean
    if sample.sd is None or baseline.sd is None:
        return Difference(delta)
    parts = [(one.sd**2 / one.n, one.n - 1) for one in (sample, baseline) if one.sd]
    variance = math.fsum(part for part, _ in parts)
    if not variance:  # all seeds of both sides measured the same: that says nothing of their spread
        return Difference(delta)
    df = variance**2 / math.fsum(part**2 / freedom for part, freedom in parts)
    return student(delta, math.sqrt(variance), df)


def pooled(sample: Sample, baseline: Sample, spread: Spread | None) -> Difference:
    """Student's t-test with a standard deviation that all groups are taken to share; works for single runs, too."""
    delta = sample.mean - baseline.mean
    if spread is None or not spread.sd:
        return Difference(delta)
    return student(delta, spread.sd * math.sqrt(1 / sample.n + 1 / baseline.n), spread.df)


def pooled_spread(samples: Iterable[Sample]) -> Spread | None:
    """Returns the standard deviation within groups, over all groups of two seeds or more; None if there are none."""
    found = [(one.sd, one.n - 1) for one in samples if one.sd is not None]
    df = sum(freedom for _, freedom in found)
    return Spread(math.sqrt(math.fsum(sd**2 * freedom for sd, freedom in found) / df), df) if found else None


def student(delta: float, standard_error: float, df: float) -> Difference:
    """Returns a difference with the interval and the p-value of Student's t."""
    reach = t_quantile(df) * standard_error
    return Difference(delta, delta - reach, delta + reach, t_two_sided(delta / standard_error, df), df)


def holm(differences: Sequence[Difference]) -> list[Difference]:
    """Returns the differences with p-values corrected for all of them (Holm 1979); those without p stay as they are."""
    tested = sorted((p, place) for place, one in enumerate(differences) if (p := one.p) is not None)
    corrected, least = list(differences), 0.0
    for rank, (p, place) in enumerate(tested):
        least = max(least, min(1.0, p * (len(tested) - rank)))
        corrected[place] = replace(differences[place], p_holm=least)
    return corrected


def t_two_sided(t: float, df: float) -> float:
    """P(|T| >= |t|) for Student's t with df degrees of freedom, not necessarily a whole number."""
    return incomplete_beta(df / 2, 0.5, df / (df + t * t))


@cache
def t_quantile(df: float, level: float = LEVEL) -> float:
    """Returns the t beyond which a share `level` of Student's distribution lies, both sides together."""
    log_peak = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - math.log(df * math.pi) / 2
    t = 0.0
    for _ in range(200):  # Newton's method: the share is convex in t, so that it never goes too far
        density = math.exp(log_peak - (df + 1) / 2 * math.log1p(t * t / df))
        step = (t_two_sided(t, df) - level) / (2 * density)
        t += step
        if abs(step) <= 1e-13 * t:
            break
    return t


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by its continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side
        return 1 - incomplete_beta(b, a, 1 - x)
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    factor = math.exp(a * math.log(x) + b * math.log1p(-x) - log_beta) / a
    return factor / _continued_fraction(a, b, x)


def _continued_fraction(a: float, b: float, x: float) -> float:
    """1 + d_1 / (1 + d_2 / (1 + ...)), from its beginning (Lentz's method)."""
    tiny = 1e-300
    value = c = 1.0
    d = 0.0
    for step in range(1, 10_000):
        m = step // 2
        if step % 2:
            coefficient = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            coefficient = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / (1 + coefficient * d or tiny)
        c = 1 + coefficient / c or tiny
        value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value
