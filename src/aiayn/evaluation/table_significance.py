"""Systems of a table compared line by line: every group of runs against the baseline, over their seeds.

It reads the hypotheses and references that `evaluate.py` wrote into the runs' folders; no model is loaded.
"""

from collections.abc import Sequence

from aiayn.data.text_files import read_lines
from aiayn.errors import ConfigError, DataError, RefusedError
from aiayn.evaluation.significance import BOOTSTRAP, Output, output, over_seeds, paired_bootstrap, paired_randomisation
from aiayn.reports.differences import comparable, find_baseline
from aiayn.reports.groups import Group, group_runs
from aiayn.reports.intervals import holm
from aiayn.reports.metrics import Metric, metrics_of
from aiayn.reports.runs import MeasuredRun
from aiayn.reports.table import Column, Table
from aiayn.runs.run_folder import METRIC_KINDS, Record


def significance_table(runs: Sequence[MeasuredRun], baseline: str, split: str, kinds: Sequence[str] = ()) -> Table:
    """Returns for every group the difference from the baseline's group in each kind of score.

    The interval is over seeds and lines; the p-values of the two paired tests are given where both have one seed.
    Raises ConfigError for a baseline that is none of these runs, RefusedError where translations are missing.
    """
    scores = [kind for kind in kinds if kind in METRIC_KINDS]
    if kinds and not scores:
        raise ConfigError(f"--metrics {','.join(kinds)}: resampling compares scores of text: {', '.join(METRIC_KINDS)}")
    metrics = metrics_of(runs, scores or ("sacrebleu", "chrf"), (split,))
    groups = group_runs(runs)
    base = find_baseline(groups, baseline)
    records, places = [], []
    for group in groups:
        record: Record = {"group": group.name} | group.record()
        for metric in metrics:
            record[metric.key] = group.sample(metric)
            if group is not base and group.sample(metric) and comparable(metric, group, base):
                found = _compared(base, group, metric)
                record |= {f"{metric.key} {name}": value for name, value in found.items()}
                places.append((record, f"{metric.key} difference"))
        records.append(record)
    corrected = holm([record[key] for record, key in places])
    for (record, key), difference in zip(places, corrected, strict=True):
        record[key] = difference
    return Table("Systems, line by line", _columns(metrics, records), records, after=_explained(base, len(places)))


def _compared(base: Group, group: Group, metric: Metric) -> Record:
    first, second = ([_output(run, metric) for run in one.runs] for one in (base, group))
    found: Record = {"difference": over_seeds(first, second)}
    if len(first) == len(second) == 1:
        found["bootstrap"] = paired_bootstrap(first[0], second[0])[2]
        found["randomisation"] = paired_randomisation(first[0], second[0])
    return found


def _output(run: MeasuredRun, metric: Metric) -> Output:
    stored = run.folder.evaluation(metric.split or "")
    try:
        hypotheses, references = read_lines(stored.hypotheses), read_lines(stored.reference)
        if run.evaluations[metric.split or ""].get("n_references", 1) != 1:
            raise DataError("scored with several references, of which one is stored")
        return output(hypotheses, references, str(run.options["data.tgt_lang"]), metric.name)[0]
    except (DataError, KeyError) as error:
        raise RefusedError(f"{stored.folder}: no translations to compare ({error}); run evaluate.py again") from error


def _columns(metrics: Sequence[Metric], records: Sequence[Record]) -> list[Column]:
    columns = [Column("group", "run"), Column("n", "n")]
    for metric in metrics:
        columns += [Column(metric.key, metric.title, 2), Column(f"{metric.key} difference", "difference", 2)]
        for test in ("bootstrap", "randomisation"):
            if any(f"{metric.key} {test}" in record for record in records):
                columns.append(Column(f"{metric.key} {test}", f"p {test}", 4))
    return columns


def _explained(base: Group, comparisons: int) -> list[str]:
    return [
        f"Differences are from {base.name} (n = {len(base.seeds)}). Intervals of 95 % are of resampled seeds and then "
        f"lines, {BOOTSTRAP} times, with Student's t over the seeds; with one seed on both sides they are about the "
        f"text alone. p is corrected for {comparisons} comparisons (Holm). `p bootstrap` and `p randomisation` are "
        "those of sacreBLEU's paired tests, uncorrected."
    ]
