"""report.html of a sweep: its runs side by side."""

import re
from pathlib import Path
from statistics import mean
from typing import Any

from aiayn.reports.page import link, render_page
from aiayn.reports.plots import Panel, panel_svg
from aiayn.reports.seeds import mean_and_spread, seed_groups
from aiayn.reports.sizes import sized
from aiayn.runs.run_folder import Record, RunFolder, best_and_last, is_count, is_number, read_json, read_samples, series

NOT_COMPARED = ("name", "sweep", "logger.group")
MEASURED = ("val/ppl", "val/bleu (greedy)", "BLEU val", "BLEU test")
PANELS = (
    ("validation perplexity", "val/ppl", True),
    ("validation BLEU (greedy)", "val/bleu", False),
    ("training loss per token (nats)", "train/loss", False),
    ("target tokens per second", "perf/tokens_per_sec", False),
)


def sweep_page(folder: Path, runs: list[RunFolder]) -> str:
    """Returns the whole page, from what the runs wrote.

    Raises RefusedError for a run without a readable configuration.
    """
    names = {run: run.path.relative_to(folder).as_posix() for run in runs}
    runs = sorted(runs, key=lambda run: _by_number(names[run]))
    configs = {run: sized(run.read_config()) for run in runs}
    metrics = {run: run.read_metrics() for run in runs}
    first = configs[runs[0]]
    differing = [
        key
        for key in first
        if key not in NOT_COMPARED and len({str(config.get(key)) for config in configs.values()}) > 1
    ]
    rows, measured = [], {}
    for run in runs:
        ppl, bleu = best_and_last(metrics[run], "val/ppl"), best_and_last(metrics[run], "val/bleu", max)
        evaluations = run.read_evaluations()
        scores = [evaluations.get(split, {}).get("metrics", {}).get("sacrebleu") for split in ("val", "test")]
        name = link(f"{names[run]}/{run.report.name}", names[run]) if run.report.exists() else names[run]
        step = max((record["step"] for record in metrics[run]), default=0)
        measured[names[run]] = [*(found and found[2] for found in (ppl, bleu)), *scores]
        rows.append([name, step, *measured[names[run]]] + [_option(configs[run].get(key)) for key in differing])
    options = {names[run]: {key: configs[run].get(key) for key in differing} for run in runs}
    fixed = [key for key in differing if key != "seed"]
    seeds = [
        [", ".join(str(options[name]["seed"]) for name in group)]
        + [_option(options[group[0]][key]) for key in fixed]
        + [mean_and_spread(column) for column in zip(*(measured[name] for name in group), strict=True)]
        for group in seed_groups(options)
    ]
    panels = [
        Panel(title, {names[run]: series(metrics[run], key) for run in runs}, log_scale)
        for title, key, log_scale in PANELS
    ]
    last_step = max(row[1] for row in rows)
    samples: dict[tuple[str, str], dict[str, str]] = {}
    for run in runs:
        for sample in read_samples(run.samples):
            samples.setdefault((sample["source"], sample["reference"]), {})[names[run]] = sample["hypothesis"]
    machines = {run: read_json(run.machine) for run in runs}
    facts = list(dict.fromkeys(key for machine in machines.values() for key, value in machine.items() if value))
    return render_page(
        "sweep.html",
        title=folder.resolve().name,
        about=[f"{len(runs)} runs"],
        heads=_heads_and_sizes(options, measured),
        columns=["run", "step", *MEASURED, *differing],
        rows=rows,
        seed_columns=["seeds", *fixed, *MEASURED],
        seeds=seeds,
        names=[names[run] for run in runs],
        panels=[(panel.title, panel_svg(panel, last_step)) for panel in panels if any(panel.curves.values())],
        samples=samples,
        facts=facts,
        machines=[[names[run], *(_option(machines[run].get(key)) for key in facts)] for run in runs],
        shared={key: _option(value) for key, value in first.items() if key not in (*NOT_COMPARED, *differing)},
    )


def _heads_and_sizes(options: dict[str, Record], measured: dict[str, list[float | None]]) -> dict[str, Any] | None:
    """Returns a table of score by heads and d_k where the sweep has several sizes for a number of heads; else None.

    A cell is the mean over its runs of the first that all of them have: BLEU of the development set, greedy BLEU,
    perplexity.
    """
    places: dict[tuple[int, int], list[str]] = {}
    for name, values in options.items():
        place = values.get("model.n_heads"), values.get("model.d_k")
        if not all(map(is_count, place)):
            return None
        places.setdefault(place, []).append(name)
    heads, sizes = (sorted({place[side] for place in places}) for side in (0, 1))
    if len(places) <= max(len(heads), len(sizes)):  # d_k follows from the heads
        return None
    for column in (2, 1, 0):
        if all(is_number(values[column]) for values in measured.values()):
            cells = {place: mean(measured[name][column] for name in found) for place, found in places.items()}
            rows = [[str(n), *(cells.get((n, size)) for size in sizes)] for n in heads]
            return {"score": MEASURED[column], "columns": ["heads", *(f"d_k {size}" for size in sizes)], "rows": rows}
    return None


def _by_number(name: str) -> list[tuple[int, str]]:
    """A key that sorts d_k-8 before d_k-32."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _option(value: Any) -> str:
    return "null" if value is None else f"{value:g}" if isinstance(value, float) and is_number(value) else str(value)
