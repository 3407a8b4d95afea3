"""What a training step takes on one GPU, through `aiayn train`, in its forms and sizes.

    python benchmarks/gpu.py [--out OUT] [--rows NAME ...] [--dry-run]

OUT/gpu.json is written after every row: tokens a second of every ten steps, losses, memory. Text is
random, in lengths like those of WMT14, some sentences longer than 128 subwords. `--dry-run` trains
tiny models on a CPU, packed and padded alike. `make gpu-wheels` collects what to carry to a machine
that has torch and numpy only.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import parse_options

from aiayn.files import atomic_write

ROOT = Path(__file__).parent.parent
BIG, SMALL = ["model=big"], ["data.tokens_per_step=3125", "trainer.max_steps=200"]
LAST_PACKED = ["trainer.graphs=false"]
ROWS: dict[str, list[str]] = {
    "base": [],
    "base again": [],
    "base without graphs": LAST_PACKED,
    "base without graphs or compiled layers": [*LAST_PACKED, "trainer.compile=false"],
    "base padded": ["trainer.packed=false"],
    "base, 3,125 tokens": SMALL,
    "base, 3,125 tokens, without graphs": [*SMALL, *LAST_PACKED],
    "big": BIG,
    "big, 3,125 tokens": [*BIG, *SMALL],
}
DEFAULTS = {"model": "base", "data.tokens_per_step": "25000", "trainer.max_steps": "60"}
TINY = {
    "model": "base",
    "model.d_model": "16",
    "model.d_ff": "32",
    "model.n_heads": "2",
    "data.tokens_per_step": "400",
    "data.vocab_size": "290",
    "trainer.max_steps": "3",
    "trainer.log_every": "1",
}


def write_text(folder: Path, pairs: int) -> None:
    rng = np.random.default_rng(0)
    letters = list("abcdefghijklmnopqrstuvwxyz")
    n_words = max(40, pairs)
    words = ["".join(rng.choice(letters, rng.integers(2, 9))) for _ in range(n_words)]
    for split, count in (("train", pairs), ("val", 40)):
        lengths = np.clip(np.rint(rng.lognormal(3.04, 0.6, count)), 1, 100).astype(int)
        lengths[: count // 200] = rng.integers(135, 200, count // 200)
        for language in ("en", "de"):
            ranks = ((n_words ** rng.random(length)).astype(int) - 1 for length in lengths)
            lines = (" ".join(words[word] for word in sentence) for sentence in ranks)
            (folder / f"{split}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")


def options_of(folder: Path, name: str, changes: dict[str, str]) -> list[str]:
    options = {
        "data": "files",
        "trainer": "default",
        "optim": "adam",
        "logger": "none",
        "data.train": f"{folder}/train",
        "data.val": f"{folder}/val",
        "data.test": f"{folder}/val",
        "data.src_lang": "en",
        "data.tgt_lang": "de",
        "data.folder": f"{folder}/data",
        "data.vocab_size": "36992",
        "data.max_length": "250",
        "data.max_length_ratio": "9",
        "outputs": f"{folder}/outputs",
        "name": name,
        "trainer.val_every": "100000",
        "trainer.checkpoint_every": "100000",
        "trainer.val_bleu_sentences": "0",
        "trainer.average_last": "1",
        "trainer.log_every": "10",
    }
    return [f"{key}={value}" for key, value in (options | DEFAULTS | changes).items()]


def with_source() -> dict[str, str]:
    """Returns the environment in which this checkout's programs find their package."""
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": paths}


def measure(folder: Path, row: str, changes: dict[str, str]) -> dict[str, Any]:
    """Trains, and returns what the run logged."""
    name = "".join(letter if letter.isalnum() else "_" for letter in row)
    command = [sys.executable, str(ROOT / "train.py"), *options_of(folder, name, changes)]
    start = time.perf_counter()
    ended = subprocess.run(command, env=with_source(), capture_output=True, text=True, timeout=300)
    record: dict[str, Any] = {"row": row, "seconds": round(time.perf_counter() - start, 1)}
    if ended.returncode:
        return record | {"failed": ended.stderr.strip().splitlines()[-1:]}
    path = folder / "outputs" / name / "metrics.jsonl"
    logged = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    steps = [metrics for metrics in logged if "train/loss" in metrics]
    return record | {
        "form": next((line.strip() for line in ended.stderr.splitlines() if "a step:" in line), ""),
        "tokens a second": [round(metrics["perf/tokens_per_sec"]) for metrics in steps],
        "losses": {metrics["step"]: metrics["train/loss"] for metrics in steps},
        "memory GB": steps[-1]["perf/memory_gb"],
    }


def main(arguments: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    chosen = parse_options(__doc__, arguments, rows=[""], dry_run=False)
    if not (chosen.dry_run or torch.cuda.is_available()):
        sys.exit("error: no GPU that torch can use; try the rows with --dry-run")
    chosen.out.mkdir(parents=True, exist_ok=True)
    records = []
    with tempfile.TemporaryDirectory() as folder:
        write_text(Path(folder), 300 if chosen.dry_run else 60_000)
        for row, options in ROWS.items():
            if row.startswith(tuple(chosen.rows)):
                changes = dict(option.split("=", 1) for option in options)
                if chosen.dry_run:
                    changes = {
                        key: value
                        for key, value in changes.items()
                        if key.startswith("trainer.packed")
                    } | TINY
                records.append(measure(Path(folder), row, changes))
                print(json.dumps(records[-1]), flush=True)
                atomic_write(
                    chosen.out / "gpu.json", json.dumps({"rows": records}, indent=1) + "\n"
                )


if __name__ == "__main__":
    main()
