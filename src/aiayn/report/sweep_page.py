"""report.html of a sweep: its runs side by side."""

import math
from pathlib import Path
from typing import Any

from aiayn.config import Config
from aiayn.options import stored_options
from aiayn.report import page
from aiayn.report.charts import Curve, line_chart
from aiayn.run_folder import RunFolder, best_and_last, read_json, read_jsonl, series


def sweep_page(folder: Path, runs: list[Path]) -> str:
    """The whole page, from what the runs wrote. Raises RefusedError for a run without a readable configuration."""
    names = [run.relative_to(folder).as_posix() for run in runs]
    records = [read_jsonl(run / "metrics.jsonl") for run in runs]
    configs = [stored_options(Config, RunFolder(run).read_config()) for run in runs]
    ignored = ("name", "sweep", "logger.group")
    differing = [
        key for key in configs[0] if key not in ignored and len({str(config.get(key)) for config in configs}) > 1
    ]
    rows = []
    for name, run, measured, config in zip(names, runs, records, configs, strict=True):
        perplexity, bleu = best_and_last(measured, "val/ppl"), best_and_last(measured, "val/bleu", max)
        evaluations = RunFolder(run).read_evaluations()
        scores = [evaluations.get(split, {}).get("metrics", {}).get("sacrebleu") for split in ("val", "test")]
        step = max((record["step"] for record in measured), default=0)
        changes = [_shown(config.get(key)) for key in differing]
        link = page.Link(name, f"{name}/report.html") if (run / "report.html").exists() else name
        rows.append([link, step, *(x[2] if x else None for x in (perplexity, bleu)), *scores, *changes])
    columns = ["run", "step", "val/ppl", "val/bleu (greedy)", "BLEU val", "BLEU test", *differing]
    overlaid = [
        line_chart(title, [Curve(name, series(found, key)) for name, found in zip(names, records, strict=True)], log)
        for title, key, log in (
            ("validation perplexity", "val/ppl", True),
            ("validation BLEU (greedy)", "val/bleu", False),
            ("training loss per token (nats)", "train/loss", False),
            ("target tokens per second", "perf/tokens_per_sec", False),
        )
    ]
    machines = [read_json(run / "machine.json") for run in runs]
    facts = list(dict.fromkeys(key for machine in machines for key, value in machine.items() if value))
    devices = [
        (name, *(_shown(machine.get(key)) for key in facts)) for name, machine in zip(names, machines, strict=True)
    ]
    shared = {key: value for key, value in configs[0].items() if key not in (*ignored, *differing)}
    sections = [
        ("Runs", page.table(columns, rows)),
        ("Curves", page.charts(overlaid)),
        ("Validation samples of the last steps", page.compared_samples(_compared(names, runs))),
        ("Machines", page.folded("what each run computed on", page.table(["run", *facts], devices if facts else []))),
        (
            "Configuration",
            page.folded(
                "what all runs share", page.preformatted("".join(f"{k}: {_shown(shared[k])}\n" for k in shared))
            ),
        ),
    ]
    return page.page(folder.name, f"{len(runs)} runs", sections)


def _compared(names: list[str], runs: list[Path]) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """(source, reference, [(run, its last hypothesis), ...]) of every validation sample."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for name, run in zip(names, runs, strict=True):
        for sample in read_jsonl(run / "samples.jsonl"):
            found.setdefault((sample["source"], sample["reference"]), {})[name] = sample["hypothesis"]
    return [(*texts, list(hypotheses.items())) for texts, hypotheses in found.items()]


def _shown(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:g}"
    return "null" if value is None else str(value)
