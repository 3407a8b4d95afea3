"""Options of the group `trainer`: length of the training, devices, and how often something is done."""

from dataclasses import dataclass
from typing import Literal, get_args

from aiayn.config.rules import MAX_COUNT, at_least, by_text, one_of, require

# Lightning's names; auto: bf16-mixed where the hardware computes in bfloat16, 16-mixed on other GPUs with tensor cores,
# else 32-true. tf32: 32-true whose products tensor cores round to 10 bits.
TrainingPrecision = Literal["32-true", "bf16-mixed", "bf16-true", "16-mixed", "64-true"]
# Lightning's names; the last one for models that leave parameters out of some steps.
STRATEGIES = ("auto", "ddp", "ddp_find_unused_parameters_true")
TRAINING_PRECISIONS = ("auto", "tf32", *get_args(TrainingPrecision))


@dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """How long to train, on which devices, and how often to validate, log and save, counted in optimizer steps."""

    max_steps: int = by_text(100_000)  # null: by epochs of the text; and the two intervals by the steps
    accelerator: str = "auto"  # auto | cpu | gpu
    devices: int = 1
    num_nodes: int = 1
    strategy: str = "auto"  # one of STRATEGIES
    precision: str = "auto"  # one of TRAINING_PRECISIONS
    compile: bool | str = "auto"  # layers by torch.compile, the loss in Triton; auto: on GPUs where both can be
    val_every: int = by_text(1500)
    val_bleu_sentences: int = 500  # validation sentences translated for val/bleu or val/f1; 0: none
    patience: int | None = None  # validations without a better `best_metric` before the run ends; null: no early end
    best_metric: str = (
        "val/loss"  # val/loss, the score of the task (val/bleu), or val/NAME of METRICS: decides about best.ckpt
    )
    checkpoint_every: int = by_text(1500)
    optimizer_state_minutes: float = 10.0  # between checkpoints that can be resumed from, if its state exceeds 100 MB
    average_last: int = 5  # how many checkpoints are kept, and averaged at the end (section 6.1)
    log_every: int = 50
    max_skipped_steps: int = 0  # steps that may be skipped for a NaN or infinite gradient; one more ends the run
    timeout: int = 1800  # seconds that ranks wait for each other before they give up
    # As in Lightning's Trainer, but for the two that count steps, so that they do not depend on devices.
    max_epochs: int | None = None  # ends the training before max_steps
    max_time: str | None = None  # DD:HH:MM:SS of training, over all starts; the run ends as after its last step
    gradient_clip_val: float | None = None  # null: gradients are not clipped, as in the paper
    gradient_clip_algorithm: str = "norm"  # norm | value
    limit_train_steps: int | float = 1.0  # steps of each epoch, or a share of them; 1.0: all
    limit_val_batches: int | float = 1.0  # batches of a validation, or a share of them; 0: no validation
    overfit_steps: int | float = 0.0  # trains on the first so many steps only; 0: on all
    num_sanity_val_steps: int = 0  # batches of a validation before the first step; -1: all
    fast_dev_run: bool | int = False  # true: one step, N: so many; in a folder that is thrown away
    profiler: str | None = None  # simple | advanced | pytorch: written to the run's folder at the end
    detect_anomaly: bool = False  # finds the operation whose gradient is NaN; slow
    deterministic: bool = False  # refuses nondeterministic operations (GPUs)
    enable_progress_bar: bool = True  # the live display, on a terminal

    def __post_init__(self) -> None:
        one_of("trainer.accelerator", self.accelerator, ("auto", "cpu", "gpu"))
        one_of("trainer.strategy", self.strategy, STRATEGIES)
        require(
            self.compile in ("auto", True, False), f"trainer.compile={self.compile}: choose one of auto, true, false"
        )
        one_of("trainer.precision", self.precision, TRAINING_PRECISIONS)
        one_of("trainer.gradient_clip_algorithm", self.gradient_clip_algorithm, ("norm", "value"))
        if self.profiler is not None:
            one_of("trainer.profiler", self.profiler, ("simple", "advanced", "pytorch"))
        for name in ("limit_train_steps", "limit_val_batches", "overfit_steps"):
            value = getattr(self, name)
            require(type(value) in (int, float), f"trainer.{name}={value}: must be a number, or a share below 1.0")
            at_least(f"trainer.{name}", value, 0, most=MAX_COUNT if isinstance(value, int) else 1)
        require(self.limit_train_steps > 0, "trainer.limit_train_steps=0: nothing would be trained; set 1 or more")
        at_least("trainer.optimizer_state_minutes", self.optimizer_state_minutes, 0)
        at_least("trainer.gradient_clip_val", self.gradient_clip_val, 1e-9)
        at_least("trainer.num_sanity_val_steps", self.num_sanity_val_steps, -1)
        require(isinstance(self.fast_dev_run, int), f"trainer.fast_dev_run={self.fast_dev_run}: true, false or steps")
        at_least("trainer.fast_dev_run", int(self.fast_dev_run), 0)
        parts = [] if self.max_time is None else self.max_time.split(":")
        require(
            self.max_time is None or (len(parts) == 4 and all(part.isdecimal() for part in parts)),
            f"trainer.max_time={self.max_time}: write days, hours, minutes and seconds as DD:HH:MM:SS",
        )
        for name in ("devices", "num_nodes"):
            at_least(f"trainer.{name}", getattr(self, name), 1, most=1000)
        for name in (
            "max_steps",
            "max_epochs",
            "val_every",
            "patience",
            "checkpoint_every",
            "average_last",
            "log_every",
            "timeout",
        ):
            at_least(f"trainer.{name}", getattr(self, name), 1)
        require(
            self.best_metric == "val/loss" or self.val_bleu_sentences != 0,
            f"trainer.best_metric={self.best_metric}: there is none with trainer.val_bleu_sentences=0; raise that, or "
            "set trainer.best_metric=val/loss",
        )
        for name in ("val_bleu_sentences", "max_skipped_steps"):
            at_least(f"trainer.{name}", getattr(self, name), 0)

    @property
    def world_size(self) -> int:
        return self.devices * self.num_nodes
