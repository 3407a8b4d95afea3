"""How long it takes until something happens: help, configuration errors, the first step, an
evaluation.

    python benchmarks/startup.py [--rounds 5] [--model tiny] [--pairs 2000] [--lines 1000]

Help and errors are compared with an empty Hydra application, in turns. The first step is that of a
new run of --model on a prepared corpus of --pairs pairs, from the command to its line in the log.
Evaluations of one sentence and of --lines sentences are each divided into translating and the rest:
if the rest is the same, nothing is loaded or compiled twice.
"""

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from measure import interleaved, parse_options, report, spread

ROOT = Path(__file__).parent.parent
TRAIN, EVALUATE = str(ROOT / "train.py"), str(ROOT / "evaluate.py")
EMPTY = """
import hydra


@hydra.main(version_base="1.3", config_path=None)
def main(config):
    pass


main()
"""
QUIET = [
    "hydra.output_subdir=null",
    "hydra.run.dir=.",
    "hydra/job_logging=none",
    "hydra/hydra_logging=none",
]
COMMANDS = {
    "empty application": ["empty.py", *QUIET],
    "empty application --help": ["empty.py", "--help"],
    "train.py --help": [TRAIN, "--help"],
    "train.py, misspelt option": [TRAIN, "model.n_head=4"],
    "train.py, impossible value": [TRAIN, "model.n_heads=7"],
    "evaluate.py --help": [EVALUATE, "--help"],
    "evaluate.py, impossible value": [EVALUATE, "run=x", "split=dev"],
}
TEXT = [
    "data=files",
    "data.train=train",
    "data.val=dev",
    "data.test=test",
    "data.src_lang=en",
    "data.tgt_lang=de",
]
TEXT += ["model=base", "optim=adam", "trainer=default", "data.tokens_per_step=8192"]
ONE_STEP = [
    "name=run",
    "logger=none",
    "trainer.max_steps=1",
    "trainer.log_every=1",
    "trainer.val_every=1",
]
RUN = [*TEXT, "data.vocab_size=290", *ONE_STEP]


def write_text(folder: Path, **pairs: int) -> None:
    """Writes generated sentences to NAME.en and NAME.de, for each name so many pairs."""
    draw = random.Random(0)
    words = [
        first + second
        for first in ("ba", "do", "ke", "li", "mu")
        for second in ("ren", "sa", "tok", "vi", "")
    ]
    for name, count in pairs.items():
        sentences = [draw.choices(words, k=draw.randint(3, 20)) for _ in range(count)]
        (folder / f"{name}.en").write_text(
            "".join(" ".join(sentence) + "\n" for sentence in sentences)
        )
        (folder / f"{name}.de").write_text(
            "".join(" ".join(sentence[::-1]) + "\n" for sentence in sentences)
        )


def start(folder: Path, arguments: list[str], until: str | None = None) -> None:
    """Runs a program to its end, or kills it at the first line of its log that starts with
    `until`.
    """
    line = ""
    command = [sys.executable, *arguments]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        for line in process.stderr:
            if until and line.startswith(until):
                process.kill()
                break
    assert not until or line.startswith(until), (
        f"{arguments} ended with {process.returncode}: {line}"
    )


def timed(runs: dict[str, Callable[[], None]], rounds: int) -> list[dict[str, Any]]:
    """Returns a row for each run: its seconds, median and quartiles."""
    spreads = {name: spread(seconds) for name, seconds in interleaved(runs, rounds).items()}
    return [
        {"command": name, "seconds": of_command.pop("median"), **of_command}
        for name, of_command in spreads.items()
    ]


def evaluation(folder: Path, test: str) -> dict[str, Any]:
    """Returns the seconds of an evaluation, and how many of them were not spent translating."""
    clock = time.perf_counter()
    start(folder, [EVALUATE, "run=outputs/run", f"test={test}", "search.max_extra_tokens=5"])
    seconds = time.perf_counter() - clock
    record = json.loads(
        (folder / "outputs/run/evaluation" / test / "evaluation.json").read_text(encoding="utf-8")
    )
    times = {
        "seconds": seconds,
        "translating_s": record["seconds"],
        "the_rest_s": seconds - record["seconds"],
    }
    return {"lines": record["lines"]} | times


def main(arguments: list[str] | None = None) -> None:
    options = parse_options(__doc__, arguments, rounds=5, model="tiny", pairs=2000, lines=1000)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "empty.py").write_text(EMPTY, encoding="utf-8")
        write_text(folder, train=options.pairs, dev=10, test=options.lines, one=1)

        rows = timed(
            {name: partial(start, folder, command) for name, command in COMMANDS.items()},
            options.rounds,
        )
        for row in rows:
            row["over_empty_s"] = row["seconds"] - rows["--help" in row["command"]]["seconds"]
        report("startup", rows, options.out)

        def train(until: str | None) -> None:
            shutil.rmtree(folder / "outputs", ignore_errors=True)
            start(folder, [TRAIN, *RUN, f"model={options.model}"], until)

        # The warm-up round prepares the corpus.
        first = timed({"to the first step": partial(train, until="step 1/")}, options.rounds)
        report("startup_first_step", first, options.out)
        train(until=None)
        report(
            "startup_evaluation",
            [evaluation(folder, test) for test in ("one", "test")],
            options.out,
        )


if __name__ == "__main__":
    main()
