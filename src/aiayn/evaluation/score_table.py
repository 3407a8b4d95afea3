"""The table that `evaluate.py` prints."""

from collections.abc import Mapping
from typing import Any

from aiayn.config.tasks import METRIC_KINDS
from aiayn.data.languages import SEVERAL
from aiayn.errors import counted
from aiayn.evaluation.scoring import tokens_by_script
from aiayn.evaluation.translation_task import short_outputs, task_of
from aiayn.reports.published import SECTION_23, SUBSET, TABLE_4
from aiayn.runs.results import Evaluation

SCORE_ALONE = (
    """scored as if one; for each one's own tokenizer, score it alone: 'test="<2de>PREFIX"'"""
)
CASE_WARNING_POINTS = 3  # BLEU points; models that learned both cases lose less than 1

Rows = list[tuple[str, str]]  # name and text
EMPTY = ("", "")


def score_table(evaluation: Evaluation) -> str:
    """Returns the printed table: model, text and search, then a line for every kind of score with
    its signature.
    """
    rows = [*_made_of(evaluation), EMPTY, *_score_rows(evaluation)]
    rows += task_of(evaluation.task).score_rows(evaluation.brackets)
    if forced := evaluation.forced:
        per_subword = f"per subword of the reference ({forced['tokens']:,} subwords)"
        rows += [EMPTY, ("perplexity", f"{forced['perplexity']:6.2f}  {per_subword}")]
        rows.append(
            (
                "token accuracy",
                f"{forced['accuracy']:6.2f}  % of its subwords are the model's first choice",
            )
        )
    if paper := _paper_rows(evaluation):
        rows += [EMPTY, *paper]
    if evaluation.baseline:
        rows += [EMPTY, *_baseline_rows(evaluation.baseline, made_with(evaluation))]
    return "\n".join(f"{name:<20} {text}".rstrip() for name, text in rows)


def _made_of(evaluation: Evaluation) -> Rows:
    """Returns the rows that say what was scored: the weights, the text and the search."""
    averaged = evaluation.averaged
    weights = f"average of {counted(len(averaged), 'checkpoint')}" if averaged else "one checkpoint"
    if evaluation.ensemble:
        weights += "; in an ensemble with " + ", ".join(
            member["run"] for member in evaluation.ensemble
        )
    lines = f"{evaluation.lines} lines"
    if evaluation.n_references > 1:
        lines += f", {evaluation.n_references} references"
    rows = [
        ("model", f"{evaluation.checkpoint}, step {evaluation.step}, {weights}"),
        ("text", f"{evaluation.text}, {evaluation.src_lang} -> {evaluation.tgt_lang}, {lines}"),
        ("search", _search_text(evaluation.search)),
    ]
    if evaluation.tgt_lang == SEVERAL:
        rows.append(("", f"several languages: {SCORE_ALONE}"))
    if "hypotheses" in evaluation.search:
        return rows
    return [*rows, ("time", f"{evaluation.seconds:.1f} s to translate on {evaluation.device}")]


def _search_text(search: Mapping[str, Any]) -> str:
    if "hypotheses" in search:
        return f"none; translations in {search['hypotheses']}"
    penalty = f"length_penalty {search['length_penalty']:g} ({search['penalty']})"
    if search.get("patience"):
        penalty += f", patience {search['patience']:g}"
    limit = f"at most {counted(search['max_extra_tokens'], 'token')} more than the source"
    names = [name.partition(":")[0] for name in search.get("constraints", [])]
    constraints = f", constrained by {', '.join(names)}" if names else ""
    return f"beam_size {search['beam_size']}, {penalty}, {limit}{constraints}"


def _score_rows(evaluation: Evaluation) -> Rows:
    metrics, kinds = evaluation.metrics, task_of(evaluation.task).kinds
    bleu_ratio = evaluation.length_ratio("sacrebleu")
    rows = []
    for metric in kinds:
        score, ratio = metrics[metric], evaluation.length_ratio(metric)
        lengths = "" if ratio is None else f"length ratio {ratio:.3f}  "
        score_text = "     -  does not apply to this language"
        if score is not None:
            score_text = f"{score:6.2f}  {lengths}{evaluation.signatures[metric]}"
        rows.append((metric, score_text))
    signature = evaluation.signatures.get("sacrebleu") or ""
    if tokens := tokens_by_script(evaluation.tgt_lang, signature):
        rows.append(
            _note(
                f"{evaluation.tgt_lang} is not a known code; tok:{tokens} was chosen by its script"
            )
        )
    if bleu_ratio == 0:
        rows.append(
            _note("every translation is empty: the model has learned too little; train longer")
        )
    if warning := short_outputs(bleu_ratio, metrics.get("sacrebleu")):
        rows.append(_note(warning))
    lost_by_case = (metrics.get("bleu_tokenized_lc") or 0) - (metrics.get("bleu_tokenized") or 0)
    if lost_by_case > CASE_WARNING_POINTS:
        rows.append(_note("case costs many points: for a lower-case model, use bleu_tokenized_lc"))
    for name, value in metrics.items():
        if value is not None and name not in (*METRIC_KINDS, *kinds):
            rows.append((name, f"{value:6.2f}  of an extension"))
    if evaluation.recomposed:
        sides = [f"{lines:,} {side}" for side, lines in evaluation.recomposed.items() if lines]
        unlike = f"scored in NFC, but {' and '.join(sides)} are not in NFC"
        rows.append(_note(f"{unlike}: sacreBLEU's own command gives another score"))
    return rows


def _note(text: str) -> tuple[str, str]:
    """Returns a row without a name or a number; the text is below those of the scores."""
    return "", f"        {text}"


def _paper_rows(evaluation: Evaluation) -> Rows:
    """Returns the paper's figures for this text, if it has some."""
    if evaluation.test_set == SECTION_23:
        figures = ", ".join(f"{row.printed['f1']} {row.training}" for row in TABLE_4)
        return [("paper", f"        {figures} ({SECTION_23}, Table 4)")]
    if evaluation.test_set == SUBSET:
        return [("paper", "     -  the paper's figures are for all 3,003 lines of newstest2014")]
    paper = evaluation.paper
    if paper is None:
        return []
    where = f"({evaluation.test_set}, {paper['table']})"
    return [
        ("paper", f"{paper['base']:6.2f} base, {paper['big']:.2f} big {where}"),
        _note(f"compare only {paper['kind']} with it: {paper['remark']}"),
    ]


def _baseline_rows(baseline: Mapping[str, Any], system: Mapping[str, Any]) -> Rows:
    rows = [("baseline", f"{baseline['run']}")]
    rows += [
        _note(f"{key}={there} there, {system.get(key)} here")
        for key, there in baseline["differs"].items()
    ]
    for metric, tests in baseline["kinds"].items():
        of_baseline, of_system = tests["baseline"], tests["system"]
        scores = f"{of_baseline['score']:6.2f}  {tests['delta']:+6.2f}"
        bootstrap = f"p = {tests['p_bootstrap']:.4f} (bootstrap)"
        randomisation = f"{tests['p_randomisation']:.4f} (randomisation)"
        halves = f"+- {of_baseline['ci']:.2f} (baseline), +- {of_system['ci']:.2f}"
        text = f"{scores}  {bootstrap}, {randomisation}; 95 % intervals {halves}"
        rows.append((f" {metric}", text))
    samples = f"paired bootstrap of {baseline['n_samples']} samples"
    trials = f"paired randomisation of {baseline['n_trials']} trials"
    return [*rows, _note(f"{samples}, {trials}; p not corrected for the number of scores")]


def made_with(evaluation: Evaluation) -> dict[str, Any]:
    """Returns the checkpoint and the options of the search behind these scores, which change them
    within one run.
    """
    return {"checkpoint": evaluation.checkpoint, **evaluation.made_with}
