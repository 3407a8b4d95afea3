"""The metrics that this program measures: one entry each, with its name, title, unit and direction.
The tasks that a run can learn (`data.task`), and the interface that each implements.

`evaluation/translation_task.py` implements translation, `parsing/task.py` parsing.
`evaluation/scoring.py` and `parsing/bracket_f1.py` compute the scores of text, `training/module.py`
the series.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar


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
    MetricEntry("val/length_ratio", "output/reference length", "ratio"),
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


@dataclass(frozen=True, kw_only=True)
class TaskNames:
    """The scores of a task (`config/tasks.py`), and how its text is divided into subwords."""

    metric: str  # the score in evaluation.json by which runs are compared
    val_metric: str  # the score during training
    scored_on: tuple[str, ...] = ("val", "test")  # the splits whose scores the paper's tables show
    splits_at_spaces: bool  # the tokenizer divides text at spaces only before it learns BPE
    unsupported: tuple[str, ...] = ()  # options of `evaluate.py` that do not apply


TASKS: dict[str, TaskNames] = {
    "translation": TaskNames(
        metric="sacrebleu",
        val_metric="val/bleu",
        splits_at_spaces=False,
    ),
    "parsing": TaskNames(
        metric="f1",
        val_metric="val/f1",
        scored_on=("test",),
        splits_at_spaces=True,
        unsupported=("references", "baseline"),
    ),
}
VAL_METRICS = tuple(names.val_metric for names in TASKS.values())


@dataclass(frozen=True)
class TaskScores:
    """Scores of a test set by kind, in per cent; None where a kind does not apply."""

    metrics: dict[str, float | None]
    signature: str  # that of the task's metric
    signatures: dict[str, str | None]
    lines: int
    details: dict[str, Any] = field(default_factory=dict)
    recomposed: dict[str, int] | None = (
        None  # lines that were not in NFC, of hypotheses and references
    )
    brackets: dict[str, Any] | None = None  # of a parser


class Task:
    """What differs between tasks: the checks before a search, the scores after it, and how outputs
    are shown.

    The defaults are those of running text that needs no check and is shown as it is.
    """

    kinds: tuple[str, ...]  # kinds of scores, in the order in which they are printed
    formats: ClassVar[
        Mapping[str, Callable[[str, str], str]]
    ] = {}  # `aiayn translate --format`: source, output -> text
    usual_format: str | None = None  # the format that the program suggests
    reads_prose: bool = True  # its source is running text, which may have paragraphs and mark-up

    def check_text(self, sources: list[str], references: list[str], tgt_lang: str) -> None:
        """Raises DataError for references that cannot be scored, ConfigError where a library for
        that is missing.
        """

    def source_line(self, line: str) -> str:
        """Returns a typed line as the model's training text has it."""
        return line

    def score(
        self, hypotheses: list[str], sources: list[str], references: list[list[str]], tgt_lang: str
    ) -> TaskScores:
        """Scores the outputs for a test set. Raises DataError for text that cannot be scored."""
        raise NotImplementedError

    def val_scores(
        self, hypotheses: list[str], sources: list[str], references: list[str], tgt_lang: str
    ) -> dict[str, float]:
        """Returns the scores that training logs by their names: in per cent, and what stands beside
        them.
        """
        raise NotImplementedError

    def score_rows(self, brackets: Mapping[str, Any] | None) -> Sequence[tuple[str, str]]:
        """Returns (name, text) of the rows that the printed table adds below the scores."""
        return []
