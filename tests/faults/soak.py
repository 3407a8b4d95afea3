"""The long version of the tests in this folder: hundreds of kills at random moments. `make soak` runs it.

Every number that it prints is counted, not set: kills that happened, runs that were compared, differences found.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

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
    train,
    write_text,
)


def soak_training(text: Path, kills: int, draw: random.Random) -> list[str]:
    """Kills trainings until there were so many kills; every one is continued to its end and compared."""
    config = configured(text)
    with tempfile.TemporaryDirectory(dir=text) as folder:
        unbroken = train(config, Path(folder))
        assert unbroken.code == 0, unbroken.said
        seconds = train(config, Path(folder) / "again").seconds
        wrong, done, runs = [], 0, 0
        while done < kills:
            outputs = Path(folder) / f"trial{runs}"
            more, end = killed_at_random(config, outputs, seconds, draw)
            found = [end.said] if end.code else differences(outputs / "run", Path(folder) / "run")
            wrong += [f"run {runs}: {difference}" for difference in found]
            shutil.rmtree(outputs)
            done, runs = done + more, runs + 1
            print(f"training: {done} kills, {runs} runs compared, {len(wrong)} deviations", flush=True)
        return wrong


def soak_preparation(text: Path, kills: int, draw: random.Random) -> list[str]:
    """Kills preparations; after every kill the next one must leave the bytes of an undisturbed one."""
    wrong, done, trials = [], 0, 0
    with tempfile.TemporaryDirectory(dir=text) as folder:
        config = configured(text, f"data.folder={folder}/whole")
        fork = Child(lambda: None, Path(folder) / "log").wait().seconds
        seconds = prepare_in_child(config, Path(folder) / "log").wait().seconds - fork
        expected = content_of_corpus(Path(folder) / "whole")
        while done < kills:
            trials += 1
            place = Path(folder) / f"trial{trials}"
            config = configured(text, f"data.folder={place}")
            end = prepare_in_child(config, Path(folder) / "log", dies_after(draw.uniform(0, seconds))).wait()
            done += end.code == -signal.SIGPROF
            end = prepare_in_child(config, Path(folder) / "log").wait()
            if end.code or content_of_corpus(place) != expected:
                wrong.append(f"preparation {trials}: {end.said or 'other bytes'}")
            if leftovers := [path.name for path in place.iterdir() if path.suffix == ".tmp"]:
                wrong.append(f"preparation {trials} left {leftovers}")
            shutil.rmtree(place)
        print(f"preparation: {done} kills in {trials} trials, {len(wrong)} deviations", flush=True)
    return wrong


def soak_starts(text: Path, rounds: int, at_once: int = 4) -> list[str]:
    """Starts several preparations of one corpus at once."""
    wrong = []
    with tempfile.TemporaryDirectory(dir=text) as folder:
        config = configured(text, f"data.folder={folder}/whole")
        prepare_in_child(config, Path(folder) / "log").wait()
        expected = content_of_corpus(Path(folder) / "whole")
        for number in range(rounds):
            place = Path(folder) / f"round{number}"
            config = configured(text, f"data.folder={place}")
            children = [prepare_in_child(config, Path(folder) / f"log{i}") for i in range(at_once)]
            ends = [child.wait() for child in children]
            wrong += [f"round {number}: {end.said}" for end in ends if end.code]
            if content_of_corpus(place) != expected:
                wrong.append(f"round {number}: other bytes")
            shutil.rmtree(place)
    print(f"starts at once: {rounds} rounds of {at_once}, {len(wrong)} deviations", flush=True)
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--training", type=int, default=200, help="kills in training")
    parser.add_argument("--preparation", type=int, default=100, help="kills in preparation")
    parser.add_argument("--starts", type=int, default=100, help="rounds of four preparations at once")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    draw, begun = random.Random(asked.seed), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        text = write_text(Path(folder) / "text")
        larger = write_text(Path(folder) / "larger", train=3000)
        wrong = soak_preparation(larger, asked.preparation, draw)
        wrong += soak_starts(larger, asked.starts)
        wrong += soak_training(text, asked.training, draw)
    print(f"seed {asked.seed}, torch {torch.__version__}, {time.monotonic() - begun:.0f} s: {len(wrong)} deviations")
    for line in wrong:
        print(line)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
