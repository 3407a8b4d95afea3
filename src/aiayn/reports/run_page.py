"""report.html of a run."""

from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from statistics import median_high
from typing import Any

from aiayn.parsing.linear_form import repaired_tree
from aiayn.parsing.tree import indented
from aiayn.reports.page import data_uri, render_page, shown
from aiayn.reports.plots import corpus_svgs, panel_svg, run_panels
from aiayn.reports.sizes import PARAMETERS, sized
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

SIZES = (
    *(f"model.{name}" for name in ("n_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v", "dropout")),
    PARAMETERS,
)


def run_page(run: RunFolder) -> str:
    """Returns the whole page. Files that are missing or cannot be read are left out.

    Raises RefusedError for a run without a readable configuration.
    """
    config = run.read_config()
    records = run.read_metrics()
    evaluations = run.read_evaluations()
    step = max((record["step"] for record in records), default=0)
    data, options, corpus = config["data"], sized(config), read_json(run.corpus)
    all_kinds = METRIC_KINDS + BRACKET_KINDS
    kinds = [kind for kind in all_kinds if any(e["metrics"].get(kind) is not None for e in evaluations.values())]
    is_parser = data.get("task") == "parsing"
    read = _read_trees if is_parser else read_samples
    samples = [sample for sample in read(run.samples) if is_count(sample.get("step"))]
    evolution: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for sample in samples:
        texts = sample["source"], sample["reference"]
        evolution.setdefault(texts, []).append((sample["step"], sample["hypothesis"]))
    return render_page(
        "run.html",
        title=config.get("name") or run.path.resolve().name,
        about=[
            f"{data['src_lang']} to {data['tgt_lang']}, step {step:,} of {shown(config['trainer']['max_steps'])}",
            ", ".join(
                f"{name.removeprefix('model.')} {options[name]}" for name in SIZES if options.get(name) is not None
            ),
            _when(run, records, corpus),
        ],
        tiles=_tiles(records, evaluations),
        kinds=kinds,
        scores=[
            [split, result.get("checkpoint", ""), result["step"], result["lines"]]
            + [result["metrics"].get(kind) for kind in kinds]
            for split, result in evaluations.items()
        ],
        signatures=[
            (split, kind, signatures[kind])
            for split, result in evaluations.items()
            if isinstance(signatures := result.get("signatures"), dict)
            for kind in all_kinds
            if signatures.get(kind)
        ],
        panels=[(panel, panel_svg(panel, step)) for panel in run_panels(records)],
        scored=[(split, found) for split in evaluations if (found := read(run.evaluation(split).samples))],
        last=[sample for sample in samples if sample["step"] == samples[-1]["step"]],
        evolution=evolution,
        has_trees=is_parser,
        attention=data_uri(run.attention_picture),
        corpus=_corpus(corpus),
        machine=[(key, str(value)) for key, value in read_json(run.machine).items() if value],
        config=run.config.read_text(encoding="utf-8"),
    )


def _read_trees(path: Path) -> list[Record]:
    """Returns samples of a parser, their linear trees as indented ones with their words."""
    return [
        sample | {key: indented(repaired_tree(sample["source"], sample[key])[0]) for key in ("reference", "hypothesis")}
        for sample in read_samples(path)
    ]


def _when(run: RunFolder, records: list[Record], corpus: Record) -> str:
    """Returns the day of the last measurement and how long the training steps took, as far as they are known."""
    if not records:
        return ""
    day = date.fromtimestamp(run.metrics.stat().st_mtime).isoformat()
    try:
        train = corpus["splits"]["train"]
        tokens = (train["tgt_tokens"] + train["kept"]) / corpus["steps_per_epoch"]  # of a step, end marks included
        speeds = [(0, 1.0), *series(records, "perf/tokens_per_sec")]
        seconds = sum((step - before) * tokens / speed for (before, _), (step, speed) in pairwise(speeds))
        return f"{day}, {timedelta(seconds=round(seconds))} of training"
    except (KeyError, TypeError, ZeroDivisionError, OverflowError):
        return day


def _tiles(records: list[Record], evaluations: dict[str, Record]) -> list[tuple[str, str]]:
    """Returns (figure, what it is)."""
    found = [
        (shown(float(result["metrics"][kind])), f"{name}, {split}")
        for kind, name in (("sacrebleu", "sacreBLEU"), ("f1", "F1"))
        for split, result in evaluations.items()
        if result["metrics"].get(kind) is not None
    ]
    if perplexity := best_and_last(records, "val/ppl"):
        found.append((shown(float(perplexity[2])), f"validation perplexity (lowest {shown(float(perplexity[0]))})"))
    for key, name in (("val/bleu", "BLEU"), ("val/f1", "F1")):
        if quality := best_and_last(records, key, max):
            found.append((f"{quality[2]:.1f}", f"validation {name}, greedy (highest {quality[0]:.1f})"))
    if speed := series(records, "perf/tokens_per_sec"):
        found.append((shown(round(median_high(value for _, value in speed))), "target tokens per second (median)"))
    return found


def _corpus(corpus: Record) -> dict[str, Any]:
    """Returns what the page shows of corpus.json; nothing where it is incomplete."""
    try:
        lengths, paddings = corpus_svgs(corpus)
        splits = [
            [split, *(found[key] for key in ("read", "kept", "src_tokens", "tgt_tokens")), _dropped(found["dropped"])]
            for split, found in corpus["splits"].items()
        ]
        return {"splits": splits, "padding": float(corpus["padding"]), "lengths": lengths, "paddings": paddings}
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
        return {}


def _dropped(reasons: dict[str, int]) -> str:
    return ", ".join(f"{shown(count)} {reason}" for reason, count in reasons.items()) or "none"
