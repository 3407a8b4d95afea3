"""How time and memory of a training step grow with tokens per step, sentence length, vocabulary and
depth.

    python benchmarks/scaling.py [--d-model 256] [--rounds 3] [--threads 1] [--float32] [--only-processes] [--out DIR]

One size grows while the others stay at 2,048 target tokens, sentences of 32, 8,000 vocabulary
entries and 2 layers. Every point is measured in its own process, and memory is what it takes beyond
the libraries; dashed lines are proportional growth. At the end `train.py` trains on the phrasebook
with one and with two processes, in turn.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import Worker, draw, interleaved, parse_options, report, spread
from train_step import implementation

import aiayn
from aiayn.config.model import ModelConfig
from aiayn.config.resolve import run_config
from aiayn.data.batch import Batch, shift_right
from aiayn.runs.run_folder import read_jsonl
from aiayn.token_ids import EOS_ID

ROOT = Path(__file__).parent.parent
USUAL = {"tokens": 2048, "length": 32, "vocabulary": 8000, "layers": 2}
SIZES = {
    "tokens": (512, 1024, 2048, 4096, 8192),
    "length": (8, 16, 32, 64, 128, 256),
    "vocabulary": (2000, 8000, 16000, 32000),
    "layers": (1, 2, 4, 8),
}


def step(
    config: ModelConfig, tokens: int, length: int, vocabulary: int, layers: int, bf16: bool
) -> Callable[[], None]:
    """Returns our training step on random sentences of one length on both sides."""
    ids = torch.randint(4, vocabulary, (2, tokens // length, length))
    ids[..., -1] = EOS_ID
    src, tgt = ids
    every = np.full(len(tgt), length)
    batch = Batch(0, src, shift_right(tgt), tgt, (every, every), tgt.numel())
    return implementation(
        "aiayn", replace(config, n_layers=layers), vocabulary, [[batch]], "cpu", bf16
    )


def measured(
    config: ModelConfig, sizes: dict[str, int], rounds: int, bf16: bool
) -> dict[str, float]:
    """Returns the seconds of a step, low and high, and the MB that it takes."""
    worker = Worker(step, config, *sizes.values(), bf16)
    seconds = spread(interleaved({"step": worker}, rounds)["step"])
    worker.close()
    return {"seconds": seconds.pop("median"), **seconds, "MB": worker.peak_mb}


def training_speed(processes: int, name: str, folder: str) -> float:
    """Returns the target tokens per second of `train.py` with so many processes of one thread."""
    command = [
        sys.executable,
        str(ROOT / "train.py"),
        "data=phrasebook",
        "model=tiny",
        f"name={name}",
        "logger=none",
    ]
    command += [
        "data.vocab_size=2000",
        "data.tokens_per_step=8192",
        "data.micro_batches=2",
        "trainer.max_steps=25",
    ]
    command += [
        "trainer.val_every=25",
        "trainer.val_bleu_sentences=0",
        "trainer.checkpoint_every=25",
    ]
    command += ["trainer.average_last=1", "trainer.log_every=5", f"trainer.devices={processes}"]
    command += ["trainer.accelerator=cpu", f"data.folder={folder}/data"]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=folder, check=True, env=one_thread, stderr=subprocess.DEVNULL)
    records = read_jsonl(Path(folder, "outputs", name, "metrics.jsonl"))
    rates = [record["perf/tokens_per_sec"] for record in records if "perf/tokens_per_sec" in record]
    return statistics.median(rates[2:])


def processes_in_turn(rounds: int) -> list[dict[str, float]]:
    """Returns the speeds of one and of two processes, and how many times as fast as one, over
    several rounds.
    """
    speeds: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(rounds):
            for processes, of_rounds in speeds.items():
                of_rounds.append(training_speed(processes, f"processes_{processes}_{turn}", folder))
    of_one = statistics.median(speeds[1])
    return [
        {
            "processes": processes,
            **spread(of_rounds),
            "times_one": statistics.median(of_rounds) / of_one,
        }
        for processes, of_rounds in speeds.items()
    ]


def measure_sizes(options: argparse.Namespace) -> None:
    """Reports and draws a step's time and memory as each size grows."""
    sizes = [
        f"model.d_model={options.d_model}",
        f"model.d_ff={4 * options.d_model}",
        "model.n_heads=4",
    ]
    config = run_config(aiayn.compose("data=phrasebook", "model=base", *sizes)).model

    rows: list[dict[str, Any]] = []
    for name, grown in SIZES.items():
        for size in grown:
            figures = measured(config, USUAL | {name: size}, options.rounds, not options.float32)
            rows.append({"grows": name, "to": size} | figures)
    report("scaling", rows, options.out)
    for key, label in (("seconds", "seconds a step"), ("MB", "MB beyond the libraries")):
        panels = {}
        for name, sizes in SIZES.items():
            values = [row[key] for row in rows if row["grows"] == name]
            line = [values[-1] * size / sizes[-1] for size in sizes]
            panels[name] = {label: (sizes, values), "~ in proportion": (sizes, line)}
        draw(options.out / f"scaling_{key.lower()}.png", panels, "size", label)


def main(arguments: list[str] | None = None) -> None:
    flags = {"float32": False, "only_processes": False}
    options = parse_options(__doc__, arguments, d_model=256, rounds=3, threads=1, **flags)
    if not options.only_processes:
        measure_sizes(options)
    report("scaling_processes", processes_in_turn(options.rounds), options.out)


if __name__ == "__main__":
    main()
