"""Options of the group `trainer`: length of the training, devices, and how often something is done."""

from dataclasses import dataclass
from typing import Literal, get_args

from aiayn.config.rules import MAX_COUNT, at_least, check_rules, option, require

# Lightning's names; tf32 is 32-true whose products tensor cores round to 10 bits.
TrainingPrecision = Literal["32-true", "bf16-mixed", "bf16-true", "16-mixed", "64-true"]
# Lightning's names; the last one for models that leave parameters out of some steps.
STRATEGIES = ("auto", "ddp", "ddp_find_unused_parameters_true")
TRAINING_PRECISIONS = ("auto", "tf32", *get_args(TrainingPrecision))


def _duration(key: str, value: str) -> None:
    parts = value.split(":")
    good = len(parts) == 4 and all(part.isdecimal() and len(part) < 7 for part in parts)
    require(good, f"{key}={value}: write days, hours, minutes and seconds as DD:HH:MM:SS")


def _count_or_share(key: str, value: int | float) -> None:
    at_least(key, value, 0, most=MAX_COUNT if isinstance(value, int) else 1)


def limited(limit: int | float, count: int) -> int:
    """Returns how many of `count` a limit leaves: a number, or a share, which leaves at least one."""
    return min(limit, count) if isinstance(limit, int) else max(1, int(limit * count))


@dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """How long to train, on which devices, and how often to validate, log and save, counted in optimizer steps.

    What each option does stands beside its value in `conf/trainer/default.yaml`.
    """

    max_steps: int = option(100_000, least=1, by_text=True, may_change=True)
    accelerator: str = option("auto", choices=("auto", "cpu", "gpu"), may_change=True)
    devices: int = option(1, least=1, most=1000, may_change=True)
    num_nodes: int = option(1, least=1, most=1000, may_change=True)
    strategy: str = option("auto", choices=STRATEGIES, may_change=True)
    precision: str = option("auto", choices=TRAINING_PRECISIONS)
    compile: bool | str = option("auto", choices=("auto", True, False))
    packed: bool | str = option("auto", choices=("auto", True, False))
    val_every: int = option(1500, least=1, by_text=True, may_change=True)
    val_bleu_sentences: int = option(500, least=0, may_change=True)
    patience: int | None = option(least=1, may_change=True)
    best_metric: str = option("val/loss", may_change=True)
    checkpoint_every: int = option(1500, least=1, by_text=True, may_change=True)
    optimizer_state_minutes: float = option(10.0, least=0, may_change=True)
    average_last: int = option(5, least=1, may_change=True)
    log_every: int = option(50, least=1, may_change=True)
    max_skipped_steps: int = option(0, least=0, may_change=True)
    timeout: int = option(1800, least=1, may_change=True)
    # As in Lightning's Trainer, but for the two that count steps, so that they do not depend on devices.
    max_epochs: int | None = option(least=1, may_change=True)
    max_time: str | None = option(None, _duration, may_change=True)
    gradient_clip_val: float | None = option(least=1e-9)
    gradient_clip_algorithm: str = option("norm", choices=("norm", "value"))
    limit_train_steps: int | float = option(1.0, _count_or_share)
    limit_val_batches: int | float = option(1.0, _count_or_share, may_change=True)
    overfit_steps: int | float = option(0.0, _count_or_share)
    num_sanity_val_steps: int = option(0, least=-1, may_change=True)
    fast_dev_run: bool | int = option(False, least=0, may_change=True)
    profiler: str | None = option(choices=("simple", "advanced", "pytorch"), may_change=True)
    detect_anomaly: bool = option(False, may_change=True)
    deterministic: bool = False
    enable_progress_bar: bool = option(True, may_change=True)

    def __post_init__(self) -> None:
        check_rules("trainer.", self)
        require(self.limit_train_steps > 0, "trainer.limit_train_steps=0: nothing would be trained; set 1 or more")

    @property
    def world_size(self) -> int:
        return self.devices * self.num_nodes

    def steps_of_epoch(self, steps: int) -> int:
        """Returns how many of an epoch's steps are taken, by `overfit_steps` or `limit_train_steps`."""
        return limited(self.overfit_steps or self.limit_train_steps, steps)

    def last_step(self, steps_per_epoch: int) -> int | None:
        """Returns the step that ends a training: `max_steps`, or the end of `max_epochs` if it comes before."""
        if self.max_epochs is None:
            return self.max_steps
        steps = self.max_epochs * self.steps_of_epoch(steps_per_epoch)
        return min(self.max_steps or steps, steps)
