"""Results of searching, translating and scoring, line by line, and how an output is scored."""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aiayn.config.search import SearchConfig


class Hypothesis(NamedTuple):
    """What a search found: ids without bos and eos, score, and log P, which includes that of eos."""

    tokens: list[int]
    score: float
    log_prob: float


def length_penalty(length: Any, config: SearchConfig) -> Any:
    """Returns lp(Y) for |Y| = length: the paper's ((5 + |Y|) / 6)^alpha (Wu et al. 2016), or |Y|^alpha.

    Lengths count eos; a number, or a tensor of numbers.
    """
    return ((5 + length) / 6 if config.penalty == "gnmt" else length) ** config.length_penalty


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
