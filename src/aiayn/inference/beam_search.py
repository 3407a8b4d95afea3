"""Beam search (section 6.1 of the paper): the translations that a model finds most probable, for a batch of sentences.

A hypothesis Y for a source X is scored by log P(Y|X) / lp(Y). The penalty lp grows with the length |Y|, end token
included, and so makes up for what every further token costs.

Each sentence keeps two sets of `beam_size` hypotheses: the alive ones, ordered by log P, still grow; the finished ones,
ordered by score, have ended. A sentence is done once no alive hypothesis can overtake its worst finished one. All of
this happens in tensors of N sentences by K beams.
"""

from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor

from aiayn.config import BOS_ID, EOS_ID, PAD_ID, SearchConfig
from aiayn.errors import DivergedError
from aiayn.model.transformer import Transformer

# To look at results is to wait for a GPU. A late look changes nothing: what is done cannot be overtaken any more.
STEPS_BETWEEN_LOOKS = {"cpu": 1}
BLOCK = 128  # scores looked at together in the search for the best ones
CACHED = 2**18  # log-probabilities that a CPU's second-level cache holds


class Hypothesis(NamedTuple):
    """One translation: ids without start and end token, score, and log P, which includes that of the end token."""

    tokens: list[int]
    score: float
    log_prob: float


@dataclass
class Beams:
    """Where the search stands. One row per sentence still searched; -inf marks a place that holds no hypothesis."""

    sentence: Tensor  # (N,) its row in the input
    limit: Tensor  # (N,) most tokens before the end token
    done: Tensor  # (N,) bool
    log_probs: Tensor  # (N, K) of the alive ones, best first
    tokens: Tensor  # (N, K, T) of the alive ones
    finished_scores: Tensor  # (N, K) best first
    finished_log_probs: Tensor  # (N, K)
    finished_tokens: Tensor  # (N, K, T) with the end token

    def select(self, rows: Tensor) -> "Beams":
        return Beams(*(getattr(self, field.name)[rows] for field in fields(self)))


def length_penalty(length: Tensor | int, config: SearchConfig) -> Tensor | float:
    """lp(Y) for |Y| = length: the paper's ((5 + |Y|) / 6)^alpha (Wu et al. 2016), or |Y|^alpha."""
    return ((5 + length) / 6 if config.penalty == "gnmt" else length) ** config.length_penalty


@torch.inference_mode()
def beam_search(model: Transformer, src: Tensor, src_mask: Tensor, config: SearchConfig) -> list[list[Hypothesis]]:
    """Translates src (N, S), whose rows end with the end token, under src_mask (N, 1, 1, S).

    Returns the finished hypotheses of every sentence, best first: `beam_size` of them, fewer where fewer exist. They
    have at most |X| + `max_extra_tokens` tokens; no end token counts there. A sentence's result does not depend on the
    others in the batch. One beam is greedy search. The model must be in evaluation mode.

    Raises DivergedError where the model's output is not finite.
    """
    limits = [length - 1 + config.max_extra_tokens for length in src_mask.flatten(1).sum(1).tolist()]
    longest = max(limits) + 1
    cache = model.start(model.encode(src, src_mask), src_mask, config.beam_size)
    beams = _empty_beams(torch.tensor(limits, device=src.device), longest, config)
    last_tokens = torch.full_like(beams.tokens[:, :, 0], BOS_ID)
    sound_steps = torch.zeros((), dtype=torch.long, device=src.device)
    look_every = STEPS_BETWEEN_LOOKS.get(src.device.type, 4)
    results: list[list[Hypothesis]] = [[] for _ in limits]

    for length in range(1, longest + 1):  # |Y| of what ends in this step
        logits = model.step(last_tokens, cache)  # (N, K, V)
        beams, parents, sound = _extend(beams, logits, length, config)
        sound_steps += sound & (sound_steps == length - 1)
        if length % look_every == 0 or length == longest:
            if sound_steps < length:
                raise _diverged(f"step {int(sound_steps) + 1}")
            n_done = int(beams.done.sum())
            # Moving the caches costs time as well, so a quarter of the sentences leaves at once.
            if 4 * n_done >= len(beams.done):
                _collect(beams.select(beams.done), results)
                if n_done == len(beams.done):
                    break
                going = (~beams.done).nonzero().flatten()
                beams, parents = beams.select(going), parents[going]
                cache.select(going)
        cache.reorder(parents)
        last_tokens = beams.tokens[:, :, length - 1]

    if not all(results):
        raise _diverged(f"step {longest} (the end token has no probability)")
    return results


def _empty_beams(limit: Tensor, longest: int, config: SearchConfig) -> Beams:
    """Each sentence starts from one empty hypothesis: K equal ones would find everything K times."""
    none = torch.full((len(limit), config.beam_size), -torch.inf, device=limit.device)
    log_probs = none.clone()
    log_probs[:, 0] = 0
    tokens = torch.full((*none.shape, longest), PAD_ID, device=limit.device)
    sentence = torch.arange(len(limit), device=limit.device)
    return Beams(sentence, limit, torch.zeros_like(limit, dtype=torch.bool), log_probs, tokens, none, none, tokens)


def _extend(beams: Beams, logits: Tensor, length: int, config: SearchConfig) -> tuple[Beams, Tensor, Tensor]:
    """Gives every alive hypothesis one more token, its |Y| = length; logits (N, K, V).

    Returns the new beams, the parents (N, K) of the alive ones, and whether the logits were sound.
    """
    k = config.beam_size
    # At most K of the best 2K continuations end, one per parent, so K stay alive. Greedy search follows the single
    # best token: a runner-up end token must not finish a hypothesis there.
    wanted = 2 * k if k > 1 else 1

    # The best of all K * V continuations are among the best of each beam.
    best, best_tokens, end = _best_tokens(logits, wanted)
    sound = ~end.isnan().any()
    only_end = torch.full_like(best, -torch.inf)
    only_end[..., 0] = end
    at_limit = (length > beams.limit)[:, None, None]
    best = torch.where(at_limit, only_end, best)
    best_tokens = best_tokens.masked_fill(at_limit, EOS_ID)

    log_probs, picks = (beams.log_probs[:, :, None] + best).flatten(1).topk(wanted)  # (N, 2K), as are the next four
    new_tokens = best_tokens.flatten(1).gather(1, picks)
    parents = picks // best_tokens.size(-1)
    ended = new_tokens == EOS_ID
    scores = (log_probs / length_penalty(length, config)).masked_fill(~ended, -torch.inf)
    tokens = _take(beams.tokens, parents)
    tokens[:, :, length - 1] = new_tokens

    finished_scores, kept = torch.cat([beams.finished_scores, scores], 1).topk(k)
    finished_log_probs = torch.cat([beams.finished_log_probs, log_probs], 1).gather(1, kept)
    finished_tokens = _take(torch.cat([beams.finished_tokens, tokens], 1), kept)
    alive_log_probs, alive = log_probs.masked_fill(ended, -torch.inf).topk(k)

    # log P is negative and only falls, so the best that can still come is today's log P under the largest penalty: who
    # stops here loses nothing.
    still_possible = alive_log_probs[:, 0] / length_penalty(beams.limit + 1, config)
    extended = Beams(
        sentence=beams.sentence,
        limit=beams.limit,
        done=finished_scores[:, -1] >= still_possible,
        log_probs=alive_log_probs,
        tokens=_take(tokens, alive),
        finished_scores=finished_scores,
        finished_log_probs=finished_log_probs,
        finished_tokens=finished_tokens,
    )
    return extended, parents.gather(1, alive), sound


def _best_tokens(logits: Tensor, wanted: int) -> tuple[Tensor, Tensor, Tensor]:
    """The most probable next tokens of each beam: log-probabilities and ids (N, K, wanted); and log P(end) (N, K)."""

    def best(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # Normalising comes first: ruling tokens out must not change the probability of the others.
        log_probs = rows.float()
        torch.log_softmax(log_probs, -1, out=log_probs)
        end = log_probs[:, EOS_ID].clone()
        log_probs[:, PAD_ID] = log_probs[:, BOS_ID] = -torch.inf
        return *_top(log_probs, min(wanted, log_probs.size(-1))), end

    rows = logits.flatten(0, 1)
    # Over a vocabulary, moving numbers costs more than computing them; a few rows at a time stay in a CPU's cache.
    parts = rows.split(max(1, CACHED // rows.size(1))) if rows.device.type == "cpu" else [rows]
    found = [torch.cat(of_parts) for of_parts in zip(*map(best, parts), strict=True)]
    return tuple(each.unflatten(0, logits.shape[:2]) for each in found)


def _top(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k highest of the last dimension and where they stand: `values.topk(k)`, several times as fast for V values.

    They are in the k blocks with the highest maxima, or in what is left over behind the last block.
    """
    n_blocks = values.size(-1) // BLOCK
    if n_blocks <= k:
        return values.topk(k)
    blocks = values[..., : n_blocks * BLOCK].unflatten(-1, (n_blocks, BLOCK))
    chosen = blocks.amax(-1).topk(k).indices[..., None]  # (..., k, 1)
    places = (chosen * BLOCK + torch.arange(BLOCK, device=values.device)).flatten(-2)
    rest = torch.arange(n_blocks * BLOCK, values.size(-1), device=values.device)
    places = torch.cat([places, rest.expand(*places.shape[:-1], -1)], -1)
    best, found = values.gather(-1, places).topk(k)
    return best, places.gather(-1, found)


def _take(tokens: Tensor, which: Tensor) -> Tensor:
    """Hypotheses which (N, M) out of tokens (N, J, T). Returns (N, M, T)."""
    return tokens.gather(1, which[:, :, None].expand(-1, -1, tokens.size(-1)))


def _collect(beams: Beams, results: list[list[Hypothesis]]) -> None:
    """Moves the finished hypotheses to where their sentences stand in the results."""
    rows = zip(
        beams.sentence.tolist(),
        beams.finished_tokens.tolist(),
        beams.finished_scores.tolist(),
        beams.finished_log_probs.tolist(),
        strict=True,
    )
    for sentence, tokens, scores, log_probs in rows:
        results[sentence] = [
            Hypothesis(ids[: ids.index(EOS_ID)], score, log_prob)
            for ids, score, log_prob in zip(tokens, scores, log_probs, strict=True)
            if score > -torch.inf
        ]


def _diverged(where: str) -> DivergedError:
    return DivergedError(
        f"the model's output is not finite at {where} of the search: its weights are damaged or its training "
        "diverged; use an earlier checkpoint"
    )
