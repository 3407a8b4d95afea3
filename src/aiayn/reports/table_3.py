"""Table 3 of the paper, at its own widths and at a quarter of them, and what each row changes against base."""

from collections.abc import Sequence

from aiayn.reports.comparison import by_row, explained
from aiayn.reports.differences import compare
from aiayn.reports.groups import Group, Metric, record_of
from aiayn.reports.intervals import Difference, less
from aiayn.reports.obstacles import obstacles, warning
from aiayn.reports.published import (
    FITTED_VOCABULARY,
    TABLE_3,
    Row,
    comparable_kind,
)
from aiayn.reports.table import Column, Table
from aiayn.runs.run_folder import Record

PPL, BLEU = Metric("val/ppl"), Metric(comparable_kind("de"), "val")  # of Table 3, English-German
SIZES = ("n_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v", "dropout", "label_smoothing")
HEADS = ("N", "d_model", "d_ff", "h", "d_k", "d_v", "P_drop", "e_ls")
LATEX = ("$N$", r"$d_{\text{model}}$", r"$d_{\text{ff}}$", "$h$", "$d_k$", "$d_v$", "$P_{drop}$", r"$\epsilon_{ls}$")
SIZE_COLUMNS = [
    Column(key, title, latex=latex, spec="g") for key, title, latex in zip(SIZES, HEADS, LATEX, strict=True)
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
    record["not_comparable"] = obstacles(run, row.max_steps, evaluation, "newstest2013") if run else []
    if is_averaged:
        record["not_comparable"].append("scored with averaged weights, the paper's Table 3 with one checkpoint")
    return record


def changes(
    rows: Sequence[tuple[Row | None, Group | None]], is_pooled: bool
) -> tuple[list[Record], list[Difference], str]:
    """Returns what each row of Table 3 but base and big changes, here and in the paper; all differences; base."""
    measured = [(row, group) for row, group in rows if row and group and row.name != "big"]
    groups = [group for _, group in measured]
    base_of = by_row(groups, lambda key: key.startswith("model.") or key == "optim.label_smoothing")
    differences = compare(groups, (PPL, BLEU), base_of, is_pooled)
    paper = TABLE_3[0]
    records, names = [], []
    for place, (row, group) in enumerate(measured):
        base = base_of(group)
        if base is None or row.name == "base":
            continue
        names.append(f"{base.name}, n = {len(base.seeds)}")
        record = {"row": row.name, "label": row.label, **record_of(group)}
        record |= {"ppl": differences.get((place, PPL.key)), "paper_ppl": row.ppl - paper.ppl}
        records.append(record | {"bleu": differences.get((place, BLEU.key)), "paper_bleu": row.bleu - paper.bleu})
    return records, [*differences.values()], "; ".join(dict.fromkeys(names))


def change_table(title: str, records: list[Record], differences: list[Difference], base: str, is_pooled: bool) -> Table:
    columns = [Column("row", "row"), Column("n", "n")]
    for key, name in (("ppl", "PPL"), ("bleu", "BLEU")):
        columns += [
            Column(key, f"change in {name}", 2),
            Column(f"paper_{key}", "paper", 2 if key == "ppl" else 1, True),
        ]
    return Table(
        title, columns, records, after=explained(base, differences, is_pooled) if records else [], block="label"
    )


def table_3(records: list[Record], left_out: list[str]) -> Table:
    columns = [Column("row", "row"), *SIZE_COLUMNS]
    if any(record["positions"] == "learned" for record in records):
        columns.append(Column("positions", "positions"))
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
    return Table("Table 3: newstest2013", columns, records, warning(records), [about, *left_out], "label")


def table_3_quarter(records: list[Record], left_out: list[str]) -> Table:
    table = table_3(records, left_out)
    table.title = "Table 3 at a quarter of its widths"
    table.before = [
        "Text, steps and widths are not the paper's, whose figures are those of the full row: only what a row changes "
        "against base can be compared."
    ]
    return table
