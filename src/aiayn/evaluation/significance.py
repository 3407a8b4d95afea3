"""Tests whether systems differ by more than chance: resampled test sets, for every kind of score.

paired bootstrap
    Test sets drawn with replacement (Koehn 2004), as `sacrebleu --paired-bs` does.
paired randomisation
    Outputs of both systems swapped line by line at random (Riezler and Maxwell 2005), as
    `sacrebleu --paired-ar` does.

p-values are those of sacreBLEU, which counts resamples that differ by more than was observed,
except that ties count as well: where every resample ties with the observation, p is 1.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from aiayn.config.tasks import METRIC_KINDS
from aiayn.evaluation.scoring import Output, References, kind_applies, output

SEED = 12345  # sacreBLEU's
BOOTSTRAP, RANDOMISATION = 1000, 10_000  # resamples, as sacreBLEU's defaults
TIE = 1e-9  # scores that differ by less are equal


def compare_systems(
    baseline: list[str],
    system: list[str],
    references: References,
    tgt_lang: str,
    kinds: Sequence[str] = METRIC_KINDS,
    bootstrap: int = BOOTSTRAP,
    randomisation: int = RANDOMISATION,
) -> dict[str, dict[str, Any]]:
    """Returns for every kind both scores, their intervals and p-values of no difference.

    Kinds that do not apply to the language are left out. Raises DataError where lines differ in
    number.
    """
    tests_of: dict[str, dict[str, Any]] = {}
    for metric in kinds:
        if not kind_applies(metric, tgt_lang):
            continue
        of_baseline, signature = output(baseline, references, tgt_lang, metric)
        of_system, _ = output(system, references, tgt_lang, metric)
        mean_of_baseline, mean_of_system, p_bootstrap = paired_bootstrap(
            of_baseline, of_system, bootstrap
        )
        before_case, _, case = signature.partition("|case")
        tests_of[metric] = {
            "baseline": {"score": of_baseline.score, **mean_of_baseline},
            "system": {"score": of_system.score, **mean_of_system},
            "delta": of_system.score - of_baseline.score,
            "p_bootstrap": p_bootstrap,
            "p_randomisation": paired_randomisation(of_baseline, of_system, randomisation),
            # In the form that sacreBLEU writes
            "signatures": {
                "bs": f"{before_case}|bs:{bootstrap}|seed:{SEED}|case{case}",
                "ar": f"{before_case}|ar:{randomisation}|seed:{SEED}|case{case}",
            },
        }
    return tests_of


def paired_bootstrap(
    baseline: Output, system: Output, n_samples: int = BOOTSTRAP
) -> tuple[dict[str, float], dict[str, float], float]:
    """Returns mean and half of the 95 % interval over resamples of both systems, and the p-value of
    no difference.
    """
    n_lines = len(baseline.lines)
    resamples = np.random.default_rng(SEED).choice(n_lines, size=(n_samples, n_lines), replace=True)
    scores = [
        np.array([output.score_of(output.lines[numbers].sum(0)) for numbers in resamples])
        for output in (baseline, system)
    ]
    differences = np.abs(scores[1] - scores[0])
    p = _p_value(differences - differences.mean(), abs(system.score - baseline.score))
    first, second = (
        {"mean": float(sample.mean()), "ci": _half_interval(sample)} for sample in scores
    )
    return first, second, p


def paired_randomisation(baseline: Output, system: Output, n_trials: int = RANDOMISATION) -> float:
    """Returns the p-value of no difference, two-sided."""
    generator = np.random.default_rng(SEED)
    size = n_trials, len(baseline.lines)
    swapped = generator.integers(2, size=size, dtype=bool).astype(np.float64)
    total = baseline.lines.sum(0) + system.lines.sum(0)
    sums = system.lines.sum(0) + swapped @ (baseline.lines - system.lines)
    # Sums of counts, exact except for the rounding of fractions in TER.
    firsts = np.array([baseline.score_of(first) for first in np.round(sums, 6)])
    seconds = np.array([baseline.score_of(total - first) for first in np.round(sums, 6)])
    return _p_value(np.abs(firsts - seconds), abs(system.score - baseline.score))


def _p_value(samples: np.ndarray, observed: float) -> float:
    return float((np.sum(samples >= observed - TIE) + 1) / (len(samples) + 1))


def _half_interval(scores: np.ndarray) -> float:
    """Returns half the span of 95 % of the resampled scores."""
    ordered = np.sort(scores)
    cut = len(ordered) // 40
    return float(ordered[-cut - 1] - ordered[cut]) / 2
