"""What data loaders load: the micro-batches of a plan, and batches of sources to translate."""

from torch.utils.data import Dataset

from aiayn.data.batch import Batch, SourceBatch, collate, pad_sources
from aiayn.data.batch_plan import BatchPlan, MicroBatch
from aiayn.data.corpus_store import PreparedSplit


class MicroBatches(Dataset[Batch]):
    """The micro-batches of a plan by their number in the run. With `once`, those after the first epoch are empty."""

    def __init__(self, split: PreparedSplit, plan: BatchPlan, once: bool = False):
        self.split = split
        self.plan = plan
        self.once = once

    def __len__(self) -> int:
        """Micro-batches of an epoch."""
        return self.plan.steps_per_epoch * self.plan.micro_batches

    def __getitem__(self, number: int) -> Batch:
        if self.once and number >= len(self):
            return collate(self.split, MicroBatch.empty(), number)
        return collate(self.split, self.plan.micro_batch(number), number)


class SourceBatches(Dataset[SourceBatch]):
    """Batches of sources to translate, longest lines first, so that an out-of-memory error shows at once."""

    def __init__(self, ids: list[list[int]], max_tokens: int):
        """ids: subwords of every line without end mark, blank ones are left out; max_tokens: padded ones of a batch."""
        self.ids = ids
        self.batches: list[list[int]] = []
        order = sorted((n for n, line in enumerate(ids) if line), key=lambda n: len(ids[n]), reverse=True)
        start = 0
        while start < len(order):
            size = max(1, max_tokens // (len(ids[order[start]]) + 1))
            self.batches.append(order[start : start + size])
            start += size

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: int) -> SourceBatch:
        """Numbers beyond the last batch, for ranks with fewer batches than others, give a batch without lines."""
        lines = self.batches[number] if number < len(self.batches) else []
        return SourceBatch(lines, pad_sources([self.ids[line] for line in lines] or [[]]))
