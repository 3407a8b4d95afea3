"""Table 2 of the paper: BLEU on newstest2014 and the cost of training, beside other systems."""

from aiayn.model.flops import training_flops
from aiayn.reports.groups import Group, record_of
from aiayn.reports.intervals import less
from aiayn.reports.metrics import Metric
from aiayn.reports.obstacles import obstacles, warning
from aiayn.reports.published import (
    RIVALS_2,
    TABLE_2,
    TOKENS_PER_STEP,
    VOCABULARIES,
    Result,
    Rival,
    comparable_kind,
)
from aiayn.reports.table import Column, Table
from aiayn.runs.run_folder import Record


def is_of_result(group: Group, result: Result) -> bool:
    config = group.runs[0].settled()
    same = result.row.is_of(config.model, config.optim.label_smoothing)
    return same and (config.data.src_lang, config.data.tgt_lang) == result.direction


def is_tested(group: Group | None) -> bool:
    return group is not None and "test" in group.runs[0].evaluations


def table_2_record(result: Result | None, group: Group | None) -> Record:
    run = group.runs[0] if group else None
    data = run.settled().data if run else None
    src_lang, tgt_lang = result.direction if result else (data.src_lang, data.tgt_lang) if data else ("", "")
    evaluation = (run.evaluations.get("test") if run else None) or {}
    kind = comparable_kind(tgt_lang)
    bleu = group.sample(Metric(kind, "test")) if group else None
    scored = evaluation.get("step", run.step if run else None)
    flops, is_exact = run.flops() if run else (None, None)
    averaged = len(evaluation.get("averaged") or []) if evaluation else None
    record: Record = {
        "model": f"Transformer ({result.model})" if result else "other",
        **{"src_lang": src_lang, "tgt_lang": tgt_lang, "text": f"{src_lang}-{tgt_lang}"},
        **record_of(group),
        **{"bleu_kind": kind, "bleu": bleu, "paper_bleu": result.bleu if result else None},
        "bleu_difference": less(bleu, result.bleu if result else None),
        "sacrebleu": group.sample(Metric("sacrebleu", "test")) if group else None,
        "lines": evaluation.get("lines"),
        "test_set": evaluation.get("test_set"),
        "averaged": averaged,
        "steps": scored,
        # All steps cost about the same.
        "flops": flops * scored / max(run.step, 1) if run and flops is not None else None,
        "flops_counted_over_the_corpus": is_exact,
        "paper_flops": result.flops if result else None,
        "paper_flops_counted": counted_flops(result) if result else None,
    }
    reasons = obstacles(run, result.row.max_steps, evaluation, "newstest2014") if run and result else []
    if evaluation and result and averaged != result.average:
        reasons.append(f"{averaged or 'no'} checkpoints averaged, the paper {result.average}")
    return record | {"not_comparable": reasons}


def table_2(records: list[Record], left_out: list[str]) -> Table:
    if records and not left_out:
        records = [_rival(rival, language) for rival in RIVALS_2 for language in rival.bleu] + records
        records.sort(key=lambda record: record["text"])
    for place, record in enumerate(records):
        weights = {None: None, 0: "last"}.get(record["averaged"], f"{record['averaged']} averaged")
        count = record["lines"]
        lines = None if count is None else f"{record['test_set'] or 'test'}, {count:,} lines"
        records[place] = record | {"weights": weights, "scored": lines}
    columns = [
        *(Column("model", "model"), Column("text", "text"), Column("n", "n", missing="")),
        *(
            Column("bleu", "BLEU", 2),
            Column("paper_bleu", "paper", 2),
            Column("bleu_difference", "difference", 2, True),
        ),
        *(Column("sacrebleu", "sacreBLEU", 2), Column("scored", "test set"), Column("weights", "weights")),
        *(
            Column("flops", "FLOPs", spec=".2g"),
            Column("paper_flops_counted", "FLOPs at the paper's length", spec=".2g"),
        ),
        Column("paper_flops", "paper's FLOPs", spec=".2g"),
    ]
    ratios = {result.model: f"{result.flops / counted_flops(result):.1f}" for result in TABLE_2[:2]}
    after = [
        "BLEU is cased and tokenised (bleu_tokenized), for German with hyphenated words in parts "
        "(bleu_compound_split), the kind of the authors' script. The paper itself states neither. sacreBLEU must not "
        "be compared with the paper's column.",
        "FLOPs are those of training, counted from the matrix multiplications of the model and the tokens seen. The "
        f"paper's are device time times a sustained rate, and so {ratios['base']} (base) and {ratios['big']} (big) "
        "times what its training computes.",
    ]
    return Table("Table 2: newstest2014", columns, records, warning(records), [*after, *left_out], "text")


def _rival(rival: Rival, language: str) -> Record:
    keys = ("run", "n", "bleu", "bleu_difference", "sacrebleu", "lines", "test_set", "averaged", "flops")
    return dict.fromkeys((*keys, "paper_flops_counted")) | {
        **{"model": rival.model, "text": f"en-{language}", "rival": True, "not_comparable": []},
        **{"paper_bleu": rival.bleu[language], "paper_flops": rival.flops.get(language)},
    }


def counted_flops(result: Result) -> float:
    """Returns the FLOPs of the paper's own training, counted by `training_flops`, without attention scores."""
    vocab_size = VOCABULARIES[result.direction][0]
    return float(result.row.max_steps * TOKENS_PER_STEP * training_flops(result.row.model(), vocab_size, 1, 1))
