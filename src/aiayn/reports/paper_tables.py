"""Tables 2, 3 and 4 of the paper: what was measured, beside what was published."""

from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple, TypeVar

from aiayn.config.data import DataConfig
from aiayn.config.tasks import TASKS
from aiayn.model.flops import n_parameters, training_flops
from aiayn.reports.comparison import compare_groups, corrected, counted_seeds, is_base
from aiayn.reports.differences import explained, minus
from aiayn.reports.groups import PRECISION, Group, differing_options, group_runs, option_text, partitions, record_of
from aiayn.reports.metrics import Metric
from aiayn.reports.published import (
    FITTED_VOCABULARY,
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
from aiayn.reports.runs import MeasuredRun
from aiayn.reports.tables import NOT_RUN, Column, Table
from aiayn.runs.run_folder import BRACKET_KINDS, Record

T = TypeVar("T")
Pairs = list[tuple[Any, Group | None]]  # a published result and the group of its runs, either of which may be None
PPL, BLEU = Metric("val/ppl"), Metric(comparable_kind("de"), "val")  # the metrics of Table 3, English-German
SIZES = {"n_layers": "N", "d_model": "d_model", "d_ff": "d_ff", "n_heads": "h", "d_k": "d_k", "d_v": "d_v"}
SIZES |= {"dropout": "P_drop", "label_smoothing": "e_ls"}


class PaperTables(NamedTuple):
    """The records of all tables by name, rows without a run included, and the tables to show."""

    records: dict[str, list[Record]]
    tables: list[Table]
    changes: list[Table]  # those of them with differences from base


def paper_tables(runs: Sequence[MeasuredRun], every_row: bool = False) -> PaperTables:
    """Returns Tables 2, 3 and 4, and Table 3 at a quarter of its widths, with the paper's results for the full ones.

    A run belongs to a row by its configuration, not by its name; seeds of a row are one line. A table with two measured
    rows is shown whole, one with a single measured row shows that row, one with none is left out, unless `every_row`.
    """
    scored = [BLEU, Metric("sacrebleu", "test"), Metric("f1", "test")]
    groups = [group for members in partitions(runs, scored) for group in group_runs(members)]
    translators, parsers = ([group for group in groups if group.runs[0].task == task] for task in TASKS)
    tested = [
        group
        for group in translators
        if "test" in group.runs[0].evaluations or any(_is_of_result(group, result) for result in TABLE_2)
    ]
    records: dict[str, list[Record]] = {}
    tables, changes = [], []

    def add(
        name: str, pairs: Pairs, record_of: Callable[..., Record], table: Callable[..., Table], all_rows: bool
    ) -> None:
        records[name] = [record_of(*pair) for pair in pairs]
        tables.append(table(name, *_shown_records(pairs, records[name], all_rows)))

    add("table_2", _beside(TABLE_2, tested, _is_of_result), _table_2_record, _table_2, every_row)
    rows = _beside((*TABLE_3, *QUARTER_TABLE_3), translators, _is_of_row)
    for name, published in (("table_3", TABLE_3), ("table_3_quarter", QUARTER_TABLE_3)):
        pairs = [pair for pair in rows if pair[0] in published]
        add(name, pairs, _table_3_record, _table_3, every_row and published is TABLE_3)
        change, not_compared = _changes(pairs)
        change.title, change.name = f"{tables[-1].title}: change against base", f"{name}_changes"
        tables[-1].after += not_compared
        tables.append(change)
        changes.append(change)
    add("table_4", _beside(TABLE_4, parsers, _is_parser_of), _table_4_record, _table_4, every_row)
    records["changes"] = [*(changes[0].records or changes[1].records)]
    return PaperTables(records, *([table for table in some if table.records] for some in (tables, changes)))


def _beside(published: Sequence[T], groups: Sequence[Group], is_of: Callable[[Group, T], bool]) -> Pairs:
    """Pairs every published result with each of its groups, or with None, and then None with all other groups."""
    pairs: Pairs = []
    others = list(groups)
    for result in published:
        members = [group for group in others if is_of(group, result)]
        others = [group for group in others if group not in members]
        pairs += [(result, group) for group in members or [None]]
    return pairs + [(None, group) for group in others]


def _shown_records(pairs: Pairs, records: Sequence[Record], every_row: bool) -> tuple[list[Record], list[str]]:
    """Returns the records of `pairs` to show, marked where they were not run, and a line about those left out."""
    rows = len({id(published) for published, group in pairs if published and group})
    if every_row or rows > 1:
        keys = ("ppl", "bleu", "f1", "steps", "flops")
        return [one if one["run"] else one | {key: NOT_RUN for key in keys if key in one} for one in records], []
    if rows == 0:
        return [], []
    measured = [record for record in records if record["run"]]
    left_out = len(records) - len(measured)
    return measured, [f"{left_out} rows of this table were not run; --all shows them, too."] if left_out else []


# Table 2: BLEU on newstest2014 and the cost of training, beside other systems.


def _is_of_result(group: Group, result: Result) -> bool:
    config = group.runs[0].settled()
    same = result.row.is_of(config.model, config.optim.label_smoothing)
    return same and (config.data.src_lang, config.data.tgt_lang) == result.direction


def _table_2_record(result: Result | None, group: Group | None) -> Record:
    run = group.runs[0] if group else None
    data = run.settled().data if run else None
    src_lang, tgt_lang = result.direction if result else (data.src_lang, data.tgt_lang) if data else ("", "")
    evaluation = (run.evaluations.get("test") if run else None) or {}
    kind = Metric(comparable_kind(tgt_lang), "test")
    bleu = group.sample(kind) if group else None
    scored = evaluation.get("step", run.step if run else None)
    flops, is_exact = run.flops() if run else (None, None)
    averaged = len(evaluation.get("averaged") or []) if evaluation else None
    lines, test_set = evaluation.get("lines"), evaluation.get("test_set")
    record: Record = {
        "model": f"Transformer ({result.model})" if result else "other",
        **{"src_lang": src_lang, "tgt_lang": tgt_lang, "text": f"{src_lang}-{tgt_lang}"},
        **record_of(group),
        **{"bleu_kind": kind.name, "bleu": bleu, "paper_bleu": result.bleu if result else None},
        "bleu_difference": minus(bleu, result.bleu if result else None),
        "length_ratio": group.sample(kind.ratio) if group else None,
        "sacrebleu": group.sample(Metric("sacrebleu", "test")) if group else None,
        **{"lines": lines, "test_set": test_set, "averaged": averaged, "steps": scored},
        "weights": {None: None, 0: "last"}.get(averaged, f"{averaged} averaged"),
        "scored": f"{test_set or 'test'}, {lines:,} lines" if lines is not None else None,
        # All steps cost about the same.
        "flops": flops * scored / max(run.step, 1) if run and flops is not None else None,
        "flops_counted_over_the_corpus": is_exact,
        "paper_flops": result.flops if result else None,
        "paper_flops_counted": counted_flops(result) if result else None,
    }
    reasons = why_not_comparable(run, result.row.max_steps, evaluation, "newstest2014") if run and result else []
    if evaluation and result and averaged != result.average:
        reasons.append(f"{averaged or 'no'} checkpoints averaged, the paper {result.average}")
    return record | {"not_comparable": reasons}


def counted_flops(result: Result) -> float:
    """Returns the FLOPs of the paper's own training, counted by `training_flops`, without attention scores."""
    vocab_size = VOCABULARIES[result.direction][0]
    return float(result.row.max_steps * TOKENS_PER_STEP * training_flops(result.row.model, vocab_size, 1, 1))


def _table_2(name: str, records: list[Record], left_out: list[str]) -> Table:
    columns = [Column("model", "model"), Column("text", "text"), Column("n", "n")]
    columns += [Column("bleu", "BLEU", 2), Column("length_ratio", "length ratio", 3), Column("paper_bleu", "paper", 2)]
    columns += [Column("bleu_difference", "difference", 2, True), Column("sacrebleu", "sacreBLEU", 2)]
    columns += [Column("scored", "test set"), Column("weights", "weights"), Column("flops", "FLOPs", spec=".2g")]
    columns += [Column("paper_flops_counted", "FLOPs at the paper's length", spec=".2g")]
    columns.append(Column("paper_flops", "paper's FLOPs", spec=".2g"))
    ratios = {result.model: f"{result.flops / counted_flops(result):.1f}" for result in TABLE_2[:2]}
    after = [
        "BLEU is cased and tokenised (bleu_tokenized), for German with hyphenated words in parts "
        "(bleu_compound_split), the kind of the authors' script. The paper itself states neither. sacreBLEU must not "
        "be compared with the paper's column.",
        "FLOPs are those of training, counted from the matrix multiplications of the model and the tokens seen. The "
        f"paper's are device time times a sustained rate, and so {ratios['base']} (base) and {ratios['big']} (big) "
        "times what its training computes.",
    ]
    return Table("Table 2: newstest2014", columns, records, _warning(records), [*after, *left_out], name)


# Table 3, and what each row changes against base.


def _is_of_row(group: Group, row: Row) -> bool:
    """Whether a row of Table 3, or of its quarter, has the configuration, apart from its text and length."""
    config = group.runs[0].settled()
    is_german = (config.data.src_lang, config.data.tgt_lang) == ("en", "de")
    return is_german and row.is_of(config.model, config.optim.label_smoothing)


def _table_3_record(row: Row, group: Group | None) -> Record:
    """Returns every column of Table 3: measured, published, and the difference measured - published."""
    run = group.runs[0] if group else None
    config = run.settled() if run else None
    model = config.model if config else row.model
    record: Record = {"row": row.name, "label": row.label, **record_of(group)}
    record |= {name: getattr(model, name) for name in (*SIZES, "positions") if name != "label_smoothing"}
    record |= {"label_smoothing": config.optim.label_smoothing if config else row.label_smoothing}
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
        record |= {name: value, f"paper_{name}": paper, f"{name}_difference": minus(value, paper)}
    record |= {
        "bleu_kind": BLEU.name,
        "length_ratio": group.sample(BLEU.ratio) if group and not is_averaged else None,
    }
    record |= {"vocab_size": config.data.vocab_size if config else None, "flops": run.flops()[0] if run else None}
    record["arithmetic"] = group.options.get(PRECISION) if group else None
    record["not_comparable"] = why_not_comparable(run, row.max_steps, evaluation, "newstest2013") if run else []
    if is_averaged:
        record["not_comparable"].append("scored with averaged weights, the paper's Table 3 with one checkpoint")
    return record


def _table_3(name: str, records: list[Record], left_out: list[str]) -> Table:
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
    if name == "table_3":
        return Table("Table 3: newstest2013", columns, records, _warning(records), [about, *left_out], name)
    before = (
        "Text, steps and widths are not the paper's, whose figures are those of the full row: only what a row changes "
        "against base can be compared."
    )
    return Table("Table 3 at a quarter of its widths", columns, records, [before], [about, *left_out], name)


def _changes(rows: Pairs) -> tuple[Table, list[str]]:
    """Compares each row with the base that differs from it in the row's own options only.

    The second is a line for every row that was run and has no base of the same training.
    """
    measured = [(row, group) for row, group in rows if row and group and row.name != "big"]
    bases = [group for _, group in measured if is_base(group)]
    of_base: dict[str, list[Group]] = {base.path: [] for base in bases}
    left_out = []
    for row, group in measured:
        base = next((base for base in bases if not _other_options(group, base)), None)
        if base:
            of_base[base.path].append(group)
        elif bases:
            nearest = min(bases, key=lambda base: len(_other_options(group, base)))
            shown = [
                f"{key}={option_text(group.options.get(key))} (base {option_text(nearest.options.get(key))})"
                for key in _other_options(group, nearest)
            ]
            left_out.append(f"{row.name} is not compared with base: {group.name} has {', '.join(shown)}.")
    found = {
        (metric, base.name): comparison
        for base in bases
        for metric, comparison in compare_groups(of_base[base.path], [PPL, BLEU], base).items()
    }
    changed = {
        (metric, path): one
        for (metric, _), of in zip(found, corrected([*found.values()]), strict=True)
        for path, one in of.items()
    }
    records = [
        {"row": row.name, "label": row.label, **record_of(group)}
        | {"ppl": changed.get((PPL, group.path)), "paper_ppl": row.ppl - TABLE_3[0].ppl}
        | {"bleu": changed.get((BLEU, group.path)), "paper_bleu": row.bleu - TABLE_3[0].bleu}
        for row, group in measured
        if row.name != "base" and any(group in members for members in of_base.values())
    ]
    columns = [Column("row", "row"), Column("n", "n"), Column("ppl", "change in PPL", 2)]
    columns += [Column("paper_ppl", "paper", 2, True), Column("bleu", "change in BLEU", 2)]
    columns.append(Column("paper_bleu", "paper", 1, True))
    names = "; ".join(f"{base.name} ({counted_seeds(base)})" for base in bases if len(of_base[base.path]) > 1)
    titled = {f"{metric.title}{f' of {base}' * (len(found) > 2)}": one for (metric, base), one in found.items()}
    after = explained(names, titled, changed.values()) if records else []
    return Table("", columns, records, after=after), left_out


def _other_options(group: Group, base: Group) -> list[str]:
    """Returns the options in which a group differs from a base, apart from those that rows of Table 3 change."""
    differing = differing_options([group, base])
    return [key for key in differing if not key.startswith("model.") and key != "optim.label_smoothing"]


# Table 4: parsing, beside other parsers.


def _is_parser_of(group: Group, result: ParsingResult) -> bool:
    run = group.runs[0]
    same = result.is_of(run.settled().model, run.settled().data.vocab_size)
    return same and run.evaluations.get("test", {}).get("test_set") == SECTION_23


def _table_4_record(result: ParsingResult | None, group: Group | None) -> Record:
    run = group.runs[0] if group else None
    evaluation = (run.evaluations.get("test") if run else None) or {}
    scores = {kind: group.sample(Metric(kind, "test")) if group else None for kind in BRACKET_KINDS}
    published = result.f1 if result else None
    test, test_set, lines = (evaluation.get(key) for key in ("text", "test_set", "lines"))
    return {
        "parser": f"Transformer ({result.n_layers} layers)" if result else "other",
        "training": result.training if result else None,
        **record_of(group),
        **scores,
        **{"paper_f1": published, "f1_difference": minus(scores["f1"], published)},
        "malformed": (evaluation.get("brackets") or {}).get("malformed"),
        **{"test": test, "test_set": test_set, "lines": lines},
        "scored": f"{test_set or test}, {lines:,} sentences" if lines else None,
        "steps": evaluation.get("step", run.step) if run else None,
    }


def _table_4(name: str, records: list[Record], left_out: list[str]) -> Table:
    columns = [Column("parser", "parser"), Column("training", "training"), Column("n", "n")]
    columns += [Column("f1", "F1", 2), Column("paper_f1", "paper", 1), Column("f1_difference", "difference", 2, True)]
    columns += [Column("precision", "precision", 2), Column("recall", "recall", 2)]
    columns += [Column("complete_match", "complete", 2), Column("malformed", "malformed")]
    columns += [Column("scored", "test set"), Column("steps", "steps")]
    about = (
        "F1 is of labelled brackets, counted as EVALB with COLLINS.prm counts. Runs on other text, or with another "
        "model or vocabulary, are `other`: their figures cannot be compared with the paper's."
    )
    title = "Table 4: parsing, section 23 of the Wall Street Journal"
    return Table(title, columns, records, after=[about, *left_out], name=name)


# Why a run's figures cannot be compared with the paper's.


def why_not_comparable(run: MeasuredRun, paper_steps: int, evaluation: Record | None, test_set: str) -> list[str]:
    """Returns the reasons why a run, scored as `evaluation` says, cannot be compared with the paper."""
    config = run.settled()
    data, optim = config.data, config.optim
    sizes = VOCABULARIES.get((data.src_lang, data.tgt_lang), (STATED_VOCABULARY,))
    found = []
    if not _is_wmt14(data):
        text = "the phrasebook" if data.source == "phrasebook" else f"data.train={data.train}"
        found.append(f"trained on {data.hub_path if data.source == 'hub' else text}, the paper on WMT14")
    if run.step != paper_steps:
        found.append(f"{run.step:,} steps, the paper {paper_steps:,}")
    if data.tokens_per_step != TOKENS_PER_STEP:
        found.append(f"{data.tokens_per_step:,} tokens a step, the paper about {TOKENS_PER_STEP:,}")
    if data.vocab_size not in sizes:
        found.append(f"a vocabulary of {data.vocab_size:,}, the paper about {sizes[0]:,}")
    if (optim.warmup_steps, optim.lr_scale) != (4000, 1):
        rate = f"optim.warmup_steps={optim.warmup_steps} and optim.lr_scale={optim.lr_scale:g}"
        found.append(f"{rate}, the paper 4000 and 1")
    if not (evaluation.get("test_set") == test_set if evaluation else _is_wmt14(data)):
        found.append(f"measured on other text than {test_set}")
    elif evaluation and evaluation.get("n_references", 1) != 1:
        found.append("scored with several references")
    return found


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
        record: Record = {"row": row.name, "paper": row.parameters}
        for name, size in sizes.items():
            counted = n_parameters(row.model, size) / 1e6
            record |= {f"vocab_size{name}": size, f"parameters{name}": counted}
            record[f"difference{name}"] = None if row.parameters is None else counted - row.parameters
        records.append(record)
    columns = [Column("row", "row"), Column("paper", "paper (M)")]
    for name, size in sizes.items():
        columns += [Column(f"parameters{name}", f"V = {size:,}", 2), Column(f"difference{name}", "difference", 2, True)]
    return Table("Table 3: parameters, in millions", columns, records, name="parameters")
