"""What tables and pages compare: logged series, and scores of a split; and which of them have the same unit."""

from collections.abc import Sequence
from dataclasses import dataclass

from aiayn.config.tasks import TASKS, VAL_METRICS
from aiayn.errors import ConfigError
from aiayn.reports.runs import SPLITS, MeasuredRun
from aiayn.runs.run_folder import BRACKET_KINDS, METRIC_KINDS

NAMES = {"accuracy": "val/accuracy"}  # series that may be called by a short name
# Metrics by forced decoding of the references: name here, name in evaluation.json.
FORCED = {"perplexity": "perplexity", "token_accuracy": "accuracy"}
RATIO = " length ratio"  # the ratio of lengths of a kind of BLEU


@dataclass(frozen=True)
class Metric:
    """A logged series such as val/ppl, of which the last value counts, or a score of a split's evaluation.json."""

    name: str
    split: str | None = None  # None: a series

    @property
    def key(self) -> str:
        return self.name if self.split is None else f"{self.split}/{self.name}"

    @property
    def title(self) -> str:
        return self.name if self.split is None else f"{self.name} ({self.split})"

    @property
    def digits(self) -> int | None:
        """Decimals in tables; None: as many as the values need."""
        return 2 if self.split or self.name in ("val/ppl", *VAL_METRICS) else None

    @property
    def ratio(self) -> "Metric | None":
        """The ratio of lengths that stands beside a BLEU score."""
        is_bleu = self.split is not None and "bleu" in self.name and not self.name.endswith(RATIO)
        return Metric(self.name + RATIO, self.split) if is_bleu else None

    def of(self, run: MeasuredRun) -> float | None:
        """Returns what was measured; None if it was not."""
        if self.split is None:
            return run.last(self.name)
        evaluation = run.evaluations.get(self.split, {})
        if self.name in FORCED:
            return (evaluation.get("forced") or {}).get(FORCED[self.name])
        if self.name.endswith(RATIO):
            lengths = (evaluation.get("details") or {}).get(self.name.removesuffix(RATIO)) or {}
            tokens = lengths.get("reference_tokens")
            return lengths["hypothesis_tokens"] / tokens if tokens else None
        return evaluation.get("metrics", {}).get(self.name)

    def amount(self, run: MeasuredRun) -> str:
        """Returns how much of its text a validation translated, or read; "" for a score."""
        is_read = self.name in ("val/loss", "val/ppl", "val/accuracy")
        option = "trainer.limit_val_batches" if is_read else "trainer.val_bleu_sentences"
        return str(run.options.get(option)) if self.split is None else ""

    def unit(self, run: MeasuredRun) -> object:
        """Returns what the values of two runs must have in common to be compared, by content.

        Scores need the same text and signature, figures per subword the same tokenizer, losses the same smoothing, too.
        Runs of versions that stored no fingerprints are compared where all options of their text agree.
        """
        text = run.text_options
        tokenizer = run.content.get("tokenizer") or str(text)
        if self.split is not None:
            evaluation = run.evaluations.get(self.split, {})
            # Versions that stored no checksum have the name of the test set only.
            scored = evaluation.get("text_sha256") or f"test set {evaluation.get('test_set')}"
            signature = (evaluation.get("signatures") or {}).get(self.name.removesuffix(RATIO))
            return run.languages, scored, tokenizer if self.name in FORCED else signature
        if self.name in VAL_METRICS:
            text = run.content.get("val_text") or (str(text.get("data.val")), str(text.get("data.source")))
            return run.languages, text, self.amount(run)
        smoothing = run.options.get("optim.label_smoothing") if self.name.endswith("loss") else None
        if self.name.startswith("val/"):
            return tokenizer, run.content.get("val") or str(text), smoothing, self.amount(run)
        return (run.content.get("corpus") or str(text), smoothing) if self.name == "train/loss" else None


def record_keys(metrics: Sequence[Metric]) -> dict[Metric, str]:
    """Returns each metric's key in the records of a table: a series may be called as a score is, such as val/f1."""
    scores = {metric.key for metric in metrics if metric.split is not None}
    return {one: f"{one.key} (series)" if one.split is None and one.key in scores else one.key for one in metrics}


def usual_metrics(runs: Sequence[MeasuredRun]) -> list[Metric]:
    """Returns validation perplexity, and the score to report of every split that was scored."""
    scores = sorted({TASKS[run.task].metric for run in runs})
    return [Metric("val/ppl"), *(Metric(name, split) for name in scores for split in scored_splits(runs, SPLITS))]


def scored_splits(runs: Sequence[MeasuredRun], splits: Sequence[str]) -> list[str]:
    return [split for split in splits if any(split in run.evaluations for run in runs)]


def asked_metrics(runs: Sequence[MeasuredRun], names: Sequence[str], splits: Sequence[str]) -> list[Metric]:
    """Returns the metrics with these names, scores once for every split that a run was scored on; else the usual ones.

    Raises ConfigError for unknown metrics.
    """
    if not names:
        return [metric for metric in usual_metrics(runs) if metric.split in (None, *splits)]
    series = {key for run in runs for record in run.records for key in record if "/" in key}
    added = [name for run in runs for split in splits for name in run.evaluations.get(split, {}).get("metrics", {})]
    kinds = tuple(dict.fromkeys((*METRIC_KINDS, *BRACKET_KINDS, *FORCED, *added)))  # the last ones of extensions
    found = []
    for name in names:
        key = NAMES.get(name, name)
        if key in series:
            found.append(Metric(key))
        elif key in kinds:
            found += [Metric(key, split) for split in scored_splits(runs, splits)]
        else:
            raise ConfigError(
                f"--metrics {name}: not measured in these runs; scores: {', '.join(kinds)}; series: "
                f"{', '.join(sorted(series)) or 'none'}"
            )
    return found
