"""Compares runs in a table: groups of seeds, their means and differences from a baseline."""

import math
from collections.abc import Sequence
from typing import Any

from aiayn.config.stored import short_names
from aiayn.config.tasks import FORCED_KINDS, TASKS
from aiayn.errors import ConfigError, counted
from aiayn.reports.differences import Difference, compare, corrected, explained
from aiayn.reports.groups import (
    Group,
    differing_options,
    find_baseline,
    group_runs,
    option_text,
    partitions,
)
from aiayn.reports.published import BASE, GERMAN
from aiayn.reports.runs import SPLITS, MeasuredRun, Metric
from aiayn.reports.tables import Column, Table
from aiayn.runs.run_folder import Record

TITLE = "Runs, grouped by the options that differ"
MANY = 40  # groups: with more of them the best come first, and only these are shown
ALIASES = {"accuracy": "val/accuracy"}  # short names of series


def comparisons(
    runs: Sequence[MeasuredRun],
    by: Sequence[str] = (),
    baseline: str | None = None,
    metrics: Sequence[str] = (),
    splits: Sequence[str] = SPLITS,
) -> list[Table]:
    """Returns a table for all runs, or one for each text and signature that scores must not be
    compared across.

    `by` are the options in which groups may differ, by default all that do; `baseline` is a run or
    a group, by default the paper's base, where there is one; `metrics` are by default validation
    perplexity and the score to report.

    Raises ConfigError for a metric, an option or a baseline that these runs do not have.
    """
    chosen = chosen_metrics(runs, metrics, splits)
    parts = [group_runs(members, by) for members in partitions(runs, chosen)]
    return compare_parts(parts, chosen, baseline)


def compare_parts(
    parts: Sequence[list[Group]], metrics: Sequence[Metric], baseline: str | None = None
) -> list[Table]:
    """Returns a table for each part, as `comparisons` does for runs."""
    all_groups = [group for groups in parts for group in groups]
    base = find_baseline(all_groups, baseline) if baseline else None
    tables = [_comparison(groups, metrics, base) for groups in parts]
    for number, table in enumerate(tables[1:], start=2):
        table.name += f"_{number}"
    if len(tables) > 1:
        tables[0].before = [
            f"{len(tables)} tables: scores of different languages, texts or signatures must not "
            "be compared."
        ]
    return tables


def chosen_metrics(
    runs: Sequence[MeasuredRun], names: Sequence[str], splits: Sequence[str]
) -> list[Metric]:
    """Returns the metrics with these names, a score for every split on which a run has it; else the
    usual ones.

    Raises ConfigError for unknown metrics.
    """
    if not names:
        return [metric for metric in usual_metrics(runs) if metric.split in (None, *splits)]
    metrics = []
    for name in names:
        candidates = [Metric(ALIASES.get(name, name), split) for split in (None, *splits)]
        measured = [
            metric for metric in candidates if any(metric.of(run) is not None for run in runs)
        ]
        if not measured:
            known = {key for run in runs for record in run.records for key in record if "/" in key}
            for run in runs:
                for split, evaluation in run.evaluations.items():
                    if split in splits:
                        known |= {*evaluation.metrics, *FORCED_KINDS}
            where = f" with --split {splits[0]}" if len(splits) == 1 else ""
            raise ConfigError(
                f"--metrics {name}: not measured in these runs{where}; choose from "
                f"{', '.join(sorted(known))}"
            )
        metrics += measured
    return metrics


def usual_metrics(runs: Sequence[MeasuredRun]) -> list[Metric]:
    """Returns validation perplexity, and the score to report of every split."""
    names = sorted({TASKS[run.task].metric for run in runs})
    return [Metric("val/ppl"), *(Metric(name, split) for name in names for split in SPLITS)]


def compare_groups(
    groups: Sequence[Group], metrics: Sequence[Metric], base: Group
) -> dict[Metric, dict[str, Difference]]:
    """Compares every metric that has the same unit in a group and the baseline. Groups go by their
    first run's path.
    """
    by_metric = {}
    for metric in metrics:
        samples = {
            group.path: sample
            for group in groups
            if (sample := group.sample(metric)) and group.is_comparable(base, metric)
        }
        if base.path in samples:
            by_metric[metric] = compare(samples, base.path)
    return by_metric


def best_first(groups: Sequence[Group], metrics: Sequence[Metric]) -> list[Group]:
    """Returns the groups by the first metric that any of them has, the best first, those without it
    last.
    """
    for metric in metrics:
        samples = {group.path: group.sample(metric) for group in groups}
        sign = 1 if metric.entry.lower_is_better else -1
        ranks = {path: sign * sample.mean for path, sample in samples.items() if sample}
        if ranks:
            return sorted(groups, key=lambda group: ranks.get(group.path, math.inf))
    return [*groups]


def _comparison(groups: list[Group], metrics: Sequence[Metric], named_base: Group | None) -> Table:
    base = named_base or _default_baseline(groups)
    if base not in groups:
        base = None
    metrics = [metric for metric in metrics if any(group.sample(metric) for group in groups)]
    differences = {}
    remarks = []
    if base:
        # The correction also counts the usual metrics: choosing fewer must not make a difference
        # significant. Scores of one split, such as kinds of BLEU, stand for one another.
        usual = usual_metrics([run for group in groups for run in group.runs])
        scored = {metric.split for metric in metrics} - {None}
        left_out = [
            metric for metric in usual if metric not in metrics and metric.split not in scored
        ]
        differences = corrected(compare_groups(groups, [*metrics, *left_out], base))
        remarks = explained(f"{base.name} ({counted(len(base.seeds), 'seed')})", differences)
        if not_shown := [metric.title for metric in left_out if metric in differences]:
            remarks.append(f"The correction also counts {', '.join(not_shown)}, not shown.")
        remarks += [
            f"{metric.title} is not compared across vocabularies, texts and losses."
            for metric in metrics
            if not all(base.is_comparable(group, metric) for group in groups)
        ]
    elif named_base:
        remarks.append(f"No baseline: {named_base.name} was scored on other text.")
    elif len(groups) > 1:
        remarks.append("No baseline: choose one with aiayn table --baseline NAME.")
    if any(len(group.seeds) == 1 for group in groups):
        remarks.append(
            "n is the number of seeds. A single run has neither standard deviation nor interval."
        )
    if len(groups) > MANY:
        # Scores before series, and those of the development set before those of the test set.
        ranking = sorted(metrics, key=lambda metric: (metric.split is None, metric.split == "test"))
        remarks.append(f"The best {MANY} of {len(groups)}; CSV and JSON list all.")
        groups = best_first(groups, ranking)

    options = differing_options(groups)
    columns = [Column("group", "run"), *option_columns(options), Column("n")]
    records: list[Record] = []
    for group in groups:
        record = {"group": group.name, **group.record()}
        record |= {key: option_text(group.options[key]) for key in options if key in group.options}
        if group is base:
            record["baseline"] = True
        records.append(record)

    def add(column: Column, values: list[Any]) -> None:
        columns.append(column)
        for record, value in zip(records, values, strict=True):
            record[column.key] = value

    scores = {metric.key for metric in metrics if metric.split}
    for metric in metrics:
        key = metric.key
        if metric.split is None and key in scores:  # as val/f1 may be
            key += " (series)"
        decimals = metric.entry.decimals
        add(Column(key, metric.title, decimals), [group.sample(metric) for group in groups])
        if base:
            of_metric = differences.get(metric, {})
            column = Column(f"{key} difference", "difference", decimals)
            add(column, [of_metric.get(group.path) for group in groups])
        ratios = [group.sample(metric.ratio) for group in groups]
        if any(ratios):
            add(Column(metric.ratio.key, "length ratio", 3), ratios)
    return Table(TITLE, columns, records, after=remarks, name="groups", selected=records[:MANY])


def _default_baseline(groups: Sequence[Group]) -> Group | None:
    """Returns the group of the paper's base, at any width, if there is one and no more; else
    None.
    """
    rows = (BASE, BASE.quarter())
    # In any languages: rows of Table 3 are English-German.
    bases = [
        group for group in groups if any(row.is_of(group.runs[0].options | GERMAN) for row in rows)
    ]
    return bases[0] if len(bases) == 1 and len(groups) > 1 else None


def option_columns(options: Sequence[str]) -> list[Column]:
    return [Column(key, title) for key, title in zip(options, short_names(options), strict=True)]
