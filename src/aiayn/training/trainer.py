"""Lightning's Trainer as this project uses it: what it does and what it leaves to us is in docs/lightning.md."""

import logging
import sys
import warnings
from datetime import timedelta
from pathlib import Path

import pytorch_lightning as pl
from pytorch_lightning.loggers import Logger
from pytorch_lightning.profilers import AdvancedProfiler, Profiler, PyTorchProfiler, SimpleProfiler
from pytorch_lightning.strategies import DDPStrategy
from pytorch_lightning.utilities import rank_zero_only

from aiayn.config.schema import TrainerConfig
from aiayn.training.checkpoint_io import RunCheckpointIO
from aiayn.training.context import RunContext

NCCL_GRACE = 300  # seconds
NEVER = 2**31  # epochs; the loop of validations is run by callbacks/validate.py


def make_trainer(
    run: RunContext,
    hardware: dict[str, str],
    callbacks: list[pl.Callback],
    loggers: list[Logger],
    checkpoint_io: RunCheckpointIO,
) -> pl.Trainer:
    """The Trainer, without Lightning's own checkpoints, progress bar, summary and signal handlers."""
    settings = run.config.trainer
    accumulate = run.plan.micro_batches // settings.world_size
    trainer = pl.Trainer(
        **hardware,
        devices=settings.devices,
        num_nodes=settings.num_nodes,
        strategy=_strategy(settings, hardware["accelerator"]),
        max_steps=settings.max_steps,
        max_time=settings.max_time,
        accumulate_grad_batches=accumulate,
        gradient_clip_val=settings.gradient_clip_val,
        gradient_clip_algorithm=settings.gradient_clip_algorithm,
        limit_train_batches=run.epoch_steps * accumulate,
        limit_val_batches=settings.limit_val_batches,
        num_sanity_val_steps=settings.num_sanity_val_steps,
        check_val_every_n_epoch=NEVER,
        log_every_n_steps=settings.log_every,
        profiler=_profiler(settings.profiler, run.folder.path),
        detect_anomaly=settings.detect_anomaly,
        deterministic=settings.deterministic,
        callbacks=callbacks,
        logger=loggers,
        plugins=[checkpoint_io],
        use_distributed_sampler=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.overfit_batches = settings.overfit_batches  # the sampler's; Lightning would limit the validation as well
    # Lightning's handlers save nothing, and start collective calls in the middle of others.
    trainer._signal_connector.register_signal_handlers = lambda: None
    return trainer


def _profiler(name: str | None, folder: Path) -> Profiler | None:
    """Returns a profiler that writes fit-profile.txt or traces into the run's folder; None for none."""
    kinds = {"simple": SimpleProfiler, "advanced": AdvancedProfiler, "pytorch": PyTorchProfiler}
    return kinds[name](dirpath=folder, filename="profile") if name else None


def _strategy(settings: TrainerConfig, accelerator: str) -> str | DDPStrategy:
    if settings.world_size == 1 and settings.strategy == "auto":
        return "auto"
    # NCCL ends the process when its time is up. The ranks ask each other over gloo, which reports a lost one before.
    seconds = settings.timeout + (NCCL_GRACE if accelerator == "gpu" else 0)
    # Every rank computes its own table of sinusoids, so there are no buffers to broadcast.
    return DDPStrategy(broadcast_buffers=False, gradient_as_bucket_view=True, timeout=timedelta(seconds=seconds))


class StderrHandler(logging.StreamHandler):
    """Prints to what `sys.stderr` is at the time: the live display of a terminal prints such lines above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def configure_libraries() -> None:
    """Prints our own lines on stderr, from rank 0 only, and silences Lightning's advice and internal deprecations."""
    logger = logging.getLogger("aiayn")
    if not logger.handlers:
        logger.addHandler(StderrHandler())
    logger.setLevel(logging.INFO if rank_zero_only.rank == 0 else logging.ERROR)
    for name in ("pytorch_lightning", "lightning_fabric", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"(pytorch_lightning|lightning_fabric|torch\.utils\._pytree).*")
    warnings.filterwarnings("ignore", message=".*LeafSpec.*")
