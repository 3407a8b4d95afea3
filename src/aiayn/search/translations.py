"""Results of translating and scoring, line by line."""

import math
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Translation:
    """One candidate: its text, its length-penalized score, log P of its tokens and eos, and the tokens without eos.

    By default that of a blank line.
    """

    text: str = ""
    score: float = 0.0
    log_prob: float = 0.0
    tokens: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class ScoredPair:
    """A given translation: its tokens with eos, log P of each of them, their sum, and the length-penalized score.

    By default that of a blank line.
    """

    tokens: list[int] = field(default_factory=list)
    token_log_probs: list[float] = field(default_factory=list)
    log_prob: float = 0.0
    score: float = 0.0
    n_likeliest: int = 0  # how many of the tokens are the model's most probable ones


def accuracy(pairs: list[ScoredPair]) -> float:
    """Returns the share of target tokens, eos included, that are the model's first choice. NaN without any token."""
    tokens = sum(len(pair.tokens) for pair in pairs)
    return sum(pair.n_likeliest for pair in pairs) / tokens if tokens else math.nan


def perplexity(pairs: list[ScoredPair]) -> float:
    """Returns the perplexity per target token, eos included, as `val/ppl` is. NaN without any token."""
    tokens = sum(len(pair.tokens) for pair in pairs)
    nll = -math.fsum(pair.log_prob for pair in pairs)
    return math.exp(min(nll / tokens, 700)) if tokens else math.nan
