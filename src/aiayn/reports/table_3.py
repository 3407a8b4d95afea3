"""Table 3 of the paper, at its own widths and at a quarter of them, and what each row changes against base."""

from collections.abc import Sequence
from typing import NamedTuple

from aiayn.reports.comparison import by_row, explained, is_base
from aiayn.reports.differences import compare
from aiayn.reports.groups import PRECISION, Group, differing_options, option_text, record_of
from aiayn.reports.intervals import Difference, less
from aiayn.reports.metrics import Metric
from aiayn.reports.obstacles import obstacles, warning
from aiayn.reports.published import (
    FITTED_VOCABULARY,
    TABLE_3,
    Row,
    comparable_kind,
)
from aiayn.reports.table import Column, Table
from aiayn.runs.run_folder import Record

PPL, BLEU = Metric("val/ppl"), Metric(comparable_kind("de"), "val")  # the metrics of Table 3, English-German
ROW_OPTIONS = ("n_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v", "dropout", "label_smoothing")
HEADS = ("N", "d_model", "d_ff", "h", "d_k", "d_v", "P_drop", "e_ls")
LATEX = (
    "$N$",
    r"$d_{\mathrm{model}}$",
    r"$d_{\mathrm{ff}}$",
    "$h$",
    "$d_k$",
    "$d_v$",
    r"$P_{\mathrm{drop}}$",
    r"$\epsilon_{\mathrm{ls}}$",
)
SIZE_COLUMNS = [
    Column(key, title, latex=latex, spec="g") for key, title, latex in zip(ROW_OPTIONS, HEADS, LATEX, strict=True)
]


def is_of_row(group: Group, row: Row) -> bool:
    """Whether a row of Table 3, or of its quarter, has the configuration, apart from its text and length."""
    config = group.runs[0].settled()
    is_german = (config.data.src_lang, config.data.tgt_lang) == ("en", "de")
    return is_german and row.is_of(config.model, config.optim.label_smoothing)


def table_3_record(row: Row | None, group: Group | None) -> Record:
    """Returns every column of Table 3: measured, published, and the difference measured - published."""
    assert row is not None
    run = group.runs[0] if group else None
    config = run.settled() if run else None
    model = config.model if config else row.model()
    record: Record = {
        "row": row.name,
        "label": row.label,
        **record_of(group),
        **{name: getattr(model, name) for name in ("n_layers", "d_model", "d_ff", "n_heads", "dropout", "positions")},
        "d_k": model.d_k,
        "d_v": model.d_v,
        "label_smoothing": config.optim.label_smoothing if config else row.label_smoothing,
        "bleu_kind": BLEU.name,
    }
    evaluation = run.evaluations.get("val") if run else None
    is_averaged = bool(evaluation and evaluation.get("averaged"))
    measured = {
        "steps": run.step if run else None,
        "ppl": group.sample(PPL) if group else None,
        "bleu": group.sample(BLEU) if group and not is_averaged else None,
        "parameters": run.parameters / 1e6 if run else None,
    }
    for name, value in measured.items():
        paper = getattr(row, "max_steps" if name == "steps" else name)
        record |= {name: value, f"paper_{name}": paper, f"{name}_difference": less(value, paper)}
    record["vocab_size"] = config.data.vocab_size if config else None
    record["flops"] = run.flops()[0] if run else None
    record["arithmetic"] = group.options.get(PRECISION) if group else None
    record["not_comparable"] = obstacles(run, row.max_steps, evaluation, "newstest2013") if run else []
    if is_averaged:
        record["not_comparable"].append("scored with averaged weights, the paper's Table 3 with one checkpoint")
    return record


class Changes(NamedTuple):
    """What the rows of Table 3 change against base."""

    records: list[Record]  # every row but base and big, with the change here and in the paper
    differences: list[Difference]  # all of them
    base: str  # with its number of seeds
    left_out: list[str]  # a line for every row that was run and has no base of the same training


def changes(rows: Sequence[tuple[Row | None, Group | None]], is_pooled: bool) -> Changes:
    """Compares each row with the base that differs from it in the row's own options only."""
    measured = [(row, group) for row, group in rows if row and group and row.name != "big"]
    groups = [group for _, group in measured]
    base_of = by_row(groups, _is_of_a_row)
    differences = compare(groups, (PPL, BLEU), base_of, is_pooled)
    paper = TABLE_3[0]
    records, names, left_out = [], [], []
    for place, (row, group) in enumerate(measured):
        base = base_of(group)
        if row.name == "base":
            continue
        if base is None:
            left_out += _why_no_base(row, group, groups)
            continue
        names.append(f"{base.name}, n = {len(base.seeds)}")
        record = {"row": row.name, "label": row.label, **record_of(group)}
        record |= {"ppl": differences.get((place, PPL.key)), "paper_ppl": row.ppl - paper.ppl}
        records.append(record | {"bleu": differences.get((place, BLEU.key)), "paper_bleu": row.bleu - paper.bleu})
    return Changes(records, [*differences.values()], "; ".join(dict.fromkeys(names)), left_out)


def _is_of_a_row(key: str) -> bool:
    return key.startswith("model.") or key == "optim.label_smoothing"


def _why_no_base(row: Row, group: Group, groups: Sequence[Group]) -> list[str]:
    """Returns one line with what the base nearest to this row differs in besides; none without any base."""
    bases = [
        (base.options, [key for key in differing_options([group, base]) if not _is_of_a_row(key)])
        for base in groups
        if is_base(base)
    ]
    if not bases:
        return []
    options, keys = min(bases, key=lambda found: len(found[1]))
    shown = [f"{key}={option_text(group.options.get(key))} (base {option_text(options.get(key))})" for key in keys]
    return [f"{row.name} is not compared with base: {group.name} has {', '.join(shown)}."]


def change_table(title: str, found: Changes, is_pooled: bool) -> Table:
    columns = [Column("row", "row"), Column("n", "n")]
    for key, name in (("ppl", "PPL"), ("bleu", "BLEU")):
        columns += [
            Column(key, f"change in {name}", 2),
            Column(f"paper_{key}", "paper", 2 if key == "ppl" else 1, True),
        ]
    after = explained(found.base, found.differences, is_pooled) if found.records else []
    return Table(title, columns, found.records, after=after, block="label")


def table_3(records: list[Record], left_out: list[str], not_compared: Sequence[str] = ()) -> Table:
    columns = [Column("row", "row"), *SIZE_COLUMNS]
    if any(record["positions"] == "learned" for record in records):
        columns.append(Column("positions", "positions"))
    if len({record["arithmetic"] for record in records if record["run"]}) > 1:
        columns.append(Column("arithmetic", "precision", missing=""))
    columns += [
        *(Column("steps", "steps"), Column("paper_steps", "paper"), Column("n", "n", missing="")),
        *(Column("ppl", "PPL", 2), Column("paper_ppl", "paper", 2)),
        *(Column("bleu", "BLEU (compound-split)", 2), Column("paper_bleu", "paper", 1)),
        *(Column("parameters", "params (M)", 2), Column("paper_parameters", "paper")),
    ]
    about = (
        "PPL is per subword of the run's own vocabulary, without label smoothing. BLEU is bleu_compound_split of the "
        f"last checkpoint, without averaging. The paper's parameters fit a vocabulary of {FITTED_VOCABULARY:,}: "
        "`aiayn table --parameters` tells more."
    )
    return Table(
        "Table 3: newstest2013", columns, records, warning(records), [about, *left_out, *not_compared], "label"
    )


def table_3_quarter(records: list[Record], left_out: list[str], not_compared: Sequence[str] = ()) -> Table:
    table = table_3(records, left_out, not_compared)
    table.title = "Table 3 at a quarter of its widths"
    table.before = [
        "Text, steps and widths are not the paper's, whose figures are those of the full row: only what a row changes "
        "against base can be compared."
    ]
    return table
