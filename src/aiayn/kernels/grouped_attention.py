"""Equation (1) among packed sentences on a CPU, which has no kernel for it: sentences of about one
length are padded together, for attention alone.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from aiayn.model.attention import attention
from aiayn.model.masks import Mask, Ranges

N_GROUPS = 4  # more have less padding, but smaller products


def grouped_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask, p_drop: float = 0.0) -> Tensor:
    """Computes `attention`; for packed sentences B is 1."""
    if not isinstance(mask, Ranges):
        return attention(q, k, v, mask, p_drop)
    queries, keys, masks = _groups(mask)
    sides = queries.pad(q), keys.pad(k), keys.pad(v)
    return queries.unpad([attention(*group, p_drop) for group in zip(*sides, masks, strict=True)])


class _PaddedGroups(NamedTuple):
    """The N tokens of a side in the P cells of padded groups."""

    shapes: list[tuple[int, int]]  # sentences and columns of each group
    token_of_cell: Tensor  # (P,), -1 at padding
    cell_of_token: Tensor  # (N,), -1: in none

    def pad(self, heads: Tensor) -> list[Tensor]:
        """Turns (1, H, N, d) into (B, H, L, d) of each group."""
        tokens = heads[0].transpose(0, 1)
        cells = _Gather.apply(tokens.flatten(1), self.token_of_cell, self.cell_of_token)
        groups = cells.split([count * length for count, length in self.shapes])
        return [
            group.view(*shape, *tokens.shape[1:]).transpose(1, 2)
            for group, shape in zip(groups, self.shapes, strict=True)
        ]

    def unpad(self, groups: list[Tensor]) -> Tensor:
        """Turns (B, H, L, d) of each group into (1, H, N, d), 0 for tokens in no cell."""
        cells = torch.cat([group.transpose(1, 2).flatten(0, 1).flatten(1) for group in groups])
        tokens = _Gather.apply(cells, self.cell_of_token, self.token_of_cell)
        return tokens.unflatten(1, (groups[0].size(1), -1)).transpose(0, 1)[None]


class _Gather(torch.autograd.Function):
    """rows[source], 0 where it is -1; `target` says where each row went. torch's own gradient of
    indexing adds row by row, which is slow.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, source: Tensor, target: Tensor) -> Tensor:
        ctx.save_for_backward(target)
        return _gathered(rows, source)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _gathered(gradients[0], *ctx.saved_tensors), None, None


def _gathered(rows: Tensor, source: Tensor) -> Tensor:
    gathered = rows.index_select(0, source.clamp(min=0))
    return gathered.index_fill_(0, (source < 0).nonzero()[:, 0], 0)


def _groups(ranges: Ranges) -> tuple[_PaddedGroups, _PaddedGroups, list[Tensor]]:
    """Returns queries and keys in padded groups, and the mask of each group, (B, 1, L, L of keys).

    Every layer computes it anew: all of them together take 1 % of a step.
    """
    key_start, key_end = ranges.key_start.long(), ranges.key_end.long()
    # A sentence begins with a query that shares no key with the one before it.
    begins = torch.ones_like(key_start, dtype=torch.bool)
    begins[1:] = key_start[1:] >= key_end[:-1]
    first = begins.nonzero()[:, 0]
    last = torch.cat([first[1:], first.new_tensor([len(begins)])]) - 1
    first_key, n_keys = key_start[first], key_end[last] - key_start[first]
    order = torch.argsort(torch.maximum(last - first + 1, n_keys), stable=True)
    queries_of, keys_of, masks = [], [], []
    for group in order.tensor_split(min(N_GROUPS, len(order))):
        queries = _tokens_of_sentences(first[group], last[group] - first[group] + 1)
        keys = _tokens_of_sentences(first_key[group], n_keys[group])
        of_query = torch.where(queries < 0, last[group][:, None], queries)
        mask = keys[:, None] >= key_start[of_query][:, :, None]
        mask &= keys[:, None] < key_end[of_query][:, :, None]
        # A query without keys must attend to something; no cell of it is read.
        has_keys = mask.any(2)
        queries[~has_keys] = -1
        mask |= ~has_keys[:, :, None]
        queries_of.append(queries)
        keys_of.append(keys)
        masks.append(mask[:, None])
    return (
        _padded_groups(queries_of, len(begins)),
        _padded_groups(keys_of, len(ranges.query_start)),
        masks,
    )


def _tokens_of_sentences(first: Tensor, lengths: Tensor) -> Tensor:
    """Returns the tokens of sentences, (B, L), -1 at padding; L is at least 1."""
    column = torch.arange(max(1, int(lengths.max())))
    return torch.where(column < lengths[:, None], first[:, None] + column, -1)


def _padded_groups(groups: list[Tensor], n_tokens: int) -> _PaddedGroups:
    token_of_cell = torch.cat([group.flatten() for group in groups])
    cell_of_token = torch.full((n_tokens,), -1)
    filled = (token_of_cell >= 0).nonzero()[:, 0]
    cell_of_token[token_of_cell[filled]] = filled
    shapes = [(group.size(0), group.size(1)) for group in groups]
    return _PaddedGroups(shapes, token_of_cell, cell_of_token)
