"""Tables 2, 3 and 4 of the paper: what was measured, beside what was published."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import NamedTuple

from aiayn.config.data import DataConfig
from aiayn.config.search import SearchConfig
from aiayn.config.stored import to_dict
from aiayn.config.tasks import BRACKET_KINDS
from aiayn.errors import counted
from aiayn.model.flops import n_parameters, training_flops
from aiayn.reports.comparison import compare_groups, counted_seeds
from aiayn.reports.differences import Difference, corrected, explained, minus
from aiayn.reports.groups import (
    ONE_CHECKPOINT,
    PRECISION,
    Group,
    differing_options,
    group_runs,
    option_text,
    partitions,
)
from aiayn.reports.published import (
    BASE,
    FITTED_VOCABULARY,
    QUARTER_TABLE_3,
    STATED_VOCABULARY,
    TABLE_2,
    TABLE_3,
    TABLE_4,
    TOKENS_PER_STEP,
    VOCABULARIES,
    Row,
    comparable_kind,
)
from aiayn.reports.runs import MeasuredRun
from aiayn.reports.table_metrics import Metric
from aiayn.reports.tables import NOT_RUN, Column, Table
from aiayn.runs.results import Evaluation
from aiayn.runs.run_folder import Record

# The metrics of Table 3, English-German
PPL = Metric("val/ppl")
BLEU = Metric(comparable_kind("de"), "val")
SIZES = ("n_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v", "dropout", "label_smoothing")
# Others as the option
SYMBOLS = {
    "n_layers": "N",
    "n_heads": "h",
    "dropout": "P_drop",
    "label_smoothing": "e_ls",
}
QUARTER = "table_3_quarter"
MEASURED_KEYS = ("ppl", "bleu", "f1", "steps", "flops")  # say "not run" in a row without a run


@dataclass(frozen=True)
class Line:
    """A line of a table: a row of the paper with one group of its runs, or without any; or `other`
    runs.
    """

    row: Row
    group: Group

    @property
    def is_measured(self) -> bool:
        return bool(self.group.runs)


class PaperTables(NamedTuple):
    """The records of all tables by name, rows without a run included, and the tables to show."""

    records: dict[str, list[Record]]
    tables: list[Table]


def paper_tables(runs: Sequence[MeasuredRun], every_row: bool = False) -> PaperTables:
    """Return Tables 2, 3 and 4, and Table 3 at a quarter of its widths, with the paper's results
    for the full ones.

    A run belongs to a row by its configuration, not by its name; seeds of a row are one line. A
    table with two measured rows is shown whole, one with a single measured row shows that row, one
    with none is left out, unless `every_row`.
    """
    scored = [BLEU, Metric("sacrebleu", "test"), Metric("f1", "test")]
    groups = [group for members in partitions(runs, scored) for group in group_runs(members)]
    translators = [group for group in groups if group.runs[0].task == "translation"]
    parsers = [group for group in groups if group.runs[0].task == "parsing"]
    tested = [group for group in translators if group.evaluation("test") or _is_in_table_2(group)]

    sections = (
        ("table_2", _lines(TABLE_2, tested, with_others=True), _table_2_record, _table_2),
        ("table_3", _lines(TABLE_3, translators), _table_3_record, _table_3),
        (QUARTER, _lines(QUARTER_TABLE_3, translators), _table_3_record, _table_3_quarter),
        ("table_4", _lines(TABLE_4, parsers, with_others=True), _table_4_record, _table_4),
    )
    records: dict[str, list[Record]] = {}
    tables = []
    changes: list[Record] = []
    for name, lines, record_of, describe in sections:
        records[name] = [record_of(line) for line in lines]
        rows, left_out = _shown(lines, records[name], every_row and name != QUARTER)
        table = replace(describe(rows), name=name)
        table.after += left_out
        tables.append(table)
        if record_of is _table_3_record:
            change, not_compared = _changes(lines)
            change.title, change.name = f"{table.title}: change against base", f"{name}_changes"
            tables.append(change)
            table.after += not_compared
            changes = changes or [*change.records]
    records["changes"] = changes
    return PaperTables(records, [table for table in tables if table.records])


def _lines(rows: Sequence[Row], groups: Sequence[Group], with_others: bool = False) -> list[Line]:
    """Pair every row with each of its groups, or with an empty one, and then `other` with all other
    groups.
    """
    lines = []
    for row in rows:
        of_row = [group for group in groups if _is_of(row, group)]
        lines += [Line(row, group) for group in of_row or [Group([], {})]]
    if with_others:
        other = Row(name="other", label="", options={}, printed=dict.fromkeys(rows[0].printed))
        placed = {line.group.path for line in lines if line.is_measured}
        lines += [Line(other, group) for group in groups if group.path not in placed]
    return lines


def _is_of(row: Row, group: Group) -> bool:
    evaluation = group.evaluation("test")
    test_set = evaluation.test_set if evaluation else None
    return row.is_of(group.runs[0].options | {"test_set": test_set})


def _is_in_table_2(group: Group) -> bool:
    return any(_is_of(row, group) for row in TABLE_2)


def _shown(
    lines: Sequence[Line], records: Sequence[Record], every_row: bool
) -> tuple[list[Record], list[str]]:
    """Return the records to show, marked where they were not run, and a line about those left
    out.
    """
    measured_rows = {id(line.row) for line in lines if line.is_measured and line.row.options}
    if every_row or len(measured_rows) > 1:
        shown = []
        for record in records:
            missing = () if record["run"] else MEASURED_KEYS
            shown.append(record | {key: NOT_RUN for key in missing if key in record})
        return shown, []
    measured_records = [record for record in records if record["run"] and measured_rows]
    left_out = len(records) - len(measured_records)
    if not left_out:
        return measured_records, []
    return measured_records, [
        f"{left_out} rows of this table were not run; --all shows them as well."
    ]


def _beside(row: Row, figures: Record) -> Record:
    """Return what was measured, the paper's figures, and the differences measured - published."""
    record = dict(figures)
    for key, printed in row.printed.items():
        record[f"paper_{key}"] = printed
        record[f"{key}_difference"] = minus(figures[key], printed)
    return record


# Table 2: BLEU on newstest2014 and the cost of training, beside other systems.

TABLE_2_COLUMNS = (
    Column("model"),
    Column("text"),
    Column("n"),
    Column("bleu", "BLEU", 2),
    Column("length_ratio", "length ratio", 3),
    Column("paper_bleu", "paper", 2),
    Column("bleu_difference", "difference", spec="+,.2f"),
    Column("sacrebleu", "sacreBLEU", 2),
    Column("scored", "test set"),
    Column("weights"),
    Column("flops", "FLOPs", spec=".2g"),
    Column("paper_flops_counted", "FLOPs at the paper's length", spec=".2g"),
    Column("paper_flops", "paper's FLOPs", spec=".2g"),
)


def _table_2_record(line: Line) -> Record:
    row, group = line.row, line.group
    run, evaluation = group.first, group.evaluation("test")
    options = run.options if run else row.options
    src_lang, tgt_lang = options["data.src_lang"], options["data.tgt_lang"]
    bleu = Metric(comparable_kind(tgt_lang), "test")
    steps = flops = averaged = None
    reasons = []
    if run:
        steps = evaluation.step if evaluation else run.step
        flops, _ = run.flops(steps)
        if row.options:
            reasons = why_not_comparable(run, row, evaluation, "newstest2014")
    if evaluation:
        averaged, in_paper = len(evaluation.averaged), row.printed["averaged"]
        if row.options and averaged != in_paper:
            reasons.append(f"{averaged or 'no'} checkpoints averaged, the paper {in_paper}")

    record: Record = {"model": row.name, "text": f"{src_lang}-{tgt_lang}", **group.record()}
    figures = {"flops": flops, "steps": steps, "averaged": averaged}
    record |= _beside(row, {"bleu": group.sample(bleu), **figures})
    record["bleu_kind"] = bleu.name
    record["length_ratio"] = group.sample(bleu.ratio)
    record["sacrebleu"] = group.sample(Metric("sacrebleu", "test"))
    record["weights"] = group.options.get("test weights")
    record |= _how_scored(evaluation, "test", "lines")
    record["paper_flops_counted"] = counted_flops(row) if row.options else None
    record["not_comparable"] = reasons
    return record


def _how_scored(evaluation: Evaluation | None, name: str, unit: str) -> Record:
    """Return what was scored, under its own name unless it is the paper's, and how much of it."""
    if evaluation is None:
        return {"test_set": None, "lines": None, "scored": None}
    text = f"{evaluation.test_set or name}, {evaluation.lines:,} {unit}"
    return {"test_set": evaluation.test_set, "lines": evaluation.lines, "scored": text}


def counted_flops(row: Row) -> float:
    """Return the FLOPs of the paper's own training, counted by `training_flops`, without attention
    scores.
    """
    vocab_size, *_ = VOCABULARIES[row.options["data.src_lang"], row.options["data.tgt_lang"]]
    tokens = row.printed["steps"] * TOKENS_PER_STEP
    return float(tokens * training_flops(row.model, vocab_size, 1, 1))


def _table_2(records: list[Record]) -> Table:
    base, big = (f"{row.printed['flops'] / counted_flops(row):.1f}" for row in TABLE_2[:2])
    footnotes = [
        "BLEU is cased and tokenised (bleu_tokenized), for German with hyphenated words split "
        "(bleu_compound_split), as in the authors' script; the paper states neither. Do not "
        "compare sacreBLEU with the paper's column.",
        "FLOPs are those of training, counted from the model's matrix multiplications and the "
        f"tokens seen. The paper multiplies device time by a sustained rate, which gives {base} "
        f"(base) and {big} (big) times what its training computes.",
    ]
    return Table("Table 2: newstest2014", TABLE_2_COLUMNS, records, _warning(records), footnotes)


# Table 3, and what each row changes against base.

TABLE_3_RESULTS = (
    Column("steps"),
    Column("paper_steps", "paper"),
    Column("n"),
    Column("ppl", "PPL", 2),
    Column("paper_ppl", "paper", 2),
    Column("bleu", "BLEU (compound-split)", 2),
    Column("length_ratio", "length ratio", 3),
    Column("paper_bleu", "paper", 1),
    Column("parameters", "params (M)", 2),
    Column("paper_parameters", "paper"),
)
CHANGE_COLUMNS = (
    Column("row"),
    Column("n"),
    Column("ppl", "change in PPL", 2),
    Column("paper_ppl", "paper", spec="+,.2f"),
    Column("bleu", "change in BLEU", 2),
    Column("paper_bleu", "paper", spec="+,.1f"),
)


def _table_3_record(line: Line) -> Record:
    """Return every column of Table 3: measured, published, and the difference measured -
    published.
    """
    row, group = line.row, line.group
    run, evaluation = group.first, group.evaluation("val")
    options = run.options if run else row.options
    weights = group.options.get("val weights", ONE_CHECKPOINT)
    is_last = weights == ONE_CHECKPOINT
    reasons = why_not_comparable(run, row, evaluation, "newstest2013") if run else []
    if not is_last:
        reasons.append(
            f"scored with other weights ({weights}), the paper's Table 3 with the last checkpoint"
        )

    record: Record = {"row": row.name, "label": row.label, **group.record()}
    record |= {name: options.get(f"model.{name}") for name in (*SIZES, "positions")}
    record["label_smoothing"] = options["optim.label_smoothing"]
    record["arithmetic"] = group.options.get(PRECISION)
    figures = {
        "steps": run.step if run else None,
        "ppl": group.sample(PPL),
        "bleu": group.sample(BLEU) if is_last else None,
        "parameters": run.parameters / 1e6 if run else None,
    }
    record |= _beside(row, figures)
    record["bleu_kind"] = BLEU.name
    record["length_ratio"] = group.sample(BLEU.ratio) if is_last else None
    record["not_comparable"] = reasons
    return record


def _table_3(records: list[Record]) -> Table:
    columns = [Column("row"), *(Column(key, SYMBOLS.get(key, key), spec="g") for key in SIZES)]
    if any(record["positions"] == "learned" for record in records):
        columns.append(Column("positions"))
    if len({record["arithmetic"] for record in records if record["run"]}) > 1:
        columns.append(Column("arithmetic", "precision"))
    about = (
        "PPL is per subword of the run's own vocabulary, without label smoothing. BLEU is "
        "bleu_compound_split of the last checkpoint, without averaging. The paper's parameters "
        f"fit a vocabulary of {FITTED_VOCABULARY:,}: see `aiayn table --parameters`."
    )
    return Table(
        "Table 3: newstest2013", [*columns, *TABLE_3_RESULTS], records, _warning(records), [about]
    )


def _table_3_quarter(records: list[Record]) -> Table:
    introduction = (
        "Text, steps and widths differ from the paper's, whose figures are for the full widths: "
        "compare only the change of a row against base."
    )
    title = "Table 3 at a quarter of its widths"
    return replace(_table_3(records), title=title, before=[introduction])


def _changes(lines: Sequence[Line]) -> tuple[Table, list[str]]:
    """Compare each row with the base that differs from it in the row's own options only.

    The second is a line for every row that was run and has no base of the same training.
    """
    measured_lines = [line for line in lines if line.is_measured and line.row.name != "big"]
    bases = {line.group.path: line.group for line in measured_lines if line.row.name == "base"}
    rows_of: dict[str, list[Line]] = {path: [] for path in bases}
    left_out = []
    for line in measured_lines if bases else ():
        unlike = {path: _other_options(line.group, base) for path, base in bases.items()}
        nearest = min(unlike, key=lambda path: len(unlike[path]))
        if others := unlike[nearest]:
            why = _unlike(line.group, bases[nearest], others)
            left_out.append(f"{line.row.name} is not compared with base: {why}.")
        else:
            rows_of[nearest].append(line)

    changes: dict[tuple[Metric, str], dict[str, Difference]] = {}
    for path, base in bases.items():
        groups = [line.group for line in rows_of[path]]
        for metric, differences in compare_groups(groups, [PPL, BLEU], base).items():
            changes[metric, path] = differences
    changes = corrected(changes)
    records, compared_bases = [], []
    for path, rows in rows_of.items():
        others = [line for line in rows if line.row.name != "base"]
        for line in others:
            record = {"row": line.row.name, "label": line.row.label, **line.group.record()}
            for key, metric in (("ppl", PPL), ("bleu", BLEU)):
                record[key] = changes.get((metric, path), {}).get(line.group.path)
                record[f"paper_{key}"] = line.row.printed[key] - BASE.printed[key]
            records.append(record)
        if len(rows) > 1:
            compared_bases.append(bases[path])
    names = [base.name for base in compared_bases]
    base_titles = []
    for base in compared_bases:
        name = base.name if names.count(base.name) == 1 else base.path
        base_titles.append(f"{name} ({counted_seeds(base)})")
    remarks = explained("; ".join(base_titles), changes) if compared_bases else []
    return Table("", CHANGE_COLUMNS, records, after=remarks), left_out


def _other_options(group: Group, base: Group) -> list[str]:
    """Return the options in which a group differs from a base, apart from those that rows of Table
    3 change.
    """
    keys = differing_options([group, base])
    return [key for key in keys if not key.startswith("model.") and key != "optim.label_smoothing"]


def _unlike(group: Group, base: Group, keys: Sequence[str]) -> str:
    """Return a clause that names the options in which a group differs from a base."""
    values = []
    for key in keys:
        value, of_base = (option_text(member.options.get(key)) for member in (group, base))
        values.append(f"{key}={value} (base {of_base})")
    return f"{group.name} has {', '.join(values)}"


# Table 4: parsing, beside other parsers.

TABLE_4_COLUMNS = (
    Column("parser"),
    Column("training"),
    Column("n"),
    Column("f1", "F1", 2),
    Column("paper_f1", "paper", 1),
    Column("f1_difference", "difference", spec="+,.2f"),
    Column("precision", "precision", 2),
    Column("recall", "recall", 2),
    Column("complete_match", "complete", 2),
    Column("malformed"),
    Column("scored", "test set"),
    Column("steps"),
)


def _table_4_record(line: Line) -> Record:
    row, group = line.row, line.group
    run, evaluation = group.first, group.evaluation("test")
    record: Record = {"parser": row.name, "training": row.label or None, **group.record()}
    scores = {name: group.sample(Metric(name, "test")) for name in BRACKET_KINDS}
    record |= _beside(row, scores)
    record |= {"malformed": None, "test": None, "steps": run.step if run else None}
    if evaluation:
        record["malformed"] = (evaluation.brackets or {}).get("malformed")
        record["test"] = evaluation.text
        record["steps"] = evaluation.step
    return record | _how_scored(evaluation, record["test"] or "", "sentences")


def _table_4(records: list[Record]) -> Table:
    about = (
        "F1 is of labelled brackets, counted like EVALB with COLLINS.prm. `other` are runs on "
        "other text or with another model or vocabulary: their figures cannot be compared with "
        "the paper's."
    )
    title = "Table 4: parsing, section 23 of the Wall Street Journal"
    return Table(title, TABLE_4_COLUMNS, records, after=[about])


# Why a run's figures cannot be compared with the paper's.


def why_not_comparable(
    run: MeasuredRun, row: Row, evaluation: Evaluation | None, test_set: str
) -> list[str]:
    """Return the reasons why a run, scored as `evaluation` says, cannot be compared with a row of
    the paper.
    """
    config = run.resolved()
    data, optim = config.data, config.optim
    sizes = VOCABULARIES.get((data.src_lang, data.tgt_lang), (STATED_VOCABULARY,))
    reasons = []
    if not _is_wmt14(data):
        names = {"hub": data.hub_path, "phrasebook": "the phrasebook"}
        text = names.get(data.source, f"data.train={data.train}")
        reasons.append(f"trained on {text}, the paper on WMT14")
    if run.step != row.printed["steps"]:
        reasons.append(f"{run.step:,} steps, the paper {row.printed['steps']:,}")
    if data.tokens_per_step != TOKENS_PER_STEP:
        reasons.append(
            f"{data.tokens_per_step:,} tokens a step, the paper about {TOKENS_PER_STEP:,}"
        )
    if data.vocab_size not in sizes:
        reasons.append(f"a vocabulary of {data.vocab_size:,}, the paper about {sizes[0]:,}")
    if (optim.warmup_steps, optim.lr_scale) != (4000, 1):
        rate = f"optim.warmup_steps={optim.warmup_steps} and optim.lr_scale={optim.lr_scale:g}"
        reasons.append(f"{rate}, the paper 4000 and 1")
    if evaluation is None:
        return reasons if _is_wmt14(data) else [*reasons, f"measured on text other than {test_set}"]
    return reasons + _why_scores_differ(evaluation, test_set)


def _why_scores_differ(evaluation: Evaluation, test_set: str) -> list[str]:
    default_search = {f"search.{key}": value for key, value in to_dict(SearchConfig()).items()}
    search = []
    for key, value in evaluation.made_with.items():
        if value != default_search.get(key):
            search.append(f"{key}={value}")
    is_other_text = evaluation.test_set != test_set
    reasons = []
    if is_other_text:
        reasons.append(f"measured on text other than {test_set}")
    if search:
        reasons.append(f"searched with {', '.join(search)}, unlike the paper")
    if not is_other_text and evaluation.n_references != 1:
        reasons.append("scored with several references")
    return reasons


def _is_wmt14(data: DataConfig) -> bool:
    name = Path(data.hub_path or "").name
    return (data.source, name, data.train) == ("hub", "wmt14", "train")


def _warning(records: Sequence[Record]) -> list[str]:
    """Return one paragraph with the reasons that these records have under not_comparable; none
    without any.
    """
    run_records = [record for record in records if record["run"]]
    names_of: dict[str, list[str]] = {}
    for record in run_records:
        for reason in record["not_comparable"]:
            names_of.setdefault(reason, []).append(PurePath(record["run"]).name)
    if not names_of:
        return []
    not_comparable = [record for record in run_records if record["not_comparable"]]
    count = f"{len(not_comparable)} of {counted(len(run_records), 'row')}"
    lines = [f"Not comparable with the paper's figures ({count}), for these reasons:"]
    for reason, names in names_of.items():
        line = f"- {reason}"
        if len(names) < len(run_records):  # else it applies to all of them
            line += f" ({', '.join(names)})"
        lines.append(line)
    return ["\n".join(lines)]


def parameter_table(vocab_size: int) -> Table:
    """Return for every row of Table 3 the printed millions and those counted with two vocabularies.

    These have `vocab_size` and FITTED_VOCABULARY entries. `difference` is counted - printed; None
    where the paper prints nothing.
    """
    sizes = {"": vocab_size, "_fitted": FITTED_VOCABULARY}
    columns = [Column("row"), Column("paper", "paper (M)")]
    for name, size in sizes.items():
        columns.append(Column(f"parameters{name}", f"V = {size:,}", 2))
        columns.append(Column(f"difference{name}", "difference", spec="+,.2f"))
    records = []
    for row in TABLE_3:
        printed = row.printed["parameters"]
        record: Record = {"row": row.name, "paper": printed}
        for name, size in sizes.items():
            millions = n_parameters(row.model, size) / 1e6
            record[f"vocab_size{name}"] = size
            record[f"parameters{name}"] = millions
            record[f"difference{name}"] = minus(millions, printed)
        records.append(record)
    return Table("Table 3: parameters, in millions", columns, records, name="parameters")
