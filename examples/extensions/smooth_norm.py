"""A callback with state: the running mean of the gradient's norm, as a series of its own in every log and report.

python train.py extensions=[examples/extensions/smooth_norm.py] extension.smooth_norm.decay=0.99
"""

from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl

from aiayn.training.callbacks.steps import StepCallback
from aiayn.training.context import RunContext


@dataclass
class Options:
    decay: float = 0.9


class SmoothNorm(StepCallback):
    """`state_dict` is saved with the run: a run that was stopped has the same means as one that was not."""

    mean: float | None = None

    def on_step_end(self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, step: int) -> None:
        norm, decay = float(module.gradient_norm), Options(**self.run.config.extension["smooth_norm"]).decay
        self.mean = norm if self.mean is None else decay * self.mean + (1 - decay) * norm
        module.log("train/smooth_norm", self.mean)

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.mean = state_dict["mean"]


def callbacks(run: RunContext) -> list[pl.Callback]:
    return [SmoothNorm(run)]
