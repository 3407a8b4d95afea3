"""Compares runs in a table: groups of seeds, their means and differences from a baseline."""

import math
from collections.abc import Sequence

from aiayn.config.stored import short_names
from aiayn.errors import counted
from aiayn.reports.differences import Difference, compare, corrected, explained
from aiayn.reports.groups import (
    Group,
    comparable,
    differing_options,
    find_baseline,
    group_runs,
    option_text,
    partitions,
)
from aiayn.reports.published import BASE, GERMAN
from aiayn.reports.runs import SPLITS, MeasuredRun
from aiayn.reports.table_metrics import Metric, asked_metrics, record_keys, usual_metrics
from aiayn.reports.tables import Column, Table
from aiayn.runs.run_folder import Record

TITLE = "Runs, grouped by the options that differ"
MANY = 40  # groups: with more of them the best come first, and the others are folded


def comparisons(
    runs: Sequence[MeasuredRun],
    by: Sequence[str] = (),
    baseline: str | None = None,
    metrics: Sequence[str] = (),
    splits: Sequence[str] = SPLITS,
) -> list[Table]:
    """Return a table for all runs, or one for each text and signature that scores must not be
    compared across.

    `by` are the options in which groups may differ, by default all that do; `baseline` is a run or
    a group, by default the paper's base, where there is one; `metrics` are by default validation
    perplexity and the score to report.

    Raises ConfigError for a metric, an option or a baseline that these runs do not have.
    """
    asked = asked_metrics(runs, metrics, splits)
    parts = [group_runs(members, by) for members in partitions(runs, asked)]
    return compare_parts(parts, asked, baseline)


def compare_parts(
    parts: Sequence[list[Group]], metrics: Sequence[Metric], baseline: str | None = None
) -> list[Table]:
    """Return a table for each part, as `comparisons` does for runs."""
    all_groups = [group for groups in parts for group in groups]
    base = find_baseline(all_groups, baseline) if baseline else None
    tables = [_comparison(groups, metrics, base) for groups in parts]
    for number, table in enumerate(tables[1:], start=2):
        table.name += f"_{number}"
    if len(tables) > 1:
        why = "scores of other languages, other text or another signature must not be compared."
        tables[0].before.insert(0, f"{len(tables)} tables: {why}")
    return tables


def default_baseline(groups: Sequence[Group]) -> Group | None:
    """Return the group of the paper's base, at any width, if there is one and no more; else
    None.
    """
    rows = (BASE, BASE.quarter())
    # In any languages: rows of Table 3 are English-German.
    bases = [
        group for group in groups if any(row.is_of(group.runs[0].options | GERMAN) for row in rows)
    ]
    return bases[0] if len(bases) == 1 and len(groups) > 1 else None


def compare_groups(
    groups: Sequence[Group], metrics: Sequence[Metric], base: Group
) -> dict[Metric, dict[str, Difference]]:
    """Compare every metric that has the same unit in a group and the baseline. Groups go by their
    first run's path.
    """
    by_metric = {}
    for metric in metrics:
        samples = {
            group.path: sample
            for group in groups
            if (sample := group.sample(metric)) and comparable(metric, group, base)
        }
        if base.path in samples:
            by_metric[metric] = compare(samples, base.path)
    return by_metric


def best_first(groups: Sequence[Group], metrics: Sequence[Metric]) -> list[Group]:
    """Return the groups by the first metric that any of them has, the best first, those without it
    last.
    """
    for metric in metrics:
        samples = {group.path: group.sample(metric) for group in groups}
        means = {path: sample.mean for path, sample in samples.items() if sample}
        if means:
            sign = 1 if metric.lower_is_better else -1
            return sorted(groups, key=lambda group: sign * means.get(group.path, sign * math.inf))
    return [*groups]


def _comparison(groups: list[Group], metrics: Sequence[Metric], named_base: Group | None) -> Table:
    base = named_base or default_baseline(groups)
    if base not in groups:
        base = None
    measured_metrics = [
        metric for metric in metrics if any(group.sample(metric) for group in groups)
    ]
    keys = record_keys(measured_metrics)
    options = differing_options(groups)
    differences: dict[Metric, dict[str, Difference]] = {}
    remarks = []
    if base:
        # The correction is for the usual metrics, too, so that no star is bought by asking for
        # fewer.
        usual = usual_metrics([run for group in groups for run in group.runs])
        compared_metrics = [*dict.fromkeys([*measured_metrics, *usual])]
        differences = corrected(compare_groups(groups, compared_metrics, base))
        remarks = explained(f"{base.name} ({counted_seeds(base)})", differences)
        remarks += _not_compared(groups, measured_metrics, base)
    elif named_base:
        remarks.append(f"No baseline: {named_base.name} was scored on other text.")
    elif len(groups) > 1:
        remarks.append("No baseline: choose one with aiayn table --baseline NAME.")
    if any(len(group.seeds) == 1 for group in groups):
        remarks.append(
            "n is the number of seeds. A single run has neither standard deviation nor interval."
        )

    columns = [Column("group", "run"), *option_columns(options), Column("n")]
    for metric, key in keys.items():
        columns.append(Column(key, metric.title, metric.decimals))
        if metric.ratio and any(group.sample(metric.ratio) for group in groups):
            columns.append(Column(metric.ratio.key, "length ratio", 3))
        if base:
            columns.append(Column(f"{key} difference", "difference", metric.decimals))
    if len(groups) > MANY:
        # Scores before series, and those of the development set before those of the test set.
        ranking = sorted(keys, key=lambda metric: (metric.split is None, metric.split == "test"))
        groups = best_first(groups, ranking)

    records = []
    for group in groups:
        record: Record = {"group": group.name} | group.record()
        record |= {key: option_text(group.options[key]) for key in options if key in group.options}
        for metric, key in keys.items():
            record[key] = group.sample(metric)
            if metric.ratio:
                record[metric.ratio.key] = group.sample(metric.ratio)
            if base:
                record[f"{key} difference"] = differences.get(metric, {}).get(group.path)
        if group is base:
            record["baseline"] = True
        records.append(record)
    table = Table(TITLE, columns, records[:MANY], after=remarks, name="groups")
    table.folded = records[MANY:]
    return table


def _not_compared(groups: Sequence[Group], metrics: Sequence[Metric], base: Group) -> list[str]:
    """Return a line for each metric whose unit differs between a group and the baseline."""
    lines = []
    for metric in metrics:
        measured_groups = [group for group in groups if group.sample(metric)]
        if not all(comparable(metric, group, base) for group in measured_groups):
            lines.append(f"{metric.title} is not compared across vocabularies, texts and losses.")
    return lines


def counted_seeds(group: Group) -> str:
    return counted(len(group.seeds), "seed")


def option_columns(options: Sequence[str]) -> list[Column]:
    return [Column(key, title) for key, title in zip(options, short_names(options), strict=True)]
