"""One's own runs as a table: grouped by what differs, with mean, spread and the difference from a baseline."""

from collections.abc import Sequence

from aiayn.config.stored import short_names
from aiayn.reports.differences import Comparison, compare, corrected, explained
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


def comparisons(
    runs: Sequence[MeasuredRun],
    by: Sequence[str] = (),
    baseline: str | None = None,
    metrics: Sequence[str] = (),
    splits: Sequence[str] = SPLITS,
) -> list[Table]:
    """Returns a table for all runs, or one for each text and signature that scores must not be compared across.

    `by` are the options in which groups may differ, by default all that do; `baseline` is a run or a group, by default
    the paper's base, where there is one; `metrics` are by default validation perplexity and the score to report.

    Raises ConfigError for a metric, an option or a baseline that these runs do not have.
    """
    asked = asked_metrics(runs, metrics, splits)
    parts = [group_runs(members, by) for members in partitions(runs, asked)]
    everything = [group for groups in parts for group in groups]
    named = find_baseline(everything, baseline) if baseline else None
    tables = [_comparison(groups, asked, named) for groups in parts]
    for number, table in enumerate(tables[1:], start=2):
        table.name += f"_{number}"
    if len(tables) > 1:
        why = "scores of other languages, other text or another signature must not be compared."
        tables[0].before.insert(0, f"{len(tables)} tables: {why}")
    return tables


def default_baseline(groups: Sequence[Group]) -> Group | None:
    """Returns the group of the paper's base, at any width, if there is one and no more; else None."""
    rows = (BASE, BASE.quarter())
    # In any languages: rows of Table 3 are English-German.
    bases = [group for group in groups if any(row.is_of(group.runs[0].options | GERMAN) for row in rows)]
    return bases[0] if len(bases) == 1 and len(groups) > 1 else None


def compare_groups(groups: Sequence[Group], metrics: Sequence[Metric], base: Group) -> dict[Metric, Comparison]:
    """Compares every metric that has the same unit in a group and the baseline. Groups go by their first run's path."""
    found = {}
    for metric in metrics:
        samples = {group.path: sample for group in groups if (sample := group.sample(metric))}
        if base.path in samples:
            alike = {group.path for group in groups if comparable(metric, group, base)}
            of_one_unit = {path: sample for path, sample in samples.items() if path in alike}
            found[metric] = compare(of_one_unit, base.path)
    return found


def _comparison(groups: list[Group], metrics: Sequence[Metric], named: Group | None) -> Table:
    base = named if named in groups else None if named else default_baseline(groups)
    keys = record_keys([metric for metric in metrics if any(group.sample(metric) for group in groups)])
    options = differing_options(groups)
    columns = [Column("group", "run"), *option_columns(options), Column("n", "n")]
    for metric, key in keys.items():
        columns.append(Column(key, metric.title, metric.digits))
        if metric.ratio and any(group.sample(metric.ratio) for group in groups):
            columns.append(Column(metric.ratio.key, "length ratio", 3))
        if base is not None:
            columns.append(Column(f"{key} difference", "difference", metric.digits))
    # The correction is for the usual metrics, too, so that no star is bought by asking for fewer.
    usual = usual_metrics([run for group in groups for run in group.runs])
    found = {} if base is None else compare_groups(groups, [*dict.fromkeys([*keys, *usual])], base)
    differences = corrected(found)
    records = []
    for group in groups:
        record = {"group": group.name} | group.record()
        record |= {key: option_text(group.options[key]) for key in options if key in group.options}
        for metric, key in keys.items():
            record[key] = group.sample(metric)
            record |= {metric.ratio.key: group.sample(metric.ratio)} if metric.ratio else {}
            if base is not None:
                record[f"{key} difference"] = differences.get(metric, {}).get(group.path)
        records.append(record | ({"baseline": True} if group is base else {}))
    after = []
    if base is not None:
        compared = {metric.title: found[metric] for metric in keys if metric in found}
        after += explained(f"{base.name} ({counted_seeds(base)})", compared, differences)
        after += [
            f"{metric.title} is not compared across vocabularies, texts and losses."
            for metric in keys
            if any(not comparable(metric, group, base) for group in groups if group.sample(metric))
        ]
    elif len(groups) > 1:
        elsewhere = f"the baseline {named.name} was scored on other text" if named else "name one with --baseline"
        after.append(f"No baseline: {elsewhere}.")
    if any(len(group.seeds) == 1 for group in groups):
        after.append("n counts seeds. One run has no spread: nothing is claimed of n = 1.")
    return Table("Runs by what differs", columns, records, after=after, name="groups")


def counted_seeds(group: Group) -> str:
    return f"{len(group.seeds)} seed{'s' * (len(group.seeds) != 1)}"


def option_columns(options: Sequence[str]) -> list[Column]:
    return [Column(key, title) for key, title in zip(options, short_names(options), strict=True)]
