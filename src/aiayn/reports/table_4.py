"""Table 4 of the paper: parsing, beside other parsers."""

from aiayn.reports.groups import Group, record_of
from aiayn.reports.intervals import less
from aiayn.reports.metrics import Metric
from aiayn.reports.published import (
    RIVALS_4,
    SECTION_23,
    ParsingResult,
)
from aiayn.reports.table import Column, Table
from aiayn.runs.run_folder import BRACKET_KINDS, Record


def is_parser_of(group: Group, result: ParsingResult) -> bool:
    run = group.runs[0]
    same = result.is_of(run.settled().model, run.settled().data.vocab_size)
    return same and run.evaluations.get("test", {}).get("test_set") == SECTION_23


def table_4_record(result: ParsingResult | None, group: Group | None) -> Record:
    run = group.runs[0] if group else None
    evaluation = (run.evaluations.get("test") if run else None) or {}
    scores = {kind: group.sample(Metric(kind, "test")) if group else None for kind in BRACKET_KINDS}
    published = result.f1 if result else None
    return {
        "parser": f"Transformer ({result.n_layers} layers)" if result else "other",
        "training": result.training if result else None,
        **record_of(group),
        **scores,
        **{"paper_f1": published, "f1_difference": less(scores["f1"], published)},
        "malformed": (evaluation.get("brackets") or {}).get("malformed"),
        "test": evaluation.get("text"),
        **{"test_set": evaluation.get("test_set"), "lines": evaluation.get("lines")},
        "steps": evaluation.get("step", run.step) if run else None,
    }


def table_4(records: list[Record], left_out: list[str]) -> Table:
    if records and not left_out:
        keys = ("run", "n", *BRACKET_KINDS, "f1_difference", "malformed", "test", "test_set", "lines", "steps")
        rivals = [
            dict.fromkeys(keys) | {"parser": name, "training": training, "paper_f1": f1, "rival": True}
            for name, training, f1 in RIVALS_4
        ]
        order = list(dict.fromkeys(rival["training"] for rival in rivals))
        place = {training: number for number, training in enumerate(order)}
        records = sorted([*rivals, *records], key=lambda record: place.get(record["training"], len(place)))
    for number, record in enumerate(records):
        lines = f"{record['test_set'] or record['test']}, {record['lines']:,} sentences" if record["lines"] else None
        records[number] = record | {"scored": lines}
    columns = [
        *(Column("parser", "parser"), Column("training", "training"), Column("n", "n", missing="")),
        *(Column("f1", "F1", 2), Column("paper_f1", "paper", 1), Column("f1_difference", "difference", 2, True)),
        *(Column("precision", "precision", 2), Column("recall", "recall", 2), Column("complete_match", "complete", 2)),
        *(Column("malformed", "malformed"), Column("scored", "test set"), Column("steps", "steps")),
    ]
    about = (
        "F1 is of labelled brackets, counted as EVALB with COLLINS.prm counts. Runs on other text, or with another "
        "model or vocabulary, are `other`: their figures cannot be compared with the paper's."
    )
    title = "Table 4: parsing, section 23 of the Wall Street Journal"
    return Table(title, columns, records, after=[about, *left_out], block="training")
