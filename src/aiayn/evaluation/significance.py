"""Whether systems differ by more than chance: resampled test sets, for every kind of score.

paired bootstrap        test sets drawn with replacement (Koehn 2004), as `sacrebleu --paired-bs`
paired randomisation    outputs of both systems swapped line by line at random (Riezler and Maxwell 2005), as
                        `sacrebleu --paired-ar`
over seeds              seeds drawn first, then lines: what another training and another text would have given

p-values are those of sacreBLEU, which counts resamples that differ by more than was observed, except that ties count
as well: where every resample ties with the observation, p is 1.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aiayn.data.text_files import read_lines
from aiayn.errors import ConfigError, DataError, RefusedError
from aiayn.evaluation.scoring import applies, sufficient_statistics
from aiayn.reports.differences import Difference, holm, interval
from aiayn.reports.groups import comparable, find_baseline, group_runs
from aiayn.reports.metrics import Metric, metrics_of
from aiayn.reports.runs import MeasuredRun
from aiayn.reports.tables import Column, Table
from aiayn.runs.run_folder import METRIC_KINDS, Record

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
    systems: Mapping[str, list[str]],
    references: list[str] | list[list[str]],
    tgt_lang: str,
    kinds: Sequence[str] = METRIC_KINDS,
    bootstrap: int = BOOTSTRAP,
    randomisation: int = RANDOMISATION,
) -> dict[str, dict[str, dict[str, Any]]]:
    """Returns for every system and kind both scores, their intervals and p-values against the baseline.

    Kinds that do not apply to the language are left out. Raises DataError where lines differ in number.
    """
    results: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in systems}
    for kind in kinds:
        if not applies(kind, tgt_lang):
            continue
        base, signature = output(baseline, references, tgt_lang, kind)
        for name, hypotheses in systems.items():
            system, _ = output(hypotheses, references, tgt_lang, kind)
            results[name][kind] = _compared(base, system, bootstrap, randomisation) | {
                # As sacreBLEU writes them.
                "signatures": {
                    test: signature.replace("|case", f"|{test}:{count}|seed:{SEED}|case", 1)
                    for test, count in (("bs", bootstrap), ("ar", randomisation))
                }
            }
    return results


def output(
    hypotheses: list[str], references: list[str] | list[list[str]], tgt_lang: str, kind: str
) -> tuple[Output, str]:
    """Returns the output in one kind of score, and the signature of that kind."""
    lines, score_of, signature = sufficient_statistics(hypotheses, references, tgt_lang, kind)
    return Output(np.array(lines, dtype=np.float64), score_of), signature


def _compared(baseline: Output, system: Output, bootstrap: int, randomisation: int) -> dict[str, Any]:
    first, second, p_bootstrap = paired_bootstrap(baseline, system, bootstrap)
    return {
        "baseline": {"score": baseline.score, **first},
        "system": {"score": system.score, **second},
        "delta": system.score - baseline.score,
        "p_bootstrap": p_bootstrap,
        "p_randomisation": paired_randomisation(baseline, system, randomisation),
    }


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


def over_seeds(baseline: Mapping[Any, Output], system: Mapping[Any, Output], n_samples: int = BOOTSTRAP) -> Difference:
    """Compares mean scores over seeds: seeds are resampled first, then the lines of the text, the same for all.

    With two seeds or more in common the sides are compared seed by seed. n - 1 of n seeds are drawn, which makes the
    spread of their mean unbiased (Rao and Wu 1988). The interval is that of Student's t with the degrees of freedom of
    the seeds (Satterthwaite); few seeds bring it a heavy tail that the quantiles of resamples would miss. With one seed
    a side it is about the text alone and the models as they are.
    """
    shared = [seed for seed in baseline if seed in system]
    is_paired = len(shared) > 1
    sides = [[side[seed] for seed in (shared if is_paired else side)] for side in (system, baseline)]
    lines, generator = len(sides[0][0].lines), np.random.default_rng(SEED)
    drawn = np.empty(n_samples)
    for number in range(n_samples):
        places = generator.integers(lines, size=lines)
        seeds = _drawn_seeds(len(sides[0]), generator)
        others = seeds if is_paired else _drawn_seeds(len(sides[1]), generator)
        means = [
            np.mean([side[seed].score_of(side[seed].lines[places].sum(0)) for seed in of])
            for side, of in zip(sides, (seeds, others), strict=True)
        ]
        drawn[number] = means[0] - means[1]
    first, second = (np.array([one.score for one in side]) for side in sides)
    delta, variance = float(first.mean() - second.mean()), float(drawn.var(ddof=1))
    if variance < TIE**2:
        return Difference(delta, p=1.0 if abs(delta) < TIE else None)
    parts = [first - second] if is_paired else [one for one in (first, second) if len(one) > 1]
    of_seeds = [(float(one.var(ddof=1)) / len(one), len(one) - 1) for one in parts]
    df = float(lines - 1)
    if any(part for part, _ in of_seeds):
        df = min(df, max(1.0, variance**2 / sum(part**2 / freedom for part, freedom in of_seeds)))
    return interval(delta, math.sqrt(variance), df)


def _drawn_seeds(count: int, generator: np.random.Generator) -> np.ndarray:
    return generator.integers(count, size=count - 1) if count > 1 else np.zeros(1, dtype=int)


def significance_table(runs: Sequence[MeasuredRun], baseline: str, split: str, kinds: Sequence[str] = ()) -> Table:
    """Returns for every group of runs the difference from the baseline's group in each kind of score, line by line.

    It reads the hypotheses and references that `evaluate.py` wrote; no model is loaded. The p-values of the two paired
    tests are given where both have one seed.
    Raises ConfigError for a baseline that is none of these runs, RefusedError where translations are missing.
    """
    scores = [kind for kind in kinds if kind in METRIC_KINDS]
    if kinds and not scores:
        raise ConfigError(f"--metrics {','.join(kinds)}: resampling compares scores of text: {', '.join(METRIC_KINDS)}")
    metrics = metrics_of(runs, scores or ("sacrebleu", "chrf"), (split,))
    groups = group_runs(runs)
    base = find_baseline(groups, baseline)
    records: list[Record] = [{"group": group.name} | group.record() for group in groups]
    places = []
    for metric in metrics:
        for group, record in zip(groups, records, strict=True):
            record[metric.key] = group.sample(metric)
            if group is base or not group.sample(metric) or not comparable(metric, group, base):
                continue
            first, second = ({run.seed: _output(run, metric) for run in one.runs} for one in (base, group))
            record[f"{metric.key} difference"] = over_seeds(first, second)
            places.append((record, f"{metric.key} difference"))
            if len(first) == len(second) == 1:
                [one], [other] = first.values(), second.values()
                record[f"{metric.key} bootstrap"] = paired_bootstrap(one, other)[2]
                record[f"{metric.key} randomisation"] = paired_randomisation(one, other)
    for (record, key), difference in zip(places, holm([record[key] for record, key in places]), strict=True):
        record[key] = difference
    columns = [Column("group", "run"), Column("n", "n")]
    for metric in metrics:
        columns += [Column(metric.key, metric.title, 2), Column(f"{metric.key} difference", "difference", 2)]
        tests = [
            name for name in ("bootstrap", "randomisation") if any(f"{metric.key} {name}" in one for one in records)
        ]
        columns += [Column(f"{metric.key} {test}", f"p {test}", 4) for test in tests]
    after = (
        f"Differences are from {base.name} (n = {len(base.seeds)}), seed by seed where seeds are the same. Intervals "
        f"of 95 % are of seeds and then lines, resampled {BOOTSTRAP} times, with Student's t over the seeds; with one "
        f"seed on both sides they are about the text alone. p is corrected for {len(places)} comparisons (Holm). "
        "`p bootstrap` and `p randomisation` are those of sacreBLEU's paired tests, uncorrected."
    )
    return Table("Systems, line by line", columns, records, after=[after], name="systems")


def _output(run: MeasuredRun, metric: Metric) -> Output:
    stored = run.folder.evaluation(metric.split or "")
    try:
        hypotheses, references = read_lines(stored.hypotheses), read_lines(stored.reference)
        if run.evaluations[metric.split or ""].get("n_references", 1) != 1:
            raise DataError("scored with several references, of which one is stored")
        return output(hypotheses, references, str(run.options["data.tgt_lang"]), metric.name)[0]
    except (DataError, KeyError) as error:
        raise RefusedError(f"{stored.folder}: no translations to compare ({error}); run evaluate.py again") from error


def _p_value(samples: np.ndarray, observed: float) -> float:
    return float((np.sum(samples >= observed - TIE) + 1) / (len(samples) + 1))


def _half_interval(scores: np.ndarray) -> float:
    """Half of what 95 % of the resampled scores span."""
    ordered = np.sort(scores)
    cut = len(ordered) // 40
    return float(ordered[-cut - 1] - ordered[cut]) / 2
