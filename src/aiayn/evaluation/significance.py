"""Whether systems differ by more than chance: resampled test sets, for every kind of score.

paired bootstrap        test sets drawn with replacement (Koehn 2004), as `sacrebleu --paired-bs`
paired randomisation    outputs of both systems swapped line by line at random (Riezler and Maxwell 2005), as
                        `sacrebleu --paired-ar`

p-values are those of sacreBLEU, which counts resamples that differ by more than was observed, except that ties count
as well: where every resample ties with the observation, p is 1.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aiayn.evaluation.scoring import kind_applies, sufficient_statistics
from aiayn.runs.metrics import METRIC_KINDS

SEED = 12345  # sacreBLEU's
BOOTSTRAP, RANDOMISATION = 1000, 10_000  # resamples, as sacreBLEU's defaults
TIE = 1e-9  # scores that differ by less are equal


@dataclass(frozen=True)
class Output:
    """A system's output in one kind of score: `lines` (line, statistic), and the score of their sums over lines."""

    lines: np.ndarray
    score_of: Callable[[np.ndarray], float]

    @property
    def score(self) -> float:
        return self.score_of(self.lines.sum(0))


def compare_systems(
    baseline: list[str],
    system: list[str],
    references: list[str] | list[list[str]],
    tgt_lang: str,
    kinds: Sequence[str] = METRIC_KINDS,
    bootstrap: int = BOOTSTRAP,
    randomisation: int = RANDOMISATION,
) -> dict[str, dict[str, Any]]:
    """Returns for every kind both scores, their intervals and p-values of no difference.

    Kinds that do not apply to the language are left out. Raises DataError where lines differ in number.
    """
    results: dict[str, dict[str, Any]] = {}
    for kind in kinds:
        if not kind_applies(kind, tgt_lang):
            continue
        base, signature = output(baseline, references, tgt_lang, kind)
        other, _ = output(system, references, tgt_lang, kind)
        first, second, p_bootstrap = paired_bootstrap(base, other, bootstrap)
        results[kind] = {
            "baseline": {"score": base.score, **first},
            "system": {"score": other.score, **second},
            "delta": other.score - base.score,
            "p_bootstrap": p_bootstrap,
            "p_randomisation": paired_randomisation(base, other, randomisation),
            # As sacreBLEU writes them.
            "signatures": {
                test: signature.replace("|case", f"|{test}:{count}|seed:{SEED}|case", 1)
                for test, count in (("bs", bootstrap), ("ar", randomisation))
            },
        }
    return results


def output(
    hypotheses: list[str], references: list[str] | list[list[str]], tgt_lang: str, kind: str
) -> tuple[Output, str]:
    """Returns the output in one kind of score, and the signature of that kind."""
    lines, score_of, signature = sufficient_statistics(hypotheses, references, tgt_lang, kind)
    return Output(np.array(lines, dtype=np.float64), score_of), signature


def paired_bootstrap(
    baseline: Output, system: Output, n_samples: int = BOOTSTRAP
) -> tuple[dict[str, float], dict[str, float], float]:
    """Returns mean and half of the 95 % interval over resamples of both systems, and the p-value of no difference."""
    lines = len(baseline.lines)
    drawn = np.random.default_rng(SEED).choice(lines, size=(n_samples, lines), replace=True)
    scores = [np.array([one.score_of(one.lines[places].sum(0)) for places in drawn]) for one in (baseline, system)]
    apart = np.abs(scores[1] - scores[0])
    p = _p_value(apart - apart.mean(), abs(system.score - baseline.score))
    first, second = ({"mean": float(one.mean()), "ci": _half_interval(one)} for one in scores)
    return first, second, p


def paired_randomisation(baseline: Output, system: Output, n_trials: int = RANDOMISATION) -> float:
    """Returns the p-value of no difference, two-sided."""
    generator = np.random.default_rng(SEED)
    swapped = generator.integers(2, size=(n_trials, len(baseline.lines)), dtype=bool).astype(np.float64)
    total = baseline.lines.sum(0) + system.lines.sum(0)
    first = system.lines.sum(0) + swapped @ (baseline.lines - system.lines)
    # Sums of counts, exact except for the rounding of fractions in TER.
    pairs = [(baseline.score_of(one), baseline.score_of(total - one)) for one in np.round(first, 6)]
    apart = np.array([abs(one - other) for one, other in pairs])
    return _p_value(apart, abs(system.score - baseline.score))


def _p_value(samples: np.ndarray, observed: float) -> float:
    return float((np.sum(samples >= observed - TIE) + 1) / (len(samples) + 1))


def _half_interval(scores: np.ndarray) -> float:
    """Half of what 95 % of the resampled scores span."""
    ordered = np.sort(scores)
    cut = len(ordered) // 40
    return float(ordered[-cut - 1] - ordered[cut]) / 2
