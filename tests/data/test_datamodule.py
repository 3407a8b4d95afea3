"""Which batches a rank gets, where it begins, and that all ranks together validate on every pair once."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from aiayn.data.batch_plan import BatchPlan
from aiayn.data.corpus_store import PreparedSplit
from aiayn.data.datamodule import TranslationDataModule


def split(pairs: int, seed: int) -> PreparedSplit:
    draw = np.random.default_rng(seed)
    sides = []
    for longest in (9, 7):
        offsets = np.concatenate([[0], np.cumsum(draw.integers(1, longest, pairs))])
        sides += [draw.integers(4, 50, offsets[-1]), offsets]
    return PreparedSplit(None, "made", *sides)


def plan(made: PreparedSplit, budget: int, **options) -> BatchPlan:
    return BatchPlan(made.src_lengths + 1, made.tgt_lengths + 1, tokens_per_step=budget, seed=1, **options)


def device(step: int, rank: int, world_size: int) -> SimpleNamespace:
    strategy = SimpleNamespace(root_device=torch.device("cpu"))
    return SimpleNamespace(global_step=step, global_rank=rank, world_size=world_size, strategy=strategy)


@pytest.fixture(scope="module")
def data() -> TranslationDataModule:
    train, val = split(90, 0), split(23, 1)
    return TranslationDataModule(train, plan(train, 70, micro_batches=4), val, plan(val, 30), workers=0)


@pytest.mark.parametrize(("rank", "world_size"), [(0, 1), (0, 2), (1, 2), (3, 4)])
@pytest.mark.parametrize("step", [0, 3, 50])
def test_training_goes_on_at_the_trainers_step_with_this_ranks_micro_batches(data, step, rank, world_size):
    data.trainer = device(step, rank, world_size)
    batches = [batch for batch, _ in zip(data.train_dataloader(), range(6), strict=False)]

    first = 4 * step + rank
    assert [batch.number for batch in batches] == [first + i * world_size for i in range(6)]
    for batch in batches:
        planned = data.plan.micro_batch(batch.number)
        assert batch.n_tokens == int((data.train.tgt_lengths[planned.pairs.astype(int)] + 1).sum())
        assert batch.step_tokens == planned.step_tokens


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_all_ranks_together_validate_on_every_pair_once(data, world_size):
    tokens = []
    for rank in range(world_size):
        data.trainer = device(7, rank, world_size)
        tokens += [row[row > 2].tolist() for batch in data.validation_batches() for row in batch.tgt_out]

    offsets = data.val.tgt_offsets
    expected = [data.val.tgt[start:stop].tolist() for start, stop in itertools.pairwise(offsets)]
    assert sorted(tokens) == sorted(expected)
