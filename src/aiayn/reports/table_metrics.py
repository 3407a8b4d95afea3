"""Which metrics a table shows, their values in a run, and which runs measured them in the same
unit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from aiayn.config.tasks import (
    BRACKET_KINDS,
    FORCED_KINDS,
    METRIC_KINDS,
    METRICS,
    TASKS,
    VAL_METRICS,
)
from aiayn.errors import ConfigError
from aiayn.reports.runs import SPLITS, MeasuredRun

ALIASES = {"accuracy": "val/accuracy"}  # short names of series
RATIO = " length ratio"  # the ratio of lengths of a kind of BLEU


@dataclass(frozen=True)
class Metric:
    """A logged series such as val/ppl, whose last value counts, or a score in the evaluation of a
    split.
    """

    name: str
    split: str | None = None  # None: a series

    @property
    def key(self) -> str:
        return f"{self.split}/{self.name}" if self.split else self.name

    @property
    def title(self) -> str:
        return f"{self.name} ({self.split})" if self.split else self.name

    @property
    def decimals(self) -> int | None:
        """Return the decimals in tables; None: as many as the values need."""
        if self.name in METRICS:
            return METRICS[self.name].decimals
        return 2 if self.split else None

    @property
    def lower_is_better(self) -> bool:
        return self.name in METRICS and METRICS[self.name].lower_is_better

    @property
    def ratio(self) -> "Metric | None":
        """Return the ratio of lengths that stands beside a BLEU score."""
        is_bleu = self.split and "bleu" in self.name and not self.name.endswith(RATIO)
        return Metric(self.name + RATIO, self.split) if is_bleu else None

    def of(self, run: MeasuredRun) -> float | None:
        """Return the value that was measured; None if there is none."""
        if self.split is None:
            return run.last(self.name)
        evaluation = run.evaluations.get(self.split)
        if evaluation is None:
            return None
        if self.name.endswith(RATIO):
            return evaluation.length_ratio(self.name.removesuffix(RATIO))
        return evaluation.score(self.name)

    def amount(self, run: MeasuredRun) -> str:
        """Return how much of its text a validation translated or read; "" for a score."""
        if self.split:
            return ""
        is_read = self.name in ("val/loss", "val/ppl", "val/accuracy")
        return str(
            run.options.get(
                "trainer.limit_val_batches" if is_read else "trainer.val_bleu_sentences"
            )
        )

    def unit(self, run: MeasuredRun) -> object:
        """Return what the values of two runs must have in common to be compared, by content.

        Scores need the same text and signature, figures per subword the same tokenizer, losses the
        same smoothing, too.
        """
        options = run.text_options
        tokenizer = run.content.get("tokenizer") or str(options)
        if self.split:
            evaluation = run.evaluations.get(self.split)
            if evaluation is None:
                return run.languages
            text = evaluation.text_sha256 or evaluation.test_set
            signature = evaluation.signatures.get(self.name.removesuffix(RATIO))
            return run.languages, text, tokenizer if self.name in FORCED_KINDS else signature
        if self.name in VAL_METRICS:
            text = (
                run.content.get("val_text")
                or f"{options.get('data.val')} {options.get('data.source')}"
            )
            return run.languages, text, self.amount(run)
        smoothing = run.options.get("optim.label_smoothing") if self.name.endswith("loss") else None
        if self.name.startswith("val/"):
            return tokenizer, run.content.get("val") or str(options), smoothing, self.amount(run)
        return (
            (run.content.get("corpus") or str(options), smoothing)
            if self.name == "train/loss"
            else None
        )


def record_keys(metrics: Sequence[Metric]) -> dict[Metric, str]:
    """Return each metric's key in the records of a table: a series may have the name of a score,
    such as val/f1.
    """
    scores = {metric.key for metric in metrics if metric.split}
    return {
        metric: f"{metric.key} (series)"
        if metric.split is None and metric.key in scores
        else metric.key
        for metric in metrics
    }


def usual_metrics(runs: Sequence[MeasuredRun]) -> list[Metric]:
    """Return validation perplexity, and the score to report of every split that was scored."""
    names = sorted({TASKS[run.task].metric for run in runs})
    scores = [Metric(name, split) for name in names for split in scored_splits(runs, SPLITS)]
    return [Metric("val/ppl"), *scores]


def scored_splits(runs: Sequence[MeasuredRun], splits: Sequence[str]) -> list[str]:
    return [split for split in splits if any(split in run.evaluations for run in runs)]


def asked_metrics(
    runs: Sequence[MeasuredRun], names: Sequence[str], splits: Sequence[str]
) -> list[Metric]:
    """Return the metrics with these names, a score for every split that a run was scored on; else
    the usual ones.

    Raises ConfigError for unknown metrics.
    """
    if not names:
        return [metric for metric in usual_metrics(runs) if metric.split in (None, *splits)]
    series = {key for run in runs for record in run.records for key in record if "/" in key}
    scored = [
        run.evaluations[split] for run in runs for split in splits if split in run.evaluations
    ]
    of_extensions = [name for evaluation in scored for name in evaluation.metrics]
    kinds = tuple(dict.fromkeys((*METRIC_KINDS, *BRACKET_KINDS, *FORCED_KINDS, *of_extensions)))
    metrics = []
    for name in names:
        key = ALIASES.get(name, name)
        if key in series:
            metrics.append(Metric(key))
        elif key in kinds:
            metrics += [Metric(key, split) for split in scored_splits(runs, splits)]
        else:
            raise ConfigError(
                f"--metrics {name}: not measured in these runs; scores: {', '.join(kinds)}; "
                f"series: {', '.join(sorted(series)) or 'none'}"
            )
    return metrics
