"""Connects the ranks before training, and ends their processes after an error."""

import pytorch_lightning as pl

from aiayn.training.context import RunContext
from aiayn.training.distributed.control_group import exit_after

SHUTDOWN = 60.0  # seconds for loggers and process group to end after an error


class ConnectRanks(pl.Callback):
    """Connects the ranks' stop requests, before all other callbacks; after an error makes sure that each rank ends."""

    def __init__(self, run: RunContext):
        self.run = run

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.world_size > 1:
            self.run.stop.connect_ranks(self.run.config.trainer.timeout)

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        if trainer.world_size > 1:
            code = getattr(exception, "exit_code", 1)
            exit_after(SHUTDOWN, code, f"{exception}; this rank did not shut down within {SHUTDOWN:.0f} seconds")
