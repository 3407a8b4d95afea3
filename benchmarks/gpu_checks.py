"""The stage of gpu.py that compares single steps and searches with those of the CPU."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from engines import our_engine
from gpu_setup import Row, batches, model_config
from torch import Tensor
from train_step import our_loss

from aiayn.config.model import ModelConfig
from aiayn.data.batch import Batch
from aiayn.model.transformer import Transformer
from aiayn.token_ids import PAD_ID


def correct(options: Any) -> Iterator[Row]:
    """The relative differences of loss and gradients from those of the CPU in float32, and beams that differ."""
    tiny = model_config("base", options) if options.toy else replace(model_config("base", options), n_layers=2)
    variants = {"plain": {}, "window 8": {"attention_window": 8}, "d_k 16": {"d_k": 16}, "d_k 512": {"d_k": 512}}
    short = type(options)(**vars(options) | {"tokens": min(options.tokens, 600)})
    [batch] = batches(short, 1)
    batch = _uneven(batch)
    for name, change in variants.items():
        config = replace(tiny, dropout=0.0, **change)
        torch.manual_seed(0)
        expected = Transformer(config, options.vocab)
        truth = _gradients(expected, batch, "cpu", False)
        for kind, bf16 in (("float32", False), ("bfloat16", True)):
            model = Transformer(config, options.vocab)
            found = _gradients(model, batch, options.device, bf16, expected.state_dict())
            errors = {key: float((found[key] - truth[key]).norm() / truth[key].norm()) for key in truth}
            limit, loss_error, worst = 0.1 if bf16 else 1e-3, errors.pop("loss"), max(errors, key=errors.get)
            yield {
                "what": f"{name}, {kind}",
                "loss off by": loss_error,
                "worst gradient off by": errors[worst],
                "of": worst,
                "good": max(loss_error, errors[worst]) < limit,
            }
    yield _beams(replace(tiny, dropout=0.0), options)


def _beams(config: ModelConfig, options: Any) -> Row:
    torch.manual_seed(0)
    model = Transformer(config, options.vocab)
    text = [torch.randint(4, options.vocab, (length,)).tolist() for length in range(3, 19)]
    cpu, other = (our_engine(model, device)(text, 4, 0.6, 0, 30) for device in ("cpu", options.device))
    differing = sum(a != b for a, b in zip(cpu, other, strict=True))
    return {"what": f"{len(text)} beam searches, float32", "different outputs": differing, "good": differing <= 1}


def _uneven(batch: Batch) -> Batch:
    """The same sentences, the later ones cut shorter, so that there is padding."""
    ids = {"src": batch.src.clone(), "tgt_out": batch.tgt_out.clone()}
    counts = []
    for each, lengths in zip(ids.values(), batch.lengths, strict=True):
        counts.append(np.maximum(1, lengths - np.arange(len(lengths)) % 5))
        for row, length in zip(each, counts[-1], strict=True):
            row[length:] = PAD_ID
    return replace(batch, **ids, lengths=tuple(counts), step_tokens=int(counts[1].sum()))


def _gradients(
    model: Transformer, batch: Batch, device: str, bf16: bool, weights: dict[str, Tensor] | None = None
) -> dict[str, Tensor]:
    if weights:
        model.load_state_dict(weights)
    model.to(device).train()
    with torch.autocast(device, torch.bfloat16, enabled=bf16):
        loss = our_loss(model)(batch.to(torch.device(device))) / batch.n_tokens
    loss.backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters()}
    return {key: value.detach().float().cpu() for key, value in {"loss": loss, **gradients}.items()}
