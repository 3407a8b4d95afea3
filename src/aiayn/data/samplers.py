"""Samplers: which micro-batches a rank gets. The Trainer knows rank and step; without a Trainer there is one rank.

Lightning would replace a sampler of any other class than these two bases: on several devices by its own
DistributedSampler, with `overfit_batches` by a SequentialSampler. Neither knows what makes up a step.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch.utils.data import DistributedSampler, SequentialSampler

if TYPE_CHECKING:
    import pytorch_lightning as pl


class _RankSampler(DistributedSampler, SequentialSampler):
    """Every `world_size`-th number of a range, from this rank's own on."""

    def __init__(self, trainer: "pl.Trainer | None"):
        self.trainer = trainer
        self.rank = trainer.global_rank if trainer else 0
        self.world_size = trainer.world_size if trainer else 1

    def set_epoch(self, epoch: int) -> None:
        """Does nothing: what is loaded follows from the step, which a resumed training has restored, too."""


class TrainingSampler(_RankSampler):
    """Numbers of a rank's micro-batches, from the Trainer's present optimizer step to the end of its epoch."""

    def __init__(self, steps_per_epoch: int, micro_batches: int, trainer: "pl.Trainer | None"):
        super().__init__(trainer)
        self.steps_per_epoch = steps_per_epoch
        self.micro_batches = micro_batches

    def __len__(self) -> int:
        """This rank's micro-batches of a whole epoch."""
        return self.steps_per_epoch * self.micro_batches // self.world_size

    def __iter__(self) -> Iterator[int]:
        step = self.trainer.global_step if self.trainer else 0
        epoch, place = divmod(step, self._steps_taken())
        if getattr(self.trainer, "overfit_batches", 0):  # the Trainer sets it without declaring it
            epoch = 0
        start = (epoch * self.steps_per_epoch + place) * self.micro_batches
        stop = (epoch + 1) * self.steps_per_epoch * self.micro_batches
        return iter(range(start + self.rank, stop, self.world_size))

    def _steps_taken(self) -> int:
        """Steps of an epoch, of which the Trainer's `limit_train_batches` may leave some out."""
        if self.trainer is None:
            return self.steps_per_epoch
        limit = self.trainer.limit_train_batches
        batches = min(len(self), limit) if isinstance(limit, int) else int(len(self) * limit)
        return max(1, math.ceil(batches * self.world_size / self.micro_batches))


class EvaluationSampler(_RankSampler):
    """Numbers of a rank's share of `count` batches. All ranks get equally many: some numbers are beyond the last."""

    def __init__(self, count: int, trainer: "pl.Trainer | None"):
        super().__init__(trainer)
        self.count = count

    def __len__(self) -> int:
        return -(-self.count // self.world_size)

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.rank, len(self) * self.world_size, self.world_size))
