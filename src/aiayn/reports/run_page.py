"""report.html of a run."""

from collections.abc import Sequence
from datetime import date, timedelta
from statistics import median_high
from typing import Any

from aiayn.config.tasks import METRICS, TASKS
from aiayn.parsing.task import readable_samples
from aiayn.reports.page import data_uri, render_page, shown
from aiayn.reports.plots import corpus_svgs, panel_svg, panels
from aiayn.reports.runs import PARAMETERS, MeasuredRun, read_run
from aiayn.reports.tables import Column, Table
from aiayn.runs.results import best_and_last, last_step, read_samples
from aiayn.runs.run_folder import Record, RunFolder, is_count, series

SIZES = ("n_layers", "n_decoder_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v", "dropout")
SCORE_COLUMNS = (
    Column("text"),
    Column("kind"),
    Column("score", decimals=2),
    Column("length ratio", decimals=3),
    Column("checkpoint"),
    Column("step"),
    Column("lines"),
    Column("signature"),
)
CORPUS_COLUMNS = (
    Column("split"),
    Column("read"),
    Column("kept"),
    Column("src_tokens", "source subwords"),
    Column("tgt_tokens", "target subwords"),
    Column("dropped"),
)


def run_page(folder: RunFolder) -> str:
    """Return the whole page.

    Files that are missing or cannot be read are left out. Raises RefusedError for a run without a
    readable configuration.
    """
    run = read_run(folder)
    step = last_step(run.records)
    all_samples = readable_samples(run.task, read_samples(folder.samples))
    samples = [sample for sample in all_samples if is_count(sample.get("step"))]
    scored = {split: read_samples(folder.evaluation(split).samples) for split in run.evaluations}
    charts = panels({run.name: [(run.seed, run.records)]})
    machine = [{"": key, "value": str(value)} for key, value in run.machine.items() if value]
    return render_page(
        "run.html",
        title=run.options.get("name") or folder.path.resolve().name,
        about=_about(run, step),
        tiles=_tiles(run),
        scores=_table_of_scores(run),
        panels=[(panel, panel_svg(panel, step)) for panel in charts],
        scored=[
            (split, readable_samples(run.task, lines)) for split, lines in scored.items() if lines
        ],
        last=[sample for sample in samples if sample["step"] == samples[-1]["step"]],
        evolution=_evolution(samples),
        task=run.task,
        attention=data_uri(folder.attention_picture),
        corpus=_corpus(run.corpus),
        machine=Table("", [Column(""), Column("value")], machine),
        config=folder.config.read_text(encoding="utf-8"),
    )


def _about(run: MeasuredRun, step: int) -> list[str]:
    options = run.options
    languages = f"{options['data.src_lang']} to {options['data.tgt_lang']}"
    steps = f"step {step:,} of {shown(options['trainer.max_steps'])}"
    sizes = {name: options.get(f"model.{name}") for name in SIZES}
    sizes[PARAMETERS] = options.get(PARAMETERS)
    known = [f"{name} {value}" for name, value in sizes.items() if value is not None]
    return [f"{languages}, {steps}", ", ".join(known), _when(run)]


def _evolution(samples: Sequence[Record]) -> list[tuple[str, Table]]:
    """Return for every validation pair its source and its translations, step by step, with the
    reference last.
    """
    lines_of: dict[tuple[str, str], list[Record]] = {}
    for sample in samples:
        line = {"step": f"{sample['step']:,}", "hypothesis": sample["hypothesis"]}
        lines_of.setdefault((sample["source"], sample["reference"]), []).append(line)
    columns = [Column("step"), Column("hypothesis")]
    evolution = []
    for (source, reference), lines in lines_of.items():
        lines.append({"step": "reference", "hypothesis": reference})
        evolution.append((source, Table("", columns, lines)))
    return evolution


def _table_of_scores(run: MeasuredRun) -> Table:
    """Return a row for every kind of score of every text, with its signature."""
    records = []
    for text, evaluation in run.evaluations.items():
        for metric, score in evaluation.metrics.items():
            if score is None:
                continue
            record: Record = {"text": text, "kind": metric, "score": score}
            record["length ratio"] = evaluation.length_ratio(metric)
            record["signature"] = evaluation.signatures.get(metric)
            record |= {name: getattr(evaluation, name) for name in ("checkpoint", "step", "lines")}
            records.append(record)
    return Table("Scores", SCORE_COLUMNS, records)


def _when(run: MeasuredRun) -> str:
    """Return the day of the last measurement and how long the training steps took, as far as they
    are known.
    """
    if not run.records:
        return ""
    day = date.fromtimestamp(run.folder.metrics.stat().st_mtime).isoformat()
    epoch = run.epoch()
    try:
        # End tokens included
        tokens_per_step = (epoch["tgt_tokens"] + epoch["kept"]) / epoch["steps"]
        seconds, previous = 0.0, 0.0
        for step, tokens_per_second in series(run.records, "perf/tokens_per_sec"):
            seconds += (step - previous) * tokens_per_step / tokens_per_second
            previous = step
        return f"{day}, {timedelta(seconds=round(seconds))} of training"
    except (KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError):
        return day


def _tiles(run: MeasuredRun) -> list[tuple[str, str]]:
    """Return (figure, its name)."""
    tiles = []
    for names in TASKS.values():
        for split, evaluation in run.evaluations.items():
            score = evaluation.score(names.metric)
            if score is not None:
                tiles.append((shown(float(score)), f"{METRICS[names.metric].title}, {split}"))
    if perplexity := best_and_last(run.records, "val/ppl"):
        lowest, _, last = map(float, perplexity)
        tiles.append((shown(last), f"validation perplexity (lowest {shown(lowest)})"))
    for names in TASKS.values():
        if quality := best_and_last(run.records, names.val_metric, max):
            highest, _, last = quality
            title = f"{METRICS[names.val_metric].title}, highest {highest:.1f}"
            tiles.append((f"{last:.1f}", title))
    if speeds := series(run.records, "perf/tokens_per_sec"):
        median = round(median_high(speed for _, speed in speeds))
        tiles.append((shown(median), "target tokens per second (median)"))
    return tiles


def _corpus(corpus: Record) -> dict[str, Any]:
    """Return what the page shows of corpus.json; nothing where it is incomplete."""
    try:
        lengths, paddings = corpus_svgs(corpus)
        records = []
        for split, counts in corpus["splits"].items():
            reasons = [f"{shown(n)} {reason}" for reason, n in counts["dropped"].items()]
            records.append({"split": split, **counts, "dropped": ", ".join(reasons) or "none"})
        return {
            "splits": Table("Corpus", CORPUS_COLUMNS, records),
            "padding": float(corpus["padding"]),
            "lengths": lengths,
            "paddings": paddings,
        }
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
        return {}
