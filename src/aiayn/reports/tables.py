"""Tables 2 to 4 of the paper: what runs measured, beside what was published."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypeVar

from aiayn.config.schema import DataConfig
from aiayn.errors import RefusedError
from aiayn.model.flops import training_flops
from aiayn.reports.published import (
    QUARTER_TABLE_3,
    SECTION_23,
    STATED_VOCABULARY,
    TABLE_2,
    TABLE_3,
    TABLE_4,
    TOKENS_PER_STEP,
    VOCABULARIES,
    ParsingResult,
    Result,
    Row,
    comparable_kind,
)
from aiayn.reports.runs import MeasuredRun, find_runs, read_run
from aiayn.runs.run_folder import BRACKET_KINDS

T = TypeVar("T")
Record = dict[str, Any]  # one line of a table, with plain values
SIZES = ("n_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v", "dropout", "label_smoothing")
CHANGES = ("ppl", "paper_ppl", "bleu", "paper_bleu")


def collect(folders: list[Path]) -> dict[str, list[Record]]:
    """Returns Tables 2, 3 and 4, the runs that are no row of Table 3, and the unreadable folders, as plain values.

    `table_3_quarter` has the rows of Table 3 at a quarter of its widths, with the paper's results for the full ones.
    A run belongs to a row by its configuration, not by its name. Rows without a run are included, with None for what
    was not measured. Raises RefusedError for a folder that holds no run.
    """
    runs, unread = [], []
    for folder in find_runs(folders):
        try:
            runs.append(read_run(folder))
        except RefusedError as error:
            unread.append({"run": str(folder.path), "reason": str(error)})
    parsers = [run for run in runs if run.config.data.task == "parsing"]
    runs = [run for run in runs if run.config.data.task != "parsing"]
    _note_other_text(runs)
    table_2 = [pair for pair in _beside(TABLE_2, runs, _is_of) if pair[0] or "test" in pair[1].evaluations]
    rows = _beside((*TABLE_3, *QUARTER_TABLE_3), runs, _is_of_row)
    return {
        "table_2": [_table_2_record(*pair) for pair in table_2],
        "table_3": [_table_3_record(row, run) for row, run in rows if row in TABLE_3],
        "table_3_quarter": [_table_3_record(row, run) for row, run in rows if row in QUARTER_TABLE_3],
        "table_4": [_table_4_record(*pair) for pair in _beside(TABLE_4, parsers, _is_parser_of)],
        "other_runs": [_table_3_record(None, run) for row, run in rows if row is None],
        "unread": unread,
    }


def _beside(
    published: Sequence[T], runs: Sequence[MeasuredRun], is_of: Callable[[MeasuredRun, T], bool]
) -> list[tuple[T | None, MeasuredRun | None]]:
    """Returns every published result with each run of it, or with None, and then None with all other runs."""
    pairs: list[tuple[T | None, MeasuredRun | None]] = []
    others = list(runs)
    for result in published:
        members = [run for run in others if is_of(run, result)]
        others = [run for run in others if run not in members]
        pairs += [(result, run) for run in members or [None]]
    return pairs + [(None, run) for run in others]


def _note_other_text(runs: Sequence[MeasuredRun]) -> None:
    """Notes where runs in one direction were scored on different text: their scores cannot be compared."""
    for split in ("val", "test"):
        first: dict[tuple[str, str], tuple[str, str]] = {}  # direction: SHA-256 of the text, and the run
        for run in runs:
            data, text = run.config.data, run.evaluations.get(split, {}).get("text_sha256")
            if isinstance(text, str):
                sha256, name = first.setdefault((data.src_lang, data.tgt_lang), (text, run.name))
                if text != sha256:
                    run.notes.append(f"{split} is other text than that of {name}: do not compare their scores")


def _is_of_row(run: MeasuredRun, row: Row) -> bool:
    """Whether a row of Table 3, or of its quarter, has the run's configuration, apart from its text and length."""
    data = run.config.data
    return (data.src_lang, data.tgt_lang) == ("en", "de") and row.is_of(
        run.config.model, run.config.optim.label_smoothing
    )


def _table_3_record(row: Row | None, run: MeasuredRun | None) -> Record:
    """Returns every column of Table 3: measured, published, and the difference measured - published."""
    model = run.config.model if run else row.model()
    evaluation = run.evaluations.get("val") if run else None
    kind = comparable_kind(run.config.data.tgt_lang if run else "de")
    published = vars(row) if row else {}
    record: Record = {
        "row": published.get("name"),
        "label": published.get("label"),
        "run": run.name if run else None,
        **{name: getattr(model, name) for name in ("n_layers", "d_model", "d_ff", "n_heads")},
        "d_k": model.key_size,
        "d_v": model.value_size,
        "dropout": model.dropout,
        "label_smoothing": run.config.optim.label_smoothing if run else row.label_smoothing,
        "positions": model.positions,
        "attention_window": model.attention_window,
        "bleu_kind": kind,
    }
    measured = {
        "steps": run.step if run else None,
        "ppl": run.ppl if run else None,
        "bleu": evaluation["metrics"].get(kind) if evaluation else None,
        "parameters": run.parameters / 1e6 if run else None,
    }
    for name, value in measured.items():
        paper = published.get("max_steps" if name == "steps" else name)
        record |= {name: value, f"paper_{name}": paper, f"{name}_difference": _less(value, paper)}
    record["vocab_size"] = run.config.data.vocab_size if run else None
    record["flops"] = run.flops if run else None
    record["not_comparable"] = _obstacles(run, row.max_steps, evaluation, "newstest2013") if run and row else []
    record["notes"] = run.notes if run else []
    return record


def changes_against_base(records: Sequence[Record]) -> list[Record]:
    """Returns, for every row of Table 3 but base and big, its ppl and bleu minus base's: measured, and published.

    Base's are the means of its runs, which differ in their seeds. Measured changes are None where a row, or base, was
    not run.
    """
    base = mean_of_base(records)
    return [
        {"row": record["row"], "run": record["run"]} | {name: _less(record[name], base[name]) for name in CHANGES}
        for record in records
        if record["row"] not in ("base", "big")
    ]


def mean_of_base(records: Sequence[Record]) -> dict[str, float | None]:
    """Returns ppl and bleu of base, measured over its runs and published; None where nothing was measured."""
    return {name: fmean(values) if (values := _of_base(records, name)) else None for name in CHANGES}


def noise_of_base(records: Sequence[Record]) -> dict[str, float]:
    """Returns how far, in ppl and in bleu, one run may lie from the mean of base's n seeds by chance.

    Twice the standard deviation of the difference, s sqrt(1 + 1/n). Empty if base was run with one seed only.
    """
    measured = {name: _of_base(records, name) for name in ("ppl", "bleu")}
    return {name: 2 * stdev(v) * math.sqrt(1 + 1 / len(v)) for name, v in measured.items() if len(v) > 1}


def _of_base(records: Sequence[Record], name: str) -> list[float]:
    return [record[name] for record in records if record["row"] == "base" and record[name] is not None]


def _less(value: float | None, base: float | None) -> float | None:
    return None if value is None or base is None else value - base


def _is_of(run: MeasuredRun, result: Result) -> bool:
    data = run.config.data
    same = result.row.is_of(run.config.model, run.config.optim.label_smoothing)
    return same and (data.src_lang, data.tgt_lang) == result.direction


def _table_2_record(result: Result | None, run: MeasuredRun | None) -> Record:
    src_lang, tgt_lang = result.direction if result else (run.config.data.src_lang, run.config.data.tgt_lang)
    evaluation = (run.evaluations.get("test") if run else None) or {}
    metrics, kind = evaluation.get("metrics", {}), comparable_kind(tgt_lang)
    published = result.bleu if result else None
    scored = evaluation.get("step", run.step if run else None)
    record = {
        "model": result.model if result else None,
        "src_lang": src_lang,
        "tgt_lang": tgt_lang,
        "run": run.name if run else None,
        "bleu_kind": kind,
        "bleu": metrics.get(kind),
        "paper_bleu": published,
        "bleu_difference": _less(metrics.get(kind), published),
        "sacrebleu": metrics.get("sacrebleu"),
        "lines": evaluation.get("lines"),
        "test_set": evaluation.get("test_set"),
        "averaged": len(evaluation.get("averaged") or []) if evaluation else None,
        "steps": scored,
        # All steps cost about the same.
        "flops": run.flops * scored / max(run.step, 1) if run else None,
        "flops_counted_over_the_corpus": run.flops_exact if run else None,
        "paper_flops": result.flops if result else None,
        "paper_flops_counted": counted_flops(result) if result else None,
    }
    obstacles = _obstacles(run, result.row.max_steps, evaluation, "newstest2014") if run and result else []
    if evaluation and result and record["averaged"] != result.average:
        obstacles.append(f"{record['averaged'] or 'no'} checkpoints averaged, the paper {result.average}")
    return record | {"not_comparable": obstacles, "notes": run.notes if run else []}


def _is_parser_of(run: MeasuredRun, result: ParsingResult) -> bool:
    same = result.is_of(run.config.model, run.config.data.vocab_size)
    return same and run.evaluations.get("test", {}).get("test_set") == SECTION_23


def _table_4_record(result: ParsingResult | None, run: MeasuredRun | None) -> Record:
    evaluation = (run.evaluations.get("test") if run else None) or {}
    metrics, published = evaluation.get("metrics", {}), result.f1 if result else None
    return {
        "training": result.training if result else None,
        "run": run.name if run else None,
        **{kind: metrics.get(kind) for kind in BRACKET_KINDS},
        "paper_f1": published,
        "f1_difference": _less(metrics.get("f1"), published),
        "malformed": (evaluation.get("brackets") or {}).get("malformed"),
        "test": evaluation.get("text"),
        "test_set": evaluation.get("test_set"),
        "lines": evaluation.get("lines"),
        "steps": evaluation.get("step", run.step) if run else None,
        "notes": run.notes if run else [],
    }


def counted_flops(result: Result) -> float:
    """Returns the FLOPs of the paper's own training, counted by `training_flops`, without attention scores."""
    vocab_size = VOCABULARIES[result.direction][0]
    return float(result.row.max_steps * TOKENS_PER_STEP * training_flops(result.row.model(), vocab_size, 1, 1))


def _obstacles(run: MeasuredRun, paper_steps: int, evaluation: Record | None, test_set: str) -> list[str]:
    """Returns the reasons why a run's figures cannot be compared with the paper's."""
    config, data = run.config, run.config.data
    sizes = VOCABULARIES.get((data.src_lang, data.tgt_lang), (STATED_VOCABULARY,))
    found = []
    if not _is_wmt14(data):
        found.append(f"trained on {_text(data)}, the paper on WMT14")
    if run.step != paper_steps:
        found.append(f"{run.step:,} steps, the paper {paper_steps:,}")
    if data.tokens_per_step != TOKENS_PER_STEP:
        found.append(f"{data.tokens_per_step:,} tokens a step, the paper about {TOKENS_PER_STEP:,}")
    if run.config.data.vocab_size not in sizes:
        found.append(f"a vocabulary of {run.config.data.vocab_size:,}, the paper about {sizes[0]:,}")
    if (config.optim.warmup_steps, config.optim.lr_scale) != (4000, 1):
        warmup, scale = config.optim.warmup_steps, config.optim.lr_scale
        found.append(f"optim.warmup_steps={warmup} and optim.lr_scale={scale:g}, the paper 4000 and 1")
    known = evaluation.get("test_set") == test_set if evaluation else _is_wmt14(data)
    if not known:
        found.append(f"measured on other text than {test_set}")
    elif evaluation and evaluation.get("n_references", 1) != 1:
        found.append("scored with several references")
    return found


def _is_wmt14(data: DataConfig) -> bool:
    return data.source == "hub" and Path(data.hub_path or "").name == "wmt14" and data.train == "train"


def _text(data: DataConfig) -> str:
    if data.source == "phrasebook":
        return "the phrasebook"
    return str(data.hub_path) if data.source == "hub" else f"data.train={data.train}"
