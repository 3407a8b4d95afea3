"""The paper's tables as Markdown and CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from aiayn.reports.published import FITTED_VOCABULARY, TABLE_2
from aiayn.reports.tables import CHANGES, SIZES, changes_against_base, counted_flops, noise_of_base

Record = Mapping[str, Any]
NOTED = ("table_3", "table_3_quarter", "other_runs", "table_4")
COLUMNS = ("N", "d_model", "d_ff", "h", "d_k", "d_v", "P_drop", "e_ls")


def markdown(tables: Mapping[str, Sequence[Record]], every_row: bool = False) -> str:
    """Returns what `tables.collect` found, as one page: rows that were run, or every row of the paper."""
    layouts = {"table_2": _table_2, "table_3": _table_3, "table_3_quarter": _table_3_quarter, "table_4": _table_4}
    parts, left_out = [], 0
    for name, layout in layouts.items():
        measured = [record for record in tables[name] if record["run"]]
        if name == "table_3_quarter" and not measured:  # not in the paper
            continue
        left_out += 0 if every_row else len(tables[name]) - len(measured)
        if shown := tables[name] if every_row else measured:
            parts.append(layout(shown))
        if name == "table_3":
            parts += _changes("Change against base", tables[name])
    if others := tables["other_runs"]:
        rows = [
            [_marked(record), *_sizes(record), f"{record['steps']:,}"]
            + [_shown(record[name], ".2f") for name in ("ppl", "bleu", "parameters")]
            for record in others
        ]
        header = ["run", *COLUMNS, "steps", "PPL", "BLEU", "parameters (M)"]
        parts.append("## Other runs\n\nNo row of Table 3 has their configuration.\n\n" + _grid(header, rows))
    seen = {record["run"]: record["notes"] for name in NOTED for record in tables[name]}
    notes = [f"- {run}: {note}" for run, found in seen.items() for note in found]
    notes += [f"- {record['run']}: not shown: {record['reason']}" for record in tables["unread"]]
    if notes:
        parts.append("## Notes\n\n" + "\n".join(notes))
    if left_out:
        parts.append(f"{left_out} rows of these tables were not run; `--all` shows them, too.")
    return _paragraphs(*parts) + "\n"


def _changes(title: str, records: Sequence[Record]) -> list[str]:
    """Of all comparisons the one that a short run allows: what each row changes against base, here and in the paper."""
    changes, noise = [change for change in changes_against_base(records) if change["run"]], noise_of_base(records)
    if not changes:
        return []
    header, text = ["row", "PPL", "paper", "BLEU", "paper", "run"], []
    rows = [[change["row"], *(_shown(change[name], "+.2f") for name in CHANGES), change["run"]] for change in changes]
    if noise:
        header.insert(-1, "beyond noise")
        for row, change in zip(rows, changes, strict=True):
            far = [name for name, limit in noise.items() if abs(change[name] or 0) > limit]
            row.insert(-1, ", ".join(name.upper() for name in far))
        limits = " and ".join(f"{limit:.2f} {name.upper()}" for name, limit in noise.items())
        text = [f"One run lies within {limits} of the mean of base's seeds by chance (two standard deviations)."]
    return [_paragraphs(f"## {title}", _grid(header, rows), *text)]


def parameters_markdown(records: Sequence[Record]) -> str:
    """Returns what `parameters.parameter_table` counted; docs/fidelity.md says what follows from it."""
    header = ["row", "paper (M)"]
    for name in ("", "_fitted"):
        header += [f"V = {records[0][f'vocab_size{name}']:,}", "difference"]
    rows = [
        [record["row"], _shown(record["paper"], ".0f")]
        + [
            _shown(record[f"{column}{name}"], spec)
            for name in ("", "_fitted")
            for column, spec in (("parameters", ".2f"), ("difference", "+.2f"))
        ]
        for record in records
    ]
    return f"## Table 3: parameters, in millions\n\n{_grid(header, rows)}\n"


def _table_2(records: Sequence[Record]) -> str:
    rows = []
    for record in records:
        weights = {None: "", 0: "last"}.get(record["averaged"], f"{record['averaged']} averaged")
        about = "" if record["flops"] is None or record["flops_counted_over_the_corpus"] else "about "
        rows.append(
            [
                record["model"] or "other",
                f"{record['src_lang']}-{record['tgt_lang']}",
                *_pair(record, "bleu", 2, 1),
                _shown(record["sacrebleu"], ".2f"),
                "" if record["lines"] is None else f"{record['test_set'] or 'test'}, {record['lines']:,} lines",
                weights,
                about + _shown(record["flops"], ".2g", "not run"),
                _shown(record["paper_flops_counted"], ".2g"),
                _shown(record["paper_flops"], ".2g"),
                record["run"] or "",
            ]
        )
    header = ["model", "text", "BLEU", "paper", "difference", "sacreBLEU", "test set", "weights", "FLOPs"]
    header += ["FLOPs at the paper's length", "paper's FLOPs", "run"]
    ratios = {result.model: f"{result.flops / counted_flops(result):.1f}" for result in TABLE_2[:2]}
    return _paragraphs(
        "## Table 2: newstest2014",
        *_warning(records),
        _grid(header, rows),
        "BLEU is cased and tokenised (Moses), for German with hyphenated words in parts: the kind of the authors' "
        "script. The paper itself states neither. sacreBLEU must not be compared with the paper's column.",
        "FLOPs are those of training, counted from the matrix multiplications of the model and the tokens seen. "
        "The paper's are device time times a sustained rate, and so "
        f"{ratios['base']} (base) and {ratios['big']} (big) times what its training computes.",
    )


def _table_3(records: Sequence[Record]) -> str:
    rows = []
    for record in records:
        name = record["label"] if record["label"] in ("base", "big") else f"{record['label']} {record['row']}"
        steps = f"{_shown(record['steps'], ',', 'not run')} ({record['paper_steps']:,})"
        numbers = [*_pair(record, "ppl", 2, 2), *_pair(record, "bleu", 2, 1), *_pair(record, "parameters", 2, 0)]
        rows.append([name, *_sizes(record), steps, *numbers, record["run"] or ""])
    header = ["row", *COLUMNS, "steps (paper)", "PPL", "paper", "difference", "BLEU", "paper", "difference"]
    header += ["parameters (M)", "paper", "difference", "run"]
    return _paragraphs(
        "## Table 3: newstest2013",
        *_warning(records),
        _grid(header, rows),
        "PPL is per subword of the run's own vocabulary, without label smoothing. BLEU is of the last checkpoint, "
        "without averaging, and of the kind of Table 2. Row (E) has learned positions. The paper's parameters fit "
        f"a vocabulary of {FITTED_VOCABULARY:,}: `aiayn table --parameters` tells more.",
    )


def _table_3_quarter(records: Sequence[Record]) -> str:
    rows = []
    for record in records:
        name = record["label"] if record["label"] == "base" else f"{record['label']} {record['row']}"
        scores = [_shown(record[name], ".2f") for name in ("ppl", "paper_ppl", "bleu", "paper_bleu", "parameters")]
        rows.append([name, *_sizes(record), _shown(record["steps"], ",", "not run"), *scores, record["run"] or ""])
    header = ["row", *COLUMNS, "steps", "PPL", "paper", "BLEU", "paper", "parameters (M)", "run"]
    return _paragraphs(
        "## Table 3 at a quarter of its widths",
        "Text, steps and widths are not the paper's, whose figures are those of the full row: only what a row changes "
        "against base can be compared.",
        _grid(header, rows),
        *_changes("Change against base, at a quarter of the widths", records),
    )


def _table_4(records: Sequence[Record]) -> str:
    rows = [
        [
            record["training"] or "other",
            *_pair(record, "f1", 2, 1),
            *(_shown(record[name], ".2f") for name in ("precision", "recall", "complete_match")),
            _shown(record["malformed"], ","),
            "" if record["lines"] is None else f"{record['test_set'] or record['test']}, {record['lines']:,} sentences",
            _shown(record["steps"], ",", "not run"),
            record["run"] or "",
        ]
        for record in records
    ]
    header = ["training", "F1", "paper", "difference", "precision", "recall", "complete", "malformed", "test set"]
    return _paragraphs(
        "## Table 4: parsing, section 23 of the Wall Street Journal",
        _grid([*header, "steps", "run"], rows),
        "F1 is of labelled brackets, counted as EVALB with COLLINS.prm counts. Runs on other text, or with another "
        "model or vocabulary, are `other`: their figures cannot be compared with the paper's.",
    )


def _warning(records: Sequence[Record]) -> list[str]:
    """One paragraph with the reasons why these runs cannot be compared with the paper's figures; none if they can."""
    measured = [record for record in records if record["run"]]
    concerned = [record for record in measured if record["not_comparable"]]
    reasons = dict.fromkeys(reason for record in concerned for reason in record["not_comparable"])
    if not reasons:
        return []
    count = f"{len(concerned)} of {len(measured)} run{'s' * (len(measured) > 1)}"
    lines = [f"**Not comparable with the paper's figures** ({count}), whatever the differences below:\n"]
    for reason in reasons:
        runs = [PurePath(record["run"]).name for record in concerned if reason in record["not_comparable"]]
        # Runs are named where a reason does not apply to all of them.
        lines.append(f"- {reason}" + (f" ({', '.join(runs)})" if len(runs) < len(measured) else ""))
    return ["\n".join(lines)]


def _paragraphs(*parts: str) -> str:
    return "\n\n".join(parts)


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns line up as plain text too."""
    rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def _sizes(record: Record) -> list[str]:
    return [f"{record[name]:g}" for name in SIZES]


def _pair(record: Record, name: str, digits: int, paper_digits: int) -> list[str]:
    """Measured, published, difference; `not run` where there is no run."""
    measured = "not run" if record["run"] is None else _shown(record[name], f".{digits}f")
    published = _shown(record[f"paper_{name}"], f".{paper_digits}f")
    return [measured, published, _shown(record[f"{name}_difference"], f"+.{digits}f")]


def _marked(record: Record) -> str:
    """The run, with what no column shows."""
    marks = [f"{record['positions']} positions"] if record["positions"] != "sinusoidal" else []
    marks += [f"attention_window {record['attention_window']}"] if record["attention_window"] else []
    return record["run"] + (f" ({', '.join(marks)})" if marks else "")


def _shown(value: float | None, spec: str, missing: str = "-") -> str:
    return missing if value is None else format(value, spec)


def as_csv(records: Sequence[Record]) -> str:
    """One line a record; lists become text with semicolons."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(records[0]), lineterminator="\n")
    writer.writeheader()
    for record in records:
        writer.writerow({key: "; ".join(v) if isinstance(v, list) else v for key, v in record.items()})
    return file.getvalue()
