"""Sampling: translations drawn from the model's distribution, for back-translation and to see how
sure a model is.

Every token is drawn by inverting the cumulative distribution at a random number that depends only
on the seed, the line's number and the position, so a line's sample depends neither on its batch nor
on what was drawn before.
"""

import hashlib
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from aiayn.config.search import SamplingConfig, SearchConfig
from aiayn.errors import NonFiniteOutputError
from aiayn.search.beam_search import length_limits, log_probs_of
from aiayn.search.translations import Hypothesis, length_penalty
from aiayn.token_ids import BOS_ID, EOS_ID, PAD_ID

if TYPE_CHECKING:
    from aiayn.model.transformer import Transformer
    from aiayn.search.ensemble import Ensemble


def uniform(seed: int, line: int, position: int) -> float:
    """Returns a number above 0 and below 1: 32 well-mixed bits."""
    digest = hashlib.blake2b(f"{seed}/{line}/{position}".encode(), digest_size=4).digest()
    return (int.from_bytes(digest, "big") + 0.5) / 2**32


@torch.inference_mode()
def sample(
    model: "Transformer | Ensemble",
    src: Tensor,
    src_mask: Tensor,
    lines: list[int],
    sampling: SamplingConfig,
    config: SearchConfig,
) -> list[Hypothesis]:
    """Draws one translation for each sentence of src (N, S), whose rows end with eos, under
    src_mask (N, 1, 1, S).

    `lines` are the sentences' numbers, which together with `sampling.seed` decide what is drawn.
    Returns at most |X| + `max_extra_tokens` tokens each, with log P under the model itself:
    temperature, top-k and top-p change what is drawn, not how it is scored. The model must be in
    evaluation mode.

    Raises DivergedError if the model's output is NaN or infinite.
    """
    limits = length_limits(src_mask, config)
    cache = model.init_cache(model.encode(src, src_mask), src_mask, 1)
    tokens: list[list[int]] = [[] for _ in lines]
    log_probs = [0.0] * len(lines)
    alive = list(range(len(lines)))  # the sentences in the cache
    last_tokens = torch.full_like(src[:, :1], BOS_ID)
    position = 0
    while alive:
        logits = model.project(model.step(last_tokens, cache)[:, 0]).double()  # (N, V)
        at_limit = torch.tensor([position >= limits[row] for row in alive], device=src.device)
        numbers = [uniform(sampling.seed, lines[row], position) for row in alive]
        draws = torch.tensor(numbers, dtype=torch.float64).to(src.device)
        drawn = draw_tokens(logits, draws, sampling).masked_fill_(at_limit, EOS_ID)
        drawn_log_probs = log_probs_of(model, logits).gather(1, drawn[:, None])[:, 0]
        if not drawn_log_probs.isfinite().all():
            raise NonFiniteOutputError(f"at step {position + 1} of the sampling")
        steps = zip(alive, drawn.tolist(), drawn_log_probs.tolist(), strict=True)
        for row, token, log_prob in steps:
            tokens[row].append(token)
            log_probs[row] += log_prob
        remaining = (drawn != EOS_ID).nonzero()[:, 0]
        if 0 < len(remaining) < len(alive):
            cache.select(remaining)
        alive = [alive[slot] for slot in remaining.tolist()]
        last_tokens = drawn[remaining, None]
        position += 1
    return [
        Hypothesis(ids[:-1], log_prob / length_penalty(len(ids), config), log_prob)
        for ids, log_prob in zip(tokens, log_probs, strict=True)
    ]


def draw_tokens(logits: Tensor, draws: Tensor, sampling: SamplingConfig) -> Tensor:
    """Returns a token (N,) for each row of logits (N, V), float64, and number from 0 to 1 in draws
    (N,).

    Temperature comes first, then the k most probable tokens are kept, or the fewest whose
    probabilities sum to p.
    """
    allowed = logits.clone()
    allowed[:, PAD_ID] = allowed[:, BOS_ID] = -torch.inf
    # Nothing overflows
    probs = ((allowed - allowed.amax(-1, keepdim=True)) / sampling.temperature).softmax(-1)
    if sampling.top_k is not None and sampling.top_k < probs.size(1):
        least = probs.topk(sampling.top_k).values[:, -1:]
        probs = probs.masked_fill(probs < least, 0)
    if sampling.top_p is not None:
        ordered = probs.sort(descending=True).values
        mass_above = ordered.cumsum(-1) - ordered  # the probability of all that are more probable
        least = ordered.masked_fill(mass_above >= sampling.top_p, 2.0).amin(-1, keepdim=True)
        probs = probs.masked_fill(probs < least, 0)
    # In the order of the vocabulary: the order of probabilities would depend on rounding errors.
    cumulative = probs.cumsum(-1)
    tokens = torch.searchsorted(cumulative, (draws * cumulative[:, -1])[:, None], right=True)[:, 0]
    return tokens.clamp_(max=logits.size(1) - 1)  # NaN finds no place
