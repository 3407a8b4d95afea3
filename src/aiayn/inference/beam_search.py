"""Beam search (section 6.1): the translations with the highest scores, for a batch of sentences.

The score of a hypothesis Y for a source X is log P(Y|X) / lp(Y). The length penalty lp grows with the length |Y|, eos
included, which makes up for the bias of log P towards short outputs.

Each sentence keeps two lists of `beam_size` hypotheses: alive ones, ordered by log P, and finished ones, ordered by
score. A sentence is done when no alive hypothesis can overtake its worst finished one, which is exact; or with
`patience` p as soon as p * K hypotheses ended that were among the best K continuations of their step (Kasai et al.
2022; p = 1 is what most toolkits do). Both lists are tensors over N sentences and K beams.
"""

from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from aiayn.config.search import SearchConfig
from aiayn.errors import NonFiniteOutputError
from aiayn.inference.ensemble import Ensemble
from aiayn.kernels.prepacked import round_up
from aiayn.kernels.top_tokens import best_continuations
from aiayn.model.transformer import Transformer
from aiayn.token_ids import BOS_ID, EOS_ID, PAD_ID

# Checking whether sentences are done waits for a GPU. Checking late changes no result: a done sentence stays done.
STEPS_PER_CHECK = {"cpu": 1}


class Hypothesis(NamedTuple):
    """One translation: ids without bos and eos, score, and log P, which includes that of eos."""

    tokens: list[int]
    score: float
    log_prob: float


class Beams(NamedTuple):
    """State of the search, one row per sentence that is not done; -inf marks an empty place."""

    sentence: Tensor  # (N,) its row in the input
    limit: Tensor  # (N,) most tokens before eos
    done: Tensor  # (N,) bool
    n_ended: Tensor  # (N,) hypotheses that ended among the best K of their step
    log_probs: Tensor  # (N, K) of the alive hypotheses, best first; (N, 1) at the start
    tokens: Tensor  # (N, K, T) of the alive hypotheses, T so far; (N, 1, 0) at the start
    finished_scores: Tensor  # (N, K) best first
    finished_log_probs: Tensor  # (N, K)
    finished_tokens: Tensor  # (N, K, T) with eos

    def select(self, rows: Tensor) -> "Beams":
        return Beams(*(field[rows] for field in self))


Length = TypeVar("Length", int, Tensor)


def length_penalty(length: Length, config: SearchConfig) -> Length | float:
    """Returns lp(Y) for |Y| = length: the paper's ((5 + |Y|) / 6)^alpha (Wu et al. 2016), or |Y|^alpha."""
    return ((5 + length) / 6 if config.penalty == "gnmt" else length) ** config.length_penalty


@torch.inference_mode()
def beam_search(
    model: Transformer | Ensemble, src: Tensor, src_mask: Tensor, config: SearchConfig
) -> list[list[Hypothesis]]:
    """Translates src (N, S), whose rows end with eos, under src_mask (N, 1, 1, S).

    Returns the finished hypotheses of every sentence, best first: `beam_size` of them, fewer if fewer exist, of at most
    |X| + `max_extra_tokens` tokens, eos not counted on either side. A sentence's result does not depend on the others
    in the batch. One beam is greedy search. The model must be in evaluation mode.

    Raises DivergedError if the model's output is NaN or infinite.
    """
    limits = [length - 1 + config.max_extra_tokens for length in src_mask.flatten(1).sum(1).tolist()]
    longest = max(limits) + 1
    model = Ensemble.of(model)
    cache = model.init_cache(model.encode(src, src_mask), src_mask, config.beam_size)
    beams = _empty_beams(torch.tensor(limits, device=src.device), config)
    last_tokens = torch.full_like(beams.log_probs, BOS_ID, dtype=torch.long)  # (N, 1), and (N, K) from then on
    finite_steps = torch.zeros((), dtype=torch.long, device=src.device)
    steps_per_check = STEPS_PER_CHECK.get(src.device.type, 4)
    n_best = _n_candidates(config)
    results: list[list[Hypothesis]] = [[] for _ in limits]

    for length in range(1, longest + 1):  # |Y| of what ends in this step
        states = model.step(last_tokens, cache)  # (N, K, D)
        only_eos = length > beams.limit if length > min(limits) else None
        log_probs, from_beam, new_tokens, finite = best_continuations(
            model.project, states, beams.log_probs, n_best, only_eos, model.gives_log_probs
        )
        beams, parents = _extend(beams, log_probs, from_beam, new_tokens, length, config)
        finite_steps += finite & (finite_steps == length - 1)
        if length % steps_per_check == 0 or length == longest:
            if finite_steps < length:
                raise NonFiniteOutputError(f"at step {int(finite_steps) + 1} of the search")
            n_alive = int((~beams.done).sum())
            staying = min(round_up(n_alive), len(beams.done))
            # Copying the caches also takes time, so sentences leave when at least an eighth of them can.
            if 8 * (len(beams.done) - staying) >= len(beams.done):
                order = beams.done.byte().argsort(stable=True)
                _collect(beams.select(order[staying:]), results)
                if not n_alive:
                    break
                remaining = order[:staying]
                beams, parents = beams.select(remaining), parents[remaining]
                cache.select(remaining)
        cache.reorder(parents)
        last_tokens = beams.tokens[:, :, length - 1]

    if not all(results):
        raise NonFiniteOutputError(f"at step {longest} (the end token has no probability) of the search")
    return results


def _n_candidates(config: SearchConfig) -> int:
    """Returns how many continuations of a sentence's hypotheses are considered in a step.

    At most K of the best 2K end, one per parent, so K stay alive. Greedy search considers only the single best token:
    eos in second place must not finish a hypothesis.
    """
    return 2 * config.beam_size if config.beam_size > 1 else 1


def _empty_beams(limit: Tensor, config: SearchConfig) -> Beams:
    """Returns beams of one alive hypothesis per sentence, which is empty, and none finished."""
    unfinished = torch.full((len(limit), config.beam_size), -torch.inf, device=limit.device)
    log_probs = torch.zeros_like(unfinished[:, :1])
    no_tokens = torch.empty((*unfinished.shape, 0), dtype=torch.long, device=limit.device)
    sentence = torch.arange(len(limit), device=limit.device)
    done, n_ended = torch.zeros_like(limit, dtype=torch.bool), torch.zeros_like(limit)
    return Beams(sentence, limit, done, n_ended, log_probs, no_tokens[:, :1], unfinished, unfinished, no_tokens)


def _extend(
    beams: Beams, log_probs: Tensor, from_beam: Tensor, new_tokens: Tensor, length: int, config: SearchConfig
) -> tuple[Beams, Tensor]:
    """Extends every alive hypothesis by one token to |Y| = length.

    log_probs, from_beam and new_tokens (N, 2K) are the best continuations: log P, the hypothesis that each continues,
    and its token. Returns the new beams and the parents (N, K) of the alive hypotheses.
    """
    k = config.beam_size
    ended = new_tokens == EOS_ID
    # A done sentence may stay in the batch for some steps, which must not change its result.
    kept_out = ~ended | beams.done[:, None]
    scores = (log_probs / length_penalty(length, config)).masked_fill(kept_out, -torch.inf)
    # The K finished hypotheses compete with those that end now; tokens of finished ones are padded.
    finished_scores, kept = torch.cat([beams.finished_scores, scores], 1).topk(k)
    newest = torch.cat([torch.full_like(beams.finished_scores, PAD_ID, dtype=torch.long), new_tokens], 1)
    before = torch.cat([torch.arange(k, device=kept.device).expand(len(kept), -1), from_beam + k], 1).gather(1, kept)
    finished_tokens = _take(torch.cat([beams.finished_tokens, beams.tokens], 1), before)

    alive_log_probs, alive = log_probs.masked_fill(ended, -torch.inf).topk(k)
    parents = from_beam.gather(1, alive)
    # log P is negative and only falls, so no alive hypothesis can end with a better score than its present log P under
    # the largest possible penalty: stopping here loses nothing.
    best_possible = alive_log_probs[:, 0] / length_penalty(beams.limit + 1, config)
    n_ended = beams.n_ended + ended[:, :k].sum(1)
    done = beams.done | (finished_scores[:, -1] >= best_possible)
    if config.patience is not None:
        done |= n_ended >= config.patience * k
    extended = beams._replace(
        done=done,
        n_ended=n_ended,
        log_probs=alive_log_probs,
        tokens=torch.cat([_take(beams.tokens, parents), new_tokens.gather(1, alive)[..., None]], 2),
        finished_scores=finished_scores,
        finished_log_probs=torch.cat([beams.finished_log_probs, log_probs], 1).gather(1, kept),
        finished_tokens=torch.cat([finished_tokens, newest.gather(1, kept)[..., None]], 2),
    )
    return extended, parents


def _take(tokens: Tensor, which: Tensor) -> Tensor:
    """Gathers the hypotheses which (N, M) from tokens (N, J, T). Returns (N, M, T)."""
    return tokens.gather(1, which[:, :, None].expand(-1, -1, tokens.size(-1)))


def _collect(beams: Beams, results: list[list[Hypothesis]]) -> None:
    """Stores the finished hypotheses of these beams as the results of their sentences."""
    columns = (beams.sentence, beams.finished_tokens, beams.finished_scores, beams.finished_log_probs)
    for sentence, *finished in zip(*(column.tolist() for column in columns), strict=True):
        results[sentence] = [
            Hypothesis(ids[: ids.index(EOS_ID)], score, log_prob)
            for ids, score, log_prob in zip(*finished, strict=True)
            if score > -torch.inf
        ]
