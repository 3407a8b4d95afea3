"""One's own runs as a table: grouped by what differs, with mean, spread and the difference from a
baseline.
"""

import math
from collections.abc import Mapping, Sequence

from aiayn.config.stored import short_names
from aiayn.reports.differences import Comparison, Difference, compare, corrected, explained
from aiayn.reports.groups import (
    Group,
    comparable,
    differing_options,
    find_baseline,
    group_runs,
    option_text,
    partitions,
)
from aiayn.reports.metrics import Metric, asked_metrics, record_keys, usual_metrics
from aiayn.reports.published import BASE, GERMAN
from aiayn.reports.runs import SPLITS, MeasuredRun
from aiayn.reports.tables import Column, Table
from aiayn.runs.run_folder import Record

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
    shown = asked_metrics(runs, metrics, splits)
    parts = [group_runs(members, by) for members in partitions(runs, shown)]
    all_groups = [group for groups in parts for group in groups]
    named = find_baseline(all_groups, baseline) if baseline else None
    tables = [_comparison(groups, shown, named) for groups in parts]
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
) -> dict[Metric, Comparison]:
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
    metric = next((one for one in metrics if any(group.sample(one) for group in groups)), None)
    sign = 1 if metric and metric.lower_is_better else -1

    def rank(group: Group) -> float:
        sample = group.sample(metric)
        return sign * sample.mean if sample else math.inf

    return sorted(groups, key=rank)


def _comparison(groups: list[Group], metrics: Sequence[Metric], named: Group | None) -> Table:
    base = default_baseline(groups) if named is None else named if named in groups else None
    keys = record_keys(
        [metric for metric in metrics if any(group.sample(metric) for group in groups)]
    )
    options = differing_options(groups)
    # The correction is for the usual metrics, too, so that no star is bought by asking for fewer.
    usual = usual_metrics([run for group in groups for run in group.runs])
    compared = (
        {} if base is None else compare_groups(groups, [*dict.fromkeys([*keys, *usual])], base)
    )
    differences = corrected(compared)

    columns = [Column("group", "run"), *option_columns(options), Column("n")]
    for metric, key in keys.items():
        columns.append(Column(key, metric.title, metric.decimals))
        if metric.ratio and any(group.sample(metric.ratio) for group in groups):
            columns.append(Column(metric.ratio.key, "length ratio", 3))
        if base is not None:
            columns.append(Column(f"{key} difference", "difference", metric.decimals))

    after = _remarks(groups, base, named, keys, compared, differences)
    if len(groups) > MANY:
        scores_first = sorted(
            keys, key=lambda metric: (metric.split is None, metric.split == "test")
        )
        groups = best_first(groups, scores_first)
        after.append(f"The best {MANY} of {len(groups)} groups; CSV and JSON have all.")
    records = [_record(group, options, keys, differences, base) for group in groups]
    table = Table("Runs by what differs", columns, records[:MANY], after=after, name="groups")
    table.folded = records[MANY:]
    return table


def _record(
    group: Group,
    options: Sequence[str],
    keys: Mapping[Metric, str],
    differences: Mapping[Metric, Mapping[str, Difference]],
    base: Group | None,
) -> Record:
    record: Record = {"group": group.name} | group.record()
    record |= {key: option_text(group.options[key]) for key in options if key in group.options}
    for metric, key in keys.items():
        record[key] = group.sample(metric)
        if metric.ratio:
            record[metric.ratio.key] = group.sample(metric.ratio)
        if base is not None:
            record[f"{key} difference"] = differences.get(metric, {}).get(group.path)
    if group is base:
        record["baseline"] = True
    return record


def _remarks(
    groups: Sequence[Group],
    base: Group | None,
    named: Group | None,
    keys: Mapping[Metric, str],
    compared: Mapping[Metric, Comparison],
    differences: Mapping[Metric, Mapping[str, Difference]],
) -> list[str]:
    """Return what the table says below its rows: how differences were tested, and what is not
    compared.
    """
    remarks = []
    if base is not None:
        shown = {metric.title: compared[metric] for metric in keys if metric in compared}
        remarks += explained(f"{base.name} ({counted_seeds(base)})", shown, differences)
        for metric in keys:
            measured = [group for group in groups if group.sample(metric)]
            if not all(comparable(metric, group, base) for group in measured):
                remarks.append(
                    f"{metric.title} is not compared across vocabularies, texts and losses."
                )
    elif len(groups) > 1:
        reason = (
            f"the baseline {named.name} was scored on other text"
            if named
            else "name one with --baseline"
        )
        remarks.append(f"No baseline: {reason}.")
    if any(len(group.seeds) == 1 for group in groups):
        remarks.append("n counts seeds. One run has no spread, and so no interval.")
    return remarks


def counted_seeds(group: Group) -> str:
    return f"{len(group.seeds)} seed{'s' * (len(group.seeds) != 1)}"


def option_columns(options: Sequence[str]) -> list[Column]:
    return [Column(key, title) for key, title in zip(options, short_names(options), strict=True)]
