"""Loaders: which batches a rank gets. The Trainer knows rank and step; without a Trainer there is
one rank.
"""

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from torch.utils.data import DataLoader, DistributedSampler, SequentialSampler

from aiayn.data.batch_plan import BatchPlan

if TYPE_CHECKING:
    import pytorch_lightning as pl


class RankSampler(DistributedSampler, SequentialSampler):
    """This rank's numbers of a range, every W-th; all of W ranks get equally many.

    Lightning would replace a sampler of any other class than these two bases: on several devices by
    its own DistributedSampler, with `overfit_batches` by a SequentialSampler. Neither knows what
    makes up a step. What is loaded follows from the step, which a resumed training has restored,
    too, not from the epoch that Lightning sets.
    """

    def __init__(
        self, count: int, trainer: "pl.Trainer | None", numbers: Callable[[], range] | None = None
    ):
        """count: numbers of a whole epoch. `numbers`, asked whenever an epoch begins, says which
        are left of it.
        """
        self.rank = trainer.global_rank if trainer else 0
        self.world_size = trainer.world_size if trainer else 1
        self.count = -(-count // self.world_size)
        self.numbers = numbers or (lambda: range(self.count * self.world_size))

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers()[self.rank :: self.world_size])


def limited_batches(plan: BatchPlan, trainer: "pl.Trainer") -> int:
    """Returns a rank's batches of an epoch by `limit_train_batches`: a number, which may exceed
    all, or a share.
    """
    limit, share = (
        trainer.limit_train_batches,
        plan.steps_per_epoch * plan.micro_batches // trainer.world_size,
    )
    return limit if isinstance(limit, int) else int(limit * share)


def numbers_from(plan: BatchPlan, trainer: "pl.Trainer", step: int) -> range:
    """Returns the micro-batches from an optimizer step of the Trainer, counted from 0, to the end
    of its epoch.
    """
    steps, size = plan.steps_per_epoch, plan.micro_batches
    limited_steps = max(
        1, min(steps, math.ceil(limited_batches(plan, trainer) * trainer.world_size / size))
    )
    epoch, step_of_epoch = divmod(step, limited_steps)
    if getattr(trainer, "overfit_batches", 0):  # the Trainer sets it without declaring it
        epoch = 0
    return range((epoch * steps + step_of_epoch) * size, (epoch + 1) * steps * size)


class StepLoader(DataLoader):
    """A stateless loader: its sampler starts from the Trainer's step. Lightning saves and restores
    an empty state.
    """

    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Does nothing: a loader has no state."""
