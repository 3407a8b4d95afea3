"""Options of a training, the groups `trainer`, `optim` and `logger`: its length, devices and
intervals, its optimizer, and where its measurements go.
"""

import re
from typing import Literal, get_args

from aiayn.config.rules import (
    MAX_COUNT,
    OneOrMore,
    Options,
    at_least,
    fraction,
    listed,
    mutable_option,
    one_of,
    option,
    option_group,
    path_or_paths,
    positive,
    require,
    require_value,
)

# Lightning's names; tf32 is 32-true whose products tensor cores round to 10 bits.
TrainingPrecision = Literal["32-true", "bf16-mixed", "bf16-true", "16-mixed", "64-true"]
# Lightning's names; the last one for models that leave parameters out of some steps.
STRATEGIES = ("auto", "ddp", "ddp_find_unused_parameters_true")
TRAINING_PRECISIONS = ("auto", "tf32", *get_args(TrainingPrecision))

# What W&B's own variable, which wins over `logger.mode`, may say.
WANDB_MODES = ("online", "offline", "disabled", "dryrun", "run", "shared")
LOGGERS = ("wandb", "tensorboard", "csv", "none")


def _duration(key: str, value: str) -> None:
    is_duration = re.fullmatch(r"\d{1,6}(:\d{1,6}){3}", value) is not None
    form = "write days, hours, minutes and seconds as DD:HH:MM:SS"
    require_value(is_duration, key, value, form)


def _count_or_share(key: str, value: int | float) -> None:
    at_least(key, value, 0, most=MAX_COUNT if isinstance(value, int) else 1)


def limited(limit: int | float, count: int) -> int:
    """Returns how many of `count` a limit leaves: a number, or a share, which leaves at least
    one.
    """
    return min(limit, count) if isinstance(limit, int) else max(1, int(limit * count))


@option_group("train", "trainer")
class TrainerOptions(Options):
    """How long to train, on which devices, and how often to validate, log and save.

    All intervals are counted in optimizer steps.
    """

    max_steps: int | None = mutable_option(
        "length of the training in steps", least=1, inferred_from_data=True
    )
    accelerator: str = mutable_option("", choices=("auto", "cpu", "gpu"))
    devices: int = mutable_option(
        "devices per machine; the steps stay the same", least=1, most=1000
    )
    num_nodes: int = mutable_option("machines", least=1, most=1000)
    strategy: str = mutable_option(
        "the last one is for models in which some parameters get no gradient in a step",
        choices=STRATEGIES,
    )
    precision: str = option(
        "auto: bf16-mixed if the hardware supports bfloat16, else 16-mixed on GPUs with tensor "
        "cores, else 32-true",
        choices=TRAINING_PRECISIONS,
    )
    compile: bool | str = option(
        "compiled layers; auto: for packed sentences if d_model >= 512",
        choices=("auto", True, False),
    )
    packed: bool | str = option(
        "sentences without padding, a step in one pass; auto: on GPUs with Triton and a C "
        "compiler, and on CPUs in bfloat16 if d_model >= 129",
        choices=("auto", True, False),
    )
    graphs: bool | str = mutable_option(
        "a step as two CUDA graphs, which start all of its kernels at once; auto: for packed "
        "sentences",
        choices=("auto", True, False),
        absent="auto",
    )
    val_every: int | None = mutable_option(
        "steps between validations", least=1, inferred_from_data=True
    )
    val_bleu_sentences: int = mutable_option(
        "validation sentences translated for val/bleu or val/f1; 0: none", least=0
    )
    patience: int | None = mutable_option(
        "end after this many validations without improvement; null: train to max_steps", least=1
    )
    best_metric: str = mutable_option(
        "val/loss | val/bleu | val/f1 (parsing) | val/NAME (of an extension): selects "
        "checkpoints/best.ckpt and counts for patience"
    )
    checkpoint_every: int | None = mutable_option(
        "steps between checkpoints", least=1, inferred_from_data=True
    )
    optimizer_state_minutes: float = mutable_option(
        "minutes between saves of the optimizer state (below 100 MB: with every checkpoint)",
        least=0,
    )
    average_last: int = mutable_option("number of last checkpoints that are averaged", least=1)
    log_every: int = mutable_option("steps between lines of progress", least=1)
    max_skipped_steps: int = mutable_option(
        "steps with a NaN or infinite gradient to skip before the run ends", least=0
    )
    timeout: int = mutable_option("seconds that ranks wait for each other", least=1)
    # As in Lightning's Trainer, but for the two that count steps, which do not depend on devices.
    max_epochs: int | None = mutable_option("ends the training before max_steps", least=1)
    max_time: str | None = mutable_option(
        "DD:HH:MM:SS of training, over all starts; after that, the run finishes normally", _duration
    )
    gradient_clip_val: float | None = option(
        "limit on the gradient's norm or values; null: no clipping, as in the paper",
        least=1e-9,
    )
    gradient_clip_algorithm: str = option(
        "what gradient_clip_val limits", choices=("norm", "value")
    )
    limit_train_steps: int | float = option(
        "number, or share, of each epoch's steps to train on", _count_or_share
    )
    limit_val_batches: int | float = mutable_option(
        "number, or share, of validation batches on all devices", _count_or_share
    )
    overfit_steps: int | float = option(
        "repeat the first N steps, or a share, of the first epoch",
        _count_or_share,
    )
    num_sanity_val_steps: int = mutable_option(
        "validation batches to run before the first step; -1: all", least=-1
    )
    fast_dev_run: bool | int = mutable_option(
        "true or N: run one or N steps of everything in a temporary folder", least=0
    )
    profiler: str | None = mutable_option(
        "writes its profile to a file in the run folder", choices=("simple", "advanced", "pytorch")
    )
    detect_anomaly: bool = mutable_option("find the operation whose gradient is NaN; slow")
    deterministic: bool = option("refuse nondeterministic operations (GPUs)")
    enable_progress_bar: bool = mutable_option("show a live display on a terminal")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.limit_train_steps > 0,
            "trainer.limit_train_steps=0: nothing would be trained; set 1 or more",
        )

    @property
    def world_size(self) -> int:
        return self.devices * self.num_nodes

    @property
    def needs_gpus(self) -> bool:
        """Whether this is refused on a machine without GPUs."""
        return self.accelerator == "gpu" or (self.accelerator == "auto" and self.world_size > 1)

    def steps_of_epoch(self, steps: int) -> int:
        """Returns how many of an epoch's steps are taken, by `overfit_steps` or
        `limit_train_steps`.
        """
        return limited(self.overfit_steps or self.limit_train_steps, steps)

    def last_step(self, steps_per_epoch: int) -> int | None:
        """Returns the step that ends a training: `max_steps`, or the end of `max_epochs` if it
        comes before.
        """
        if self.max_epochs is None:
            return self.max_steps
        steps = self.max_epochs * self.steps_of_epoch(steps_per_epoch)
        return min(self.max_steps or steps, steps)


class TrainerConfig(TrainerOptions):
    """The options of a training whose length and intervals are known."""

    max_steps: int
    val_every: int
    checkpoint_every: int


@option_group("train", "optim")
class OptimOptions(Options):
    """Sections 5.3 and 5.4."""

    warmup_steps: int | None = option(
        "steps during which the learning rate rises", least=1, inferred_from_data=True
    )
    lr_scale: float | None = option(
        "factor on the learning rate of equation (3)", positive, inferred_from_data=True
    )
    peak_lr: float | None = option(
        "peak learning rate, reached at the end of the warm-up; replaces lr_scale",
        positive,
    )
    beta1: float = option("beta_1 of Adam", fraction)
    beta2: float = option("beta_2 of Adam", fraction)
    eps: float = option("epsilon of Adam", positive)
    weight_decay: float = option(
        "decoupled weight decay of matrices (AdamW); the paper has none", fraction
    )
    label_smoothing: float = option("label smoothing (epsilon_ls)", fraction)

    @property
    def peak_option(self) -> str:
        """Returns which option sets the peak learning rate."""
        return "lr_scale" if self.peak_lr is None else "peak_lr"


class OptimConfig(OptimOptions):
    """The options of a schedule whose warm-up and factor are known."""

    warmup_steps: int
    lr_scale: float


@option_group("train", "logger")
class LoggerConfig(Options):
    """Where metrics go besides the run's own metrics.jsonl."""

    kind: OneOrMore = option("wandb | tensorboard | csv | none, or a list of the first three")
    project: str = option("wandb: project of the runs")
    entity: str | None = option("wandb: account or team; null: the default")
    group: str | None = option("wandb: group of the run; null: its sweep")
    mode: str = option(
        "auto: online where a key is found, else offline", choices=("auto", "online", "offline")
    )
    samples: bool = option(
        "wandb: also send validation sentences, their translations and their attention maps",
    )
    upload: bool = option("wandb: also store the final checkpoint and its tokenizer")

    def __post_init__(self) -> None:
        super().__post_init__()
        path_or_paths("a kind", "logger.kind", self.kind or [], may_be_empty=True)
        for name in listed(self.kind):
            one_of("logger.kind", name, LOGGERS)

    @property
    def kinds(self) -> list[str]:
        """Returns the loggers besides metrics.jsonl."""
        return [name for name in listed(self.kind) if name != "none"]
