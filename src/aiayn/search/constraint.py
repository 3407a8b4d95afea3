"""What an extension lets a search continue with: words that must or must not come, lengths, a
grammar.

It acts while a sentence is decoded and on nothing else: the model and its training stay the same.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from aiayn.errors import ConfigError

# Of source ids (N, S), prefixes (N, K, T) without bos, and log-probabilities (N, K, V) of what
# follows; returns these, -inf where it may not follow.
Constraint = Callable[[Tensor, Tensor, Tensor], Tensor]


class Constrained(NamedTuple):
    """A constraint beside the N sentences and K hypotheses that it acts on."""

    constraint: Constraint
    src: Tensor  # (N, S), rows end with eos
    prefixes: Tensor  # (N, K, T)

    def __call__(self, log_probs: Tensor) -> Tensor:
        """log_probs (N, K, V). Raises ConfigError if the constraint returns another shape."""
        allowed = self.constraint(self.src, self.prefixes, log_probs)
        if not isinstance(allowed, Tensor) or allowed.shape != log_probs.shape:
            shape = tuple(allowed.shape) if isinstance(allowed, Tensor) else type(allowed).__name__
            raise ConfigError(
                f"the constraint of an extension returns {shape}; return log-probabilities of the "
                f"shape that it is given, {tuple(log_probs.shape)}"
            )
        return allowed

    def extend(self, parents: Tensor, tokens: Tensor) -> "Constrained":
        """Continues hypothesis parents[n, k] of sentence n with tokens[n, k]; both (N, K)."""
        index = parents[..., None].expand(-1, -1, self.prefixes.size(2))
        prefixes = torch.cat([self.prefixes.gather(1, index), tokens[..., None]], 2)
        return self._replace(prefixes=prefixes)

    def select(self, sentences: Tensor | slice) -> "Constrained":
        return self._replace(src=self.src[sentences], prefixes=self.prefixes[sentences])
