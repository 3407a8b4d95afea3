"""How time and memory of a training step grow with tokens per step, sentence length, vocabulary and depth.

    python benchmarks/scaling.py [--d-model 256] [--rounds 3] [--threads 1] [--no-processes] [--out FOLDER]

One size grows while the others stay at 2,048 target tokens, sentences of 32, 8,000 words, 2 layers. Every point is
measured in a process of its own, whose memory is counted beyond what the libraries take; dashed lines grow in
proportion. At the end `train.py` trains on the generated phrasebook with one and with two processes.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from measure import draw, report, spread
from train_step import our_loss, read_config, stepper

from aiayn.config import EOS_ID, ModelConfig
from aiayn.data.batch import Batch, shift_right
from aiayn.model.transformer import Transformer
from aiayn.run_folder import read_jsonl

ROOT = Path(__file__).parent.parent
USUAL = {"tokens": 2048, "length": 32, "vocabulary": 8000, "layers": 2}
SIZES = {
    "tokens": (512, 1024, 2048, 4096, 8192),
    "length": (8, 16, 32, 64, 128, 256),
    "vocabulary": (2000, 8000, 16000, 32000),
    "layers": (1, 2, 4, 8),
}


def batch(tokens: int, length: int, vocabulary: int) -> Batch:
    """Random sentences of one length on both sides."""
    ids = torch.randint(4, vocabulary, (2, tokens // length, length))
    ids[..., -1] = EOS_ID
    src, tgt = ids
    return Batch(0, src, shift_right(tgt), tgt, src.numel(), tgt.numel(), tgt.numel())


def step_seconds(config: ModelConfig, size: dict[str, int], rounds: int, bf16: bool) -> list[float]:
    """Wall-clock seconds of `rounds` steps, after one that does not count."""
    torch.manual_seed(0)
    config.n_layers = size["layers"]
    model = Transformer(config, size["vocabulary"])
    step = stepper(model, our_loss(model), [batch(size["tokens"], size["length"], size["vocabulary"])], bf16)
    step()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return seconds


def in_a_process(config: ModelConfig, size: dict[str, int], options: argparse.Namespace, bf16: bool) -> dict:
    """{"seconds", "low", "high", "MB"} of a step, in a child that ends with it."""
    reading, writing = os.pipe()
    if not os.fork():
        torch.set_num_threads(options.threads)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found = spread(step_seconds(config, size, options.rounds, bf16))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        os.write(writing, json.dumps(found | {"MB": (peak - before) / 1024}).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answer:
        found = json.load(answer)
    os.wait()
    return {"seconds": found.pop("median"), **found}


def training_speed(processes: int, folder: str) -> dict:
    """`train.py` with so many processes of one thread: median target tokens per second over the whole run."""
    name = f"processes_{processes}"
    command = [sys.executable, str(ROOT / "train.py"), "data=phrasebook", "model=tiny", f"name={name}", "logger=none"]
    command += ["data.vocab_size=2000", "data.tokens_per_step=8192", "data.micro_batches=2", "trainer.max_steps=40"]
    command += ["trainer.val_every=40", "trainer.val_bleu_sentences=0", "trainer.checkpoint_every=40"]
    command += ["trainer.average_last=1", "trainer.log_every=5", f"trainer.devices={processes}"]
    command += ["trainer.accelerator=cpu", f"data.folder={folder}/data"]
    subprocess.run(
        command, cwd=folder, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL
    )
    records = read_jsonl(Path(folder, "outputs", name, "metrics.jsonl"))
    rates = [record["perf/tokens_per_sec"] for record in records if "perf/tokens_per_sec" in record]
    return {"processes": processes, **spread(rates[2:])}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--d-model", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--float32", action="store_true", help="no bfloat16")
    parser.add_argument("--no-processes", action="store_true", help="leave the two runs of train.py out")
    parser.add_argument("--out", type=Path, default=Path("outputs/benchmarks"))
    options = parser.parse_args(arguments)
    config = read_config("data=phrasebook", "model=base", f"model.d_model={options.d_model}", "model.n_heads=4").model
    config.d_ff = 4 * options.d_model

    rows = []
    for name, sizes in SIZES.items():
        for value in sizes:
            size = USUAL | {name: value}
            rows.append({"grows": name, "to": value} | in_a_process(config, size, options, not options.float32))
    report("scaling", rows, options.out)
    for key, label in (("seconds", "seconds a step"), ("MB", "MB beyond the libraries")):
        panels = {}
        for name, sizes in SIZES.items():
            measured = [row[key] for row in rows if row["grows"] == name]
            line = [measured[-1] * value / sizes[-1] for value in sizes]
            panels[name] = {label: (sizes, measured), "~ in proportion": (sizes, line)}
        draw(options.out / f"scaling_{key.lower()}.png", panels, "size", label)
    if not options.no_processes:
        with tempfile.TemporaryDirectory() as folder:
            speeds = [training_speed(processes, folder) for processes in (1, 2)]
        report("scaling_processes", speeds, options.out)


if __name__ == "__main__":
    main()
