"""Lightning's Trainer as this project uses it; docs/lightning.md says what it does and what is
replaced.
"""

import logging
import math
import sys
import warnings
from datetime import timedelta
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import Logger
from pytorch_lightning.profilers import AdvancedProfiler, PyTorchProfiler, SimpleProfiler
from pytorch_lightning.strategies import DDPStrategy

from aiayn.config.training import TrainerOptions
from aiayn.hardware import Hardware, has_own_gpu
from aiayn.training.checkpoint_io import RunCheckpointIO
from aiayn.training.distributed.ranks import global_rank
from aiayn.training.start import RunServices, RunSpec

NCCL_GRACE = 300  # seconds
PROFILERS = {"simple": SimpleProfiler, "advanced": AdvancedProfiler, "pytorch": PyTorchProfiler}
NEVER = 2**31  # epochs; the loop of validations is run by callbacks/validate.py


def make_trainer(
    run: RunSpec, services: RunServices, loggers: list[Logger], callbacks: list[pl.Callback]
) -> pl.Trainer:
    """Returns the Trainer of a run."""
    settings, hardware = run.config.trainer, run.hardware
    strategy = DDPStrategy
    if not run.form.why_not_graphed:  # the module adds up the gradients of the ranks
        from aiayn.training.graphed import SameStart

        strategy = SameStart
    accumulate = run.plan.micro_batches // settings.world_size
    own_gpu = hardware.accelerator == "gpu" and has_own_gpu(settings)
    trainer = quiet_trainer(
        hardware,
        devices=1 if own_gpu else settings.devices,  # that this process sees
        num_nodes=settings.num_nodes,
        strategy=_strategy(settings, hardware.accelerator, own_gpu, strategy),
        max_steps=settings.max_steps,
        max_time=settings.max_time,
        accumulate_grad_batches=accumulate,
        gradient_clip_val=settings.gradient_clip_val,
        gradient_clip_algorithm=settings.gradient_clip_algorithm,
        limit_train_batches=run.epoch_steps * accumulate,
        # The data module limits those of all ranks together.
        limit_val_batches=float(settings.limit_val_batches > 0),
        num_sanity_val_steps=settings.num_sanity_val_steps,
        check_val_every_n_epoch=NEVER,
        log_every_n_steps=settings.log_every,
        profiler=settings.profiler
        and PROFILERS[settings.profiler](dirpath=services.folder.path, filename="profile"),
        detect_anomaly=settings.detect_anomaly,
        deterministic=settings.deterministic,
        callbacks=callbacks,
        logger=loggers,
        # of what callbacks write, such as a ModelCheckpoint: runs share no folder
        default_root_dir=services.folder.path,
        plugins=[RunCheckpointIO(run, services)],
    )
    # For the sampler: Lightning would limit the validation as well.
    trainer.overfit_batches = settings.overfit_steps  # pyright: ignore[reportAttributeAccessIssue]
    number_logged_steps(trainer)
    return trainer


def number_logged_steps(trainer: pl.Trainer) -> None:
    """Gives what modules and callbacks `log` the number of its step, from 1 as everywhere;
    Lightning counts from 0.
    """
    log_metrics = trainer._logger_connector.log_metrics

    def log_finite(metrics: dict[str, Any], step: int | None = None) -> None:
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        is_numbered = step is not None or "step" in finite  # which Lightning takes for its number
        log_metrics(finite, step if is_numbered else trainer.global_step)

    trainer._logger_connector.log_metrics = log_finite


def quiet_trainer(hardware: Hardware, **options: Any) -> pl.Trainer:
    """Returns a Trainer without Lightning's own samplers, progress bar, summary and signal
    handlers.
    """
    trainer = pl.Trainer(
        use_distributed_sampler=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **hardware._asdict(),
        **options,
    )
    # Lightning's handlers save nothing, and start collective calls in the middle of others.
    trainer._signal_connector.register_signal_handlers = lambda: None
    return trainer


def _strategy(
    settings: TrainerOptions,
    accelerator: str,
    own_gpu: bool = False,
    strategy: type[DDPStrategy] = DDPStrategy,
) -> str | DDPStrategy:
    if settings.world_size == 1 and settings.strategy == "auto":
        return "auto"
    # NCCL kills the process at its time-out; gloo, over which the ranks talk, must report a lost
    # rank before that.
    seconds = settings.timeout + (NCCL_GRACE if accelerator == "gpu" else 0)
    return strategy(
        # Lightning counts the machine's ranks by this list, and takes the entry of the local rank.
        parallel_devices=[torch.device("cuda", 0)] * settings.devices if own_gpu else None,
        timeout=timedelta(seconds=seconds),
        broadcast_buffers=False,  # every rank computes its own table of sinusoids
        find_unused_parameters=settings.strategy == "ddp_find_unused_parameters_true",
        gradient_as_bucket_view=True,
    )


class StderrHandler(logging.StreamHandler):
    """Prints to what `sys.stderr` is at the time: the live display of a terminal prints such lines
    above itself.
    """

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def configure_libraries() -> None:
    """Prints our own lines on stderr, from rank 0 only, and silences Lightning's advice and
    internal deprecations.
    """
    logger = logging.getLogger("aiayn")
    if not logger.handlers:
        logger.addHandler(StderrHandler())
    logger.setLevel(logging.INFO if global_rank() == 0 else logging.ERROR)
    for name in ("pytorch_lightning", "lightning_fabric", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings(
        "ignore", module=r"(pytorch_lightning|lightning_fabric|torch\.utils\._pytree).*"
    )
    warnings.filterwarnings("ignore", message=".*LeafSpec.*")
    # Advice about products in float32, of which a training in 16 bits has none that take time.
    warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
