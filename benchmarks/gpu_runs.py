"""The stages of gpu.py that train as users do: whether it works, and how fast steps are."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from data_pipeline import write_corpus
from gpu_setup import Row
from startup import write_text
from torch import Tensor

import aiayn
from aiayn.data.batch import Batch
from aiayn.runs import checkpoint_folder, checkpoints
from aiayn.runs.run_folder import RunFolder
from aiayn.training.module import TranslationModule

TRAINING_LOSS = TranslationModule.training_loss
KINDS = {"plain": "trainer.compile=false", "compiled": "trainer.compile=true"}
TOY = ["data.src_lang=en", "data.tgt_lang=de", "data.vocab_size=262", "logger=none", "trainer.accelerator=cpu"]
TOY += ["model.n_layers=1", "model.d_model=16", "model.d_ff=16", "model.n_heads=2"]


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
        a, b = (
            checkpoints.load(checkpoint_folder.step_path(each / "checkpoints", 6)).weights for each in (whole, parts)
        )
        off = max(float((a[name] - b[name]).abs().max()) for name in a)
        yield {"what": "stopped after 3 of 6 steps and continued", "weights off by": off, "good": off < 1e-4}

        others = {"compiled": "trainer.compile=true", "window": "model.attention_window=8"}
        for name, option in others.items():
            other = aiayn.train(aiayn.compose(*short, f"name={name}", option))
            losses = [r["train/loss"] for r in RunFolder(other).read_metrics() if "train/loss" in r]
            yield {"what": f"{option}, {len(losses)} steps", "last loss": losses[-1], "good": losses[-1] < losses[0]}

        steps = 6 if options.toy else 150
        trained = aiayn.train(aiayn.compose(*common, f"trainer.max_steps={steps}", "name=quickstart"))
        metrics = aiayn.evaluate(f"run={trained}", "split=val")["metrics"]
        [text] = aiayn.load(trained).translate(["The small dog sleeps in the garden."])
        loss = [record["train/loss"] for record in RunFolder(trained).read_metrics() if "train/loss" in record]
        [rounded] = aiayn.load(trained, precision="bfloat16").translate(["The small dog sleeps in the garden."])
        scores = {
            "first loss": loss[0],
            "last loss": loss[-1],
            "sacrebleu": metrics["sacrebleu"],
            "says": text,
            "in bfloat16": rounded,
        }
        yield {"what": f"quickstart, {steps} steps", **scores, "good": options.toy or loss[-1] < loss[0] - 2}


def _nan_in_its_fourth_step(module: TranslationModule, batch: Batch) -> Tensor:
    module.steps = getattr(module, "steps", 0) + 1
    return TRAINING_LOSS(module, batch) * (torch.nan if module.steps == 4 else 1)


def train(options: Any) -> Iterator[Row]:
    """Steps of the paper's size on generated text of WMT14's lengths, as the run itself measures them at its end."""
    with tempfile.TemporaryDirectory() as folder:
        common = [f"outputs={folder}/outputs", f"data.folder={folder}/data", "data=files", "logger=none"]
        common += [*(f"data.{split}={folder}/{split}" for split in ("train", "val")), "trainer.val_bleu_sentences=0"]
        if options.toy:
            write_text(Path(folder), train=60, val=5)
            common += [*TOY, "trainer.max_steps=6", "trainer.log_every=3"]
        else:
            write_corpus(Path(folder, "train"), 100_000, seed=0)
            write_corpus(Path(folder, "val"), 500, seed=1)
            common += ["data.src_lang=en", "data.tgt_lang=de", f"data.vocab_size={options.vocab}", "optim=adam"]
            common += ["trainer=default", f"data.tokens_per_step={options.tokens}", "data.max_length=255"]
            common += ["trainer.max_steps=200", "trainer.log_every=100"]
        for name in options.models:
            for kind, chosen in KINDS.items():
                model = [] if options.toy else [f"model={name}"]
                run = [*common, *model, f"name={name}_{kind}", chosen]
                trained = RunFolder(aiayn.train(aiayn.compose(*run)))
                last = [record for record in trained.read_metrics() if "perf/tokens_per_sec" in record][-1]
                speeds = {name: last[name] for name in last if name.startswith("perf/")}
                yield {"training": name, "with": kind, "loss": last["train/loss"], **speeds}
