"""Batches: padded or packed, end marks, the right shift of the decoder's input, and what may attend
to what.
"""

import math
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from aiayn.data.batch_plan import SLOTS_UNIT, MicroBatch
from aiayn.data.corpus import PreparedSplit
from aiayn.data.encode import Sentences
from aiayn.token_ids import BOS_ID, EOS_ID, PAD_ID

BEGINNING = 8  # most tokens of a side of `first_pair`


class Counted:
    """Token counts of a micro-batch, known on the host: counting on a GPU would launch kernels
    there.
    """

    # Real tokens of each source and each target, (B,) int64; (0,) without pairs
    lengths: tuple[np.ndarray, np.ndarray]

    def pin_memory(self) -> Self:
        """Copies the batch to page-locked memory, from which a GPU copies asynchronously. Lightning
        moves the tensors of a data class, but pins none.
        """
        pinned = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(pinned, name, value.pin_memory())
        return pinned

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


class Slots(NamedTuple):
    """The rows of a packed batch: what each token slot holds, (N,), first those of sources."""

    src: Any
    src_position: Any  # the token's position in its sentence, from 0
    src_start: Any  # first slot of this token's source sentence; src_end is the slot after its last
    src_end: Any
    tgt_start_of_src: Any  # the same for the target of a source token
    tgt_end_of_src: Any
    tgt_in: Any
    tgt_out: Any
    tgt_position: Any
    tgt_start: Any
    tgt_end: Any
    slot: Any  # 0, 1, 2, ...
    next_slot: Any
    src_start_of_tgt: Any
    src_end_of_tgt: Any


N_SRC_ROWS = 6


@dataclass(eq=False)
class PackedBatch(Counted):
    """A micro-batch whose sentences lie one after the other, without padding, in N token slots.

    All that a pass reads is one tensor; on GPUs its shape is the same for every batch. An empty
    slot has no target, and attends to itself and to no source.
    """

    number: int  # number of the micro-batch, counted over the whole run
    slots: Tensor  # (15, N) int32, see `Slots`
    n_slots: tuple[int, int]  # those of sources and of targets that are computed, up to N
    lengths: tuple[np.ndarray, np.ndarray]
    step_tokens: int  # real target tokens of the whole step
    max_length: int  # no sentence of the corpus has more tokens, its end mark included
    micro_batches: int | None = None  # how many make up the step; None: not known

    @property
    def rows(self) -> Slots:
        n_src, n_tgt = self.n_slots
        return Slots(*self.slots[:N_SRC_ROWS, :n_src], *self.slots[N_SRC_ROWS:, :n_tgt])

    @property
    def src(self) -> Tensor:
        """Returns (1, N) ids."""
        return self.rows.src[None]

    @property
    def tgt_in(self) -> Tensor:
        return self.rows.tgt_in[None]

    @property
    def tgt_out(self) -> Tensor:
        return self.rows.tgt_out[None]

    @property
    def n_positions(self) -> int:
        """Returns the number of slots of both sides."""
        return sum(self.n_slots)


TrainingBatch = Batch | PackedBatch


def first_pair(batch: TrainingBatch, most: int = BEGINNING) -> Batch:
    """Returns the first pair of a batch, not packed, and at most `most` tokens of a side."""
    src, tgt = (np.minimum(side[:1], most) for side in batch.lengths)
    source, target = max(1, src.sum()), max(1, tgt.sum())
    ids = batch.src[:1, :source], batch.tgt_in[:1, :target], batch.tgt_out[:1, :target]
    return Batch(batch.number, *ids, (src, tgt), batch.step_tokens)


def together(longer: Batch, shorter: Batch) -> Batch:
    """Returns the pairs of two batches as one, padded like the first."""

    def joined(ids: Tensor, shorter: Tensor) -> Tensor:
        padding = ids.size(1) - shorter.size(1)
        return torch.cat([ids, F.pad(shorter, (0, padding), value=PAD_ID)])

    names = ("src", "tgt_in", "tgt_out")
    ids = {name: joined(getattr(longer, name), getattr(shorter, name)) for name in names}
    src, tgt = map(np.concatenate, zip(longer.lengths, shorter.lengths, strict=True))
    return replace(longer, lengths=(src, tgt), **ids)


class SourceBatch(NamedTuple):
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
    split: PreparedSplit,
    micro_batch: MicroBatch,
    number: int,
    n_slots: int | None,
    max_length: int,
) -> PackedBatch:
    """Collates without padding: all sentences of a side one after the other, in `n_slots`, or in
    more if needed. None: each side has as many as it has tokens, and at least one.
    """
    (src, src_lengths), (tgt, tgt_lengths) = (
        _with_end_marks(side, micro_batch.pairs) for side in (split.src, split.tgt)
    )
    src_ends, tgt_ends = src_lengths.cumsum(), tgt_lengths.cumsum()
    src_starts, tgt_starts = src_ends - src_lengths, tgt_ends - tgt_lengths
    computed = max(1, len(src)), max(1, len(tgt))
    most = max(computed)
    if n_slots is not None:
        most = n_slots if most <= n_slots else SLOTS_UNIT * math.ceil(most / SLOTS_UNIT)
        computed = most, most
    slot = np.arange(most, dtype=np.int32)

    def row(values: np.ndarray, empty: np.ndarray | int) -> np.ndarray:
        filled = np.full(most, empty, np.int32)
        filled[: len(values)] = values
        return filled

    tgt_in = np.roll(tgt, 1)
    tgt_in[tgt_starts] = BOS_ID
    src_start = row(src_starts.repeat(src_lengths), slot)
    tgt_start = row(tgt_starts.repeat(tgt_lengths), slot)
    rows = Slots(
        src=row(src, PAD_ID),
        tgt_in=row(tgt_in, PAD_ID),
        tgt_out=row(tgt, PAD_ID),
        # 0 where a slot is empty: it starts with itself
        src_position=slot - src_start,
        tgt_position=slot - tgt_start,
        src_start=src_start,
        src_end=row(src_ends.repeat(src_lengths), slot + 1),
        tgt_start=tgt_start,
        tgt_end=row(tgt_ends.repeat(tgt_lengths), slot + 1),
        slot=slot,
        next_slot=slot + 1,
        src_start_of_tgt=row(src_starts.repeat(tgt_lengths), len(src)),
        src_end_of_tgt=row(src_ends.repeat(tgt_lengths), len(src)),
        tgt_start_of_src=row(tgt_starts.repeat(src_lengths), len(tgt)),
        tgt_end_of_src=row(tgt_ends.repeat(src_lengths), len(tgt)),
    )
    return PackedBatch(
        number,
        torch.from_numpy(np.stack(rows)),
        computed,
        (src_lengths, tgt_lengths),
        micro_batch.step_tokens,
        max_length,
        micro_batch.micro_batches,
    )
