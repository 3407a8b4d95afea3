"""The stages of gpu.py that look for wrong results: single steps against the CPU, and whole trainings."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from engines import our_engine
from gpu_setup import Row, batches, model_config
from startup import write_text
from torch import Tensor
from train_step import our_loss

import aiayn
from aiayn.config.schema import ModelConfig
from aiayn.data.batch import Batch
from aiayn.model.transformer import Transformer
from aiayn.runs import checkpoints
from aiayn.runs.run_folder import RunFolder
from aiayn.training.module import TranslationModule

TRAINING_LOSS = TranslationModule.training_loss
TOY = ["data.src_lang=en", "data.tgt_lang=de", "data.vocab_size=262", "logger=none", "trainer.accelerator=cpu"]
TOY += ["model.n_layers=1", "model.d_model=16", "model.d_ff=16", "model.n_heads=2"]


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


def run(options: Any) -> Iterator[Row]:
    """Whole trainings on the built-in corpus, or for --toy on a few lines."""
    with tempfile.TemporaryDirectory() as folder:
        common = [f"outputs={folder}/outputs", f"data.folder={folder}/data", "trainer.val_bleu_sentences=5"]
        if options.toy:
            write_text(Path(folder), train=60, val=5)
            common += ["data=files", *(f"data.{split}={folder}/{split}" for split in ("train", "val")), *TOY]
        else:
            common += ["experiment=quickstart"]
        short = [*common, "trainer.max_steps=6", "trainer.checkpoint_every=3", "trainer.log_every=1"]

        with mock.patch.object(TranslationModule, "training_loss", _nan_in_its_fourth_step):
            poisoned = aiayn.train(aiayn.compose(*short, "name=nan", "trainer.max_skipped_steps=1"))
        skipped = max(record.get("train/skipped_steps", 0) for record in RunFolder(poisoned).read_metrics())
        finite = all(value.isfinite().all() for value in checkpoints.load(RunFolder(poisoned).last).weights.values())
        yield {"what": "a step of NaN", "skipped": skipped, "good": skipped == 1 and finite}

        whole = aiayn.train(aiayn.compose(*short, "name=whole"))
        aiayn.train(aiayn.compose(*short, "name=parts", "trainer.max_steps=3"))
        parts = aiayn.train(aiayn.compose(*short, "name=parts"))
        a, b = (checkpoints.load(checkpoints.step_path(each / "checkpoints", 6)).weights for each in (whole, parts))
        off = max(float((a[name] - b[name]).abs().max()) for name in a)
        yield {"what": "stopped after 3 of 6 steps and continued", "weights off by": off, "good": off < 1e-4}

        steps = 6 if options.toy else 150
        trained = aiayn.train(aiayn.compose(*common, f"trainer.max_steps={steps}", "name=quickstart"))
        metrics = aiayn.evaluate(f"run={trained}", "split=val")["metrics"]
        [text] = aiayn.load(trained).translate(["The small dog sleeps in the garden."])
        loss = [record["train/loss"] for record in RunFolder(trained).read_metrics() if "train/loss" in record]
        scores = {"first loss": loss[0], "last loss": loss[-1], "sacrebleu": metrics["sacrebleu"], "says": text}
        yield {"what": f"quickstart, {steps} steps", **scores, "good": options.toy or loss[-1] < loss[0] - 2}


def _nan_in_its_fourth_step(module: TranslationModule, batch: Batch) -> Tensor:
    module.steps = getattr(module, "steps", 0) + 1
    return TRAINING_LOSS(module, batch) * (torch.nan if module.steps == 4 else 1)
