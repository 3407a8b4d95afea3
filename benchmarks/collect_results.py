"""Collects scored runs into results/: one file for a study, and one for its translations.

A run, or every scored run of a sweep, becomes a line of results/NAME.jsonl; its translations go to
results/translations/NAME.jsonl.xz (`benchmarks/studies.py` reads both). Weights, sources and
references stay where they are. Runs of a working tree with uncommitted changes are refused, because
nobody could make them again.

    python benchmarks/collect_results.py outputs/sweeps/NAME results/NAME.jsonl --command "python train.py -m ..."
"""

import argparse
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from studies import (
    read_study,
    read_translations,
    thinned,
    translation,
    write_study,
    write_translations,
)

from aiayn.config.rules import tagged
from aiayn.config.stored import flatten
from aiayn.data.text_files import read_lines
from aiayn.errors import RefusedError
from aiayn.files import source_commit
from aiayn.runs.results import runs_within
from aiayn.runs.run_folder import EvaluationFolder, Record, RunFolder, read_json

PACKAGES = ("torch", "pytorch-lightning", "tokenizers", "sacrebleu")
HISTOGRAMS = ("lengths", "padding_of_parts")  # of corpus.json, which only a run's own page draws


def collect(
    folder: Path, study: Path, command: str, measured: Mapping[str, str] | None = None
) -> list[str]:
    """Add the scored runs in a folder to a study. Return their names; runs of the same names are
    replaced.

    Raises RefusedError for a run whose configuration names a path of this machine, or whose commit
    was not clean.
    """
    runs = [run for run in runs_within(folder) if _evaluations(run)]
    base = folder.parent if [run.path for run in runs] == [folder] else folder
    names = [run.path.relative_to(base).as_posix() for run in runs]
    origin = {"command": command, **(measured or {})}
    records = {name: run_record(run, origin) for name, run in zip(names, runs, strict=True)}
    translations = [
        stored for name, run in zip(names, runs, strict=True) for stored in _translations(name, run)
    ]

    earlier = read_study(study) if study.exists() else {}
    write_study(study, earlier | records)
    unchanged = [stored for stored in read_translations(study) if stored["run"] not in records]
    if unchanged or translations:
        write_translations(study, [*unchanged, *translations])
    return names


def run_record(run: RunFolder, origin: Mapping[str, str]) -> Record:
    """Return what a study holds of a run."""
    config = run.read_config()
    config["outputs"] = None  # where the run was kept is not part of the result
    evaluations = {
        evaluation.folder.name: read_json(evaluation.scores) for evaluation in _evaluations(run)
    }
    prefixes = {f"{name}: test": scores.get("prefix") for name, scores in evaluations.items()}
    absolute = [
        f"{key}={value}"
        for key, value in (flatten(config) | prefixes).items()
        if _is_absolute(value)
    ]
    if absolute:
        raise RefusedError(
            f"{run.path}: {', '.join(absolute)}: names a path of this machine; link it and train "
            "again"
        )
    machine = read_json(run.machine)
    commit = machine.get("commit") or source_commit()
    if str(commit).endswith("-dirty"):
        raise RefusedError(
            f"{run.path}: made by uncommitted code ({commit}); commit it and train again"
        )
    versions = {package: version(package) for package in PACKAGES}
    corpus = read_json(run.corpus)
    record = {
        "config": config,
        "origin": {**origin, "commit": commit, "seed": config["seed"], "versions": versions},
        "machine": machine,
        "corpus": {key: value for key, value in corpus.items() if key not in HISTOGRAMS},
        "averaged": read_json(run.validated),
        "evaluation": evaluations,
        "metrics": thinned(run.read_metrics()),
    }
    return {name: content for name, content in record.items() if content}


def _evaluations(run: RunFolder) -> list[EvaluationFolder]:
    return [
        run.evaluation(path.parent.name)
        for path in sorted(run.path.glob("evaluation/*/evaluation.json"))
    ]


def _translations(name: str, run: RunFolder) -> list[Record]:
    """Return the translations of a run; of versions that kept no text, none."""
    with_text = [evaluation for evaluation in _evaluations(run) if evaluation.hypotheses.exists()]
    return [
        translation(
            name,
            evaluation.folder.name,
            read_lines(evaluation.hypotheses),
            read_lines(evaluation.reference),
        )
        for evaluation in with_text
    ]


def _is_absolute(value: Any) -> bool:
    values = value if isinstance(value, list) else [value]
    return any(isinstance(text, str) and Path(tagged(text)[1]).is_absolute() for text in values)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="a run, or a sweep")
    parser.add_argument("study", type=Path, help="results/NAME.jsonl")
    parser.add_argument("--command", required=True, help="what made the runs")
    parser.add_argument(
        "--measured", nargs="*", default=[], metavar="NAME=VALUE", help="e.g. processor_seconds=319"
    )
    options = parser.parse_args()
    measured = dict(figure.split("=") for figure in options.measured)
    print(*collect(options.folder, options.study, options.command, measured), sep="\n")


if __name__ == "__main__":
    main()
