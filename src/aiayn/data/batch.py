"""Batches: padding, end marks, the right shift of the decoder's input, and the source mask."""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from aiayn.data.batch_plan import MicroBatch
from aiayn.data.corpus import PreparedSplit
from aiayn.data.encode import Sentences
from aiayn.token_ids import BOS_ID, EOS_ID, PAD_ID


class OnDevice:
    """What batches of every kind can do: their tensors go to a device together."""

    src: Tensor  # (B, S) int64, rows end with eos

    @property
    def src_mask(self) -> Tensor:
        """(B, 1, 1, S), True = may attend."""
        return source_mask(self.src)

    def to(self, device: torch.device) -> Self:
        """Copies the batch to a device, without waiting for a GPU that is still busy with the previous batch."""
        return self._map(lambda ids: ids.to(device, non_blocking=device.type == "cuda"))

    def pin_memory(self) -> Self:
        """Copies the batch to page-locked memory, from which a GPU copies asynchronously."""
        return self._map(Tensor.pin_memory)

    def _map(self, function: Callable[[Tensor], Tensor]) -> Self:
        changed = copy(self)
        vars(changed).update({name: function(ids) for name, ids in vars(self).items() if isinstance(ids, Tensor)})
        return changed


@dataclass(eq=False)  # not frozen: Lightning converts batches in place for some precisions
class Batch(OnDevice):
    """One micro-batch of B pairs. Without pairs it is one row of weight 0 (n_tokens = 0).

    Counts come from `lengths`, which stay on the host: counting on a GPU would launch kernels there.
    """

    number: int  # number of the micro-batch, counted over the whole run
    src: Tensor  # (B, S) int64, rows end with eos
    tgt_in: Tensor  # (B, T) int64, rows start with bos
    tgt_out: Tensor  # (B, T) int64, rows end with eos: tgt_out[:, t] follows tgt_in[:, t]
    lengths: tuple[np.ndarray, np.ndarray]  # real tokens of each source and each target, (B,) int64; (0,) without pairs
    step_tokens: int  # real target tokens of the whole step
    micro_batches: int | None = None  # that make up the step; None: not known

    @property
    def n_src_tokens(self) -> int:
        """Real source tokens of this batch."""
        return int(self.lengths[0].sum())

    @property
    def n_tokens(self) -> int:
        """Real target tokens of this batch."""
        return int(self.lengths[1].sum())

    def few(self) -> tuple[Tensor, Tensor]:
        """Returns src (b, S) and tgt_in (b, T) of the first one or two pairs."""
        return self.src[:2], self.tgt_in[:2]


@dataclass(eq=False, kw_only=True)
class PackedBatch(Batch):
    """A micro-batch whose sentences lie one after the other, without padding: src (1, S), tgt_in and tgt_out (1, T)."""

    src_starts: Tensor  # (B + 1,) int32: where each source begins, and where the last one ends
    tgt_starts: Tensor  # the same for the targets
    src_positions: Tensor  # (1, S) int64: of each token in its sentence, from 0
    tgt_positions: Tensor  # (1, T) int64

    def few(self) -> tuple[Tensor, Tensor]:
        source, target = (int(lengths[0]) for lengths in self.lengths)
        return self.src[:, :source], self.tgt_in[:, :target]


def _by_value(batch: Batch) -> tuple[Callable[..., Batch], tuple[Any, ...]]:
    values = {name: value.numpy() if isinstance(value, Tensor) else value for name, value in vars(batch).items()}
    return _from_arrays, (type(batch), values)


def _from_arrays(kind: type[Batch], values: dict[str, Any]) -> Batch:
    values |= {name: torch.from_numpy(value) for name, value in values.items() if isinstance(value, np.ndarray)}
    return kind(**values)


# From a loader's process: for each tensor, torch would open a connection, which costs the training's process more.
ForkingPickler.register(Batch, _by_value)
ForkingPickler.register(PackedBatch, _by_value)


@dataclass(eq=False)
class SourceBatch(OnDevice):
    """Sources to translate. A rank without work gets a dummy: no `lines`, and one row with an end mark only."""

    lines: list[int]  # line numbers of the B sources, from 0
    src: Tensor  # (B, S) int64, rows end with eos


def source_mask(src: Tensor) -> Tensor:
    """Returns (B, 1, 1, S) for src (B, S) ids: True at real tokens, which may be attended to."""
    return (src != PAD_ID)[:, None, None, :]


def collate(split: PreparedSplit, micro_batch: MicroBatch, number: int) -> Batch:
    """Gathers the pairs of a micro-batch from the prepared ids. `number` is its number in the run."""
    if len(micro_batch.pairs):
        (src, src_lengths), (tgt, tgt_lengths) = (padded(side, micro_batch.pairs) for side in (split.src, split.tgt))
    else:
        src, tgt = torch.tensor([[EOS_ID]]), torch.tensor([[PAD_ID]])
        src_lengths = tgt_lengths = np.empty(0, np.int64)
    counts = (src_lengths, tgt_lengths), micro_batch.step_tokens, micro_batch.micro_batches
    return Batch(number, src, shift_right(tgt), tgt, *counts)


def shift_right(tgt_out: Tensor) -> Tensor:
    """Puts bos in front and drops the last column. Inputs at padded positions of tgt_out do not matter."""
    start = torch.full_like(tgt_out[:, :1], BOS_ID)
    return torch.cat([start, tgt_out[:, :-1]], dim=1)


def pad_sources(sentences: list[list[int]]) -> Tensor:
    """Returns ids without end marks as (B, S) rows that end with eos, padded on the right."""
    return padded(Sentences.of(sentences), np.arange(len(sentences)))[0]


def padded(side: Sentences, numbers: np.ndarray) -> tuple[Tensor, np.ndarray]:
    """Returns sentences with eos added, padded, (B, L) int64; and their lengths, (B,) int64."""
    some = side.take(numbers)
    lengths = np.diff(some.starts)
    columns = np.arange(lengths.max() + 1)
    padded = np.full((len(lengths), len(columns)), PAD_ID, np.int64)
    padded[columns < lengths[:, None]] = some.flat
    padded[np.arange(len(lengths)), lengths] = EOS_ID
    return torch.from_numpy(padded), lengths + 1


def without_padding(batch: Batch) -> Batch:
    """Returns a batch without its padding, the sentences one after the other; one without pairs as it is."""
    if not batch.n_tokens:
        return batch
    src, tgt = (
        torch.arange(ids.size(1)) < torch.from_numpy(lengths)[:, None]
        for ids, lengths in zip((batch.src, batch.tgt_out), batch.lengths, strict=True)
    )
    src_starts, tgt_starts = (torch.from_numpy(np.append(0, lengths.cumsum())).int() for lengths in batch.lengths)
    values: dict[str, Any] = vars(batch) | {
        **{"src": batch.src[src][None], "src_starts": src_starts, "src_positions": src.nonzero()[None, :, 1]},
        **{"tgt_in": batch.tgt_in[tgt][None], "tgt_out": batch.tgt_out[tgt][None]},
        **{"tgt_starts": tgt_starts, "tgt_positions": tgt.nonzero()[None, :, 1]},
    }
    return PackedBatch(**values)
