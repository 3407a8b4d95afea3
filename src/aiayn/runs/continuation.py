"""Whether a command continues a run: compares its options with those of the run, and says what has
ended its training. Imports no torch.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from filelock import lock_descriptor

from aiayn.config.schema import Config
from aiayn.config.stored import changed_options, filled, from_dict
from aiayn.config.training import TrainerOptions
from aiayn.errors import ConfigError, RefusedError
from aiayn.files import write_json
from aiayn.runs.run_folder import RunFolder, read_json


def read_options(folder: RunFolder) -> Config:
    """Returns the options in a run's config.yaml. Raises RefusedError if they cannot be read."""
    try:
        return from_dict(Config, folder.read_config())
    except (ConfigError, RefusedError, ValueError, TypeError, AttributeError) as error:
        raise RefusedError(
            f"{folder.config}: cannot be read as the run's options; remove it (its checkpoints "
            "hold them too), or choose another name="
        ) from error


def is_in_use(folder: RunFolder) -> bool:
    """Returns whether a process trains in this folder: it holds a lock for as long as it lives."""
    try:
        with open(folder.lock, "r+", encoding="utf-8") as lock:
            return not lock_descriptor(lock.fileno(), blocking=False)
    except OSError:
        return False


def check_unchanged(folder: RunFolder, options: Config, stored: Config) -> None:
    """Raises RefusedError if an option that defines the training differs from the run's first
    start, which stored these.
    """
    if changed := changed_options(stored, options):
        if "extensions_sha256" in changed:
            changed.pop("model.parts", None)  # their hashes are those of the files
        diff = "; ".join(f"{key}: {values}" for key, values in changed.items())
        short = re.sub(r"(\.py:[0-9a-f]{8})[0-9a-f]{56}", r"\1...", diff)
        has_checkpoint = any(folder.checkpoints.glob("*.ckpt"))
        new = "sweep another sweep=" if options.sweep else "run another name="
        remedy = "" if has_checkpoint else ", or remove that folder, which has no checkpoint"
        raise RefusedError(
            f"{folder.path} was started with other options ({short}); give a new {new}{remedy}"
        )


def check_typed_options(options: Config) -> None:
    """Raises RefusedError as `check_unchanged`, before anything slow is imported, for what is known
    by then.

    What the text, the files of extensions and another run's model decide is compared later.
    """
    folder = RunFolder(options.outputs_folder / options.run_name)
    if options.init_from is not None or options.trainer.fast_dev_run or not folder.config.exists():
        return
    stored = read_options(folder)
    model = replace(options.model, parts=stored.model.parts)
    known = replace(
        options, extensions_sha256=stored.extensions_sha256, given=stored.given, model=model
    )
    check_unchanged(folder, filled(known, stored), stored)


class ValidationHistory:
    """One metric of all validations so far: a pure function of metrics.jsonl.

    So a run that was killed and resumed has the same best checkpoint, and stops at the same step,
    as one that was not. Every rank has its own; all have the same values.
    """

    def __init__(
        self,
        settings: TrainerOptions,
        records: Iterable[Mapping[str, Any]] = (),
        lower_is_better: bool = False,
    ):
        """`lower_is_better`: the metric is better where it is lower, as the loss is."""
        self.lower_is_better = lower_is_better or settings.best_metric == "val/loss"
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
        sign = 1 if self.lower_is_better else -1
        return min(self.values, key=lambda step: (sign * self.values[step], step), default=None)

    def is_out_of_patience(self) -> bool:
        """Returns True after `trainer.patience` validations in a row that were no better than the
        best before them.
        """
        best = self.best_step
        if self.patience is None or best is None:
            return False
        return sum(step > best for step in self.values) >= self.patience


def store_end(
    folder: RunFolder, trainer: TrainerOptions, step: int, reason: str, limits: Iterable[str] = ()
) -> None:
    """Stores what ended the training before its last step, and the values of the options that let
    it go on; without any, the same command goes on.
    """
    values = {name: getattr(trainer, name) for name in limits}
    write_json(folder.end, {"step": step, "reason": reason, "limits": values})


def end_reason(
    folder: RunFolder, trainer: TrainerOptions, step: int, validations: ValidationHistory
) -> str | None:
    """Returns what ended the training at this step, such as trainer.patience=5; None where it has
    not ended or may now go on. `validations` are those up to the step.
    """
    if trainer.max_steps is not None and step >= trainer.max_steps:
        return f"trainer.max_steps={trainer.max_steps}"
    if validations.is_out_of_patience():
        return f"trainer.patience={trainer.patience}"
    limits = read_json(folder.end).get("limits")
    if not isinstance(limits, dict) or not limits:
        return None
    is_same = all(getattr(trainer, name, None) == value for name, value in limits.items())
    return stored_end(folder, step) if is_same else None


def to_continue(reason: str, trainer: TrainerOptions) -> str:
    """Returns how to train on after an end for this reason, which is `end_reason`'s."""
    option, is_option, _ = reason.partition("=")
    options = [option if is_option else "trainer.max_steps"]
    if options == ["trainer.max_steps"] and trainer.max_epochs is not None:
        options.append("trainer.max_epochs")
    return f"to continue, raise {' and '.join(options)}"


def stored_end(folder: RunFolder, step: int) -> str | None:
    """Returns what ended the newest start, if it saved this step last."""
    stored = read_json(folder.end)
    return str(stored.get("reason")) if stored.get("step") == step else None
