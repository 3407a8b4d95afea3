"""The results of a search and of a translation, and the length penalty of their scores."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aiayn.config.search import SearchConfig


class Hypothesis(NamedTuple):
    """A result of a search: ids without bos and eos, score, and log P, eos included."""

    tokens: list[int]
    score: float
    log_prob: float


def length_penalty(length: Any, config: SearchConfig) -> Any:
    """Returns lp(Y) for |Y| = length: the paper's ((5 + |Y|) / 6)^alpha (Wu et al. 2016), or
    |Y|^alpha.

    length: a number or a tensor, eos included.
    """
    return ((5 + length) / 6 if config.penalty == "gnmt" else length) ** config.length_penalty


@dataclass(frozen=True)
class Translation:
    """One candidate: its text, its length-penalized score, log P of its tokens and eos, and the
    tokens without eos.

    The default is the translation of a blank line.
    """

    text: str = ""
    score: float = 0.0
    log_prob: float = 0.0
    tokens: list[int] = field(default_factory=list)
