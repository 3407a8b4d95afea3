"""Scores of translations: BLEU of four kinds, chrF and TER, computed from detokenised text.

Scores of different kinds must not be compared, so each comes with its name and its signature:

sacrebleu            mixed case, sacreBLEU's own 13a tokens: the number to report.
bleu_tokenized       Moses punctuation and Moses tokens, mixed case, no smoothing.
bleu_tokenized_lc    the same of lower-cased text, as published for Multi30k.
bleu_compound_split  the kind of the paper's English-German tables: hyphenated words count in parts. German only.
chrf, ter            sacreBLEU's defaults; for TER less is better.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from aiayn.errors import DataError
from aiayn.runs.run_folder import METRIC_KINDS

WITHOUT_MOSES: dict[str, type[Metric]] = {"sacrebleu": BLEU, "chrf": CHRF, "ter": TER}
# What the Moses scripts leave: the reference's German quotes would otherwise match no output of straight quotes.
STRAIGHT_QUOTES = str.maketrans(dict.fromkeys("„“”«»", '"') | dict.fromkeys("‚‘’‹›", "'"))


@dataclass(frozen=True)
class Scores:
    """Scores by kind. A kind that does not apply to the language, or was not asked for, is None."""

    metrics: dict[str, float | None]  # kind -> score in per cent
    signature: str  # of sacrebleu
    signatures: dict[str, str | None]
    details: dict[str, dict[str, Any] | None]  # BLEU kinds: precisions, brevity penalty, tokens on both sides
    lines: int


def score(
    hypotheses: list[str],
    references: list[str] | list[list[str]],
    tgt_lang: str,
    kinds: Collection[str] = METRIC_KINDS,
) -> Scores:
    """Scores detokenised hypotheses against untouched references.

    `references` holds one reference per line, or several such lists. `tgt_lang` is a language code such as de.
    Raises DataError where hypotheses and references differ in number, or there are none.
    """
    assert set(kinds) <= set(METRIC_KINDS), kinds
    streams = _reference_streams(references)
    _same_lines(hypotheses, streams)
    lang = re.split("[-_]", tgt_lang.lower())[0]
    metrics: dict[str, float | None] = dict.fromkeys(METRIC_KINDS)
    signatures: dict[str, str | None] = dict.fromkeys(METRIC_KINDS)
    details: dict[str, dict[str, Any] | None] = dict.fromkeys(METRIC_KINDS)
    for kind in kinds:
        if kind == "bleu_compound_split" and lang != "de":
            continue
        metric, prepare, tokens = _kind(kind, lang)
        result = metric.corpus_score(
            [prepare(line) for line in hypotheses], [[prepare(line) for line in stream] for stream in streams]
        )
        metrics[kind] = result.score
        signatures[kind] = str(metric.get_signature()).replace("tok:none", tokens)
        if isinstance(metric, BLEU):
            details[kind] = {
                "precisions": result.precisions,
                "brevity_penalty": result.bp,
                "hypothesis_tokens": result.sys_len,
                "reference_tokens": result.ref_len,
            }
    return Scores(metrics, signatures["sacrebleu"] or "", signatures, details, len(hypotheses))


def paired_bootstrap(
    baseline: list[str], system: list[str], references: list[str] | list[list[str]], n_samples: int = 1000
) -> dict[str, Any]:
    """Tests whether two systems differ in sacreBLEU, by paired bootstrap resampling (Koehn 2004).

    Returns both scores with their mean and 95 % interval (mean +- ci) over the samples, `delta` = system - baseline,
    the p-value of no difference, and the signature. Raises DataError as `score` does.
    """
    streams = _reference_streams(references)
    _same_lines(baseline, streams)
    _same_lines(system, streams)
    named = [("baseline", baseline), ("system", system)]
    signatures, results = PairedTest(named, {"BLEU": BLEU()}, streams, test_type="bs", n_samples=n_samples)()
    first, second = results["BLEU"]
    return {
        "baseline": {"score": first.score, "mean": first.mean, "ci": first.ci},
        "system": {"score": second.score, "mean": second.mean, "ci": second.ci},
        "delta": second.score - first.score,
        # sacreBLEU counts the samples that differ by more than was observed, and gives 0 for equal outputs.
        "p_value": 1.0 if list(baseline) == list(system) else second.p_value,
        "signature": str(signatures["BLEU"]),
    }


def moses_tokenized(line: str, lang: str) -> str:
    """Punctuation normalised as Moses does, then Moses tokens with spaces between them."""
    normalizer, tokenizer, _ = _moses(lang)
    return tokenizer.tokenize(normalizer.normalize(line), return_str=True, escape=False)


def compound_split(line: str) -> str:
    """German text as the authors' script get_ende_bleu.sh has it, with quotes straightened in references too.

    The script maps Unicode punctuation, tokenises, and cuts hyphenated words. It does not normalise punctuation as
    `moses_tokenized` does: that would also swap a comma and the quote before it, which raises the score.
    """
    normalizer, tokenizer, _ = _moses("de")
    straight = normalizer.replace_unicode_punct(line.translate(STRAIGHT_QUOTES))
    tokens = tokenizer.tokenize(straight, return_str=True, escape=False)
    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", tokens)


def _kind(kind: str, lang: str) -> tuple[Metric, Callable[[str], str], str]:
    """Returns the metric, the function that prepares a line for it, and the name of its tokens in the signature."""
    if kind in WITHOUT_MOSES:
        return WITHOUT_MOSES[kind](), str, ""
    # Published tokenised scores come from multi-bleu.perl, which neither tokenises nor smooths.
    lowercase = kind == "bleu_tokenized_lc"
    metric = BLEU(lowercase=lowercase, tokenize="none", smooth_method="none", force=True)
    version = f"sacremoses:{_moses(lang)[2]}"
    if kind == "bleu_compound_split":
        return metric, compound_split, f"tok:moses-{lang}-compound-split|{version}"
    tokenize = partial(moses_tokenized, lang=lang)
    # Lower case comes first: Moses knows abbreviations by their case.
    prepare = (lambda line: tokenize(line.lower())) if lowercase else tokenize
    return metric, prepare, f"tok:moses-{lang}|norm:moses|{version}"


@cache
def _moses(lang: str) -> tuple[Any, Any, str]:
    """Normaliser and tokenizer of a language, and sacremoses' version."""
    import sacremoses

    return sacremoses.MosesPunctNormalizer(lang=lang), sacremoses.MosesTokenizer(lang=lang), sacremoses.__version__


def _reference_streams(references: Sequence[str] | Sequence[Sequence[str]]) -> list[list[str]]:
    """Lists of references, each with one line per hypothesis, whichever way they were given."""
    if isinstance(references, str):
        raise DataError("references are one text: give a list of lines, or several lists of lines")
    texts = sum(isinstance(item, str) for item in references)
    if texts == len(references):
        return [list(references)]
    if texts:
        raise DataError(
            f"references mix {texts} lines with {len(references) - texts} lists of lines: give only one sort"
        )
    return [list(stream) for stream in references]


def _same_lines(hypotheses: Sequence[str], streams: list[list[str]]) -> None:
    """Raises DataError unless the counts agree: sacreBLEU silently compares the lines of the shorter side."""
    if isinstance(hypotheses, str):
        raise DataError("hypotheses are one text: give a list of lines")
    for number, stream in enumerate(streams, start=1):
        if len(stream) != len(hypotheses):
            raise DataError(
                f"{len(hypotheses)} hypotheses but {len(stream)} lines in reference {number} of {len(streams)}: line N "
                "of both must belong together; check that neither file lost or gained a line"
            )
    if not hypotheses:
        raise DataError("0 hypotheses and 0 references: nothing to score")
