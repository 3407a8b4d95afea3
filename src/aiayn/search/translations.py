"""Results of searching and translating, line by line, and how an output is scored."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aiayn.config.search import SearchConfig


class Hypothesis(NamedTuple):
    """What a search found: ids without bos and eos, score, and log P, which includes that of
    eos.
    """

    tokens: list[int]
    score: float
    log_prob: float


def length_penalty(length: Any, config: SearchConfig) -> Any:
    """Returns lp(Y) for |Y| = length: the paper's ((5 + |Y|) / 6)^alpha (Wu et al. 2016), or
    |Y|^alpha.

    Lengths count eos; a number, or a tensor of numbers.
    """
    return ((5 + length) / 6 if config.penalty == "gnmt" else length) ** config.length_penalty


@dataclass(frozen=True)
class Translation:
    """One candidate: its text, its length-penalized score, log P of its tokens and eos, and the
    tokens without eos.

    By default that of a blank line.
    """

    text: str = ""
    score: float = 0.0
    log_prob: float = 0.0
    tokens: list[int] = field(default_factory=list)
