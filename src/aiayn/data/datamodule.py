"""Lightning's data module."""

import signal
from collections.abc import Iterator

import pytorch_lightning as pl
from torch.utils.data import DataLoader, Dataset, Sampler

from aiayn.data.batch import Batch, collate
from aiayn.data.batch_plan import BatchPlan
from aiayn.data.corpus_store import PreparedSplit
from aiayn.signals import TERMINATION_SIGNALS


def _ignore_signals(worker: int) -> None:
    """Leaves signals to the whole job to the training process, which needs its workers to finish the step."""
    for number in TERMINATION_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class MicroBatchDataset(Dataset):
    """Micro-batches by their number in the run."""

    def __init__(self, split: PreparedSplit, plan: BatchPlan):
        self.split = split
        self.plan = plan

    def __getitem__(self, number: int) -> Batch:
        return collate(self.split, self.plan.micro_batch(number), number)


class MicroBatchSampler(Sampler):
    """Numbers of the micro-batches of one rank, from optimizer step `start` on, without end.

    The trainer decides when to stop, so no rank can run out of batches before the others.
    """

    def __init__(self, start: int, micro_batches: int, rank: int, world_size: int):
        self.numbers = range(start * micro_batches + rank, 2**62, world_size)

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers)


class TranslationDataModule(pl.LightningDataModule):
    """Training batches from the trainer's current step on; validation batches shared evenly among the ranks."""

    def __init__(self, train: PreparedSplit, plan: BatchPlan, val: PreparedSplit, val_plan: BatchPlan, workers: int):
        super().__init__()
        self.train, self.plan = train, plan
        self.val, self.val_plan = val, val_plan
        self.workers = workers

    def train_dataloader(self) -> DataLoader:
        trainer = self.trainer
        sampler = MicroBatchSampler(
            trainer.global_step, self.plan.micro_batches, trainer.global_rank, trainer.world_size
        )
        return DataLoader(
            MicroBatchDataset(self.train, self.plan),
            sampler=sampler,
            batch_size=None,
            num_workers=self.workers,
            pin_memory=trainer.strategy.root_device.type == "cuda",
            persistent_workers=self.workers > 0,
            prefetch_factor=4 if self.workers else None,
            worker_init_fn=_ignore_signals,
        )

    def validation_batches(self) -> Iterator[Batch]:
        """This rank's share of the validation batches."""
        plan = self.val_plan
        count = plan.steps_per_epoch * plan.micro_batches
        for number in range(self.trainer.global_rank, count, self.trainer.world_size):
            yield collate(self.val, plan.micro_batch(number), number)
