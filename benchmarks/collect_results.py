"""The small files of trained and scored runs, for `results/`: what was measured, and with what. No weights, no text.

A run, or every run of a sweep, becomes RESULTS/RUN with config.yaml, machine.json, evaluation.json of every scored set,
the curves of metrics.jsonl, and origin.json: command, commit (that machine.json names, else that of this clone), seed,
versions, and what --measured adds.
Runs that are not scored are passed over. `aiayn table RESULTS` reads such folders as it reads those of runs.

    python benchmarks/collect_results.py outputs/sweeps/NAME results/NAME --command "python train.py -m ..."
"""

import argparse
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from aiayn.config.rules import tagged
from aiayn.config.stored import flatten
from aiayn.errors import RefusedError
from aiayn.files import atomic_write_text, source_commit
from aiayn.runs.results import runs_within
from aiayn.runs.run_folder import RunFolder, read_json, read_jsonl, write_json, write_jsonl

PACKAGES = ("torch", "pytorch-lightning", "tokenizers", "sacrebleu")


def collect(folder: Path, results: Path, command: str, measured: Mapping[str, str] | None = None) -> list[Path]:
    """Writes RESULTS/RUN for a run, or for all of a sweep's, that are scored, and returns these folders.

    Raises RefusedError for a run whose configuration names a path of this machine.
    """
    runs = [run.path for run in runs_within(folder)]
    origin = {"command": command, **(measured or {})}
    base = folder.parent if folder in runs else folder
    return [_collect(run, results / run.relative_to(base), origin) for run in runs if _evaluations(run)]


def _collect(run: Path, target: Path, origin: Mapping[str, str]) -> Path:
    config = RunFolder(run).read_config()
    config["outputs"] = None  # where the run was kept is not part of the result
    named = flatten(config) | {f"{path.parent.name}: test": read_json(path).get("prefix") for path in _evaluations(run)}
    absolute = [f"{key}={value}" for key, value in named.items() if _is_absolute(value)]
    if absolute:
        raise RefusedError(f"{run}: {', '.join(absolute)}: names a path of this machine; link it and train again")
    versions = {package: version(package) for package in PACKAGES}
    for path in _evaluations(run):
        place = target / path.relative_to(run)
        place.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_text(place, path.read_text(encoding="utf-8"))
    atomic_write_text(target / "config.yaml", yaml.safe_dump(config, sort_keys=False))
    # corpus.json has counts and fingerprints, no text; averaged.json tells which scores are seeds of each other.
    for name in ("machine.json", "corpus.json", "averaged.json"):
        if found := read_json(run / name):
            write_json(target / name, found)
    write_jsonl(target / "metrics.jsonl", _curves(read_jsonl(run / "metrics.jsonl")))
    commit = read_json(run / "machine.json").get("commit") or source_commit()
    write_json(target / "origin.json", {**origin, "commit": commit, "seed": config["seed"], "versions": versions})
    return target


def _evaluations(run: Path) -> list[Path]:
    return sorted(run.glob("evaluation/*/evaluation.json"))


def _curves(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every validation, loss and rate of every record of the training, and the last of these with all it has."""
    training = [record for record in records if "train/loss" in record]
    kept = ("step", "train/loss", "train/lr")
    return [
        {key: record[key] for key in kept if key in record} if record in training[:-1] else record for record in records
    ]


def _is_absolute(value: Any) -> bool:
    values = value if isinstance(value, list) else [value]
    return any(isinstance(one, str) and Path(tagged(one)[1]).is_absolute() for one in values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a run, or a sweep")
    parser.add_argument("results", type=Path)
    parser.add_argument("--command", required=True, help="what made the runs")
    parser.add_argument("--measured", nargs="*", default=[], metavar="NAME=VALUE", help="e.g. processor_seconds=319")
    options = parser.parse_args()
    measured = dict(figure.split("=") for figure in options.measured)
    for folder in collect(options.folder, options.results, options.command, measured):
        print(folder)


if __name__ == "__main__":
    main()
