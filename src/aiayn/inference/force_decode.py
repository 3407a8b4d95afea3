"""Forced decoding (teacher forcing): the probability that a model gives to translations that already exist."""

import torch
from torch import Tensor

from aiayn.config.schema import PAD_ID
from aiayn.data.batch import shift_right
from aiayn.inference.ensemble import Ensemble, diverged, members
from aiayn.model.transformer import Transformer

LOGITS = 2**22  # computed at a time: those of all positions of a batch can take gigabytes


@torch.inference_mode()
def force_decode(model: Transformer | Ensemble, src: Tensor, src_mask: Tensor, tgt: Tensor) -> Tensor:
    """Returns log P of every target token given the source and the tokens before it, float32 (B, T), 0 at padding.

    src (B, S) and tgt (B, T): rows end with eos, padded on the right. The model must be in evaluation mode.
    Raises DivergedError if the model's output is NaN or infinite.
    """
    log_probs = sum(_log_probs(one, src, src_mask, tgt) for one in members(model)) / len(members(model))
    if not log_probs.isfinite().all():
        raise diverged()
    return log_probs


def _log_probs(model: Transformer, src: Tensor, src_mask: Tensor, tgt: Tensor) -> Tensor:
    states = model.decode(shift_right(tgt), model.encode(src, src_mask), src_mask)
    real = tgt != PAD_ID
    rows = max(1, LOGITS // model.vocab_size)
    found = [
        model.project(x).float().log_softmax(-1).gather(1, token[:, None])[:, 0]
        for x, token in zip(states[real].split(rows), tgt[real].split(rows), strict=True)
    ]
    return torch.zeros(tgt.shape, device=tgt.device).masked_scatter_(real, torch.cat(found))
