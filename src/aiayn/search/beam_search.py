"""Beam search (section 6.1): the translations with the highest scores, for a batch of sentences.

The score of a hypothesis Y for a source X is log P(Y|X) / lp(Y). The length penalty lp grows with
the length |Y|, eos included, which makes up for the bias of log P towards short outputs.

Each sentence keeps two lists of `beam_size` hypotheses: alive ones, ordered by log P, and finished
ones, ordered by score. Their tokens are not copied: every step records which hypothesis each alive
one continues. Both lists are tensors over N sentences and K beams.

A sentence is done when no alive hypothesis can overtake its worst finished one; this is exact. With
`patience` p, it is also done once p * K hypotheses have ended among the best K continuations of
their steps (Kasai et al. 2022; most toolkits use p = 1).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from aiayn.config.search import SearchConfig
from aiayn.errors import ConfigError, NonFiniteOutputError
from aiayn.search.translations import Hypothesis, length_penalty
from aiayn.token_ids import BOS_ID, EOS_ID, PAD_ID

if TYPE_CHECKING:
    from aiayn.model.transformer import Transformer
    from aiayn.search.ensemble import Ensemble

# A check whether sentences are done waits for the GPU, so it is not made at every step there. A
# late check changes no result: a done sentence stays done.
STEPS_PER_CHECK = {"cpu": 1}
ROWS = 512  # hypotheses whose logits are in memory at once, 76 MB with 37,000 subwords

# An extension's limit on the output of a search: required or forbidden words, lengths, a grammar.
# Takes source ids (N, S), prefixes (N, K, T) without bos, and log-probabilities (N, K, V) of the
# next token; returns these, -inf for forbidden tokens.
Constraint = Callable[[Tensor, Tensor, Tensor], Tensor]


class Constrained(NamedTuple):
    """A constraint with the N sentences and K hypotheses that it acts on."""

    constraint: Constraint
    src: Tensor  # (N, S), rows end with eos
    prefixes: Tensor  # (N, K, T)

    def __call__(self, log_probs: Tensor) -> Tensor:
        """Applies the constraint to log_probs (N, K, V). Raises ConfigError if it returns another
        shape.
        """
        allowed = self.constraint(self.src, self.prefixes, log_probs)
        if not isinstance(allowed, Tensor) or allowed.shape != log_probs.shape:
            shape = tuple(allowed.shape) if isinstance(allowed, Tensor) else type(allowed).__name__
            raise ConfigError(
                f"the constraint of an extension returns {shape}; return log-probabilities "
                f"{tuple(log_probs.shape)}"
            )
        return allowed

    def extend(self, parents: Tensor, tokens: Tensor) -> "Constrained":
        """Continues hypothesis parents[n, k] of sentence n with tokens[n, k]; both (N, K)."""
        index = parents[..., None].expand(-1, -1, self.prefixes.size(2))
        prefixes = torch.cat([self.prefixes.gather(1, index), tokens[..., None]], 2)
        return self._replace(prefixes=prefixes)

    def select(self, sentences: Tensor | slice) -> "Constrained":
        return self._replace(src=self.src[sentences], prefixes=self.prefixes[sentences])


def log_probs_of(model: "Transformer | Ensemble", projected: Tensor) -> Tensor:
    """Returns log-probabilities (..., V) for the output of `project`: logits, or an ensemble's
    log-probabilities.
    """
    return projected if getattr(model, "gives_log_probs", False) else projected.log_softmax(-1)


class Beams(NamedTuple):
    """State of the search, one row per sentence that is not done; -inf marks an empty place."""

    sentence: Tensor  # (N,) its row in the input
    limit: Tensor  # (N,) most tokens before eos
    largest_penalty: Tensor  # (N,) penalty of an output of `limit` tokens and eos
    done: Tensor  # (N,) bool
    n_ended: Tensor  # (N,) hypotheses that ended among the best K of their step
    # (N, K) of the alive hypotheses, best first; (N, 1) at the start; -inf once done
    log_probs: Tensor
    tokens: Tensor  # (N, K, L) of the alive hypotheses of every step, of at most L
    parents: Tensor  # (N, K, L) the hypothesis of the previous step that each continues
    finished_scores: Tensor  # (N, K) best first
    finished_log_probs: Tensor  # (N, K)
    finished_from: Tensor  # (N, K) steps before eos * K + the alive hypothesis that ended

    def select(self, rows: Tensor) -> "Beams":
        return Beams(*(field[rows] for field in self))


@torch.inference_mode()
def beam_search(
    model: "Transformer | Ensemble",
    src: Tensor,
    src_mask: Tensor,
    config: SearchConfig,
    constraint: Constraint | None = None,
) -> list[list[Hypothesis]]:
    """Translates src (N, S), whose rows end with eos, under src_mask (N, 1, 1, S).

    Returns the finished hypotheses of every sentence, best first: `beam_size` of them, fewer if
    fewer exist, of at most |X| + `max_extra_tokens` tokens, eos not counted on either side. A
    sentence's result does not depend on the others in the batch. One beam is greedy search. The
    model must be in evaluation mode.

    Raises DivergedError if the model's output is NaN or infinite, ConfigError if a constraint
    leaves a sentence without a translation.
    """
    limits = length_limits(src_mask, config)
    longest = max(limits) + 1
    cache = model.init_cache(model.encode(src, src_mask), src_mask, config.beam_size)
    beams = _empty_beams(torch.tensor(limits, device=src.device), longest, config)
    # (N, 1) at the first step, then (N, K)
    last_tokens = torch.full_like(beams.log_probs, BOS_ID, dtype=torch.long)
    constrained = None
    if constraint is not None:
        constrained = Constrained(constraint, src, last_tokens.new_empty(len(limits), 1, 0))
    steps_per_check = STEPS_PER_CHECK.get(src.device.type, 4)
    # At most K of the best 2K continuations end, one per parent, so K stay alive. Greedy search
    # considers only the single best: eos in second place must not finish a hypothesis.
    n_best = 2 * config.beam_size if config.beam_size > 1 else 1
    hypotheses: list[list[Hypothesis]] = [[] for _ in limits]
    total = torch.zeros((), device=src.device)  # sum of log P over all steps: NaN once one is

    for length in range(1, longest + 1):  # |Y| of hypotheses that end in this step
        states = model.step(last_tokens, cache)  # (N, K, D)
        only_eos = length > beams.limit if length > min(limits) else None
        log_probs, from_beam, new_tokens = best_continuations(
            model, states, beams.log_probs, n_best, only_eos, constrained
        )
        beams, parents = _extend(beams, log_probs, from_beam, new_tokens, length, config)
        total = total + log_probs.sum()
        if length % steps_per_check == 0 or length == longest:
            if total.isnan():
                if constraint is None:
                    raise NonFiniteOutputError(f"by step {length} of the search")
                raise ConfigError(
                    f"log-probabilities are NaN by step {length} of the search; check the "
                    "constraint of the extension, and the model without it"
                )
            n_alive = len(beams.done) - int(beams.done.sum())
            # Copying the caches takes time, so done sentences leave only if they are at least an
            # eighth.
            if 8 * (len(beams.done) - n_alive) >= len(beams.done):
                order = beams.done.byte().argsort(stable=True)
                _collect(beams.select(order[n_alive:]), hypotheses)
                if not n_alive:
                    break
                remaining = order[:n_alive]
                beams, parents = beams.select(remaining), parents[remaining]
                cache.select(remaining)
                constrained = constrained and constrained.select(remaining)
        cache.reorder(parents)
        last_tokens = beams.tokens[:, :, length - 1]
        constrained = constrained and constrained.extend(parents, last_tokens)

    if all(hypotheses):
        return hypotheses
    if constraint is not None:
        raise ConfigError(
            "the constraint of an extension allows a sentence no translation up to "
            f"{config.max_extra_tokens} subwords longer than it; raise search.max_extra_tokens"
        )
    raise NonFiniteOutputError(
        f"at step {longest} of the search (the end token has no probability)"
    )


def best_continuations(
    model: "Transformer | Ensemble",
    states: Tensor,
    log_probs: Tensor,
    n_best: int,
    only_eos: Tensor | None,
    constrained: Constrained | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Extends N sentences' K hypotheses by one token each, and returns the best of all K * V
    continuations.

    states (N, K, D), log_probs (N, K) of the hypotheses. Padding and bos are not continuations;
    where only_eos (N,), eos is the only one. Returns log P, hypothesis and token of each
    continuation, (N, n_best), best first; NaN comes before all others, and -inf fills missing
    places.
    """
    at_once = max(1, ROWS // log_probs.size(1))
    parts = []
    for start in range(0, len(states), at_once):
        some = slice(start, start + at_once)
        # Normalised before tokens are excluded, which must not change the others' probabilities.
        scores = log_probs_of(model, model.project(states[some]).float())
        if constrained is not None:
            scores = constrained.select(some)(scores)
        vocab_size = scores.size(-1)
        scores[..., PAD_ID : BOS_ID + 1] = -torch.inf
        if only_eos is not None:
            eos = scores[..., EOS_ID].clone()
            scores.masked_fill_(only_eos[some, None, None], -torch.inf)[..., EOS_ID] = eos
        sums = (scores + log_probs[some, :, None]).flatten(1)
        best, continuations = sums.topk(min(n_best, sums.size(1)))
        missing = (0, n_best - best.size(1))
        best, continuations = F.pad(best, missing, value=-torch.inf), F.pad(continuations, missing)
        parts.append((best, continuations // vocab_size, continuations % vocab_size))
    best, parents, tokens = (torch.cat(column) for column in zip(*parts, strict=True))
    return best, parents, tokens


def length_limits(src_mask: Tensor, config: SearchConfig) -> list[int]:
    """Returns the most tokens, eos not counted, of a translation of each sentence."""
    lengths = src_mask.flatten(1).sum(1).tolist()
    return [length - 1 + config.max_extra_tokens for length in lengths]


def _empty_beams(limit: Tensor, longest: int, config: SearchConfig) -> Beams:
    """Returns beams for `longest` steps, with one alive, empty hypothesis per sentence and none
    finished.
    """
    unfinished = torch.full((len(limit), config.beam_size), -torch.inf, device=limit.device)
    steps = limit.new_zeros(*unfinished.shape, longest)
    return Beams(
        sentence=torch.arange(len(limit), device=limit.device),
        limit=limit,
        largest_penalty=torch.as_tensor(length_penalty(limit + 1, config)),
        done=torch.zeros_like(limit, dtype=torch.bool),
        n_ended=torch.zeros_like(limit),
        log_probs=torch.zeros_like(unfinished[:, :1]),
        tokens=steps,
        parents=torch.zeros_like(steps),
        finished_scores=unfinished,
        finished_log_probs=unfinished,
        finished_from=steps[:, :, 0],
    )


def _extend(
    beams: Beams,
    log_probs: Tensor,
    from_beam: Tensor,
    new_tokens: Tensor,
    length: int,
    config: SearchConfig,
) -> tuple[Beams, Tensor]:
    """Extends every alive hypothesis by one token to |Y| = length.

    log_probs, from_beam and new_tokens (N, 2K) are the best continuations: log P, the hypothesis
    that each continues, and its token. Returns the new beams and the parents (N, K) of the alive
    hypotheses.
    """
    k = config.beam_size
    ended = new_tokens == EOS_ID
    scores = torch.where(ended, log_probs / length_penalty(length, config), -torch.inf)
    # The K finished hypotheses compete with those that end now.
    finished_scores, kept = torch.cat([beams.finished_scores, scores], 1).topk(k)
    ends_from = from_beam + (length - 1) * k
    finished_from = torch.cat([beams.finished_from, ends_from], 1).gather(1, kept)

    alive_log_probs, alive = log_probs.masked_fill(ended, -torch.inf).topk(k)
    parents = from_beam.gather(1, alive)
    beams.tokens[:, :, length - 1] = new_tokens.gather(1, alive)
    beams.parents[:, :, length - 1] = parents
    # log P is negative and only falls, so no alive hypothesis can end with a better score than its
    # present log P under the largest possible penalty: stopping here loses nothing.
    done = finished_scores[:, -1] >= alive_log_probs[:, 0] / beams.largest_penalty
    n_ended = beams.n_ended
    if config.patience is not None:
        n_ended = n_ended + ended[:, :k].sum(1)
        done |= n_ended >= config.patience * k
    extended = beams._replace(
        done=done,
        n_ended=n_ended,
        # A done sentence may stay in the batch for some steps: without alive hypotheses its result
        # does not change.
        log_probs=alive_log_probs.masked_fill_(done[:, None], -torch.inf),
        finished_scores=finished_scores,
        finished_log_probs=torch.cat([beams.finished_log_probs, log_probs], 1).gather(1, kept),
        finished_from=finished_from,
    )
    return extended, parents


def _collect(beams: Beams, hypotheses: list[list[Hypothesis]]) -> None:
    """Stores the finished hypotheses of these beams as the results of their sentences."""
    steps = int(beams.finished_from.max()) // beams.tokens.size(1)  # before the longest ended
    columns = (
        beams.sentence,
        beams.tokens[..., :steps],
        beams.parents[..., :steps],
        beams.finished_from,
        beams.finished_scores,
        beams.finished_log_probs,
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for sentence, tokens, parents, *finished in rows:
        hypotheses[sentence] = [
            Hypothesis(_tokens_of(tokens, parents, *divmod(start, len(tokens))), score, log_prob)
            for start, score, log_prob in zip(*finished, strict=True)
            if score > -torch.inf
        ]


def _tokens_of(
    tokens: list[list[int]], parents: list[list[int]], length: int, beam: int
) -> list[int]:
    """Returns the tokens of the hypothesis `beam` among those alive after `length` steps; both
    lists are (K, L).
    """
    reversed_tokens = []
    for step in reversed(range(length)):
        reversed_tokens.append(tokens[beam][step])
        beam = parents[beam][step]
    return reversed_tokens[::-1]
