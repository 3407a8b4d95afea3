"""The stage of gpu.py that compares single steps and searches with those of the CPU."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from engines import our_engine
from gpu_setup import Row, batches, model_config
from torch import Tensor
from train_step import our_loss

from aiayn.config.model import ModelConfig
from aiayn.data.batch import Batch
from aiayn.model.transformer import Transformer


def correct(options: Any) -> Iterator[Row]:
    """The relative differences of loss and gradients from those of the CPU in float32, and beams that differ."""
    tiny = model_config("base", options) if options.toy else replace(model_config("base", options), n_layers=2)
    variants = {"plain": {}, "window 8": {"attention_window": 8}, "d_k 16": {"d_k": 16}, "d_k 512": {"d_k": 512}}
    short = type(options)(**vars(options) | {"tokens": min(options.tokens, 600)})
    [batch] = batches(short, 1)
    for name, change in variants.items():
        config = replace(tiny, dropout=0.0, **change)
        torch.manual_seed(0)
        expected = Transformer(config, options.vocab)
        truth = _gradients(expected, batch, "cpu", False)
        for bf16 in (False, True):
            found = _gradients(Transformer(config, options.vocab), batch, options.device, bf16, expected.state_dict())
            errors = {key: float((found[key] - truth[key]).norm() / truth[key].norm()) for key in truth}
            limit, loss_error, worst = 0.1 if bf16 else 1e-3, errors.pop("loss"), max(errors, key=errors.get)
            yield {
                "what": f"{name}, {'bfloat16' if bf16 else 'float32'}",
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
