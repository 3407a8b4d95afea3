"""report.html of a sweep: its groups with the numbers of `aiayn table`, the curves of the best,
then its runs.
"""

from collections.abc import Sequence
from pathlib import Path

from aiayn.config.tasks import TASKS, VAL_METRICS
from aiayn.errors import RefusedError, counted
from aiayn.reports.comparison import MANY, best_first, compare_parts, option_columns
from aiayn.reports.groups import (
    Group,
    differing,
    group_runs,
    option_text,
    partitions,
)
from aiayn.reports.page import link, render_page
from aiayn.reports.plots import Runs, panel_svg, panels
from aiayn.reports.runs import NAMING, SPLITS, MeasuredRun, read_runs
from aiayn.reports.table_metrics import Metric, record_keys, usual_metrics
from aiayn.reports.tables import Column, Table
from aiayn.runs.results import last_step, read_samples
from aiayn.runs.run_folder import Record

MAX_CURVES = 12  # groups whose curves and samples are shown
SCORES = [Metric(names.metric, split) for split in SPLITS for names in TASKS.values()]
SERIES = [Metric("val/ppl"), *map(Metric, VAL_METRICS)]
TITLES = {metric: metric.title for metric in (*SERIES, *SCORES)}
TITLES |= {Metric(name): f"{name} (greedy)" for name in VAL_METRICS}


def sweep_page(folder: Path) -> str:
    """Return the whole page. Raises RefusedError for a folder without a readable run."""
    runs, notes = read_runs([folder])
    if not runs:
        raise RefusedError("; ".join(notes))
    options = [run.options for run in runs]
    varied = [key for key in differing(options) if key not in NAMING]
    shared = {
        key: option_text(value)
        for key, value in options[0].items()
        if key not in varied and key not in NAMING
    }
    parts = partitions(runs, SCORES)
    groups_of_parts = [group_runs(members) for members in parts]
    groups = [group for members in groups_of_parts for group in members]
    tables = compare_parts(groups_of_parts, usual_metrics(runs)) if len(runs) > 1 else []
    best, curves_of = groups, ""
    if len(groups) > MAX_CURVES:
        best = best_first(groups, [*SCORES, *SERIES])[:MAX_CURVES]
        curves_of = f" of the best {len(best)} groups"
    curves = _curves(best, groups, folder)
    charts = panels(curves)
    steps = max(last_step(run.records) for run in runs)
    are_few = len(runs) <= MANY
    sampled = runs if are_few else [group.runs[0] for group in best]
    return render_page(
        "sweep.html",
        title=folder.resolve().name,
        about=[f"{counted(len(runs), 'run')} in {counted(len(groups), 'group')}"],
        groups=[table for table in tables if len(table.columns) > 3],  # with measurements
        runs=[_runs_table(members, folder, varied) for members in parts],
        n_runs=len(runs),
        few=are_few,
        names=[*curves] if len(groups) > 1 and charts else [],
        curves_of=curves_of,
        panels=[(panel, panel_svg(panel, steps)) for panel in charts],
        samples=_samples(sampled, folder),
        notes=notes,
        machines=_machines(runs, folder),
        shared=shared,
    )


def _name(run: MeasuredRun, folder: Path) -> str:
    return run.folder.path.relative_to(folder).as_posix()


def _runs_table(runs: Sequence[MeasuredRun], folder: Path, varied: Sequence[str]) -> Table:
    """Return one row per run."""
    keys = record_keys([*TITLES])
    records = []
    for run in runs:
        name, page = _name(run, folder), run.folder.report
        record: Record = {"run": link(f"{name}/{page.name}", name) if page.exists() else name}
        record["step"] = last_step(run.records)
        record |= {key: metric.of(run) for metric, key in keys.items()}
        record |= {key: option_text(run.options.get(key)) for key in varied}
        records.append(record)
    columns = [Column("run"), Column("step")]
    for metric, key in keys.items():
        if any(record[key] is not None for record in records):
            columns.append(Column(key, TITLES[metric], 2))
    return Table("Runs", [*columns, *option_columns(varied)], records)


def _curves(shown: Sequence[Group], groups: Sequence[Group], folder: Path) -> dict[str, Runs]:
    """Return what each group measured by its name, that of the first run where several groups have
    one name.
    """
    all_names = [group.name for group in groups]
    curves: dict[str, Runs] = {}
    for group in shown:
        name = _name(group.runs[0], folder)
        n_seeds = len(group.seeds)
        if n_seeds > 1:
            name = group.name if all_names.count(group.name) == 1 else name
            name += f" ({n_seeds} seeds)"
        curves[name] = [(run.seed, run.records) for run in group.runs]
    return curves


def _samples(runs: Sequence[MeasuredRun], folder: Path) -> dict[tuple[str, str], dict[str, str]]:
    """Return the last translations of every validation sentence, by run."""
    by_sentence: dict[tuple[str, str], dict[str, str]] = {}
    for run in runs:
        for sample in read_samples(run.folder.samples):
            by_run = by_sentence.setdefault((sample["source"], sample["reference"]), {})
            by_run[_name(run, folder)] = sample["hypothesis"]
    return by_sentence


def _machines(runs: Sequence[MeasuredRun], folder: Path) -> Table:
    """Return what the runs computed on, a row for each machine."""
    runs_of: dict[str, list[MeasuredRun]] = {}
    for run in runs:
        runs_of.setdefault(str(run.machine), []).append(run)
    records: list[Record] = []
    for first, *others in runs_of.values():
        name = _name(first, folder)
        if others:
            name += f" and {len(others)} more"
        facts = {key: option_text(value) for key, value in first.machine.items() if value}
        records.append({"run": name, **facts})
    keys = dict.fromkeys(key for record in records for key in record)
    return Table("Machines", [Column(key) for key in keys], records)
