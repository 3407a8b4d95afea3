"""report.html of a sweep: its runs side by side."""

import re
from pathlib import Path
from typing import Any

from aiayn.options import flatten
from aiayn.report.page import link, render_page
from aiayn.report.plots import Panel, panel_svg
from aiayn.run_folder import RunFolder, best_and_last, is_number, read_json, read_samples, series

NOT_COMPARED = ("name", "sweep", "logger.group")
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
    configs = {run: flatten(run.read_config()) for run in runs}
    metrics = {run: run.read_metrics() for run in runs}
    first = configs[runs[0]]
    differing = [
        key
        for key in first
        if key not in NOT_COMPARED and len({str(config.get(key)) for config in configs.values()}) > 1
    ]
    rows = []
    for run in runs:
        ppl, bleu = best_and_last(metrics[run], "val/ppl"), best_and_last(metrics[run], "val/bleu", max)
        evaluations = run.read_evaluations()
        scores = [evaluations.get(split, {}).get("metrics", {}).get("sacrebleu") for split in ("val", "test")]
        name = link(f"{names[run]}/{run.report.name}", names[run]) if run.report.exists() else names[run]
        step = max((record["step"] for record in metrics[run]), default=0)
        rows.append(
            [name, step, *(found and found[2] for found in (ppl, bleu)), *scores]
            + [_option(configs[run].get(key)) for key in differing]
        )
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
        columns=["run", "step", "val/ppl", "val/bleu (greedy)", "BLEU val", "BLEU test", *differing],
        rows=rows,
        names=[names[run] for run in runs],
        panels=[(panel.title, panel_svg(panel, last_step)) for panel in panels if any(panel.curves.values())],
        samples=samples,
        facts=facts,
        machines=[[names[run], *(_option(machines[run].get(key)) for key in facts)] for run in runs],
        shared={key: _option(value) for key, value in first.items() if key not in (*NOT_COMPARED, *differing)},
    )


def _by_number(name: str) -> list[tuple[int, str]]:
    """A key that sorts d_k-8 before d_k-32."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _option(value: Any) -> str:
    return "null" if value is None else f"{value:g}" if isinstance(value, float) and is_number(value) else str(value)
