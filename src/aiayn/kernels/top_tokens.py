"""The best continuations of hypotheses, without holding the logits of all of them in memory at once."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from aiayn.kernels.prepacked import round_down
from aiayn.token_ids import BOS_ID, EOS_ID, PAD_ID

BLOCK = 64  # log-probabilities whose maximum is compared first
FEW = 2**16  # log-probabilities of which sorting takes less time than calling the operations on blocks
ROWS = 128  # hypotheses whose logits a CPU computes at a time: fewer make the product slower
CACHED = 2**18  # log-probabilities that fit into a CPU's second-level cache


def best_continuations(
    project: Callable[[Tensor], Tensor],
    states: Tensor,
    log_probs: Tensor,
    n_best: int,
    only_eos: Tensor | None = None,
    are_log_probs: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Extends N sentences' K hypotheses by one token each, and returns the best of all K * V continuations.

    `project` turns states (R, D) into logits (R, V), or log-probabilities; states (N, K, D), log_probs (N, K) of the
    hypotheses. Padding and bos are no continuations; where only_eos (N,), eos is the only one. Returns log P,
    hypothesis and token of each continuation, (N, n_best), best first; a NaN before all others.
    """
    at_once = round_down(ROWS // log_probs.size(1))
    if states.device.type != "cpu" or len(states) <= at_once:
        return _of_part(project, states, log_probs, n_best, only_eos, are_log_probs)
    ends = [None] * len(states) if only_eos is None else only_eos.split(at_once)
    parts = zip(states.split(at_once), log_probs.split(at_once), ends, strict=False)
    found = [_of_part(project, state, scores, n_best, ending, are_log_probs) for state, scores, ending in parts]
    best, parents, tokens = zip(*found, strict=True)
    return torch.cat(best), torch.cat(parents), torch.cat(tokens)


def _of_part(
    project: Callable[[Tensor], Tensor],
    states: Tensor,
    log_probs: Tensor,
    n_best: int,
    only_eos: Tensor | None,
    are_log_probs: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """As `best_continuations`, of so few sentences that their logits may be in memory at once."""
    values = project(states.flatten(0, 1)).float()  # (N * K, V)
    ending = None if only_eos is None else only_eos.repeat_interleave(log_probs.size(1))
    if values.numel() <= FEW:
        _only_continuations(values, are_log_probs)
        if ending is not None:
            _leave_only_eos(values, ending)
        sums = values.view(*log_probs.shape, -1) + log_probs[..., None]
        best, places = _highest(sums.flatten(1), n_best)
    else:
        maxima = values.new_empty(len(values), -(-values.size(1) // BLOCK))
        for rows, of_rows in zip(_cached(values), _cached(maxima, values.size(1)), strict=True):
            _only_continuations(rows, are_log_probs)
            _block_maxima(rows, of_rows)
        if ending is not None:
            _leave_only_eos(values, ending)
            _block_maxima(values, maxima)
        best, places = _best(values, maxima, log_probs, n_best)
    return best, places // values.size(1), places % values.size(1)


def _only_continuations(values: Tensor, are_log_probs: bool) -> None:
    """Turns logits (R, V) into log-probabilities, of which those of padding and bos are -inf."""
    # Normalised first: excluding tokens must not change the probability of the others.
    if not are_log_probs:
        torch.log_softmax(values, -1, out=values)
    values[:, PAD_ID : BOS_ID + 1].fill_(-torch.inf)


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


def _leave_only_eos(values: Tensor, rows: Tensor) -> None:
    """Excludes all tokens except eos in these rows (R,) of values (R, V)."""
    eos = values[:, EOS_ID].clone()
    values.masked_fill_(rows[:, None], -torch.inf)
    values[:, EOS_ID] = eos


def _best(values: Tensor, maxima: Tensor, scores: Tensor, n_best: int) -> tuple[Tensor, Tensor]:
    """The n_best highest sums of values (N * K, V) and scores (N, K), and their places among K * V, (N, n_best).

    They are in the n_best blocks with the highest maxima.
    """
    (n, k), vocab_size, n_blocks = scores.shape, values.size(1), maxima.size(1)
    sums = (maxima.view(n, k, n_blocks) + scores[..., None]).view(n, -1)
    chosen = _highest(sums, min(n_best, sums.size(1)))[1]
    first = chosen // n_blocks * vocab_size if k > 1 else torch.zeros_like(chosen)  # place of a hypothesis' values
    columns = (chosen % n_blocks * BLOCK)[..., None] + torch.arange(BLOCK, device=values.device)
    places = first[..., None] + (columns if vocab_size % BLOCK == 0 else columns.clamp(max=vocab_size - 1))
    candidates = values.view(n, -1).gather(1, places.flatten(1)).view_as(places)
    candidates += scores.gather(1, chosen // n_blocks)[..., None]
    if vocab_size % BLOCK:
        candidates.masked_fill_(columns >= vocab_size, -torch.inf)
    best, which = _highest(candidates.flatten(1), n_best)
    return best, places.flatten(1).gather(1, which)


def _highest(values: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Returns the n highest of values (N, M) and their places, (N, n), highest first; -inf and 0 where M < n."""
    if n == 1:
        return values.max(1, keepdim=True)
    best, places = values.topk(min(n, values.size(1)))
    missing = n - best.size(1)
    return (F.pad(best, (0, missing), value=-torch.inf), F.pad(places, (0, missing))) if missing else (best, places)
