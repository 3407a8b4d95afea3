"""Processor time of a micro-batch through Trainer and callbacks, against a bare loop over the same
batches.

    python benchmarks/host_time.py [--device cpu] [--steps 60] [--rounds 3]

This is what several GPUs wait for, which compute a micro-batch of 3,125 tokens in less. On a CPU
the model is as deep as base, and so narrow that its products take next to nothing. The bare loop is
forward, loss, backward, optimizer; the whole path is `aiayn.train` between steps that log, validate
or save. Rounds take turns, and the fastest counts, since other programs disturb.
"""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from measure import parse_options, report
from startup import write_text

import aiayn
from aiayn.data.batch import Batch
from aiayn.training.module import TranslationModule

WARM_UP = 10  # micro-batches
SIZES = [
    "model.n_layers=6",
    "model.d_model=16",
    "model.d_ff=16",
    "model.n_heads=2",
    "data.vocab_size=290",
]


class Watch(pl.Callback):
    """Reads the processor's clock before every micro-batch, and keeps the module and its
    batches.
    """

    def __init__(self):
        self.marks: list[float] = []
        self.batches: list[Batch] = []

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: Any, batch: Batch, batch_idx: int
    ) -> None:
        self.module = pl_module
        self.batches.append(batch)
        self.marks.append(time.process_time())


def options(folder: Path, device: str, steps: int, name: str) -> list[str]:
    text = [
        "data=files",
        "data.src_lang=en",
        "data.tgt_lang=de",
        "logger=none",
        f"outputs={folder}",
        f"name={name}",
    ]
    text += [
        f"data.folder={folder}/data",
        *(f"data.{split}={folder}/{split}" for split in ("train", "val")),
    ]
    text += [
        f"trainer.max_steps={steps + WARM_UP + 1}",
        "trainer.log_every=1000",
        "trainer.val_every=1000",
    ]
    text += [
        "trainer.checkpoint_every=1000",
        "data.tokens_per_step=120",
        "trainer.val_bleu_sentences=0",
        *SIZES,
    ]
    hardware = (
        ["trainer.accelerator=cpu", "trainer.precision=32-true"]
        if device == "cpu"
        else ["trainer.accelerator=gpu"]
    )
    return [*text, *hardware, "data.max_length=60", "data.num_workers=1", "data.micro_batches=1"]


def bare(module: TranslationModule, batches: list[Batch]) -> list[float]:
    """Returns when each step began, by the processor's clock; with the precision of the
    training.
    """
    device = batches[0].src.device
    module = module.to(device).train()
    dtype = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}.get(module.trainer.precision)
    adam = torch.optim.Adam(module.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
    marks = []
    for batch in batches:
        marks.append(time.process_time())
        with torch.autocast(device.type, dtype, enabled=dtype is not None):
            loss = module.training_loss(batch) / batch.n_tokens
        adam.zero_grad()
        loss.backward()
        adam.step()
    return marks


def per_step(marks: list[float]) -> float:
    """Returns the median seconds between two marks after the warm-up."""
    return statistics.median(
        b - a for a, b in zip(marks[WARM_UP:], marks[WARM_UP + 1 :], strict=False)
    )


def host_time(device: str = "cpu", steps: int = 60, rounds: int = 3) -> dict[str, float]:
    seconds: dict[str, list[float]] = {"bare": [], "whole": []}
    with tempfile.TemporaryDirectory() as folder:
        write_text(Path(folder), train=2000, val=5)
        for turn in range(rounds):
            watch = Watch()
            aiayn.train(
                aiayn.compose(*options(Path(folder), device, steps, f"run{turn}")),
                callbacks=[watch],
            )
            seconds["whole"].append(per_step(watch.marks))
            seconds["bare"].append(per_step(bare(watch.module, watch.batches)))
    bare_ms, whole_ms = (min(seconds[name]) * 1e3 for name in ("bare", "whole"))
    return {"bare ms": bare_ms, "through Trainer ms": whole_ms, "ratio": whole_ms / bare_ms}


def main(arguments: list[str] | None = None) -> None:
    chosen = parse_options(__doc__, arguments, device="cpu", steps=60, rounds=3, threads=1)
    report("host_time", [host_time(chosen.device, chosen.steps, chosen.rounds)], chosen.out)


if __name__ == "__main__":
    main()
