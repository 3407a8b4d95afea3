"""Tables 2, 3 and 4 of the paper: what was measured, beside what was published."""

from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from aiayn.config.search import SearchConfig
from aiayn.config.stored import flatten, to_dict
from aiayn.config.tasks import BRACKET_KINDS, TASKS
from aiayn.errors import counted
from aiayn.model.flops import n_parameters, training_flops
from aiayn.reports.comparison import MANY, compare_groups
from aiayn.reports.differences import Sample, corrected, explained
from aiayn.reports.groups import (
    ONE_CHECKPOINT,
    PRECISION,
    Group,
    differing_options,
    group_runs,
    partitions,
)
from aiayn.reports.published import (
    BASE,
    FITTED_VOCABULARY,
    QUARTER_TABLE_3,
    TABLE_2,
    TABLE_3,
    TABLE_4,
    TOKENS_PER_STEP,
    VOCABULARIES,
    Row,
    comparable_kind,
)
from aiayn.reports.runs import MeasuredRun, Metric, gathered
from aiayn.reports.tables import NOT_RUN, Column, Table, shown
from aiayn.runs.run_folder import Record

MAX_REASONS = 10  # why runs are not comparable with the paper

# The metrics of Table 3, English-German
PPL = Metric("val/ppl")
BLEU = Metric(comparable_kind("de"), "val")
SACREBLEU = Metric("sacrebleu", "test")
F1 = Metric("f1", "test")
# The sizes of a model by their symbols
SIZES = {
    "n_layers": "N",
    "d_model": "d_model",
    "d_ff": "d_ff",
    "n_heads": "h",
    "d_k": "d_k",
    "d_v": "d_v",
    "dropout": "P_drop",
    "label_smoothing": "e_ls",
}
MEASURED_KEYS = {"ppl", "bleu", "f1", "steps", "flops"}  # say "not run" in a row without a run


class Line(NamedTuple):
    """A line of a table: a row of the paper with one group of its runs, or with an empty group; or
    `other` runs, whose row has no options.
    """

    row: Row
    group: Group


def paper_tables(runs: Sequence[MeasuredRun], every_row: bool = False) -> list[Table]:
    """Returns Tables 2, 3 and 4, and Table 3 at a quarter of its widths, with the paper's results
    for the full ones.

    A run belongs to a row by its configuration, not by its name; seeds of a row are one line. A
    table with two measured rows is shown whole, one with a single measured row shows that row, one
    with none shows nothing, unless `every_row`.
    """
    groups_of: dict[str, list[Group]] = {task: [] for task in TASKS}
    for members in partitions(runs, [BLEU, SACREBLEU, F1]):
        groups_of[members[0].task] += group_runs(members)
    translators, parsers = groups_of["translation"], groups_of["parsing"]

    base, big = (f"{row.printed['flops'] / counted_flops(row):.1f}" for row in TABLE_2[:2])
    footnote = TABLE_2_FOOTNOTE.format(base=base, big=big)
    table_2 = Table("Table 2: newstest2014", TABLE_2_COLUMNS, [], after=[footnote], name="table_2")
    _fill(table_2, _lines(TABLE_2, translators), _table_2_record, every_row)

    table_3 = _table_3("table_3", "Table 3: newstest2013", TABLE_3, translators, every_row)
    title = "Table 3 at a quarter of its widths"
    quarter = _table_3("table_3_quarter", title, QUARTER_TABLE_3, translators, every_row=False)
    quarter[0].before = [QUARTER_NOTE]

    title = "Table 4: parsing, section 23 of the Wall Street Journal"
    table_4 = Table(title, TABLE_4_COLUMNS, [], after=[TABLE_4_FOOTNOTE], name="table_4")
    _fill(table_4, _lines(TABLE_4, parsers), _table_4_record, every_row)
    return [table_2, *table_3, *quarter, table_4]


def _lines(rows: Sequence[Row], groups: Sequence[Group]) -> list[Line]:
    """Pairs every row with each of its groups, or with an empty one, and then `other` with all
    other groups that were scored on a test set.
    """
    lines = []
    others = [group for group in groups if group.evaluation("test")]
    for row in rows:
        groups_of_row = [
            group for group in groups if row.is_of(group.runs[0].options | _test_text(group))
        ]
        others = [group for group in others if group not in groups_of_row]
        lines += [Line(row, group) for group in groups_of_row or [Group([], {})]]
    other = Row(name="other", options={}, printed=dict.fromkeys(rows[0].printed))
    return lines + [Line(other, group) for group in others]


def _test_text(group: Group) -> Record:
    """Returns the text of a group's scores on a test set, and the step of the weights."""
    evaluation = group.evaluation("test")
    return {
        "test_set": getattr(evaluation, "test_set", None),
        "lines": getattr(evaluation, "lines", None),
        "steps": getattr(evaluation or group.first, "step", None),
    }


def _fill(
    table: Table,
    lines: Sequence[Line],
    make_record: Callable[[Row, Group], Record],
    every_row: bool,
) -> None:
    """Gives a table the records of all lines, those to show, the number of those left out, and the
    reasons why its runs are not the paper's.
    """
    table.records = records = [make_record(*line) for line in lines]
    table.before = _warning(records)
    if any(not line.row.options for line in lines):
        table.after.append(
            "`other` runs differ in text, model or vocabulary: do not compare them with the paper."
        )
    measured_rows = {id(line.row) for line in lines if line.group.runs and line.row.options}
    if every_row or len(measured_rows) > 1:
        not_run = dict.fromkeys(MEASURED_KEYS, NOT_RUN)
        table.selected = [record if record["run"] else record | not_run for record in records]
        return
    measured = [record for record in records if record["run"] and measured_rows]
    table.selected = measured[:MANY]
    if len(measured) > MANY:
        table.after.append(f"The first {MANY} of {len(measured)}; CSV and JSON list all.")
    if left_out := len(records) - len(measured):
        table.after.append(f"{left_out} rows of this table were not run; --all shows them as well.")


def _beside_published(row: Row, figures: Record) -> Record:
    """Returns what was measured, the paper's figures, and the differences measured - published."""
    record = dict(figures)
    for key, printed in row.printed.items():
        measured = figures[key]
        if isinstance(measured, Sample):
            measured = measured.mean
        is_known = None not in (measured, printed)
        record[f"paper_{key}"] = printed
        record[f"{key}_difference"] = measured - printed if is_known else None
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
    Column("test_set", "test set"),
    Column("lines"),
    Column("weights"),
    Column("flops", "FLOPs", spec=".2g"),
    Column("paper_flops_counted", "FLOPs at the paper's length", spec=".2g"),
    Column("paper_flops", "paper's FLOPs", spec=".2g"),
)


TABLE_2_FOOTNOTE = (
    "BLEU is cased and tokenised (bleu_tokenized), for German with hyphenated words split "
    "(bleu_compound_split), as in the authors' script; the paper states neither. Do not "
    "compare sacreBLEU with it.\n\n"
    "FLOPs count the matrix multiplications of training. The paper multiplies device time by "
    "a sustained rate, which gives {base} (base) and {big} (big) times as many."
)


def _table_2_record(row: Row, group: Group) -> Record:
    run = group.first
    evaluation = group.evaluation("test")
    options = run.options if run else row.options
    bleu = Metric(comparable_kind(options["data.tgt_lang"]), "test")
    figures = _test_text(group) | {
        "bleu": group.sample(bleu),
        "averaged": len(evaluation.averaged) if evaluation else None,
    }
    figures["flops"] = run.flops(figures["steps"]) if run else None
    return {
        "model": row.name,
        "text": f"{options['data.src_lang']}-{options['data.tgt_lang']}",
        **group.record(),
        **_beside_published(row, figures),
        "bleu_kind": bleu.name,
        "length_ratio": group.sample(bleu.ratio),
        "sacrebleu": group.sample(SACREBLEU),
        "weights": group.options.get("test weights"),
        "paper_flops_counted": counted_flops(row) if row.options else None,
        "not_comparable": _not_comparable(row, group, "test", "newstest2014"),
    }


def counted_flops(row: Row) -> float:
    """Returns the FLOPs of the paper's own training, counted by `training_flops`, without attention
    scores.
    """
    vocab_size, *_ = VOCABULARIES[row.options["data.src_lang"], row.options["data.tgt_lang"]]
    tokens = row.printed["steps"] * TOKENS_PER_STEP
    return float(tokens * training_flops(row.model, vocab_size, 1, 1))


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
TABLE_3_FOOTNOTE = (
    "PPL is per subword of the run's own vocabulary, without label smoothing. BLEU is "
    "bleu_compound_split of the last checkpoint, without averaging. The paper's parameters "
    f"fit a vocabulary of {FITTED_VOCABULARY:,}: see `aiayn table --parameters`."
)
QUARTER_NOTE = (
    "The names of rows and the paper's figures are for the full widths: compare only the change of "
    "a row against base."
)
CHANGE_COLUMNS = (
    Column("row"),
    Column("n"),
    Column("ppl", "change in PPL", 2),
    Column("paper_ppl", "paper", spec="+,.2f"),
    Column("bleu", "change in BLEU", 2),
    Column("paper_bleu", "paper", spec="+,.1f"),
)


def _table_3(
    name: str, title: str, rows: Sequence[Row], groups: Sequence[Group], every_row: bool
) -> list[Table]:
    """Returns Table 3 and, by row, the changes against base."""
    lines = [line for line in _lines(rows, groups) if line.row.options]  # without `other` runs
    table = Table(title, [], [], after=[TABLE_3_FOOTNOTE], name=name)
    _fill(table, lines, _table_3_record, every_row)
    columns = [Column("row"), *(Column(key, SIZES[key], spec="g") for key in SIZES)]
    if any(record["positions"] == "learned" for record in table.shown):
        columns.append(Column("positions"))
    if len({record["arithmetic"] for record in table.records if record["run"]}) > 1:
        columns.append(Column("arithmetic", "precision"))
    table.columns = [*columns, *TABLE_3_RESULTS]
    changes, not_compared = _changes(name, title, lines)
    table.after += not_compared
    return [table, changes]


def _table_3_record(row: Row, group: Group) -> Record:
    run = group.first
    options = run.options if run else row.options
    figures = {
        "steps": run.step if run else None,
        "ppl": group.sample(PPL),
        "bleu": None,
        "parameters": run.parameters / 1e6 if run else None,
    }
    length_ratio = None
    if group.options.get("val weights") == ONE_CHECKPOINT:  # the paper averages none here
        figures["bleu"] = group.sample(BLEU)
        length_ratio = group.sample(BLEU.ratio)
    sizes = {key: options.get(f"model.{key}") for key in (*SIZES, "positions")}
    return {
        "row": row.name,
        **group.record(),
        **sizes,
        **_beside_published(row, figures),
        "label_smoothing": options["optim.label_smoothing"],
        "arithmetic": group.options.get(PRECISION),
        "bleu_kind": BLEU.name,
        "length_ratio": length_ratio,
        "not_comparable": _not_comparable(row, group, "val", "newstest2013"),
    }


def _changes(name: str, title: str, lines: Sequence[Line]) -> tuple[Table, list[str]]:
    """Compares each row with the base that differs from it in the row's own options only.

    The second is a line for every row that was run and has no base of the same training.
    """
    rows_run = [line for line in lines if line.group.runs and line.row.name != "big"]
    bases = [line.group for line in rows_run if line.row.name == "base"]
    not_compared = []
    for row, group in rows_run:
        others = [_other_options(group, base) for base in bases]
        if all(others) and others:
            names = ", ".join(min(others, key=len))
            not_compared.append(f"{row.name} is not compared with base: they differ in {names}.")

    pairs = []
    differences = {}
    for base in bases:
        rows = [line for line in rows_run if not _other_options(line.group, base)]
        pairs += [(base, line) for line in rows if line.row.name != "base"]
        compared = compare_groups([line.group for line in rows], [PPL, BLEU], base)
        differences |= {(base.path, metric): compared[metric] for metric in compared}
    differences = corrected(differences)
    records = []
    for base, (row, group) in pairs:
        record = {"row": row.name, **group.record()}
        for key, metric in (("ppl", PPL), ("bleu", BLEU)):
            record[key] = differences.get((base.path, metric), {}).get(group.path)
            record[f"paper_{key}"] = row.printed[key] - BASE.printed[key]
        records.append(record)
    compared_bases = {base.path: base for base, _ in pairs}
    titles = [
        f"{path if len(compared_bases) > 1 else base.name} ({counted(len(base.seeds), 'seed')})"
        for path, base in compared_bases.items()
    ]
    table = Table(f"{title}: change against base", CHANGE_COLUMNS, records, name=f"{name}_changes")
    table.after = explained("; ".join(titles), differences)
    return table, not_compared


def _other_options(group: Group, base: Group) -> list[str]:
    """Returns the options in which a group differs from a base, apart from those that rows of Table
    3 change.
    """
    keys = differing_options([group, base])
    return [key for key in keys if not key.startswith("model.") and key != "optim.label_smoothing"]


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
    Column("test_set", "test set"),
    Column("lines", "sentences"),
    Column("steps"),
)


TABLE_4_FOOTNOTE = "F1 is of labelled brackets, counted like EVALB with COLLINS.prm."


def _table_4_record(row: Row, group: Group) -> Record:
    brackets = getattr(group.evaluation("test"), "brackets", None) or {}
    figures = {name: group.sample(Metric(name, "test")) for name in BRACKET_KINDS}
    return {
        "parser": row.name,
        "training": row.training,
        **group.record(),
        **_beside_published(row, figures | _test_text(group)),
        "malformed": brackets.get("malformed"),
    }


# Why a run's figures cannot be compared with the paper's.


def _not_comparable(row: Row, group: Group, split: str, test_set: str) -> list[str]:
    """Returns how the training of a line's runs, and their scores on a split, differ from the
    paper's.
    """
    run = group.first
    evaluation = group.evaluation(split)
    if run is None or not row.options:
        return []
    settings = run.config.data
    text = settings.train
    if settings.source == "hub":
        text = f"{Path(settings.hub_path or '').name} {text}"
    sizes = VOCABULARIES[settings.src_lang, settings.tgt_lang]
    ours = run.options | {"training text": text, "steps": run.step}
    paper = {
        "training text": "wmt14 train",
        "steps": row.printed["steps"],
        "data.tokens_per_step": TOKENS_PER_STEP,
        "data.vocab_size": settings.vocab_size if settings.vocab_size in sizes else sizes[0],
        "optim.warmup_steps": 4000,
        "optim.lr_scale": 1,
    }
    if evaluation:
        search = flatten({"search": to_dict(SearchConfig())})
        ours |= evaluation.made_with
        paper |= {key: search.get(key) for key in evaluation.made_with}
        weights, _, _ = group.options[f"{split} weights"].partition(",")
        text = evaluation.test_set or evaluation.text
        ours |= {"text": text, "references": evaluation.n_references, "weights": weights}
        averaged = row.printed.get("averaged")
        weights = f"average of {averaged}" if averaged else ONE_CHECKPOINT
        paper |= {"text": test_set, "references": 1, "weights": weights}
    return [
        f"{key}: {shown(ours[key])} (paper: {shown(paper[key])})"
        for key in paper
        if ours[key] != paper[key]
    ]


def _warning(records: Sequence[Record]) -> list[str]:
    """Returns one paragraph with the reasons that these records have under not_comparable; none
    without any.
    """
    reasons = gathered(
        (PurePath(record["run"]).name, reason)
        for record in records
        for reason in record.get("not_comparable", ())
    )
    if more := reasons[MAX_REASONS:]:
        reasons[MAX_REASONS:] = [f"and {len(more)} more; JSON lists all"]
    paragraph = "\n- ".join(["Not comparable with the paper's figures:", *reasons])
    return [paragraph] if reasons else []


def parameter_table(vocab_size: int) -> Table:
    """Returns for every row of Table 3 the printed millions and those counted with two
    vocabularies.

    These have `vocab_size` and FITTED_VOCABULARY entries. `difference` is counted - printed; None
    where the paper prints nothing.
    """
    columns = [Column("row"), Column("paper", "paper (M)")]
    records: list[Record] = [
        {"row": row.name, "paper": row.printed["parameters"]} for row in TABLE_3
    ]
    for ending, size in {"": vocab_size, "_fitted": FITTED_VOCABULARY}.items():
        columns.append(Column(f"parameters{ending}", f"V = {size:,}", 2))
        columns.append(Column(f"difference{ending}", "difference", spec="+,.2f"))
        for row, record in zip(TABLE_3, records, strict=True):
            millions = n_parameters(row.model, size) / 1e6
            record[f"vocab_size{ending}"] = size
            record[f"parameters{ending}"] = millions
            record[f"difference{ending}"] = record["paper"] and millions - record["paper"]
    return Table("Table 3: parameters, in millions", columns, records, name="parameters")
