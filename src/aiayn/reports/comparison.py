"""One's own runs as a table: grouped by what differs, with mean, spread and the difference from a baseline."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aiayn.config.tasks import VAL_METRICS
from aiayn.reports.differences import comparable, compare, find_baseline
from aiayn.reports.groups import Group, differing_options, group_runs, option_text, partitions
from aiayn.reports.intervals import Difference
from aiayn.reports.metrics import Metric, metrics_of
from aiayn.reports.published import BASE
from aiayn.reports.runs import SPLITS, MeasuredRun
from aiayn.reports.table import Column, Table
from aiayn.runs.run_folder import Record


@dataclass(frozen=True)
class Question:
    """What is asked of the runs."""

    by: Sequence[str] = ()  # options in which groups may differ; empty: all that do
    baseline: str | None = None  # a run or a group; None: the paper's base, where there is one
    metrics: Sequence[str] = ()  # empty: validation perplexity and the score to report
    splits: Sequence[str] = SPLITS
    is_pooled: bool = False  # one standard deviation for all groups, instead of Welch's test


def comparisons(runs: Sequence[MeasuredRun], question: Question) -> list[Table]:
    """Returns a table for all runs, or one for each text and signature that scores must not be compared across.

    Raises ConfigError for a metric, an option or a baseline that these runs do not have.
    """
    metrics = metrics_of(runs, question.metrics, question.splits)
    parts = [group_runs(members, question.by) for members in partitions(runs, metrics)]
    everything = [group for groups in parts for group in groups]
    named = find_baseline(everything, question.baseline) if question.baseline else None
    tables = [_comparison(groups, metrics, named, question.is_pooled) for groups in parts]
    if len(tables) > 1:
        tables[0].before.insert(
            0,
            f"{len(tables)} tables: scores of other languages, other text or another signature must not be compared.",
        )
    return tables


def default_baseline(groups: Sequence[Group]) -> Group | None:
    """Returns the group of the paper's base, at any width, if there is one and no more; else None."""
    bases = [group for group in groups if is_base(group)]
    return bases[0] if len(bases) == 1 and len(groups) > 1 else None


def is_base(group: Group) -> bool:
    config = group.runs[0].config
    rows = (BASE, BASE.quarter())
    return config is not None and any(row.is_of(config.model, config.optim.label_smoothing) for row in rows)


def _comparison(groups: list[Group], metrics: Sequence[Metric], named: Group | None, is_pooled: bool) -> Table:
    base = named if named in groups else None if named else default_baseline(groups)
    metrics = [metric for metric in metrics if any(group.sample(metric) for group in groups)]
    differences = compare(groups, metrics, lambda _: base, is_pooled)
    options = differing_options(groups)
    records = []
    for place, group in enumerate(groups):
        record = group_record(group, options)
        for metric in metrics:
            record |= {
                metric.key: group.sample(metric),
                f"{metric.key} difference": differences.get((place, metric.key)),
            }
        records.append(record)
    columns = [Column("group", "run"), *option_columns(options), Column("n", "n")]
    for metric in metrics:
        digits = 2 if metric.split or metric.name in ("val/ppl", *VAL_METRICS) else None
        columns.append(Column(metric.key, metric.title, digits))
        if base is not None:
            columns.append(Column(f"{metric.key} difference", "difference", digits))
    table = Table("Runs by what differs", columns, records)
    if base is not None:
        of_base = next(record for record, group in zip(records, groups, strict=True) if group is base)
        of_base["baseline"] = True
        table.after += explained(
            f"{base.name} ({len(base.seeds)} {_seeds(base)})", list(differences.values()), is_pooled
        )
        table.after += [
            f"{metric.title} is not compared across vocabularies, texts and losses."
            for metric in metrics
            if any(not comparable(metric, group, base) for group in groups)
        ]
    elif len(groups) > 1:
        elsewhere = f"the baseline {named.name} was scored on other text" if named else "name one with --baseline"
        table.after.append(f"No baseline: {elsewhere}.")
    if any(len(group.seeds) == 1 for group in groups):
        table.after.append("n counts seeds. One run has no spread: nothing is claimed of n = 1" + SHARED * is_pooled)
    return table


SHARED = ", unless all groups share one standard deviation, as assumed here"


def _seeds(group: Group) -> str:
    return "seed" if len(group.seeds) == 1 else "seeds"


def group_record(group: Group, options: Sequence[str]) -> Record:
    """Returns a group's name, runs and seeds, and the options as text."""
    return {"group": group.name} | group.record() | {key: option_text(group.options.get(key)) for key in options}


def option_columns(options: Sequence[str]) -> list[Column]:
    """Returns a column for each option, headed by its name without the section where that is enough."""
    short = [key.rpartition(".")[2] for key in options]
    titles = [name if short.count(name) == 1 else key for key, name in zip(options, short, strict=True)]
    return [Column(key, title) for key, title in zip(options, titles, strict=True)]


def explained(baseline: str, differences: Sequence[Difference], is_pooled: bool) -> list[str]:
    """Returns how differences and their intervals were made, in one line."""
    tested = [one for one in differences if one.p is not None]
    if not tested:
        return [f"Differences are from {baseline}; without two seeds on both sides there is no interval."]
    freedom = f", pooled over all groups, {tested[0].df:g} degrees of freedom" if is_pooled else " (Welch)"
    return [
        f"Differences are from {baseline}, with 95 % intervals of Student's t{freedom}; p is corrected for "
        f"{len(tested)} comparisons (Holm), and what stays below 0.05 is marked."
    ]


def by_row(groups: Sequence[Group], row_keys: Callable[[str], bool]) -> Callable[[Group], Group | None]:
    """Returns a function that finds a group's own base: the one that differs from it only in what a row changes."""
    bases = [group for group in groups if is_base(group)]

    def base_of(group: Group) -> Group | None:
        found = [base for base in bases if all(row_keys(key) for key in differing_options([group, base]))]
        return found[0] if found else None

    return base_of
