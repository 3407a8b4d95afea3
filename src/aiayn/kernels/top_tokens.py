"""The best continuations of hypotheses, without holding the logits of all of them in memory at once."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from aiayn.kernels.prepacked import round_down
from aiayn.token_ids import BOS_ID, EOS_ID, PAD_ID

BLOCK = 64  # log-probabilities whose maximum is compared first
ROWS = 128  # hypotheses whose logits a CPU computes at a time: fewer make the product slower
CACHED = 2**18  # log-probabilities that fit into a CPU's second-level cache


def best_continuations(
    project: Callable[[Tensor], Tensor],
    states: Tensor,
    log_probs: Tensor,
    n_best: int,
    only_eos: Tensor | None = None,
    are_log_probs: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Extends N sentences' K hypotheses by one token each, and returns the best of all K * V continuations.

    `project` turns states (R, D) into logits (R, V), or log-probabilities; states (N, K, D), log_probs (N, K) of the
    hypotheses. Padding and bos are no continuations; where only_eos (N,), eos is the only one. Returns log P,
    hypothesis and token of each continuation, (N, n_best), best first, and False if any log-probability was NaN.
    """
    at_once = round_down(ROWS // log_probs.size(1))
    sentences = at_once if states.device.type == "cpu" else len(states)
    ends = [None] * len(states) if only_eos is None else only_eos.split(sentences)
    found = []
    for state, scores, ending in zip(states.split(sentences), log_probs.split(sentences), ends, strict=False):
        values = project(state.flatten(0, 1)).float()  # (n * K, V)
        maxima = values.new_empty(len(values), -(-values.size(1) // BLOCK))
        for rows, of_rows in zip(_cached(values), _cached(maxima, values.size(1)), strict=True):
            # Normalised first: excluding tokens must not change the probability of the others.
            if not are_log_probs:
                torch.log_softmax(rows, -1, out=rows)
            rows[:, PAD_ID] = rows[:, BOS_ID] = -torch.inf
            _block_maxima(rows, of_rows)
        finite = ~values[:, EOS_ID].isnan().any()
        if ending is not None:
            _leave_only_eos(values, maxima, ending.repeat_interleave(log_probs.size(1)))
        found.append((*_best(values, maxima, scores, n_best), finite))
    best, parents, tokens, finite = zip(*found, strict=True)
    return torch.cat(best), torch.cat(parents), torch.cat(tokens), torch.stack(finite).all()


def _cached(values: Tensor, vocab_size: int | None = None) -> Iterator[Tensor]:
    """Yields as many rows at a time as stay in a CPU's cache: over a vocabulary, memory traffic costs most."""
    on_cpu = values.device.type == "cpu"
    yield from values.split(max(1, CACHED // (vocab_size or values.size(1))) if on_cpu else max(1, len(values)))


def _block_maxima(values: Tensor, maxima: Tensor) -> None:
    """Writes the maximum of every block of values (R, V) to maxima (R, V / BLOCK); the last block may be shorter."""
    whole = values.size(1) // BLOCK
    if whole:
        torch.amax(values[:, : whole * BLOCK].unflatten(1, (whole, BLOCK)), -1, out=maxima[:, :whole])
    if whole < maxima.size(1):
        maxima[:, whole] = values[:, whole * BLOCK :].amax(1)


def _leave_only_eos(values: Tensor, maxima: Tensor, rows: Tensor) -> None:
    """Excludes all tokens except eos in these rows (R,) of values (R, V), and in the maxima of their blocks."""
    eos = values[:, EOS_ID].clone()
    for each, place in ((values, EOS_ID), (maxima, EOS_ID // BLOCK)):
        each.masked_fill_(rows[:, None], -torch.inf)
        each[:, place] = torch.where(rows, eos, each[:, place])


def _best(values: Tensor, maxima: Tensor, scores: Tensor, n_best: int) -> tuple[Tensor, Tensor, Tensor]:
    """The n_best highest sums of values (n * K, V) and scores (n, K), the row of each and its column, (n, n_best).

    They are in the n_best blocks with the highest maxima. If fewer exist, the rest is -inf.
    """
    vocab_size, n_blocks, shape = values.size(1), maxima.size(1), scores.shape
    sums = (maxima.unflatten(0, shape) + scores[..., None]).flatten(1)  # (n, K * V / BLOCK)
    chosen = sums.topk(min(n_best, sums.size(1)), sorted=False).indices
    hypothesis = chosen // n_blocks
    columns = (chosen % n_blocks * BLOCK)[..., None] + torch.arange(BLOCK, device=values.device)
    places = hypothesis[..., None] * vocab_size + columns.clamp(max=vocab_size - 1)
    candidates = values.view(len(scores), -1).gather(1, places.flatten(1)).view_as(places)
    candidates = candidates + scores.gather(1, hypothesis)[..., None]
    if vocab_size % BLOCK:
        candidates.masked_fill_(columns >= vocab_size, -torch.inf)
    best, which = candidates.flatten(1).topk(min(n_best, candidates[0].numel()))
    best = F.pad(best, (0, n_best - best.size(1)), value=-torch.inf)
    places = F.pad(places.flatten(1).gather(1, which), (0, n_best - which.size(1)), value=PAD_ID)
    return best, places // vocab_size, places % vocab_size
