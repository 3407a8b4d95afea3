"""Forced decoding (teacher forcing): the probability that a model gives to translations that
already exist.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from aiayn.data.batch import shift_right
from aiayn.errors import NonFiniteOutputError
from aiayn.model.transformer import Transformer
from aiayn.token_ids import PAD_ID

LOGITS = 2**22  # computed at a time: those of all positions of a batch can take gigabytes


@dataclass(frozen=True)
class ScoredPair:
    """A given translation: its tokens with eos, log P of each of them, their sum, and the
    length-penalized score.

    By default that of a blank line.
    """

    tokens: list[int] = field(default_factory=list)
    token_log_probs: list[float] = field(default_factory=list)
    log_prob: float = 0.0
    score: float = 0.0
    n_likeliest: int = 0  # how many of the tokens are the model's most probable ones


@torch.inference_mode()
def force_decode(
    models: Sequence[Transformer], src: Tensor, src_mask: Tensor, tgt: Tensor
) -> tuple[Tensor, Tensor]:
    """Decodes given targets with a model, or with several by the mean of their log-probabilities.

    src (B, S) and tgt (B, T): rows end with eos, padded on the right. The models must be in
    evaluation mode. Returns of every target token, (B, T), log P given source and prefix, and
    whether it is the argmax; 0 and False at padding. Raises DivergedError if the model's output is
    NaN or infinite.
    """
    real = tgt != PAD_ID
    states = [
        model.decode(shift_right(tgt), model.encode(src, src_mask), src_mask)[real]
        for model in models
    ]
    rows = max(1, LOGITS // models[0].vocab_size)
    log_probs, is_likeliest = [], []
    for tokens, *parts in zip(
        tgt[real].split(rows), *(state.split(rows) for state in states), strict=True
    ):
        of_models = [
            model.project(x).float().log_softmax(-1) for model, x in zip(models, parts, strict=True)
        ]
        scores = torch.stack(of_models).mean(0)  # (rows, V): over an ensemble
        log_probs.append(scores.gather(1, tokens[:, None])[:, 0])
        is_likeliest.append(scores.argmax(1) == tokens)
    target_log_probs, likeliest = torch.zeros(tgt.shape, device=tgt.device), torch.zeros_like(real)
    target_log_probs[real], likeliest[real] = torch.cat(log_probs), torch.cat(is_likeliest)
    if not target_log_probs.isfinite().all():
        raise NonFiniteOutputError()
    return target_log_probs, likeliest


def accuracy(pairs: list[ScoredPair]) -> float:
    """Returns the share of target tokens, eos included, that are the model's first choice. NaN
    without any token.
    """
    tokens = sum(len(pair.tokens) for pair in pairs)
    return sum(pair.n_likeliest for pair in pairs) / tokens if tokens else math.nan


def perplexity(log_prob: float, tokens: int) -> float:
    """Returns the perplexity per target token, eos included, as `val/ppl` is. NaN without any
    token.
    """
    return math.exp(min(-log_prob / tokens, 700)) if tokens else math.nan
