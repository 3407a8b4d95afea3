"""What tables and pages compare: logged series, and scores of a split."""

from collections.abc import Sequence
from dataclasses import dataclass

from aiayn.config.tasks import TASKS
from aiayn.errors import ConfigError
from aiayn.reports.runs import MeasuredRun
from aiayn.runs.run_folder import BRACKET_KINDS, METRIC_KINDS

NAMES = {"accuracy": "val/accuracy"}  # series that may be called by a short name
# Metrics by forced decoding of the references: name here, name in evaluation.json.
FORCED = {"perplexity": "perplexity", "token_accuracy": "accuracy"}


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

    def of(self, run: MeasuredRun) -> float | None:
        """Returns what was measured; None if it was not."""
        if self.split is None:
            return run.last(self.name)
        evaluation = run.evaluations.get(self.split, {})
        if self.name in FORCED:
            return (evaluation.get("forced") or {}).get(FORCED[self.name])
        return evaluation.get("metrics", {}).get(self.name)


def metrics_of(runs: Sequence[MeasuredRun], names: Sequence[str], splits: Sequence[str]) -> list[Metric]:
    """Returns the metrics with these names, scores once for every split that a run was scored on.

    Without names: validation perplexity and the score to report. Raises ConfigError for unknown metrics.
    """
    series = {key for run in runs for record in run.records for key in record if "/" in key}
    measured = {
        name: None for run in runs for split in splits for name in run.evaluations.get(split, {}).get("metrics", {})
    }
    kinds = tuple(dict.fromkeys((*METRIC_KINDS, *BRACKET_KINDS, *FORCED, *measured)))  # the last ones of extensions
    found = []
    usual = {TASKS[run.task].metric for run in runs}
    for name in names or ("val/ppl", *sorted(usual)):
        key = NAMES.get(name, name)
        if "/" in key and (not names or key in series):
            found.append(Metric(key))
        elif key in kinds:
            scored = [split for split in splits if any(split in run.evaluations for run in runs)]
            found += [Metric(key, split) for split in scored]
        else:
            raise ConfigError(
                f"--metrics {name}: not measured in these runs; scores: {', '.join(kinds)}; series: "
                f"{', '.join(sorted(series)) or 'none'}"
            )
    return found
