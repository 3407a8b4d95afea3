"""Connects the ranks before training, and finds what would make them wait for each other for ever."""

import time
from typing import Any

import pytorch_lightning as pl

from aiayn.errors import ConfigError
from aiayn.training.context import RunContext
from aiayn.training.distributed.control_group import exit_at_once


class ConnectRanks(pl.Callback):
    """Connects the ranks' stop requests, before all other callbacks; refuses ranks that would not fit together."""

    def __init__(self, run: RunContext):
        self.run = run
        self.exchanges = False  # whether this micro-batch is the step's last, after which ranks exchange gradients

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.world_size > 1:
            self.run.stop.connect_ranks(self.run.config.trainer.timeout)
            group, count = self.run.stop.control_group, self.run.plan.micro_batches
            if group and group.max_over_ranks(count) != count:
                raise ConfigError(
                    f"the GPUs' memories differ, and with them the micro-batches of a step ({count} on rank "
                    f"{trainer.global_rank}): set data.max_tokens_per_device to what fits into the smallest"
                )

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        waits = trainer.world_size > 1 and self.run.config.trainer.strategy != "ddp_find_unused_parameters_true"
        self.exchanges = waits and (batch_idx + 1) % trainer.accumulate_grad_batches == 0

    def on_after_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Ends the run where a step left parameters out: the other ranks wait for their gradients, inside DDP.

        Raises ConfigError on rank 0. Another rank prints it and ends, because rank 0 may be waiting.
        """
        if not self.exchanges:
            return
        unused = [name for name, weight in pl_module.named_parameters() if weight.requires_grad and weight.grad is None]
        if not unused:
            return
        message = (
            f"step {trainer.global_step + 1} left parameters out on rank {trainer.global_rank} ({', '.join(unused[:3])}"
            f"{f' and {len(unused) - 3} more' if len(unused) > 3 else ''}), and other ranks wait for their gradients: "
            "set trainer.strategy=ddp_find_unused_parameters_true, or use all of them"
        )
        if trainer.is_global_zero:
            raise ConfigError(message)
        time.sleep(1)  # seconds in which rank 0 ends this process if it has found the same
        if group := self.run.stop.control_group:
            group.announce(ConfigError.exit_code)
        exit_at_once(message, ConfigError.exit_code)
