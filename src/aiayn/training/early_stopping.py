"""The best validation so far, and whether to stop because it was long ago (`trainer.patience`)."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from aiayn.config.schema import TrainerConfig


class ValidationHistory:
    """One metric of all validations up to now: what it says is a function of metrics.jsonl alone.

    So a run that was killed and resumed has the same best checkpoint, and stops at the same step, as one that was not.
    Every rank has its own; all have the same values.
    """

    def __init__(self, settings: TrainerConfig, records: Iterable[Mapping[str, Any]] = ()):
        self.metric, self.patience = settings.best_metric, settings.patience
        self.values: dict[int, float] = {}
        for record in records:
            self.add(record["step"], record)

    def add(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Adds a validation; one without the metric, or with NaN or infinity, is none."""
        value = metrics.get(self.metric)
        if isinstance(value, (int, float)) and math.isfinite(value):
            self.values[step] = value

    @property
    def best_step(self) -> int | None:
        """The step of the best validation, the first of equals; None before the first."""
        sign = 1 if self.metric == "val/loss" else -1
        return min(self.values, key=lambda step: (sign * self.values[step], step), default=None)

    def is_out_of_patience(self) -> bool:
        """True after `trainer.patience` validations in a row that were no better than the best before them."""
        if self.patience is None or not self.values:
            return False
        return sum(step > self.best_step for step in self.values) >= self.patience
