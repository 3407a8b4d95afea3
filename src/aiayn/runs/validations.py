"""Which validation of a run was its best, and whether its patience is over."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from aiayn.config.training import TrainerOptions


class ValidationHistory:
    """One metric of all validations so far: a pure function of metrics.jsonl.

    So a run that was killed and resumed has the same best checkpoint, and stops at the same step,
    as one that was not. Every rank has its own; all have the same values.
    """

    def __init__(
        self,
        settings: TrainerOptions,
        records: Iterable[Mapping[str, Any]] = (),
        falls: bool = False,
    ):
        """`falls`: the metric is better where it is lower, as the loss is."""
        self.falls = falls or settings.best_metric == "val/loss"
        self.metric, self.patience = settings.best_metric, settings.patience
        self.values: dict[int, float] = {}
        for record in records:
            self.add(record["step"], record)

    def add(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Adds a validation. Ignores one whose metric is missing, NaN or infinite."""
        value = metrics.get(self.metric)
        if isinstance(value, (int, float)) and math.isfinite(value):
            self.values[step] = value

    @property
    def best_step(self) -> int | None:
        """Returns the step of the best validation, the first of equals; None before the first."""
        sign = 1 if self.falls else -1
        return min(self.values, key=lambda step: (sign * self.values[step], step), default=None)

    def is_out_of_patience(self) -> bool:
        """Returns True after `trainer.patience` validations in a row that were no better than the
        best before them.
        """
        best = self.best_step
        if self.patience is None or best is None:
            return False
        return sum(step > best for step in self.values) >= self.patience
