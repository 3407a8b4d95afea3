"""Batches against a loop over pairs."""

from pathlib import Path

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from lightning_fabric.utilities.apply_func import move_data_to_device

from aiayn.data.batch import collate, shift_right
from aiayn.data.batch_plan import MicroBatch
from aiayn.data.corpus import PreparedSplit
from aiayn.data.encode import Sentences
from aiayn.token_ids import BOS_ID, EOS_ID, PAD_ID

SENTENCES = st.lists(st.integers(4, 60_000), max_size=9)
PAIRS = st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=20)


def split_of(pairs: list[tuple[list[int], list[int]]], dtype: type = np.uint16) -> PreparedSplit:
    src, tgt = (Sentences.of(list(side)) for side in zip(*pairs, strict=True))
    sides = (Sentences(side.flat.astype(dtype), side.starts) for side in (src, tgt))
    return PreparedSplit(Path(), "train", *sides)


def micro_batch_of(*pairs: int, step_tokens: int = 99) -> MicroBatch:
    return MicroBatch(np.array(pairs, np.int64), step_tokens)


@given(PAIRS, st.data(), st.sampled_from([np.uint16, np.uint32]))
def test_a_batch_is_what_a_loop_over_its_pairs_builds(pairs, data, dtype):
    chosen = data.draw(st.lists(st.integers(0, len(pairs) - 1), min_size=1, max_size=8))
    batch = collate(split_of(pairs, dtype), micro_batch_of(*chosen), number=31)
    src, tgt = [pairs[i][0] for i in chosen], [pairs[i][1] for i in chosen]
    width = max(map(len, src)) + 1
    height = max(map(len, tgt)) + 1
    assert batch.src.tolist() == [ids + [EOS_ID] + [PAD_ID] * (width - len(ids) - 1) for ids in src]
    assert batch.tgt_out.tolist() == [
        ids + [EOS_ID] + [PAD_ID] * (height - len(ids) - 1) for ids in tgt
    ]
    assert batch.src_mask.tolist() == [[[[i <= len(ids) for i in range(width)]]] for ids in src]
    for row, ids in zip(batch.tgt_in.tolist(), tgt, strict=True):
        assert row[: len(ids) + 1] == [BOS_ID, *ids]
    assert batch.n_src_tokens == sum(len(ids) + 1 for ids in src)
    assert (
        batch.n_tokens == sum(len(ids) + 1 for ids in tgt) == int((batch.tgt_out != PAD_ID).sum())
    )
    assert (batch.number, batch.step_tokens) == (31, 99)
    assert {batch.src.dtype, batch.tgt_in.dtype, batch.tgt_out.dtype} == {torch.int64}


def test_the_decoder_predicts_at_every_position_the_token_that_it_reads_at_the_next():
    batch = collate(split_of([([5], [6, 7, 8]), ([5, 4], [9])]), micro_batch_of(0, 1), number=0)
    assert batch.tgt_in.tolist() == [[BOS_ID, 6, 7, 8], [BOS_ID, 9, EOS_ID, PAD_ID]]
    assert batch.tgt_out.tolist() == [[6, 7, 8, EOS_ID], [9, EOS_ID, PAD_ID, PAD_ID]]
    assert torch.equal(batch.tgt_in[:, 1:], batch.tgt_out[:, :-1])
    assert torch.equal(shift_right(batch.tgt_out), batch.tgt_in)


def test_a_micro_batch_without_pairs_is_one_row_that_weighs_nothing():
    batch = collate(split_of([([5], [6])]), micro_batch_of(step_tokens=42), number=3)
    assert (batch.n_src_tokens, batch.n_tokens, batch.step_tokens, batch.number) == (0, 0, 42, 3)
    assert torch.all(batch.tgt_out == PAD_ID)
    assert bool(batch.src_mask.all()), "attention has something to attend to"


def test_moving_and_pinning_keep_everything(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self.clone())
    batch = collate(split_of([([5], [6, 7]), ([4], [])]), micro_batch_of(1, 0), number=2)
    moved = move_data_to_device(batch, torch.device("meta"))
    assert {moved.src.device.type, moved.tgt_in.device.type, moved.tgt_out.device.type} == {"meta"}
    assert moved.src_mask.shape == (2, 1, 1, 2)
    for name, value in vars(batch).items():
        pinned = getattr(batch.pin_memory(), name)
        if isinstance(value, torch.Tensor):
            assert pinned is not value
            assert torch.equal(pinned, value)
            assert getattr(moved, name).shape == value.shape
        else:
            assert pinned == getattr(moved, name) == value


def test_the_host_waits_for_no_copy_to_a_gpu_and_for_every_other(monkeypatch):
    asked = []
    monkeypatch.setattr(
        torch.Tensor,
        "to",
        lambda self, device, non_blocking=False: asked.append(non_blocking) or self,
    )
    batch = collate(split_of([([5], [6, 7])]), micro_batch_of(0), number=2)
    move_data_to_device(batch, torch.device("cuda"))
    move_data_to_device(batch, torch.device("cpu"))
    assert asked == [True] * 3 + [False] * 3
