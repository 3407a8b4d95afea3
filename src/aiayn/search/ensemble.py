"""Several models as one: the mean of their log-probabilities, token by token."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, cast

import torch
from torch import Tensor, nn

from aiayn.errors import RefusedError
from aiayn.model.cache import DecoderCache
from aiayn.model.transformer import Transformer
from aiayn.runs.checkpoints import Checkpoint


class Ensemble(nn.Module):
    """Implements what a search needs of a `Transformer` for several models.

    The mean of their log-probabilities is that of a geometric mean of probabilities, so these sum
    to less than 1: the log P of an output is the mean of the models' own.
    """

    gives_log_probs = True  # `project`, not logits

    def __init__(self, models: Sequence[Transformer]):
        super().__init__()
        self.models = cast(Sequence[Transformer], nn.ModuleList(models))
        self.training = models[0].training

    def encode(self, src: Tensor, src_mask: Tensor) -> Any:
        """Encodes src (B, S). Returns the memory (B, S, D) of every model."""
        return [model.encode(src, src_mask) for model in self.models]

    def init_cache(self, memory: Any, src_mask: Tensor, beam_size: int) -> Any:
        """Returns an empty cache for `step`, as `Transformer.init_cache` does."""
        pairs = zip(self.models, memory, strict=True)
        return EnsembleCache(
            [model.init_cache(memory, src_mask, beam_size) for model, memory in pairs]
        )

    def step(self, tokens: Tensor, cache: Any) -> Tensor:
        """Decodes one more position; tokens (N, K). Returns the states of all models side by side,
        (N, K, M * D).
        """
        states = [
            model.step(tokens, part) for model, part in zip(self.models, cache.caches, strict=True)
        ]
        return torch.cat(states, -1)

    def project(self, states: Tensor) -> Tensor:
        """Projects states (..., M * D) of `step` to mean log-probabilities (..., V), float32."""
        parts = states.split([model.config.d_model for model in self.models], -1)
        pairs = zip(self.models, parts, strict=True)
        return reduce(
            torch.add, (model.project(part).float().log_softmax(-1) for model, part in pairs)
        ) / len(parts)


@dataclass
class EnsembleCache:
    """The models' caches, reordered and selected together."""

    caches: list[DecoderCache]

    def reorder(self, parents: Tensor) -> None:
        for cache in self.caches:
            cache.reorder(parents)

    def select(self, sentences: Tensor) -> None:
        for cache in self.caches:
            cache.select(sentences)


def refuse_different(first: Checkpoint, other: Checkpoint) -> None:
    """Raises RefusedError unless both models translate between the same languages, in the same
    subwords.
    """
    first_pair, other_pair = (
        f"{member.config.data.src_lang}-{member.config.data.tgt_lang}" for member in (first, other)
    )
    if first_pair != other_pair:
        raise RefusedError(
            f"{other.config.name} translates {other_pair}, but {first.config.name} translates "
            f"{first_pair}; an ensemble needs runs with the same languages"
        )
    if first.tokenizer != other.tokenizer:
        raise RefusedError(
            f"{other.config.name} and {first.config.name} have different vocabularies; an ensemble "
            "needs runs with the same prepared corpus"
        )
