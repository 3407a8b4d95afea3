"""The most probable next tokens of many hypotheses, without holding the logits of all of them in memory at once."""

from collections.abc import Callable

import torch
from torch import Tensor

from aiayn.config.schema import BOS_ID, EOS_ID, PAD_ID

BLOCK = 128  # log-probabilities whose maximum `topk` compares first
ROWS = 128  # hypotheses whose logits a CPU computes at a time: fewer make the product slower
CACHED = 2**18  # log-probabilities that fit into a CPU's second-level cache


def best_tokens(
    project: Callable[[Tensor], Tensor], states: Tensor, n_best: int, are_log_probs: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the most probable next tokens, log-probabilities and ids (N, K, n_best), and log P(eos) (N, K).

    `project` turns states (R, D) into logits (R, V), or into log-probabilities; states (N, K, D). Padding and bos are
    never among the best.
    """
    rows = states.flatten(0, 1)
    parts = [rows] if rows.device.type != "cpu" else rows.split(ROWS)
    found = [best for part in parts for best in _best(project(part), n_best, are_log_probs)]
    best, tokens, eos = (torch.cat(parts).unflatten(0, states.shape[:2]) for parts in zip(*found, strict=True))
    return best, tokens, eos


def _best(logits: Tensor, n_best: int, are_log_probs: bool) -> list[tuple[Tensor, Tensor, Tensor]]:
    """The results for logits (R, V), in parts of a few rows each."""
    # Over a vocabulary, memory traffic costs more than arithmetic; a few rows at a time stay in a CPU's cache.
    chunks = logits.split(max(1, CACHED // logits.size(1))) if logits.device.type == "cpu" else [logits]
    found = []
    for chunk in chunks:
        # Normalised first: excluding tokens must not change the probability of the others.
        log_probs = chunk.float()
        if not are_log_probs:
            torch.log_softmax(log_probs, -1, out=log_probs)
        eos = log_probs[:, EOS_ID].clone()
        log_probs[:, PAD_ID] = log_probs[:, BOS_ID] = -torch.inf
        found.append((*topk(log_probs, min(n_best, log_probs.size(-1))), eos))
    return found


def topk(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Returns `values.topk(k)` of the last dimension, several times as fast for the V values of a vocabulary.

    The k highest are in the k blocks with the highest maxima, or in the rest behind the last whole block.
    """
    n_blocks = values.size(-1) // BLOCK
    if n_blocks <= k:
        best, found = values.topk(k)
        return best, found
    blocks = values[..., : n_blocks * BLOCK].unflatten(-1, (n_blocks, BLOCK))
    chosen = blocks.amax(-1).topk(k).indices[..., None]  # (..., k, 1)
    places = (chosen * BLOCK + torch.arange(BLOCK, device=values.device)).flatten(-2)
    rest = torch.arange(n_blocks * BLOCK, values.size(-1), device=values.device)
    places = torch.cat([places, rest.expand(*places.shape[:-1], -1)], -1)
    best, found = values.gather(-1, places).topk(k)
    return best, places.gather(-1, found)
