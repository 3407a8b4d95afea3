"""The paper's tables as Markdown and CSV."""

import csv
import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from aiayn.paper.parameters import finding
from aiayn.paper.published import FITTED_VOCABULARY
from aiayn.paper.tables import CHANGES, SIZES, changes_against_base

Record = Mapping[str, Any]
COLUMNS = ("N", "d_model", "d_ff", "h", "d_k", "d_v", "P_drop", "e_ls")


def markdown(tables: Mapping[str, Sequence[Record]]) -> str:
    """What `tables.collect` found, as one page."""
    parts = [_table_2(tables["table_2"]), _table_3(tables["table_3"])]
    if section := _changes(tables["table_3"]):
        parts.append(section)
    if others := tables["other_runs"]:
        rows = [[_marked(record), *_configuration(record), *_measured(record)] for record in others]
        header = ["run", *COLUMNS, "steps", "PPL", "BLEU", "parameters (M)"]
        parts.append("## Other runs\n\nNo row of Table 3 has their configuration.\n\n" + _grid(header, rows))
    seen = {record["run"]: record["notes"] for name in ("table_3", "other_runs") for record in tables[name]}
    notes = [f"- {run}: {note}" for run, found in seen.items() for note in found]
    notes += [f"- {record['run']}: not shown: {record['reason']}" for record in tables["unread"]]
    if notes:
        parts.append("## Notes\n\n" + "\n".join(notes))
    return "\n\n".join(parts) + "\n"


def parameters_markdown(records: Sequence[Record]) -> str:
    """What `parameters.parameter_table` counted, and what follows from it."""
    first = records[0]
    rows = []
    for record in records:
        counted = []
        for name in ("", "_fitted"):
            counted += [f"{record[f'parameters{name}']:.2f}", _signed(record[f"difference{name}"], 2)]
        rows.append([record["row"], _number(record["paper"], 0), *counted])
    header = ["row", "paper (M)"]
    header += [text for name in ("", "_fitted") for text in (f"V = {first[f'vocab_size{name}']:,}", "difference")]
    return f"## Table 3: parameters, in millions\n\n{_grid(header, rows)}\n\n{finding()}\n"


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
                _number(record["sacrebleu"], 2),
                "" if record["lines"] is None else f"{record['test_set'] or 'test'}, {record['lines']:,} lines",
                weights,
                "not run" if record["flops"] is None else f"{about}{record['flops']:.2g}",
                _scientific(record["paper_flops_counted"]),
                _scientific(record["paper_flops"]),
                _short(record),
            ]
        )
    header = ["model", "text", "BLEU", "paper", "difference", "sacreBLEU", "test set", "weights", "FLOPs"]
    header += ["FLOPs at the paper's length", "paper's FLOPs", "run"]
    ratios = {
        record["model"]: f"{record['paper_flops'] / record['paper_flops_counted']:.1f}"
        for record in records
        if record["model"] and record["tgt_lang"] == "de"
    }
    return "\n\n".join(
        [
            "## Table 2: newstest2014",
            *_warning(records),
            _grid(header, rows),
            "BLEU is cased and tokenised (Moses), for German with hyphenated words in parts: the kind of the authors' "
            "script. The paper itself states neither. sacreBLEU must not be compared with the paper's column.",
            "FLOPs are those of training, counted from the matrix multiplications of the model and the tokens seen. "
            "The paper's are device time times a sustained rate, and so "
            f"{ratios['base']} (base) and {ratios['big']} (big) times what its training computes.",
        ]
    )


def _table_3(records: Sequence[Record]) -> str:
    rows = []
    for record in records:
        name = record["label"] if record["label"] in ("base", "big") else f"{record['label']} {record['row']}"
        steps = f"{_thousands(record['steps'])} ({record['paper_steps']:,})"
        numbers = [*_pair(record, "ppl", 2, 2), *_pair(record, "bleu", 2, 1), *_pair(record, "parameters", 2, 0)]
        rows.append([name, *_configuration(record), steps, *numbers, _short(record)])
    header = ["row", *COLUMNS, "steps (paper)", "PPL", "paper", "difference", "BLEU", "paper", "difference"]
    header += ["parameters (M)", "paper", "difference", "run"]
    return "\n\n".join(
        [
            "## Table 3: newstest2013",
            *_warning(records),
            _grid(header, rows),
            "PPL is per subword of the run's own vocabulary, without label smoothing. BLEU is of the last checkpoint, "
            "without averaging, and of the kind of Table 2. Row (E) has learned positions. The paper's parameters fit "
            f"a vocabulary of {FITTED_VOCABULARY:,}: `aiayn table --parameters` tells more.",
        ]
    )


def _changes(records: Sequence[Record]) -> str | None:
    """What each row changes against base, here and in the paper: of all comparisons the one that a short run bears."""
    rows = [
        [change["row"], *(_signed(change[name], 2) for name in CHANGES), change["run"]]
        for change in changes_against_base(records)
        if change["run"]
    ]
    header = ["row", "PPL", "paper", "BLEU", "paper", "run"]
    return "## Change against base\n\n" + _grid(header, rows) if rows else None


def _warning(records: Sequence[Record]) -> list[str]:
    """One paragraph that says why figures of these runs cannot stand beside the paper's; none if they can."""
    measured = [record for record in records if record["run"]]
    concerned = [record for record in measured if record["not_comparable"]]
    names = defaultdict(list)
    for record in concerned:
        for reason in record["not_comparable"]:
            names[reason].append(PurePath(record["run"]).name)
    if not names:
        return []
    # Who differs is said where it is not all of them.
    reasons = [
        f"- {reason}" + (f" ({', '.join(who)})" if len(who) < len(measured) else "") for reason, who in names.items()
    ]
    count = f"{len(concerned)} of {len(measured)} run{'s' * (len(measured) > 1)}"
    return [
        f"**Not comparable with the paper's figures** ({count}), whatever the differences below:\n\n"
        + "\n".join(reasons)
    ]


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns line up as plain text too."""
    rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def _configuration(record: Record) -> list[str]:
    return [f"{record[name]:g}" for name in SIZES]


def _measured(record: Record) -> list[str]:
    return [
        _thousands(record["steps"]),
        _number(record["ppl"], 2),
        _number(record["bleu"], 2),
        _number(record["parameters"], 2),
    ]


def _pair(record: Record, name: str, digits: int, paper_digits: int) -> list[str]:
    """Measured, published, difference. Where there is no run it says so."""
    measured = "not run" if record["run"] is None else _number(record[name], digits)
    published = _number(record[f"paper_{name}"], paper_digits)
    return [measured, published, _signed(record[f"{name}_difference"], digits)]


def _short(record: Record) -> str:
    return record["run"] or ""


def _marked(record: Record) -> str:
    """The run, with what no column shows."""
    marks = [f"{record['positions']} positions"] if record["positions"] != "sinusoidal" else []
    marks += [f"attention_window {record['attention_window']}"] if record["attention_window"] else []
    return record["run"] + (f" ({', '.join(marks)})" if marks else "")


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _signed(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:+.{digits}f}"


def _scientific(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"


def _thousands(value: int | None) -> str:
    return "not run" if value is None else f"{value:,}"


def as_csv(records: Sequence[Record]) -> str:
    """One line a record; lists become text with semicolons."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(records[0]), lineterminator="\n")
    writer.writeheader()
    for record in records:
        writer.writerow({key: "; ".join(v) if isinstance(v, list) else v for key, v in record.items()})
    return file.getvalue()
