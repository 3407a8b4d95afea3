"""report.html of a run."""

from datetime import date, timedelta
from itertools import pairwise
from statistics import median_high
from typing import Any

from aiayn.config.tasks import TASKS
from aiayn.parsing.task import readable_samples
from aiayn.reports.metrics import Metric
from aiayn.reports.page import data_uri, render_page, shown
from aiayn.reports.plots import corpus_svgs, panel_svg, panels
from aiayn.reports.runs import PARAMETERS, MeasuredRun, read_run
from aiayn.reports.tables import Column, Table
from aiayn.runs.results import best_and_last, last_step, read_samples
from aiayn.runs.run_folder import Record, RunFolder, is_count, read_json, series

SIZES = ("n_layers", "n_decoder_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v", "dropout")


def run_page(folder: RunFolder) -> str:
    """Returns the whole page.

    Files that are missing or cannot be read are left out. Raises RefusedError for a run without a readable
    configuration.
    """
    run = read_run(folder)
    step = last_step(run.records)
    options, corpus = run.options, read_json(folder.corpus)
    samples = [one for one in readable_samples(run.task, read_samples(folder.samples)) if is_count(one.get("step"))]
    scored = {split: read_samples(folder.evaluation(split).samples) for split in run.evaluations}
    sizes = {name: options.get(f"model.{name}") for name in SIZES} | {PARAMETERS: options.get(PARAMETERS)}
    evolution: dict[tuple[str, str], list[Record]] = {}  # of every validation pair, step by step
    for sample in samples:
        line = {"step": f"{sample['step']:,}", "hypothesis": sample["hypothesis"]}
        evolution.setdefault((sample["source"], sample["reference"]), []).append(line)
    for (_, reference), lines in evolution.items():
        lines.append({"step": "reference", "hypothesis": reference})
    return render_page(
        "run.html",
        title=options.get("name") or folder.path.resolve().name,
        about=[
            f"{options['data.src_lang']} to {options['data.tgt_lang']}, step {step:,} of "
            f"{shown(options['trainer.max_steps'])}",
            ", ".join(f"{name} {value}" for name, value in sizes.items() if value is not None),
            _when(run),
        ],
        tiles=_tiles(run),
        scores=_table_of_scores(run),
        panels=[(panel, panel_svg(panel, step)) for panel in panels({run.name: [(run.seed, run.records)]})],
        scored=[(split, readable_samples(run.task, found)) for split, found in scored.items() if found],
        last=[sample for sample in samples if sample["step"] == samples[-1]["step"]],
        evolution=[(source, _plain_table(lines, "step", "hypothesis")) for (source, _), lines in evolution.items()],
        task=run.task,
        attention=data_uri(folder.attention_picture),
        corpus=_corpus(corpus),
        machine=_plain_table(
            [{"": key, "value": str(value)} for key, value in read_json(folder.machine).items() if value], "", "value"
        ),
        config=folder.config.read_text(encoding="utf-8"),
    )


def _plain_table(records: list[Record], *keys: str) -> Table:
    return Table("", [Column(key, key) for key in keys], records)


def _table_of_scores(run: MeasuredRun) -> Table:
    """Returns a row for every kind of score of every text, with its signature."""
    records = []
    for text, result in run.evaluations.items():
        stored = result.get("signatures")
        signatures: Record = stored if isinstance(stored, dict) else {}
        facts = {"text": text, "checkpoint": result.get("checkpoint"), "step": result["step"], "lines": result["lines"]}
        for kind, score in result["metrics"].items():
            ratio = Metric(kind, text).ratio
            more = {"length ratio": ratio.of(run) if ratio else None, "signature": signatures.get(kind)}
            records += [facts | {"kind": kind, "score": score} | more] if score is not None else []
    digits = {"score": 2, "length ratio": 3}
    keys = ("text", "kind", "score", "length ratio", "checkpoint", "step", "lines", "signature")
    return Table("Scores", [Column(key, key, digits.get(key)) for key in keys], records)


def _when(run: MeasuredRun) -> str:
    """Returns the day of the last measurement and how long the training steps took, as far as they are known."""
    records, epoch = run.records, run.epoch()
    if not records:
        return ""
    day = date.fromtimestamp(run.folder.metrics.stat().st_mtime).isoformat()
    try:
        tokens = (epoch["tgt_tokens"] + epoch["kept"]) / epoch["steps"]  # mean per step, end tokens included
        speeds = [(0, 1.0), *series(records, "perf/tokens_per_sec")]
        seconds = sum((step - before) * tokens / speed for (before, _), (step, speed) in pairwise(speeds))
        return f"{day}, {timedelta(seconds=round(seconds))} of training"
    except (KeyError, TypeError, ZeroDivisionError, OverflowError):
        return day


def _tiles(run: MeasuredRun) -> list[tuple[str, str]]:
    """Returns (figure, what it is)."""
    records = run.records
    found = [
        (shown(float(result["metrics"][names.metric])), f"{names.metric_title}, {split}")
        for names in TASKS.values()
        for split, result in run.evaluations.items()
        if result["metrics"].get(names.metric) is not None
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
    titles = {"split": "split", "read": "read", "kept": "kept", "src_tokens": "source subwords"}
    titles |= {"tgt_tokens": "target subwords", "dropped": "dropped"}
    try:
        lengths, paddings = corpus_svgs(corpus)
        records = [
            {"split": split}
            | {key: found[key] for key in titles if key in found}
            | {"dropped": ", ".join(f"{shown(n)} {why}" for why, n in found["dropped"].items()) or "none"}
            for split, found in corpus["splits"].items()
        ]
        splits = Table("Corpus", [Column(key, title) for key, title in titles.items()], records)
        return {"splits": splits, "padding": float(corpus["padding"]), "lengths": lengths, "paddings": paddings}
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
        return {}
