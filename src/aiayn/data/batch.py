"""Batches: padding, end marks, the shift between what the decoder reads and what it predicts, and the source mask."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from aiayn.config import BOS_ID, EOS_ID, PAD_ID
from aiayn.data.batch_plan import MicroBatch
from aiayn.data.corpus_store import PreparedSplit


@dataclass(frozen=True)
class Batch:
    """One micro-batch of B pairs. A part without pairs becomes one row that weighs nothing (n_tokens = 0)."""

    number: int  # of the micro-batch, over the whole run
    src: Tensor  # (B, S) int64, rows end with eos
    tgt_in: Tensor  # (B, T) int64, rows start with bos
    tgt_out: Tensor  # (B, T) int64, rows end with eos: tgt_out[:, t] follows tgt_in[:, t]
    n_src_tokens: int  # real tokens of this batch
    n_tokens: int  # real target tokens of this batch
    step_tokens: int  # real target tokens of the whole step

    @property
    def src_mask(self) -> Tensor:
        """(B, 1, 1, S), True = may attend."""
        return source_mask(self.src)

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device. The host does not wait for a GPU that is still at the batch before."""
        return self._with(lambda ids: ids.to(device, non_blocking=device.type == "cuda"))

    def pin_memory(self) -> "Batch":
        """The same batch in memory that a GPU reads without the host's help."""
        return self._with(Tensor.pin_memory)

    def _with(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        return replace(self, src=change(self.src), tgt_in=change(self.tgt_in), tgt_out=change(self.tgt_out))


def source_mask(src: Tensor) -> Tensor:
    """src (B, S) ids. Returns (B, 1, 1, S), True at real tokens: those may be attended to."""
    return (src != PAD_ID)[:, None, None, :]


def collate(split: PreparedSplit, part: MicroBatch, number: int) -> Batch:
    """Gathers the pairs of one part from the prepared ids."""
    if len(part.pairs) == 0:
        nothing = torch.tensor([[EOS_ID]])
        return Batch(number, nothing, torch.tensor([[BOS_ID]]), torch.tensor([[PAD_ID]]), 0, 0, part.step_tokens)
    pairs = part.pairs.astype(np.int64)
    src, n_src = _gather(split.src, split.src_offsets, pairs)
    tgt, n_tgt = _gather(split.tgt, split.tgt_offsets, pairs)
    return Batch(number, src, shift_right(tgt), tgt, n_src, n_tgt, part.step_tokens)


def shift_right(tgt_out: Tensor) -> Tensor:
    """Puts bos in front and drops the last column. What stands beside padding in tgt_out is never scored."""
    start = torch.full((len(tgt_out), 1), BOS_ID, dtype=tgt_out.dtype)
    return torch.cat([start, tgt_out[:, :-1]], dim=1)


def pad_sources(sentences: list[list[int]]) -> Tensor:
    """Ids without end marks, as (B, S) rows with eos at their ends, padded on the right."""
    offsets = np.concatenate([[0], np.cumsum([len(ids) for ids in sentences])])
    flat = np.fromiter((i for ids in sentences for i in ids), np.int64, offsets[-1])
    return _gather(flat, offsets, np.arange(len(sentences)))[0]


def _gather(flat: np.ndarray, offsets: np.ndarray, rows: np.ndarray) -> tuple[Tensor, int]:
    """Rows flat[offsets[r]:offsets[r + 1]] with eos added, padded: (B, L) int64, and how many tokens are real."""
    starts = offsets[rows]
    lengths = offsets[rows + 1] - starts
    columns = np.arange(lengths.max() + 1)
    padded = np.full((len(rows), len(columns)), PAD_ID, np.int64)
    inside = columns < lengths[:, None]
    padded[inside] = flat[(starts[:, None] + columns)[inside]]
    padded[np.arange(len(rows)), lengths] = EOS_ID
    return torch.from_numpy(padded), int(lengths.sum()) + len(rows)
