"""report.html of a sweep: its runs side by side, in the groups and with the numbers of `aiayn table`."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aiayn.config.tasks import TASKS, VAL_METRICS
from aiayn.reports.comparison import comparisons, option_columns
from aiayn.reports.groups import Group, comparable, differing, differing_options, group_runs, option_text, partitions
from aiayn.reports.metrics import Metric, record_keys
from aiayn.reports.page import link, render_page
from aiayn.reports.plots import panel_svg, panels
from aiayn.reports.runs import SPLITS, MeasuredRun, read_run
from aiayn.reports.tables import Column, Table
from aiayn.runs.results import last_step, read_samples
from aiayn.runs.run_folder import Record, RunFolder, read_json

NOT_COMPARED = ("name", "sweep", "outputs", "logger.group")
TITLES = {Metric("val/ppl"): "val/ppl"} | {Metric(name): f"{name} (greedy)" for name in VAL_METRICS}
TITLES |= {score: score.title for score in (Metric(one.metric, of) for of in SPLITS for one in TASKS.values())}


def sweep_page(folder: Path, folders: Sequence[RunFolder]) -> str:
    """Returns the whole page. Raises RefusedError for a run without a readable configuration."""
    runs = [read_run(run) for run in sorted(folders, key=lambda run: _by_number(_name(run, folder)))]
    options = [run.options for run in runs]
    differ = [key for key in differing(options) if key not in NOT_COMPARED]
    groups, steps = group_runs(runs), [last_step(run.records) for run in runs]
    curves = ([(run.seed, run.records) for run in group.runs] for group in groups)
    drawn = panels(dict(zip(_curve_names(groups, folder), curves, strict=True)))
    machines = {_name(run.folder, folder): read_json(run.folder.machine) for run in runs}
    facts = dict.fromkeys(key for machine in machines.values() for key, value in machine.items() if value)
    return render_page(
        "sweep.html",
        title=folder.resolve().name,
        about=[f"{len(runs)} runs"],
        heads=_heads_and_sizes(groups),
        runs=[_runs_table(part, folder, differ) for part in partitions(runs, [*TITLES])],
        # As `aiayn table` has them; without measurements there are no more columns.
        groups=[table for table in comparisons(runs) if len(table.columns) > 3] if len(runs) > 1 else [],
        names=list(drawn[0].curves) if len(groups) > 1 and drawn else [],
        panels=[(panel, panel_svg(panel, max(steps))) for panel in drawn],
        samples=_samples(runs, folder),
        machines=Table(
            "Machines",
            [Column(key, key) for key in ("run", *facts)],
            [{"run": name} | {key: option_text(of.get(key)) for key in facts} for name, of in machines.items()],
        ),
        shared={key: option_text(value) for key, value in options[0].items() if key not in (*NOT_COMPARED, *differ)},
    )


def _name(run: RunFolder, folder: Path) -> str:
    return run.path.relative_to(folder).as_posix()


def _runs_table(runs: Sequence[MeasuredRun], folder: Path, differ: Sequence[str]) -> Table:
    """Returns one row per run."""
    records, keys = [], record_keys([*TITLES])
    for run in runs:
        name, page = _name(run.folder, folder), run.folder.report
        record: Record = {"run": link(f"{name}/{page.name}", name) if page.exists() else name}
        record |= {"step": last_step(run.records)}
        record |= {key: metric.of(run) for metric, key in keys.items()}
        records.append(record | {key: option_text(run.options.get(key)) for key in differ})
    filled = {key for record in records for key, value in record.items() if value is not None}
    measured = [Column(key, TITLES[metric], 2) for metric, key in keys.items() if key in filled]
    return Table("Runs", [Column("run", "run"), Column("step", "step"), *measured, *option_columns(differ)], records)


def _curve_names(groups: Sequence[Group], folder: Path) -> list[str]:
    """Returns a name for each group, of the first run where several groups have one name."""
    names, found = [group.name for group in groups], []
    for group in groups:
        is_seeds = len(group.seeds) > 1
        name = group.name if is_seeds and names.count(group.name) == 1 else _name(group.runs[0].folder, folder)
        found.append(f"{name} ({len(group.seeds)} seeds)" if is_seeds else name)
    return found


def _samples(runs: Sequence[MeasuredRun], folder: Path) -> dict[tuple[str, str], dict[str, str]]:
    """Returns the last translations of every validation sentence, by run."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for run in runs:
        for sample in read_samples(run.folder.samples):
            by_run = found.setdefault((sample["source"], sample["reference"]), {})
            by_run[_name(run.folder, folder)] = sample["hypothesis"]
    return found


def _heads_and_sizes(groups: Sequence[Group]) -> Table | None:
    """Returns a table of score by heads and d_k, several for a number of heads; None for a sweep of other options, too.

    A cell is the mean over seeds of the first metric that all groups have: the score of the development set, the greedy
    one, perplexity.
    """
    import pandas as pd

    sizes = {"heads": "model.n_heads", "d_k": "model.d_k"}
    if {*differing_options(groups)} - {*sizes.values(), "model.d_v"}:
        return None
    for metric in reversed([metric for metric in TITLES if metric.split != "test"]):
        samples = [sample for group in groups if (sample := group.sample(metric))]
        if len(samples) == len(groups) and comparable(metric, *groups):
            rows = [{name: group.options.get(key) for name, key in sizes.items()} for group in groups]
            frame: Any = pd.DataFrame(rows, dtype=float).assign(of=[sample.mean for sample in samples])
            grid = frame.pivot_table("of", "heads", "d_k")
            # Where d_k follows from the heads there is a column for each; d_v may differ by itself.
            if not max(grid.shape) < grid.count().sum() == len(groups):
                return None
            grid = grid.rename("{:g}".format, axis="columns").astype(object).where(grid.notna().to_numpy(), None)
            records = [{"heads": f"{heads:g}", **row} for heads, row in grid.iterrows()]
            columns = [Column("heads", "heads"), *(Column(size, f"d_k {size}", 2) for size in grid.columns)]
            return Table(f"{TITLES[metric]} by number of heads and d_k", columns, records)
    return None


def _by_number(name: str) -> list[tuple[int, str]]:
    """A key that sorts d_k-8 before d_k-32."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
