"""The metrics that this program measures: one entry each, with its name, title, unit and direction.

`evaluation/scoring.py` and `parsing/bracket_f1.py` compute the scores of text, `training/module.py`
the series.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class MetricEntry:
    """A logged series such as val/ppl, or a score in evaluation.json; `decimals` are those of
    tables.
    """

    name: str
    title: str
    unit: str
    decimals: int | None = None  # None: as many as the values need
    lower_is_better: bool = False


_SERIES = (
    MetricEntry("train/loss", "training loss", "nats per token", lower_is_better=True),
    MetricEntry("val/loss", "validation loss", "nats per token", lower_is_better=True),
    MetricEntry("val/ppl", "validation perplexity", "per subword", 2, lower_is_better=True),
    MetricEntry("val/accuracy", "validation accuracy", "share of subwords"),
    MetricEntry("val/bleu", "validation BLEU (greedy)", "points", 2),
    MetricEntry("val/f1", "validation F1 (greedy)", "%", 2),
    MetricEntry("val/length_ratio", "length of outputs to references", "ratio"),
)
_TRANSLATION_SCORES = (
    MetricEntry("sacrebleu", "sacreBLEU", "points", 2),
    MetricEntry("bleu_tokenized", "tokenised BLEU", "points", 2),
    MetricEntry("bleu_tokenized_lc", "lower-cased tokenised BLEU", "points", 2),
    MetricEntry("bleu_compound_split", "compound-split BLEU", "points", 2),
    MetricEntry("chrf", "chrF", "points", 2),
    MetricEntry("ter", "TER", "edits per 100 words", 2, lower_is_better=True),
)
_BRACKET_SCORES = (
    MetricEntry("f1", "F1", "%", 2),
    MetricEntry("precision", "precision", "%", 2),
    MetricEntry("recall", "recall", "%", 2),
    MetricEntry("complete_match", "complete match", "%", 2),
)
# By forced decoding of the references.
_FORCED_SCORES = (
    MetricEntry("perplexity", "perplexity", "per subword", 2, lower_is_better=True),
    MetricEntry("token_accuracy", "token accuracy", "%", 2),
)
# In the order in which tables show them.
METRIC_KINDS = tuple(entry.name for entry in _TRANSLATION_SCORES)
BRACKET_KINDS = tuple(entry.name for entry in _BRACKET_SCORES)
FORCED_KINDS = tuple(entry.name for entry in _FORCED_SCORES)
METRICS = {
    entry.name: entry
    for entry in (*_SERIES, *_TRANSLATION_SCORES, *_BRACKET_SCORES, *_FORCED_SCORES)
}
