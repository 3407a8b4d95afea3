"""How long it takes until something happens: help, configuration errors, the first step, an evaluation.

Help and errors are compared with an empty Hydra application, in turn. The first step is that of a new run on a prepared
corpus, from the command to its line in the log. An evaluation of many sentences and one of a single sentence are each
divided into translating and all the rest: if the rest is the same, nothing is loaded or compiled twice.

python benchmarks/startup.py
python benchmarks/startup.py --model base --rounds 3
"""

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import draw_bars, interleaved, report, spread

ROOT = Path(__file__).parent.parent
EMPTY = """
import hydra


@hydra.main(version_base="1.3", config_path=None)
def main(config):
    pass


main()
"""
QUIET = ["hydra.output_subdir=null", "hydra.run.dir=.", "hydra/job_logging=none", "hydra/hydra_logging=none"]
TEXT = ["data=files", "data.train=train", "data.val=dev", "data.test=test", "data.src_lang=en", "data.tgt_lang=de"]
TRAIN = [
    *TEXT,
    "data.vocab_size=290",
    "logger=none",
    "trainer.max_steps=1",
    "trainer.log_every=1",
    "trainer.val_every=1",
]


def commands() -> dict[str, list[str]]:
    """What is timed beside what."""
    return {
        "empty application": ["empty.py", *QUIET],
        "empty application --help": ["empty.py", "--help"],
        "train.py --help": [str(ROOT / "train.py"), "--help"],
        "train.py, misspelt option": [str(ROOT / "train.py"), "model.n_head=4"],
        "train.py, impossible value": [str(ROOT / "train.py"), "model.n_heads=7"],
        "evaluate.py --help": [str(ROOT / "evaluate.py"), "--help"],
        "evaluate.py, impossible value": [str(ROOT / "evaluate.py"), "run=x", "split=dev"],
    }


def atomic_write_text(folder: Path, pairs: int, test: int) -> None:
    """train, dev and test of generated sentences, as PREFIX.en and PREFIX.de."""
    draw = random.Random(0)
    words = [first + second for first in ("ba", "do", "ke", "li", "mu") for second in ("ren", "sa", "tok", "vi", "")]
    for prefix, count in (("train", pairs), ("dev", 10), ("test", test), ("one", 1)):
        sentences = [draw.choices(words, k=draw.randint(3, 20)) for _ in range(count)]
        (folder / f"{prefix}.en").write_text("".join(" ".join(words) + "\n" for words in sentences))
        (folder / f"{prefix}.de").write_text("".join(" ".join(words[::-1]) + "\n" for words in sentences))


def start(folder: Path, arguments: list[str], until: str | None = None) -> tuple[float, float]:
    """Runs a program. Seconds until its end, or a line of its log that begins so: by the clock, of the processor."""
    before, clock = processor_seconds(), time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    seconds, cpu, line = None, 0.0, ""
    for line in process.stderr:
        if until and seconds is None and line.startswith(until):
            seconds, cpu = time.perf_counter() - clock, _processor_seconds_of(process.pid)
    process.wait()
    if seconds is None:
        assert until is None, f"{arguments} ended with {process.returncode}: {line}"
        seconds, cpu = time.perf_counter() - clock, processor_seconds() - before
    return seconds, cpu


def processor_seconds() -> float:
    """Of all processes that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _processor_seconds_of(pid: int) -> float:
    """Of a running process; 0 where the system does not tell."""
    try:
        numbers = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")


def timed(runs: dict[str, Callable[[], tuple[float, float]]], rounds: int) -> list[dict[str, Any]]:
    """A row for each run: seconds by the clock (median and middle half), and of the processor (median)."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    interleaved({name: lambda name=name: taken[name].append(runs[name]()) for name in runs}, rounds, warmup=1)
    rows = []
    for name, both in taken.items():
        clock, cpu = spread([wall for wall, _ in both[1:]]), spread([cpu for _, cpu in both[1:]])
        rows.append({"command": name, "seconds": clock["median"], "low": clock["low"], "high": clock["high"]})
        rows[-1]["cpu_s"] = cpu["median"]
    return rows


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", default="tiny", help="a file of conf/model")
    parser.add_argument("--pairs", type=int, default=2000, help="of the training text")
    parser.add_argument("--lines", type=int, default=1000, help="to evaluate")
    parser.add_argument("--out", type=Path, default=Path("outputs/benchmarks"))
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "empty.py").write_text(EMPTY, encoding="utf-8")
        atomic_write_text(folder, options.pairs, options.lines)

        rows = timed({name: lambda c=c: start(folder, c) for name, c in commands().items()}, options.rounds)
        for row in rows:
            empty = rows[1 if "--help" in row["command"] else 0]
            row |= {
                "over_empty_s": row["seconds"] - empty["seconds"],
                "cpu_over_empty_s": row["cpu_s"] - empty["cpu_s"],
            }
        report("startup", rows, options.out)

        train = [str(ROOT / "train.py"), *TRAIN, f"model={options.model}", "name=run"]

        def first_step() -> tuple[float, float]:
            shutil.rmtree(folder / "outputs", ignore_errors=True)
            return start(folder, train, until="step 1/")

        first = timed({"to the first step": first_step}, options.rounds)  # the warm-up prepares the corpus
        report("startup_first_step", first, options.out)
        report("startup_evaluation", [evaluation(folder, test) for test in ("one", "test")], options.out)
    draw_bars(options.out / "startup.png", [*rows, *first], "command", ("seconds", "low", "high"))


def evaluation(folder: Path, test: str) -> dict[str, Any]:
    """Seconds of an evaluation, and how many of them it did not translate."""
    arguments = [str(ROOT / "evaluate.py"), "run=outputs/run", f"test={test}", "search.max_extra_tokens=5"]
    seconds, cpu = start(folder, arguments)
    result = json.loads((folder / "outputs/run/evaluation" / test / "evaluation.json").read_text(encoding="utf-8"))
    return {
        "lines": result["lines"],
        "seconds": seconds,
        "cpu_s": cpu,
        "translating_s": result["seconds"],
        "the_rest_s": seconds - result["seconds"],
    }


if __name__ == "__main__":
    main()
