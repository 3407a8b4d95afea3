"""report.html: all that a run or a sweep measured, on one page, from the files of its folder."""

import base64
import difflib
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from statistics import median_high
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup, escape

from aiayn.config.tasks import METRICS, TASKS, VAL_METRICS
from aiayn.errors import RefusedError, counted, writing
from aiayn.files import atomic_write
from aiayn.parsing.task import readable_samples
from aiayn.reports.comparison import (
    MANY,
    best_first,
    compare_parts,
    option_columns,
    usual_metrics,
)
from aiayn.reports.groups import Group, differing, group_runs, option_text, partitions
from aiayn.reports.plots import Runs, corpus_svgs, panel_svg, panels
from aiayn.reports.runs import (
    NAMING,
    PARAMETERS,
    SPLITS,
    MeasuredRun,
    Metric,
    gathered,
    read_run,
    read_runs,
)
from aiayn.reports.tables import Column, Style, Table, shown
from aiayn.runs.results import best_and_last, last_step, read_samples
from aiayn.runs.run_folder import Record, RunFolder, series

SIZES = ("n_layers", "n_decoder_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v", "dropout")
SCORE_COLUMNS = (
    Column("text"),
    Column("kind"),
    Column("score", decimals=2),
    Column("length ratio", decimals=3),
    Column("checkpoint"),
    Column("step"),
    Column("lines"),
)
CORPUS_COLUMNS = (
    Column("split"),
    Column("read"),
    Column("kept"),
    Column("src_tokens", "source subwords"),
    Column("tgt_tokens", "target subwords"),
    Column("dropped"),
)
WORD = re.compile(r"\s+|\w+|[^\w\s]")
MAX_COMPARED = 500  # words and blanks; in longer texts frequent words alone do not count as equal
MAX_CURVES = 12  # groups of a sweep whose curves and samples are shown
SCORES = [Metric(names.metric, split) for split in SPLITS for names in TASKS.values()]
SERIES = [Metric("val/ppl"), *map(Metric, VAL_METRICS)]


def write_report(folder: Path) -> Path:
    """Writes FOLDER/report.html for a run, finished or not, or for a folder of runs. Returns its
    path.

    Raises ConfigError for a folder that is neither, RefusedError where no run has a readable
    configuration, ResourceError where the page cannot be written.
    """
    run = RunFolder(folder)
    page = _run_page(run) if run.config.is_file() else _sweep_page(folder)
    with writing(run.report, "make room and run again"):
        # JSON and file names may hold a lone surrogate
        atomic_write(run.report, page.encode(errors="replace"))
    return run.report


# The page of a run. Files that are missing or cannot be read are left out.


def _run_page(folder: RunFolder) -> str:
    run = read_run(folder)
    step = last_step(run.records)
    samples = readable_samples(run.task, read_samples(folder.samples))
    last = [sample for sample in samples if sample["step"] == samples[-1]["step"]]
    scored = {
        split: readable_samples(run.task, read_samples(folder.evaluation(split).samples))
        for split in run.evaluations
    }
    attention = None
    if folder.attention_picture.is_file():
        attention = base64.b64encode(folder.attention_picture.read_bytes()).decode()
    evolution = _by_sentence((f"{sample['step']:,}", sample) for sample in samples)
    return _rendered(
        "run.html",
        {run.path: [(run.seed, run.records)]},
        step,
        title=run.options["name"] or folder.path.resolve().name,
        about=_about(run, step),
        tiles=_tiles(run),
        scores=_table_of_scores(run),
        scored=scored,
        last=last,
        evolution=evolution,
        task=run.task,
        attention=attention,
        corpus=_corpus(run.corpus),
        machine=_facts(run.machine),
        config=folder.config.read_text(encoding="utf-8"),
    )


def _about(run: MeasuredRun, step: int) -> list[str]:
    """Returns languages and steps, the sizes of the model, and the day of the last measurement with
    the time that the training steps took, as far as these are known.
    """
    settings = run.config.data
    max_steps = run.config.trainer.max_steps
    sizes = {name: run.options[f"model.{name}"] for name in SIZES}
    sizes[PARAMETERS] = run.options[PARAMETERS]
    lines = [
        f"{settings.src_lang} to {settings.tgt_lang}, step {step:,} of {max_steps:,}",
        ", ".join(f"{name} {size}" for name, size in sizes.items() if size is not None),
    ]
    if not run.records:
        return lines
    when = date.fromtimestamp(run.folder.metrics.stat().st_mtime).isoformat()
    if epoch := run.epoch():
        # End tokens included
        tokens_per_step = (epoch["tgt_tokens"] + epoch["kept"]) / epoch["steps"]
        speeds = series(run.records, "perf/tokens_per_sec")
        seconds = sum(
            (step - previous) * tokens_per_step / tokens_per_second
            for (previous, _), (step, tokens_per_second) in pairwise([(0, 0), *speeds])
            if tokens_per_second > 0
        )
        if abs(seconds) < timedelta.max.total_seconds():
            when += f", {timedelta(seconds=round(seconds))} of training"
    return [*lines, when]


def _tiles(run: MeasuredRun) -> list[tuple[str, str]]:
    """Returns (figure, its name)."""
    names = TASKS[run.task]
    tiles = []
    for split, evaluation in run.evaluations.items():
        score = evaluation.score(names.metric)
        if score is not None:
            tiles.append((f"{float(score):,.2f}", f"{METRICS[names.metric].title}, {split}"))
    if perplexity := best_and_last(run.records, "val/ppl"):
        lowest, _, last = map(float, perplexity)
        tiles.append((shown(last), f"validation perplexity (lowest {shown(lowest)})"))
    if quality := best_and_last(run.records, names.val_metric, max):
        highest, _, last = quality
        title = f"{METRICS[names.val_metric].title}, highest {highest:.1f}"
        tiles.append((f"{last:.1f}", title))
    if speeds := series(run.records, "perf/tokens_per_sec"):
        median = round(median_high(speed for _, speed in speeds))
        tiles.append((shown(median), "target tokens per second (median)"))
    return tiles


def _table_of_scores(run: MeasuredRun) -> Table:
    """Returns a row for every kind of score of every text, and below them the signatures."""
    records = []
    signatures = {}  # a set in order
    for text, evaluation in run.evaluations.items():
        for kind, score in evaluation.metrics.items():
            if score is None:
                continue
            record = {"text": text, "kind": kind, "score": score}
            record["length ratio"] = evaluation.length_ratio(kind)
            records.append(vars(evaluation) | record)
            if signature := evaluation.signatures.get(kind):
                signatures[f"{kind}: {signature}"] = None
    return Table("Scores", SCORE_COLUMNS, records, after=[*signatures])


def _corpus(corpus: Record) -> dict[str, Any]:
    """Returns what the page shows of corpus.json; nothing where it is incomplete or damaged."""
    with suppress(Exception):
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
    return {}


def _by_sentence(
    samples: Iterable[tuple[str, Record]],
) -> dict[tuple[str, str], dict[str, str]]:
    """Returns the translations of every source and reference by the labels of the samples."""
    sentences = defaultdict(dict)
    for label, sample in samples:
        sentences[sample["source"], sample["reference"]][label] = sample["hypothesis"]
    return sentences


# The page of a sweep: its groups with the numbers of `aiayn table`, the curves of the best, its
# runs.


def _sweep_page(folder: Path) -> str:
    runs, notes = read_runs([folder])
    if not runs:
        raise RefusedError("; ".join(notes))
    short_paths = {run.path: run.folder.path.relative_to(folder).as_posix() for run in runs}
    options = [
        {key: value for key, value in run.options.items() if key not in NAMING} for run in runs
    ]
    varied = differing(options)
    shared = {key: option_text(value) for key, value in options[0].items() if key not in varied}
    parts = partitions(runs, SCORES)
    groups_of_parts = [group_runs(members) for members in parts]
    groups = [group for members in groups_of_parts for group in members]
    tables = compare_parts(groups_of_parts, usual_metrics(runs)) if len(runs) > 1 else []
    # Three columns say nothing that the table of the runs does not.
    tables_of_scores = [table for table in tables if len(table.columns) > 3]
    curves_of = ""
    curved = groups
    if len(groups) > MAX_CURVES:
        curves_of = f" of the best {MAX_CURVES} groups"
        curved = best_first(groups, [*SCORES, *SERIES])[:MAX_CURVES]
    curves = _curves(curved, groups, short_paths)
    are_few = len(runs) <= MANY
    sampled = runs if are_few else [group.runs[0] for group in curved]
    samples = [
        (short_paths[run.path], sample)
        for run in sampled
        for sample in read_samples(run.folder.samples)
    ]
    measured_on = [run for run in runs if run.machine]
    facts = [(short_paths[run.path], ", ".join(_facts(run.machine))) for run in measured_on]
    return _rendered(
        "sweep.html",
        curves,
        max(last_step(run.records) for run in runs),
        title=folder.resolve().name,
        about=[f"{counted(len(runs), 'run')} in {counted(len(groups), 'group')}"],
        groups=tables_of_scores,
        runs=[_runs_table(members, short_paths, varied) for members in parts],
        n_runs=len(runs),
        few=are_few,
        names=[*curves] if len(groups) > 1 else [],
        curves_of=curves_of,
        samples=_by_sentence(samples),
        notes=notes,
        machines=gathered(facts),
        shared=shared,
    )


def _runs_table(
    runs: Sequence[MeasuredRun], short_paths: dict[str, str], varied: Sequence[str]
) -> Table:
    """Returns one row per run."""
    measured = {
        f"{metric.name} (greedy)" if metric.name in VAL_METRICS else metric.title: metric
        for metric in (*SERIES, *SCORES)
    }
    records: list[Record] = []
    for run in runs:
        name = short_paths[run.path]
        page = run.folder.report
        target = quote(os.fsencode(f"{name}/{page.name}"))
        link = Markup('<a href="{}">{}</a>').format(target, name)
        record: Record = {"run": link if page.exists() else name}
        record |= {title: metric.of(run) for title, metric in measured.items()}
        record |= {key: option_text(run.options.get(key)) for key in varied}
        records.append(record | {"step": last_step(run.records)})
    titles = [title for title in measured if any(record[title] is not None for record in records)]
    scores = [Column(title, decimals=2) for title in titles]
    return Table("Runs", [Column("run"), Column("step"), *scores, *option_columns(varied)], records)


def _curves(
    curved: Sequence[Group], groups: Sequence[Group], short_paths: dict[str, str]
) -> dict[str, Runs]:
    """Returns what each group measured by its name, that of the first run where several groups have
    one name.
    """
    names = [group.name for group in groups]
    curves = {}
    for group in curved:
        name = group.name if names.count(group.name) == 1 else short_paths[group.path]
        if len(group.seeds) > 1:
            name += f" ({len(group.seeds)} seeds)"
        curves[name] = [(run.seed, run.records) for run in group.runs]
    return curves


def _facts(machine: Record) -> list[str]:
    return [f"{key}: {option_text(value)}" for key, value in machine.items() if value]


# The templates, without scripts, in which every text is escaped.


def marked_difference(reference: str, hypothesis: str) -> tuple[Markup, Markup]:
    """Returns both as HTML: words that only the reference has in <del>, words that only the
    hypothesis has in <ins>.
    """
    words, other_words = WORD.findall(reference), WORD.findall(hypothesis)
    # Blanks alone do not count as equal, so neighbouring words that differ are marked together.
    # The time of long texts of few words, such as trees, would grow with the cube of their length.
    is_long = len(other_words) > MAX_COMPARED
    matcher = difflib.SequenceMatcher(str.isspace, words, other_words, autojunk=is_long)
    deleted, inserted = Markup(), Markup()
    for change, start, end, other_start, other_end in matcher.get_opcodes():
        is_equal = change == "equal"
        deleted += _marked(words[start:end], None if is_equal else "del")
        inserted += _marked(other_words[other_start:other_end], None if is_equal else "ins")
    return deleted, inserted


def _marked(words: list[str], tag: str | None) -> Markup:
    text = escape("".join(words))
    return Markup(f"<{tag}>{text}</{tag}>") if words and tag else text


# A cell of numbers stays on one line, but for what follows an interval.
PAGE = Style(
    plus_minus="\u00a0±\u00a0",
    escape=escape,
    number=lambda cell: escape(cell.replace(" ", "\u00a0").replace("]\u00a0", "] ")),
    strong=lambda cell: Markup("<b>{}</b>").format(cell),
    missing="–",
)


def _rendered(template: str, curves: Mapping[str, Runs], steps: int, **content: Any) -> str:
    """Returns a page with these curves of groups, which reach to `steps`."""
    drawn = [(panel, panel_svg(panel, steps)) for panel in panels(curves)]
    return TEMPLATES.get_template(template).render(content, panels=drawn)


def whole_options(text: str) -> Markup:
    """Returns a line as HTML in which no browser breaks an option after one of its hyphens."""
    # As a plain string: `re.sub` joins with its argument's type, and Markup would escape the tags.
    return Markup(re.sub(r"--[a-z-]+", r'<span class="option">\g<0></span>', str(escape(text))))


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters |= {"shown": shown, "whole_options": whole_options}
TEMPLATES.globals |= {"marked_difference": marked_difference, "style": PAGE}
