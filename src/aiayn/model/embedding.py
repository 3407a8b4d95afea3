"""Sections 3.4 and 3.5: embeddings and positions."""

import math
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def sinusoids(length: int, d_model: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Returns the encodings of section 3.5, (length, D): PE(pos, 2i) = sin(pos /
    10000^(2i/d_model)), PE(pos, 2i+1) = cos likewise.
    """
    # float64: at position 10,000 a float32 angle is already off by 1e-3.
    positions = torch.arange(length, dtype=torch.float64)[:, None]
    frequencies = torch.exp(
        torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10000.0) / d_model)
    )
    angles = positions * frequencies  # (length, D / 2)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).to(dtype)


class SinusoidalPositions(nn.Module):
    """The fixed encoding of section 3.5, for any length."""

    def __init__(self, d_model: int):
        super().__init__()
        self.d_model = d_model
        # Not saved with the weights. It is longer than nearly all sentences, because code that
        # copies a model, such as a moving average, expects it to keep its size.
        self.register_buffer("table", sinusoids(1024, d_model), persistent=False)

    def forward(self, start: int, length: int) -> Tensor:
        """Returns the encodings of positions start ... start + length - 1: (length, D)."""
        if start + length > len(self.table):
            self._compute(2 * (start + length))
        return self.table[start : start + length]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Recomputes the table with more digits when torch converts the module to float64."""
        super()._apply(fn, recurse)
        if self.table.dtype == torch.float64:
            self._compute(len(self.table))
        return self

    def _compute(self, length: int) -> None:
        table = sinusoids(length, self.d_model, self.table.dtype)
        self.table = table.to(self.table.device)


class LearnedPositions(nn.Module):
    """Row E of Table 3: one trained vector per position."""

    def __init__(self, max_positions: int, d_model: int):
        super().__init__()
        self.table = nn.Parameter(torch.empty(max_positions, d_model))

    def forward(self, start: int, length: int) -> Tensor:
        """Returns the vectors of positions start ... start + length - 1: (length, D).

        Raises ValueError for positions beyond the table, which were never trained.
        """
        if start + length > len(self.table):
            raise ValueError(
                f"position {start + length} is beyond the {len(self.table)} learned ones "
                "(model.max_positions)"
            )
        return self.table[start : start + length]


class SharedEmbedding(nn.Module):
    """Section 3.4: one matrix embeds source and target, and is the output layer's."""

    def __init__(self, vocab_size: int, d_model: int):
        super().__init__()
        self.scale = math.sqrt(d_model)
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))

    def forward(self, ids: Tensor) -> Tensor:
        """Embeds ids (B, T). Returns the embeddings times sqrt(d_model), (B, T, D)."""
        return F.embedding(ids, self.weight) * self.scale


class TiedOutput(nn.Module):
    """Section 3.4: the output layer, whose matrix is the embedding's."""

    def __init__(self, embedding: SharedEmbedding):
        super().__init__()
        # In a tuple, so that the matrix is counted and saved once, as the embedding's
        self.tied_to = (embedding,)

    @property
    def weight(self) -> Tensor:
        return self.tied_to[0].weight

    def forward(self, states: Tensor) -> Tensor:
        """Projects states (..., D) to logits (..., V)."""
        return F.linear(states, self.weight)
