"""Batches: padded or packed, end marks, the right shift of the decoder's input, and what may attend
to what.
"""

import math
from copy import copy
from dataclasses import dataclass
from enum import IntEnum
from typing import Self

import numpy as np
import torch
from torch import Tensor

from aiayn.data.batch_plan import SLOTS_UNIT, MicroBatch
from aiayn.data.corpus import PreparedSplit
from aiayn.data.encode import Sentences
from aiayn.token_ids import BOS_ID, EOS_ID, PAD_ID


class Pinned:
    """Base of all batches: Lightning moves the tensors of a data class, but pins none."""

    def pin_memory(self) -> Self:
        """Copies the batch to page-locked memory, from which a GPU copies asynchronously."""
        pinned = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(pinned, name, value.pin_memory())
        return pinned


BEGINNING = 8  # tokens of a side of `first_pair`


class Counted(Pinned):
    """Token counts of a micro-batch, known on the host: counting on a GPU would launch kernels
    there.
    """

    # Real tokens of each source and each target, (B,) int64; (0,) without pairs
    lengths: tuple[np.ndarray, np.ndarray]

    @property
    def n_src_tokens(self) -> int:
        """Returns the number of real source tokens of this batch."""
        return int(self.lengths[0].sum())

    @property
    def n_tokens(self) -> int:
        """Returns the number of real target tokens of this batch."""
        return int(self.lengths[1].sum())


@dataclass(eq=False)  # not frozen: Lightning converts batches in place for some precisions
class Batch(Counted):
    """One micro-batch of B pairs. Without pairs it is one row of weight 0 (n_tokens = 0)."""

    number: int  # number of the micro-batch, counted over the whole run
    src: Tensor  # (B, S) int64, rows end with eos
    tgt_in: Tensor  # (B, T) int64, rows start with bos
    tgt_out: Tensor  # (B, T) int64, rows end with eos: tgt_out[:, t] follows tgt_in[:, t]
    lengths: tuple[np.ndarray, np.ndarray]
    step_tokens: int  # real target tokens of the whole step
    micro_batches: int | None = None  # how many make up the step; None: not known

    @property
    def src_mask(self) -> Tensor:
        """Returns (B, 1, 1, S), True = may attend."""
        return source_mask(self.src)

    @property
    def n_positions(self) -> int:
        """Returns the number of positions of both sides that are computed, padding included."""
        return self.src.numel() + self.tgt_out.numel()


class Slot(IntEnum):
    """Rows of a packed batch."""

    SRC = 0
    TGT_IN = 1
    TGT_OUT = 2
    SRC_POSITION = 3  # the token's position in its sentence, from 0
    TGT_POSITION = 4
    SRC_START = 5  # first slot of this token's source sentence; SRC_END is the slot after its last
    SRC_END = 6
    TGT_START = 7
    TGT_END = 8
    HERE = 9  # 0, 1, 2, ...
    NEXT = 10
    SRC_START_OF_TGT = 11  # the same for the source of a target token
    SRC_END_OF_TGT = 12
    TGT_START_OF_SRC = 13
    TGT_END_OF_SRC = 14


@dataclass(eq=False)
class PackedBatch(Counted):
    """A micro-batch whose sentences lie one after the other, without padding, in N token slots.

    All that a pass reads is one tensor, whose shape is the same for every batch. An empty slot has
    no target, and attends to itself and to no source.
    """

    number: int  # number of the micro-batch, counted over the whole run
    slots: Tensor  # (15, N) int32, see `Slot`
    lengths: tuple[np.ndarray, np.ndarray]
    step_tokens: int  # real target tokens of the whole step
    max_length: int  # no sentence of the corpus has more tokens, its end mark included
    micro_batches: int | None = None  # how many make up the step; None: not known

    @property
    def src(self) -> Tensor:
        """Returns (1, N) ids."""
        return self.slots[Slot.SRC][None]

    @property
    def tgt_in(self) -> Tensor:
        return self.slots[Slot.TGT_IN][None]

    @property
    def tgt_out(self) -> Tensor:
        return self.slots[Slot.TGT_OUT][None]

    @property
    def src_positions(self) -> Tensor:
        """Returns each token's position in its sentence, from 0: (1, N)."""
        return self.slots[Slot.SRC_POSITION][None]

    @property
    def tgt_positions(self) -> Tensor:
        return self.slots[Slot.TGT_POSITION][None]

    @property
    def src_ranges(self) -> tuple[Tensor, ...]:
        """Returns the `Ranges` of the encoder's self-attention: a token attends to its sentence."""
        start, end = self.slots[Slot.SRC_START], self.slots[Slot.SRC_END]
        return start, end, start, end

    @property
    def tgt_ranges(self) -> tuple[Tensor, ...]:
        """Returns the `Ranges` of the decoder's self-attention: a token attends to its sentence up
        to itself.
        """
        return tuple(
            self.slots[slot] for slot in (Slot.TGT_START, Slot.NEXT, Slot.HERE, Slot.TGT_END)
        )

    @property
    def cross_ranges(self) -> tuple[Tensor, ...]:
        """Returns the `Ranges` of attention over the source: a token attends to its sentence's
        source.
        """
        return tuple(self.slots[Slot.SRC_START_OF_TGT :])

    @property
    def n_positions(self) -> int:
        """Returns the number of slots of both sides."""
        return 2 * self.slots.size(1)


TrainingBatch = Batch | PackedBatch


def first_pair(batch: TrainingBatch) -> Batch:
    """Returns the beginning of the first pair of a batch, not packed."""
    src, tgt = (np.minimum(side[:1], BEGINNING) for side in batch.lengths)
    source, target = max(1, src.sum()), max(1, tgt.sum())
    ids = batch.src[:1, :source], batch.tgt_in[:1, :target], batch.tgt_out[:1, :target]
    return Batch(batch.number, *ids, (src, tgt), batch.step_tokens)


@dataclass(eq=False)
class SourceBatch(Pinned):
    """Sources to translate. A rank without work gets a dummy: no `lines`, and one row with an end
    mark only.
    """

    lines: list[int]  # line numbers of the B sources, from 0
    src: Tensor  # (B, S) int64, rows end with eos


def source_mask(src: Tensor) -> Tensor:
    """Returns (B, 1, 1, S) for src (B, S) ids: True at real tokens, which may be attended to."""
    return (src != PAD_ID)[:, None, None, :]


def collate(split: PreparedSplit, micro_batch: MicroBatch, number: int) -> Batch:
    """Gathers the pairs of a micro-batch from the prepared ids. `number` is its number in the
    run.
    """
    if len(micro_batch.pairs):
        (src, src_lengths), (tgt, tgt_lengths) = (
            padded(side, micro_batch.pairs) for side in (split.src, split.tgt)
        )
    else:
        src, tgt = torch.tensor([[EOS_ID]]), torch.tensor([[PAD_ID]])
        src_lengths = tgt_lengths = np.empty(0, np.int64)
    counts = (src_lengths, tgt_lengths), micro_batch.step_tokens, micro_batch.micro_batches
    return Batch(number, src, shift_right(tgt), tgt, *counts)


def shift_right(tgt_out: Tensor) -> Tensor:
    """Puts bos in front and drops the last column. Inputs at padded positions of tgt_out do not
    matter.
    """
    start = torch.full_like(tgt_out[:, :1], BOS_ID)
    return torch.cat([start, tgt_out[:, :-1]], dim=1)


def pad_sources(sentences: list[list[int]]) -> Tensor:
    """Returns ids without end marks as (B, S) rows that end with eos, padded on the right."""
    return padded(Sentences.of(sentences), np.arange(len(sentences)))[0]


def padded(side: Sentences, numbers: np.ndarray) -> tuple[Tensor, np.ndarray]:
    """Returns sentences with eos added, padded, (B, L) int64; and their lengths, (B,) int64."""
    ids, lengths = _with_end_marks(side, numbers)
    rows = np.full((len(lengths), lengths.max()), PAD_ID, np.int64)
    rows[np.arange(lengths.max()) < lengths[:, None]] = ids
    return torch.from_numpy(rows), lengths


def _with_end_marks(side: Sentences, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids of sentences, each followed by eos, (tokens,), and their lengths with eos,
    (B,) int64.
    """
    sentences = side.take(numbers)
    ids = np.insert(sentences.flat, sentences.starts[1:], EOS_ID)
    return ids, np.diff(sentences.starts) + 1


def pack(
    split: PreparedSplit, micro_batch: MicroBatch, number: int, n_slots: int, max_length: int
) -> PackedBatch:
    """Collates without padding: all sentences of a side one after the other, in `n_slots`, or in
    more if needed.
    """
    (src, src_lengths), (tgt, tgt_lengths) = (
        _with_end_marks(side, micro_batch.pairs) for side in (split.src, split.tgt)
    )
    src_ends, tgt_ends = src_lengths.cumsum(), tgt_lengths.cumsum()
    src_starts, tgt_starts = src_ends - src_lengths, tgt_ends - tgt_lengths
    n_tokens = max(len(src), len(tgt))
    if n_tokens > n_slots:
        n_slots = SLOTS_UNIT * math.ceil(n_tokens / SLOTS_UNIT)
    slot_numbers = np.arange(n_slots, dtype=np.int32)
    slots = np.full((len(Slot), n_slots), PAD_ID, np.int32)
    slots[Slot.SRC, : len(src)] = src
    slots[Slot.TGT_IN, : len(tgt)] = np.roll(tgt, 1)
    slots[Slot.TGT_IN, tgt_starts] = BOS_ID
    slots[Slot.TGT_OUT, : len(tgt)] = tgt
    slots[Slot.HERE] = slot_numbers
    slots[Slot.NEXT] = slot_numbers + 1

    def fill(slot: Slot, bounds: np.ndarray, lengths: np.ndarray, empty: np.ndarray | int) -> None:
        slots[slot] = empty
        slots[slot, : lengths.sum()] = bounds.repeat(lengths)

    fill(Slot.SRC_START, src_starts, src_lengths, slot_numbers)
    fill(Slot.SRC_END, src_ends, src_lengths, slot_numbers + 1)
    fill(Slot.TGT_START, tgt_starts, tgt_lengths, slot_numbers)
    fill(Slot.TGT_END, tgt_ends, tgt_lengths, slot_numbers + 1)
    fill(Slot.SRC_START_OF_TGT, src_starts, tgt_lengths, len(src))
    fill(Slot.SRC_END_OF_TGT, src_ends, tgt_lengths, len(src))
    fill(Slot.TGT_START_OF_SRC, tgt_starts, src_lengths, len(tgt))
    fill(Slot.TGT_END_OF_SRC, tgt_ends, src_lengths, len(tgt))
    # 0 where a slot is empty: it starts with itself
    slots[Slot.SRC_POSITION] = slot_numbers - slots[Slot.SRC_START]
    slots[Slot.TGT_POSITION] = slot_numbers - slots[Slot.TGT_START]
    return PackedBatch(
        number,
        torch.from_numpy(slots),
        (src_lengths, tgt_lengths),
        micro_batch.step_tokens,
        max_length,
        micro_batch.micro_batches,
    )
