"""Tables 2, 3 and 4 of the paper: what was measured, beside what was published."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import NamedTuple

from aiayn.config.data import DataConfig
from aiayn.config.search import SearchConfig
from aiayn.config.stored import to_plain
from aiayn.config.tasks import TASKS
from aiayn.model.flops import n_parameters, training_flops
from aiayn.reports.comparison import compare_groups, counted_seeds
from aiayn.reports.differences import corrected, explained, minus
from aiayn.reports.groups import (
    ONE_CHECKPOINT,
    PRECISION,
    Group,
    differing_options,
    group_runs,
    option_text,
    partitions,
)
from aiayn.reports.metrics import Metric
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
from aiayn.reports.tables import NOT_RUN, Column, Table
from aiayn.runs.results import search_of
from aiayn.runs.run_folder import BRACKET_KINDS, Record

Lines = list[tuple[Row, Group]]  # of a table: the paper's rows, each with its runs or with none, then other runs
PPL, BLEU = Metric("val/ppl"), Metric(comparable_kind("de"), "val")  # the metrics of Table 3, English-German
SIZES = {"n_layers": "N", "d_model": "d_model", "d_ff": "d_ff", "n_heads": "h", "d_k": "d_k", "d_v": "d_v"}
SIZES |= {"dropout": "P_drop", "label_smoothing": "e_ls"}


class PaperTables(NamedTuple):
    """The records of all tables by name, rows without a run included, and the tables to show."""

    records: dict[str, list[Record]]
    tables: list[Table]


def paper_tables(runs: Sequence[MeasuredRun], every_row: bool = False) -> PaperTables:
    """Returns Tables 2, 3 and 4, and Table 3 at a quarter of its widths, with the paper's results for the full ones.

    A run belongs to a row by its configuration, not by its name; seeds of a row are one line. A table with two measured
    rows is shown whole, one with a single measured row shows that row, one with none is left out, unless `every_row`.
    """
    scored = [BLEU, Metric("sacrebleu", "test"), Metric("f1", "test")]
    groups = [group for members in partitions(runs, scored) for group in group_runs(members)]
    translators, parsers = ([group for group in groups if group.runs[0].task == task] for task in TASKS)
    tested = [one for one in translators if one.evaluation("test") or any(_is_of(row, one) for row in TABLE_2)]
    records: dict[str, list[Record]] = {}
    tables = []
    for name, rows, among, record_of, describe in (
        ("table_2", TABLE_2, tested, _table_2_record, _table_2),
        ("table_3", TABLE_3, translators, _table_3_record, _table_3),
        ("table_3_quarter", QUARTER_TABLE_3, translators, _table_3_record, _table_3_quarter),
        ("table_4", TABLE_4, parsers, _table_4_record, _table_4),
    ):
        lines = _lines(rows, among, with_others=rows in (TABLE_2, TABLE_4))
        records[name] = [record_of(*line) for line in lines]
        shown, left_out = _shown(lines, records[name], every_row and rows is not QUARTER_TABLE_3)
        table = replace(describe(shown), name=name)
        tables.append(table)
        table.after += left_out
        if rows in (TABLE_3, QUARTER_TABLE_3):
            change, not_compared = _changes(lines)
            change.title, change.name = f"{table.title}: change against base", f"{name}_changes"
            table.after += not_compared
            tables.append(change)
            records["changes"] = [*(records.get("changes") or change.records)]
    return PaperTables(records, [table for table in tables if table.records])


def _lines(rows: Sequence[Row], groups: Sequence[Group], with_others: bool) -> Lines:
    """Pairs every row with each of its groups, or with one of no runs, and then `other` with all other groups."""
    lines = [(row, group) for row in rows for group in [one for one in groups if _is_of(row, one)] or [Group([], {})]]
    other = Row(name="other", label="", options={}, printed=dict.fromkeys(rows[0].printed))
    found = [group.path for _, group in lines if group.runs]
    return lines + [(other, group) for group in groups if with_others and group.path not in found]


def _is_of(row: Row, group: Group) -> bool:
    return row.is_of(group.runs[0].options | {"test_set": group.evaluation("test").get("test_set")})


def _shown(lines: Lines, records: Sequence[Record], every_row: bool) -> tuple[list[Record], list[str]]:
    """Returns the records to show, marked where they were not run, and a line about those left out."""
    rows = {id(row) for row, group in lines if group.runs and row.options}
    if every_row or len(rows) > 1:
        keys = ("ppl", "bleu", "f1", "steps", "flops")
        return [one if one["run"] else one | {key: NOT_RUN for key in keys if key in one} for one in records], []
    if not rows:
        return [], []
    measured = [record for record in records if record["run"]]
    left_out = len(records) - len(measured)
    return measured, [f"{left_out} rows of this table were not run; --all shows them, too."] if left_out else []


def _beside(row: Row, measured: Record) -> Record:
    """Returns what was measured, the paper's figures, and the differences measured - published."""
    found = dict(measured)
    for key, printed in row.printed.items():
        found |= {f"paper_{key}": printed, f"{key}_difference": minus(measured[key], printed)}
    return found


# Table 2: BLEU on newstest2014 and the cost of training, beside other systems.


def _table_2_record(row: Row, group: Group) -> Record:
    run, evaluation = group.first, group.evaluation("test")
    options = run.options if run else row.options
    src_lang, tgt_lang = options["data.src_lang"], options["data.tgt_lang"]
    kind = Metric(comparable_kind(tgt_lang), "test")
    steps = evaluation.get("step", run.step) if run else None
    flops, is_exact = run.flops(steps) if run else (None, None)
    averaged = len(evaluation.get("averaged") or []) if evaluation else None
    reasons = why_not_comparable(run, row, evaluation, "newstest2014") if run and row.options else []
    if evaluation and row.options and averaged != row.printed["averaged"]:
        reasons.append(f"{averaged or 'no'} checkpoints averaged, the paper {row.printed['averaged']}")
    return {
        **{"model": row.name, "src_lang": src_lang, "tgt_lang": tgt_lang, "text": f"{src_lang}-{tgt_lang}"},
        **group.record(),
        **_beside(row, {"bleu": group.sample(kind), "flops": flops, "steps": steps, "averaged": averaged}),
        "bleu_kind": kind.name,
        "length_ratio": group.sample(kind.ratio),
        "sacrebleu": group.sample(Metric("sacrebleu", "test")),
        "weights": group.options.get("test weights"),
        **_how_scored(evaluation, "test", "lines"),
        "flops_counted_over_the_corpus": is_exact,
        "paper_flops_counted": counted_flops(row) if row.options else None,
        "not_comparable": reasons,
    }


def _how_scored(evaluation: Record, name: str, unit: str) -> Record:
    """Returns what was scored, under its own name unless it is the paper's, and how much of it."""
    test_set, lines = evaluation.get("test_set"), evaluation.get("lines")
    scored = None if lines is None else f"{test_set or name}, {lines:,} {unit}"
    return {"test_set": test_set, "lines": lines, "scored": scored}


def counted_flops(row: Row) -> float:
    """Returns the FLOPs of the paper's own training, counted by `training_flops`, without attention scores."""
    vocab_size = VOCABULARIES[row.options["data.src_lang"], row.options["data.tgt_lang"]][0]
    return float(row.printed["steps"] * TOKENS_PER_STEP * training_flops(row.model, vocab_size, 1, 1))


def _table_2(records: list[Record]) -> Table:
    columns = [Column("model", "model"), Column("text", "text"), Column("n", "n")]
    columns += [Column("bleu", "BLEU", 2), Column("length_ratio", "length ratio", 3), Column("paper_bleu", "paper", 2)]
    columns += [Column("bleu_difference", "difference", spec="+,.2f"), Column("sacrebleu", "sacreBLEU", 2)]
    columns += [Column("scored", "test set"), Column("weights", "weights"), Column("flops", "FLOPs", spec=".2g")]
    columns += [Column("paper_flops_counted", "FLOPs at the paper's length", spec=".2g")]
    columns.append(Column("paper_flops", "paper's FLOPs", spec=".2g"))
    base, big = (f"{row.printed['flops'] / counted_flops(row):.1f}" for row in TABLE_2[:2])
    after = [
        "BLEU is cased and tokenised (bleu_tokenized), for German with hyphenated words in parts "
        "(bleu_compound_split), the kind of the authors' script. The paper itself states neither. sacreBLEU must not "
        "be compared with the paper's column.",
        "FLOPs are those of training, counted from the matrix multiplications of the model and the tokens seen. The "
        f"paper's are device time times a sustained rate, and so {base} (base) and {big} (big) times what its training "
        "computes.",
    ]
    return Table("Table 2: newstest2014", columns, records, _warning(records), after)


# Table 3, and what each row changes against base.


def _table_3_record(row: Row, group: Group) -> Record:
    """Returns every column of Table 3: measured, published, and the difference measured - published."""
    run, evaluation = group.first, group.evaluation("val")
    options = run.options if run else row.options
    weights = group.options.get("val weights", ONE_CHECKPOINT)
    record: Record = {"row": row.name, "label": row.label, **group.record()}
    record |= {name: options[f"model.{name}"] for name in (*SIZES, "positions") if name != "label_smoothing"}
    record |= {"label_smoothing": options["optim.label_smoothing"], "arithmetic": group.options.get(PRECISION)}
    measured = {
        "steps": run.step if run else None,
        "ppl": group.sample(PPL),
        "bleu": group.sample(BLEU) if weights == ONE_CHECKPOINT else None,
        "parameters": run.parameters / 1e6 if run else None,
    }
    record |= _beside(row, measured) | {"bleu_kind": BLEU.name}
    record |= {"length_ratio": group.sample(BLEU.ratio) if weights == ONE_CHECKPOINT else None}
    record |= {"vocab_size": options.get("data.vocab_size"), "flops": run.flops()[0] if run else None}
    reasons = why_not_comparable(run, row, evaluation, "newstest2013") if run else []
    if weights != ONE_CHECKPOINT:
        reasons.append(f"scored with other weights ({weights}), the paper's Table 3 with the last checkpoint")
    return record | {"not_comparable": reasons}


def _table_3(records: list[Record]) -> Table:
    columns = [Column("row", "row")]
    columns += [Column(key, title, spec="g") for key, title in SIZES.items()]
    if any(record["positions"] == "learned" for record in records):
        columns.append(Column("positions", "positions"))
    if len({record["arithmetic"] for record in records if record["run"]}) > 1:
        columns.append(Column("arithmetic", "precision"))
    columns += [Column("steps", "steps"), Column("paper_steps", "paper"), Column("n", "n")]
    columns += [Column("ppl", "PPL", 2), Column("paper_ppl", "paper", 2)]
    columns += [Column("bleu", "BLEU (compound-split)", 2), Column("length_ratio", "length ratio", 3)]
    columns += [Column("paper_bleu", "paper", 1), Column("parameters", "params (M)", 2)]
    columns.append(Column("paper_parameters", "paper"))
    about = (
        "PPL is per subword of the run's own vocabulary, without label smoothing. BLEU is bleu_compound_split of the "
        f"last checkpoint, without averaging. The paper's parameters fit a vocabulary of {FITTED_VOCABULARY:,}: "
        "`aiayn table --parameters` tells more."
    )
    return Table("Table 3: newstest2013", columns, records, _warning(records), [about])


def _table_3_quarter(records: list[Record]) -> Table:
    before = (
        "Text, steps and widths are not the paper's, whose figures are those of the full row: only what a row changes "
        "against base can be compared."
    )
    return replace(_table_3(records), title="Table 3 at a quarter of its widths", before=[before])


def _changes(lines: Lines) -> tuple[Table, list[str]]:
    """Compares each row with the base that differs from it in the row's own options only.

    The second is a line for every row that was run and has no base of the same training.
    """
    measured = [(row, group) for row, group in lines if group.runs and row.name != "big"]
    bases = [group for row, group in measured if row.name == "base"]
    of_base: dict[str, list[Group]] = {base.path: [] for base in bases}
    compared, left_out = [], []
    for row, group in measured if bases else ():
        base = min(bases, key=lambda base: len(_other_options(group, base)))
        if others := _other_options(group, base):
            values = [[option_text(one.options.get(key)) for one in (group, base)] for key in others]
            shown = [f"{key}={here} (base {there})" for key, (here, there) in zip(others, values, strict=True)]
            left_out.append(f"{row.name} is not compared with base: {group.name} has {', '.join(shown)}.")
        else:
            of_base[base.path].append(group)
            compared.append((row, group, base.path))
    found = {
        (metric, base.path): comparison
        for base in bases
        for metric, comparison in compare_groups(of_base[base.path], [PPL, BLEU], base).items()
    }
    changed = corrected(found)
    records = [
        {"row": row.name, "label": row.label, **group.record()}
        | {key: changed.get((metric, base), {}).get(group.path) for key, metric in (("ppl", PPL), ("bleu", BLEU))}
        | {f"paper_{key}": row.printed[key] - BASE.printed[key] for key in ("ppl", "bleu")}
        for row, group, base in compared
        if row.name != "base"
    ]
    columns = [Column("row", "row"), Column("n", "n"), Column("ppl", "change in PPL", 2)]
    columns += [Column("paper_ppl", "paper", spec="+,.2f"), Column("bleu", "change in BLEU", 2)]
    columns.append(Column("paper_bleu", "paper", spec="+,.1f"))
    used = [base for base in bases if len(of_base[base.path]) > 1]
    names = [base.name for base in bases]
    called = {base.path: base.path if names.count(base.name) > 1 else base.name for base in bases}
    said = "; ".join(f"{called[base.path]} ({counted_seeds(base)})" for base in used)
    titled = {metric.title + f" of {called[path]}" * (len(found) > 2): one for (metric, path), one in found.items()}
    after = explained(said, titled, changed) if records else []
    return Table("", columns, records, after=after), left_out


def _other_options(group: Group, base: Group) -> list[str]:
    """Returns the options in which a group differs from a base, apart from those that rows of Table 3 change."""
    differing = differing_options([group, base])
    return [key for key in differing if not key.startswith("model.") and key != "optim.label_smoothing"]


# Table 4: parsing, beside other parsers.


def _table_4_record(row: Row, group: Group) -> Record:
    run, evaluation = group.first, group.evaluation("test")
    return {
        **{"parser": row.name, "training": row.label or None, **group.record()},
        **_beside(row, {kind: group.sample(Metric(kind, "test")) for kind in BRACKET_KINDS}),
        "malformed": (evaluation.get("brackets") or {}).get("malformed"),
        **{"test": evaluation.get("text"), **_how_scored(evaluation, evaluation.get("text", ""), "sentences")},
        "steps": evaluation.get("step", run.step) if run else None,
    }


def _table_4(records: list[Record]) -> Table:
    columns = [Column("parser", "parser"), Column("training", "training"), Column("n", "n")]
    columns += [Column("f1", "F1", 2), Column("paper_f1", "paper", 1)]
    columns += [Column("f1_difference", "difference", spec="+,.2f"), Column("precision", "precision", 2)]
    columns += [Column("recall", "recall", 2), Column("complete_match", "complete", 2)]
    columns += [Column("malformed", "malformed"), Column("scored", "test set"), Column("steps", "steps")]
    about = (
        "F1 is of labelled brackets, counted as EVALB with COLLINS.prm counts. Runs on other text, or with another "
        "model or vocabulary, are `other`: their figures cannot be compared with the paper's."
    )
    return Table("Table 4: parsing, section 23 of the Wall Street Journal", columns, records, after=[about])


# Why a run's figures cannot be compared with the paper's.


def why_not_comparable(run: MeasuredRun, row: Row, evaluation: Record, test_set: str) -> list[str]:
    """Returns the reasons why a run, scored as `evaluation` says, cannot be compared with a row of the paper."""
    data, optim = run.settled().data, run.settled().optim
    sizes = VOCABULARIES.get((data.src_lang, data.tgt_lang), (STATED_VOCABULARY,))
    text = {"hub": data.hub_path, "phrasebook": "the phrasebook"}.get(data.source, f"data.train={data.train}")
    rate = f"optim.warmup_steps={optim.warmup_steps} and optim.lr_scale={optim.lr_scale:g}"
    usual, search = to_plain(SearchConfig()), search_of(evaluation)
    other_search = [f"search.{key}={value}" for key, value in search.items() if value != usual.get(key)]
    is_of_test_set = evaluation.get("test_set") == test_set if evaluation else _is_wmt14(data)
    reasons = {
        f"trained on {text}, the paper on WMT14": not _is_wmt14(data),
        f"{run.step:,} steps, the paper {row.printed['steps']:,}": run.step != row.printed["steps"],
        f"{data.tokens_per_step:,} tokens a step, the paper about {TOKENS_PER_STEP:,}": (
            data.tokens_per_step != TOKENS_PER_STEP
        ),
        f"a vocabulary of {data.vocab_size:,}, the paper about {sizes[0]:,}": data.vocab_size not in sizes,
        f"{rate}, the paper 4000 and 1": (optim.warmup_steps, optim.lr_scale) != (4000, 1),
        f"measured on other text than {test_set}": not is_of_test_set,
        f"searched with {', '.join(other_search)}, the paper otherwise": bool(other_search),
        "scored with several references": is_of_test_set and evaluation.get("n_references", 1) != 1,
    }
    return [reason for reason, applies in reasons.items() if applies]


def _is_wmt14(data: DataConfig) -> bool:
    return data.source == "hub" and Path(data.hub_path or "").name == "wmt14" and data.train == "train"


def _warning(records: Sequence[Record]) -> list[str]:
    """Returns one paragraph with the reasons that these records have under not_comparable; none without any."""
    measured = [record for record in records if record["run"]]
    concerned = [record for record in measured if record["not_comparable"]]
    reasons = dict.fromkeys(reason for record in concerned for reason in record["not_comparable"])
    if not reasons:
        return []
    count = f"{len(concerned)} of {len(measured)} row{'s' * (len(measured) > 1)}"
    lines = [f"Not comparable with the paper's figures ({count}), whatever the differences below:"]
    for reason in reasons:
        names = [PurePath(record["run"]).name for record in concerned if reason in record["not_comparable"]]
        # Rows are named where a reason does not apply to all of them.
        lines.append(f"- {reason}" + (f" ({', '.join(names)})" if len(names) < len(measured) else ""))
    return ["\n".join(lines)]


def parameter_table(vocab_size: int) -> Table:
    """Returns for every row of Table 3 the printed millions and those counted with two vocabularies.

    These have `vocab_size` and FITTED_VOCABULARY entries. `difference` is counted - printed; None where the paper
    prints nothing.
    """
    sizes = {"": vocab_size, "_fitted": FITTED_VOCABULARY}
    records = []
    for row in TABLE_3:
        printed = row.printed["parameters"]
        record: Record = {"row": row.name, "paper": printed}
        for name, size in sizes.items():
            counted = n_parameters(row.model, size) / 1e6
            record |= {f"vocab_size{name}": size, f"parameters{name}": counted}
            record[f"difference{name}"] = minus(counted, printed)
        records.append(record)
    columns = [Column("row", "row"), Column("paper", "paper (M)")]
    for name, size in sizes.items():
        columns.append(Column(f"parameters{name}", f"V = {size:,}", 2))
        columns.append(Column(f"difference{name}", "difference", spec="+,.2f"))
    return Table("Table 3: parameters, in millions", columns, records, name="parameters")
