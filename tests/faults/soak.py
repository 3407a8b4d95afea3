"""The long version of the tests in this folder: hundreds of kills at random moments. `make soak`
runs it.

Every number that it prints is counted, not set: kills that happened, runs that were compared,
differences found.
"""

import argparse
import json
import os
import platform
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from faults.harness import (
    Child,
    configured,
    content_of_corpus,
    dies_after,
    differences,
    killed_at_random,
    prepare_in_child,
    start_ranks,
    train,
    write_splits,
)

from aiayn.config.data import DataConfig
from aiayn.training.callbacks.checkpoint_saver import CheckpointSaver

# What is trained, in turn; each is compared with an unbroken run of its own kind.
ALWAYS, RARELY = (f"trainer.optimizer_state_minutes={minutes}" for minutes in (0, 1000))
KINDS = {
    "one process": (ALWAYS,),
    "two loader workers": ("data.num_workers=2", ALWAYS),
    "two processes": ("trainer.devices=2", "trainer.timeout=30", ALWAYS),
    "few optimizer states": (RARELY,),
}
AT_ONCE = 4


def soak_training(text: Path, folder: Path, kills: int, draw: random.Random) -> dict[str, Any]:
    """Kills trainings until there were so many kills; every one is continued to its end and
    compared.
    """
    configs, seconds = {kind: configured(text, *overrides) for kind, overrides in KINDS.items()}, {}
    for kind, config in configs.items():
        for place in (folder / kind, folder / "again"):  # the second one finds the corpus prepared
            shutil.rmtree(place, ignore_errors=True)
            ends = (
                [train(config, place)]
                if config.trainer.devices == 1
                else [child.wait() for child in start_ranks(config, place)]
            )
            assert not any(end.code for end in ends), ends
        seconds[kind] = ends[0].seconds
    wrong, runs, moments = [], 0, Counter()
    while moments.total() < kills:
        kind, outputs = list(KINDS)[runs % len(KINDS)], folder / f"trial{runs}"
        more, end = killed_at_random(configs[kind], outputs, seconds[kind], draw)
        found = [end.said] if end.code else differences(outputs / "run", folder / kind / "run")
        if RARELY in KINDS[kind]:  # which optimizer states there are depends on the kills
            found = [difference for difference in found if not difference.startswith("files")]
        wrong += [f"training {runs}, {kind}: {difference}" for difference in found]
        shutil.rmtree(outputs)
        runs += 1
        moments.update(more)
        _progress("training", moments.total(), kills, runs, wrong)
    counted = dict(sorted(moments.items()))
    return {
        "kills": moments.total(),
        "compared": runs,
        "wrong": wrong,
        "newest_checkpoint": counted,
    }


def soak_preparation(text: Path, folder: Path, kills: int, draw: random.Random) -> dict[str, Any]:
    """Kills preparations; after every kill the next one must leave the bytes of an undisturbed
    one.
    """
    wrong, done, trials = [], 0, 0
    config = kept_in(configured(text).data, folder / "whole")
    fork = Child(lambda: None, folder / "log").wait().seconds
    seconds = prepare_in_child(config, folder / "log").wait().seconds - fork
    expected = content_of_corpus(folder / "whole")
    while done < kills:
        trials += 1
        place = folder / f"trial{trials}"
        config = kept_in(config, place)
        end = prepare_in_child(config, folder / "log", dies_after(draw.uniform(0, seconds))).wait()
        done += end.code == -signal.SIGPROF
        end = prepare_in_child(config, folder / "log").wait()
        if end.code or content_of_corpus(place) != expected:
            wrong.append(f"preparation {trials}: {end.said or 'other bytes'}")
        shutil.rmtree(place)
        _progress("preparation", done, kills, trials, wrong)
    return {"kills": done, "compared": trials, "wrong": wrong}


def soak_starts(text: Path, folder: Path, rounds: int, draw: random.Random) -> dict[str, Any]:
    """Starts several preparations of one corpus at once, and kills one of them in every second
    round.
    """
    wrong, kills = [], 0
    config = kept_in(configured(text).data, folder / "whole")
    whole = prepare_in_child(config, folder / "log").wait()
    expected = content_of_corpus(folder / "whole")
    for number in range(rounds):
        place = folder / f"round{number}"
        config = kept_in(config, place)
        dies = dies_after(draw.uniform(0, whole.seconds)) if number % 2 else lambda: None
        preludes = [dies] + [lambda: None] * (AT_ONCE - 1)
        children = [
            prepare_in_child(config, folder / f"log{i}", prelude)
            for i, prelude in enumerate(preludes)
        ]
        ends = [child.wait() for child in children]
        kills += ends[0].code == -signal.SIGPROF
        wrong += [
            f"starts {number}: {end.said}" for end in ends if end.code not in (0, -signal.SIGPROF)
        ]
        if content_of_corpus(place) != expected:
            wrong.append(f"starts {number}: other bytes")
        shutil.rmtree(place)
        _progress("starts at once", number + 1, rounds, number + 1, wrong)
    return {"kills": kills, "compared": rounds, "wrong": wrong}


def kept_in(config: DataConfig, folder: Path) -> DataConfig:
    return replace(config, folder=str(folder))


def _progress(what: str, done: int, asked: int, compared: int, wrong: list[str]) -> None:
    print(
        f"{what}: {done}/{asked}, {compared} compared, {len(wrong)} deviations",
        file=sys.stderr,
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--training", type=int, default=200, help="kills in training")
    parser.add_argument("--preparation", type=int, default=100, help="kills in preparation")
    parser.add_argument(
        "--starts", type=int, default=100, help=f"rounds of {AT_ONCE} preparations at once"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    parser.add_argument(
        "--json", type=Path, default=Path("outputs/soak.json"), help="where the figures are written"
    )
    asked = parser.parse_args()
    torch.set_num_threads(1)
    CheckpointSaver.SMALL = 0
    draw, results = random.Random(asked.seed), {}

    def soak(what: str, work: Callable[..., dict[str, Any]], text: Path, count: int) -> None:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(dir=text) as folder:
            results[what] = work(text, Path(folder), count, draw) | {
                "seconds": round(time.monotonic() - begun)
            }

    with tempfile.TemporaryDirectory() as folder:
        larger = write_splits(Path(folder) / "larger", train=3000)
        soak(
            "kills in training", soak_training, write_splits(Path(folder) / "text"), asked.training
        )
        soak("kills in preparation", soak_preparation, larger, asked.preparation)
        soak(f"{AT_ONCE} preparations started at once", soak_starts, larger, asked.starts)

    about = {"seed": asked.seed, "torch": torch.__version__, "python": platform.python_version()}
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(
        json.dumps(about | {"cores": os.cpu_count(), "results": results}, indent=1) + "\n"
    )
    print(f"{'':36}{'kills':>8}{'compared':>10}{'deviations':>12}{'seconds':>9}")
    for what, found in results.items():
        counts = found["kills"], found["compared"], len(found["wrong"]), found["seconds"]
        print("{:36}{:8}{:10}{:12}{:9}".format(what, *counts))
    moments = results["kills in training"]["newest_checkpoint"]
    print(
        "newest checkpoint at a kill:",
        ", ".join(f"step {step or '-'}: {count}" for step, count in moments.items()),
    )
    for line in (line for found in results.values() for line in found["wrong"]):
        print(line)
    sys.exit(any(found["wrong"] for found in results.values()))


if __name__ == "__main__":
    main()
