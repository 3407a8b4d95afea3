"""report.html of a run."""

from collections.abc import Sequence
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from statistics import median_high
from typing import Any

from aiayn.config.tasks import TASKS
from aiayn.parsing.task import readable
from aiayn.reports.page import data_uri, render_page, shown
from aiayn.reports.plots import corpus_svgs, panel_svg, run_panels
from aiayn.reports.runs import PARAMETERS, MeasuredRun, read_run
from aiayn.reports.table import Column, Table
from aiayn.runs.run_folder import (
    BRACKET_KINDS,
    METRIC_KINDS,
    Record,
    RunFolder,
    best_and_last,
    is_count,
    read_json,
    read_samples,
    series,
)

SHOWN_OPTIONS = (
    *(f"model.{name}" for name in ("n_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v", "dropout")),
    PARAMETERS,
)
ALL_KINDS = METRIC_KINDS + BRACKET_KINDS


def run_page(folder: RunFolder, panels: Sequence[str] = ()) -> str:
    """Returns the whole page, with these series as panels or else the usual ones.

    Files that are missing or cannot be read are left out. Raises RefusedError for a run without a readable
    configuration.
    """
    run = read_run(folder)
    step = max((record["step"] for record in run.records), default=0)
    options, corpus = run.options, read_json(folder.corpus)
    samples = [sample for sample in _read(run, folder.samples) if is_count(sample.get("step"))]
    about = [
        f"{options['data.src_lang']} to {options['data.tgt_lang']}, step {step:,} of "
        f"{shown(options['trainer.max_steps'])}",
        ", ".join(
            f"{name.removeprefix('model.')} {options[name]}" for name in SHOWN_OPTIONS if options.get(name) is not None
        ),
        _when(folder, run.records, corpus),
    ]
    return render_page(
        "run.html",
        title=options.get("name") or folder.path.resolve().name,
        about=about,
        tiles=_tiles(run),
        scores=_scores(run),
        signatures=_signatures(run),
        panels=[(panel, panel_svg(panel, step)) for panel in run_panels(run.records, panels)],
        scored=[(split, found) for split in run.evaluations if (found := _read(run, folder.evaluation(split).samples))],
        last=[sample for sample in samples if sample["step"] == samples[-1]["step"]],
        evolution=_evolution(samples),
        task=run.task,
        attention=data_uri(folder.attention_picture),
        corpus=_corpus(corpus),
        machine=_facts(read_json(folder.machine)),
        config=folder.config.read_text(encoding="utf-8"),
    )


def _scores(run: MeasuredRun) -> Table:
    evaluations = run.evaluations
    kinds = [kind for kind in ALL_KINDS if any(one["metrics"].get(kind) is not None for one in evaluations.values())]
    records = [
        {"text": split, "checkpoint": result.get("checkpoint"), "step": result["step"], "lines": result["lines"]}
        | result["metrics"]
        for split, result in evaluations.items()
    ]
    facts = [Column(key, key) for key in ("text", "checkpoint", "step", "lines")]
    return Table("Scores", [*facts, *(Column(kind, kind, 2) for kind in kinds)], records)


def _signatures(run: MeasuredRun) -> Table:
    records = [
        {"text": split, "kind": kind, "signature": signatures[kind]}
        for split, result in run.evaluations.items()
        if isinstance(signatures := result.get("signatures"), dict)
        for kind in ALL_KINDS
        if signatures.get(kind)
    ]
    return Table("signatures", [Column(key, key) for key in ("text", "kind", "signature")], records)


def _evolution(samples: Sequence[Record]) -> dict[str, Table]:
    """Returns the translations of every validation sentence, step by step, and its reference."""
    found: dict[str, list[Record]] = {}
    references = {}
    for sample in samples:
        key = sample["source"]
        references[key] = sample["reference"]
        found.setdefault(key, []).append({"step": f"{sample['step']:,}", "hypothesis": sample["hypothesis"]})
    columns = [Column("step", "step"), Column("hypothesis", "hypothesis")]
    return {
        source: Table(source, columns, [*records, {"step": "reference", "hypothesis": references[source]}])
        for source, records in found.items()
    }


def _facts(machine: Record) -> Table:
    records = [{"fact": key, "value": str(value)} for key, value in machine.items() if value]
    return Table("Machine", [Column("fact", ""), Column("value", "value")], records)


def _read(run: MeasuredRun, path: Path) -> list[Record]:
    """Returns samples as people read them."""
    return readable(run.task, read_samples(path))


def _when(run: RunFolder, records: list[Record], corpus: Record) -> str:
    """Returns the day of the last measurement and how long the training steps took, as far as they are known."""
    if not records:
        return ""
    day = date.fromtimestamp(run.metrics.stat().st_mtime).isoformat()
    try:
        train = corpus["splits"]["train"]
        tokens = (train["tgt_tokens"] + train["kept"]) / corpus["steps_per_epoch"]  # mean per step, end tokens included
        speeds = [(0, 1.0), *series(records, "perf/tokens_per_sec")]
        seconds = sum((step - before) * tokens / speed for (before, _), (step, speed) in pairwise(speeds))
        return f"{day}, {timedelta(seconds=round(seconds))} of training"
    except (KeyError, TypeError, ZeroDivisionError, OverflowError):
        return day


def _tiles(run: MeasuredRun) -> list[tuple[str, str]]:
    """Returns (figure, what it is)."""
    records = run.records
    found = [
        (shown(float(result["metrics"][kind])), f"{name}, {split}")
        for kind, name in ((names.metric, names.metric_title) for names in TASKS.values())
        for split, result in run.evaluations.items()
        if result["metrics"].get(kind) is not None
    ]
    if perplexity := best_and_last(records, "val/ppl"):
        found.append((shown(float(perplexity[2])), f"validation perplexity (lowest {shown(float(perplexity[0]))})"))
    found += [
        (f"{quality[2]:.1f}", f"validation {names.val_title}, greedy (highest {quality[0]:.1f})")
        for names in TASKS.values()
        if (quality := best_and_last(records, names.val_metric, max))
    ]
    if speed := series(records, "perf/tokens_per_sec"):
        found.append((shown(round(median_high(value for _, value in speed))), "target tokens per second (median)"))
    return found


def _corpus(corpus: Record) -> dict[str, Any]:
    """Returns what the page shows of corpus.json; nothing where it is incomplete."""
    columns = {"split": "split", "read": "read", "kept": "kept", "src_tokens": "source subwords"}
    columns |= {"tgt_tokens": "target subwords", "dropped": "dropped"}
    counts = ("read", "kept", "src_tokens", "tgt_tokens")
    try:
        lengths, paddings = corpus_svgs(corpus)
        records = [
            {"split": split, "dropped": _dropped(found["dropped"])} | {key: found[key] for key in counts}
            for split, found in corpus["splits"].items()
        ]
        splits = Table("Corpus", [Column(key, title) for key, title in columns.items()], records)
        return {"splits": splits, "padding": float(corpus["padding"]), "lengths": lengths, "paddings": paddings}
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
        return {}


def _dropped(reasons: dict[str, int]) -> str:
    return ", ".join(f"{shown(count)} {reason}" for reason, count in reasons.items()) or "none"
