"""report.html: all that a run or a sweep measured on one page, from the files of its folder alone."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from aiayn.errors import RefusedError, ResourceError, UserError
from aiayn.files import atomic_write_text
from aiayn.report import page
from aiayn.report.charts import Curve, histogram, line_chart
from aiayn.report.sweep_page import sweep_page
from aiayn.run_folder import (
    METRIC_KINDS,
    RunFolder,
    best_and_last,
    jsonl_line,
    read_json,
    read_jsonl,
    runs_within,
    series,
)

KEPT_SAMPLES = 20


def write_report(folder: Path) -> Path:
    """Writes FOLDER/report.html for a run, or for a folder of runs. Returns its path.

    A run need not be finished. Raises RefusedError for a folder that is neither, ResourceError where the page cannot be
    written.
    """
    if (folder / "config.yaml").is_file():
        text = _run_page(folder)
    elif runs := [run.path for run in runs_within(folder)]:
        text = sweep_page(folder, runs)
    else:
        raise RefusedError(f"{folder}: neither a run nor a folder of runs (no config.yaml)")
    path = folder / "report.html"
    try:
        atomic_write_text(path, text)
    except OSError as error:
        raise ResourceError(f"{path}: cannot be written ({error.strerror}); make room and run again") from error
    return path


def add_evaluation(run: Path, folder: Path, sources: list[str], references: list[str], hypotheses: list[str]) -> bool:
    """Keeps evenly spread translations of a test set as FOLDER/samples.jsonl, and writes the run's page again.

    Scores stand whether or not the page can be made: without the run's config.yaml there is none. Returns whether
    there is one.
    """
    every = -(-len(sources) // KEPT_SAMPLES)
    rows = list(zip(sources, references, hypotheses, strict=True))[::every]
    records = [dict(zip(("source", "reference", "hypothesis"), row, strict=True)) for row in rows]
    with suppress(OSError, UserError):
        atomic_write_text(folder / "samples.jsonl", "".join(map(jsonl_line, records)))
        write_report(run)
        return True
    return False


def summary(run: Path) -> str:
    """What a finished training leaves: the scores so far, where the files are, what to type next."""
    records = read_jsonl(run / "metrics.jsonl")
    lines = [f"done     {run}, step {max((record['step'] for record in records), default=0)}"]
    if perplexity := best_and_last(records, "val/ppl"):
        lines.append("scores   val/ppl {2:.2f} (lowest {0:.2f} at step {1})".format(*perplexity))
    if bleu := best_and_last(records, "val/bleu", max):
        lines[-1] += "  val/bleu {2:.1f} (highest {0:.1f} at step {1})".format(*bleu)
    names = ("report.html", "checkpoints/averaged.ckpt", "learning_curve.png", "attention.png", "corpus.png")
    names += ("metrics.jsonl", "samples.jsonl", "config.yaml")
    lines.append("files    " + ", ".join(name for name in names if (run / name).exists()))
    lines.append(f"next     python evaluate.py run={run}")
    lines.append(f"         aiayn translate {run}")
    return "\n".join(lines)


def sweep_summary(folder: Path) -> str:
    """One line for each run of a sweep: its scores on the development set, as far as there are any."""
    runs = [run.path for run in runs_within(folder)]
    width = max((len(run.name) for run in runs), default=0)
    lines = []
    for run in runs:
        perplexity = best_and_last(read_jsonl(run / "metrics.jsonl"), "val/ppl")
        bleu = RunFolder(run).read_evaluations().get("val", {}).get("metrics", {}).get("sacrebleu")
        shown = (
            f"val/ppl {perplexity[2]:.2f}" if perplexity else "",
            "" if bleu is None else f"val sacrebleu {bleu:.2f}",
        )
        lines.append(f"scores   {run.name:<{width}}  {'  '.join(filter(None, shown)) or 'none yet'}")
    return "\n".join(lines)


def _run_page(run: Path) -> str:
    records = read_jsonl(run / "metrics.jsonl")
    config = RunFolder(run).read_config()
    evaluations = RunFolder(run).read_evaluations()
    samples = read_jsonl(run / "samples.jsonl")
    last = [sample for sample in samples if sample["step"] == samples[-1]["step"]]
    step = max((record["step"] for record in records), default=0)
    max_steps = config["trainer"]["max_steps"]
    text = f"{config['data']['src_lang']} to {config['data']['tgt_lang']}, step {step:,} of {max_steps:,}"
    scored = [
        (f"Samples of {split}", page.samples_table(read_jsonl(run / "evaluation" / split / "samples.jsonl")))
        for split in evaluations
    ]
    corpus = read_json(run / "corpus.json")
    machine = read_json(run / "machine.json")
    sections = [
        ("Scores", _tiles(records, evaluations) + _scores(evaluations)),
        ("Curves", page.charts(_curves(records))),
        *scored,
        (f"Validation samples of step {last[0]['step']:,}" if last else "", page.samples_table(last)),
        ("From step to step", _evolution(samples)),
        (
            "Attention",
            page.picture(
                run / "attention.png", "where each layer looks in the source while a validation sentence is translated"
            ),
        ),
        ("Corpus", _corpus(corpus)),
        ("Machine", page.table(["", "value"], [(key, str(value)) for key, value in machine.items() if value])),
        ("Configuration", page.preformatted((run / "config.yaml").read_text(encoding="utf-8"))),
    ]
    return page.page(config["name"] or run.name, text, sections)


def _tiles(records: list[dict[str, Any]], evaluations: dict[str, dict[str, Any]]) -> str:
    shown = [
        (f"sacreBLEU, {split}", f"{result['metrics']['sacrebleu']:.2f}")
        for split, result in evaluations.items()
        if result["metrics"].get("sacrebleu") is not None
    ]
    if perplexity := best_and_last(records, "val/ppl"):
        shown.append((f"validation perplexity (lowest {perplexity[0]:.2f})", f"{perplexity[2]:.2f}"))
    if bleu := best_and_last(records, "val/bleu", max):
        shown.append((f"validation BLEU, greedy (highest {bleu[0]:.1f})", f"{bleu[2]:.1f}"))
    if speed := series(records, "perf/tokens_per_sec"):
        middle = sorted(value for _, value in speed)[len(speed) // 2]
        shown.append(("target tokens per second (median)", f"{middle:,.0f}"))
    return page.tiles(shown)


def _scores(evaluations: dict[str, dict[str, Any]]) -> str:
    """One row for every test set; the signatures below."""
    kinds = [kind for kind in METRIC_KINDS if any(e["metrics"].get(kind) is not None for e in evaluations.values())]
    rows = [
        [split, result.get("checkpoint", ""), result.get("step"), result.get("lines")]
        + [result["metrics"].get(kind) for kind in kinds]
        for split, result in evaluations.items()
    ]
    signatures = [
        (split, kind, signature)
        for split, result in evaluations.items()
        for kind, signature in (result.get("signatures") or {}).items()
        if signature
    ]
    return page.table(["text", "checkpoint", "step", "lines", *kinds], rows) + page.folded(
        "signatures", page.table(["text", "kind", "signature"], signatures)
    )


def _curves(records: list[dict[str, Any]]) -> list[str]:
    def curves(*keys: str) -> list[Curve]:
        return [Curve(key, series(records, key)) for key in keys]

    rate = Curve("train/lr", series(records, "train/lr"), faint=True)
    return [
        line_chart("loss per token (nats)", [*curves("train/loss", "val/loss"), rate]),
        line_chart("validation perplexity", curves("val/ppl"), log_scale=True),
        line_chart("validation BLEU (greedy)", curves("val/bleu")),
        line_chart("norm of the gradient", curves("train/grad_norm"), log_scale=True),
        line_chart("target tokens per second", curves("perf/tokens_per_sec")),
        line_chart("share of the hardware's matrix rate that real tokens use", curves("perf/mfu")),
    ]


def _evolution(samples: list[dict[str, Any]]) -> str:
    """Every validation sentence with its translations in the order of steps."""
    steps: dict[str, list[dict[str, Any]]] = {}
    for sample in samples:
        steps.setdefault(sample["source"], []).append(sample)
    parts = []
    for source, found in steps.items():
        rows = [(f"{sample['step']:,}", sample["hypothesis"]) for sample in found]
        parts.append(page.folded(source, page.table(["step", "hypothesis"], [*rows, ("", found[-1]["reference"])])))
    return "\n".join(parts)


def _corpus(corpus: dict[str, Any]) -> str:
    if not corpus:
        return ""
    rows = [
        [split, *(found[key] for key in ("read", "kept", "src_tokens", "tgt_tokens")), _dropped(found["dropped"])]
        for split, found in corpus["splits"].items()
    ]
    pictures = [
        histogram(
            "subwords of a training sentence", ["source", "target"], [corpus["lengths"][s] for s in ("src", "tgt")]
        ),
        histogram(
            f"padding of a micro-batch: {100 * corpus['padding']:.1f} % of an epoch",
            ["micro-batches"],
            [corpus["padding_of_parts"]],
            unit=100 / len(corpus["padding_of_parts"]),
            label="%",
        ),
    ]
    columns = ["split", "read", "kept", "source subwords", "target subwords", "dropped"]
    return page.table(columns, rows) + page.charts(pictures)


def _dropped(reasons: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in reasons.items()) or "none"
