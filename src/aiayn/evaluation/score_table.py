"""The table that `evaluate.py` prints."""

from collections.abc import Mapping
from typing import Any

from aiayn.data.languages import SEVERAL
from aiayn.evaluation.tasks import short_outputs, task_of
from aiayn.reports.published import SECTION_23, SUBSET, TABLE_4
from aiayn.runs.results import search_of
from aiayn.runs.run_folder import METRIC_KINDS

SCORE_ALONE = """scored as if they were one; for the tokens of each, score it alone: 'test="<2de>PREFIX"'"""

CASE = 3  # points of BLEU; models that learned both cases lose less than 1 by it


def score_table(result: Mapping[str, Any]) -> str:
    """Returns the printed table: model, text and search, then a line for every kind of score with its signature."""
    averaged, search, metrics = result["averaged"], result["search"], result["metrics"]
    weights = f"average of {len(averaged)} checkpoints" if averaged else "one checkpoint"
    if others := result["ensemble"]:
        weights += "; in an ensemble with " + ", ".join(other["run"] for other in others)
    lines = f"{result['lines']} lines" + (f", {result['n_references']} references" * (result["n_references"] > 1))
    penalty = f"length_penalty {search['length_penalty']:g} ({search['penalty']})"
    penalty += f", patience {search['patience']:g}" if search.get("patience") else ""
    limit = f"at most {search['max_extra_tokens']} tokens more than the source"
    rows = [
        ("model", f"{result['checkpoint']}, step {result['step']}, {weights}"),
        ("text", f"{result['text']}, {result['src_lang']} -> {result['tgt_lang']}, {lines}"),
        ("search", f"beam_size {search['beam_size']}, {penalty}, {limit}"),
        *[("", f"several languages: {SCORE_ALONE}")] * (result["tgt_lang"] == SEVERAL),
        ("time", f"{result['seconds']:.1f} s to translate on {result['device']}"),
        ("", ""),
    ]
    task = task_of(result["task"])
    ratios = {kind: found["length_ratio"] for kind, found in result["details"].items() if found}
    for kind in task.kinds:
        lengths = f"length ratio {ratios[kind]:.3f}  " if kind in ratios else ""
        shown = "     -  does not apply to this language"
        if metrics[kind] is not None:
            shown = f"{metrics[kind]:6.2f}  {lengths}{result['signatures'][kind]}"
        rows.append((kind, shown))
    if warning := short_outputs(ratios.get("sacrebleu")):
        rows.append(("", f"        {warning}"))
    if (metrics.get("bleu_tokenized_lc") or 0) - (metrics.get("bleu_tokenized") or 0) > CASE:
        rows.append(("", "        much is lost by case: for a model of lower-case text read bleu_tokenized_lc"))
    added = {name: value for name, value in metrics.items() if name not in (*METRIC_KINDS, *task.kinds)}
    rows += [(name, f"{value:6.2f}  of an extension") for name, value in added.items() if value is not None]
    if recomposed := result.get("recomposed"):
        counts = " and ".join(f"{lines:,} {side}" for side, lines in recomposed.items() if lines)
        rows.append(("", f"        scored in NFC, which {counts} were not: sacreBLEU's command gives another score"))
    rows += task.score_rows(result)
    if forced := result["forced"]:
        per_subword = f"of the reference, for each of its {forced['tokens']:,} subwords"
        rows += [("", ""), ("perplexity", f"{forced['perplexity']:6.2f}  {per_subword}")]
        rows.append(("token accuracy", f"{forced['accuracy']:6.2f}  % of them are the model's first choice"))
    if result["test_set"] == SECTION_23:
        figures = ", ".join(f"{row.printed['f1']} {row.label}" for row in TABLE_4)
        rows += [("", ""), ("paper", f"        {figures} ({SECTION_23}, Table 4)")]
    if paper := result["paper"]:
        where = f"({result['test_set']}, {paper['table']})"
        rows += [("", ""), ("paper", f"{paper['base']:6.2f} base, {paper['big']:.2f} big {where}")]
        rows.append(("", f"        compare {paper['kind']} with it, and no other kind: {paper['remark']}"))
    elif result["test_set"] == SUBSET:
        rows += [("", ""), ("paper", "     -  its figures are for all 3,003 lines of newstest2014, these are 2,737")]
    if baseline := result.get("baseline"):
        here = made_with(result)
        rows += [("", ""), ("baseline", f"{baseline['run']}")]
        rows += [("", f"        {key}={one} there, {here.get(key)} here") for key, one in baseline["differs"].items()]
        for kind, one in baseline["kinds"].items():
            ps = f"p = {one['p_bootstrap']:.4f} (bootstrap), {one['p_randomisation']:.4f} (randomisation)"
            intervals = f"95 % intervals +- {one['baseline']['ci']:.2f} (baseline), +- {one['system']['ci']:.2f}"
            rows.append((f"  {kind}", f"{one['baseline']['score']:6.2f}  {one['delta']:+6.2f}  {ps}; {intervals}"))
        tests = f"paired bootstrap of {baseline['n_samples']} samples, paired randomisation of {baseline['n_trials']}"
        rows.append(("", f"        {tests} trials; not corrected for the number of kinds"))
    return "\n".join(f"{name:<20} {text}".rstrip() for name, text in rows)


def made_with(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the checkpoint and the options of the search behind these scores, which change them within one run."""
    search = {f"search.{key}": value for key, value in search_of(scores).items()}
    return {"checkpoint": scores.get("checkpoint"), **search}
