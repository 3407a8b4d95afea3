"""The files of results/: a study of several runs is one file, and its translations another.

`results/NAME.jsonl` has in its first line what all runs of the study share, and in each further
line what one run has of its own: configuration, machine, counts of the corpus, scores with their
signatures, the series of its validations, and the command and commit that produced it.
`results/translations/NAME.jsonl.xz` has the hypotheses behind the scores, line by line, with the
SHA-256 of their references.

    python benchmarks/studies.py results/table3_quarter.jsonl outputs/published   # folders that `aiayn table` reads
    python benchmarks/studies.py results/quickstart.jsonl --rescore my/test.de  # scores the stored translations again
"""

import argparse
import functools
import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from aiayn.config.rules import options_of
from aiayn.config.schema import Config
from aiayn.config.stored import flatten
from aiayn.data.text_files import read_lines
from aiayn.errors import RefusedError
from aiayn.evaluation.scoring import score
from aiayn.files import atomic_write, lines_sha256, write_json
from aiayn.reports.runs import MeasuredRun, read_runs
from aiayn.runs.run_folder import Record, RunFolder, write_jsonl

RESULTS = Path(__file__).resolve().parents[1] / "results"
SMALL_FILES = ("machine.json", "corpus.json", "averaged.json", "origin.json")
DIGITS = 7  # significant digits of a series


def write_study(path: Path, runs: Mapping[str, Record]) -> None:
    """Write the runs of a study by name, as `read_study` returns them."""
    shared = functools.reduce(_in_common, runs.values())
    differences = [
        {"run": name, **_without(record, shared)} for name, record in sorted(runs.items())
    ]
    atomic_write(
        path,
        "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in (shared, *differences)),
    )


def read_study(path: Path) -> dict[str, Record]:
    """Return the record of each run by name: `config`, `evaluation`, `metrics` and SMALL_FILES
    without suffix.
    """
    shared, *differences = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {record.pop("run"): _merged(shared, record) for record in differences}


def _in_common(record: Record, other: Record) -> Record:
    common: Record = {}
    for key in record.keys() & other.keys():
        if isinstance(record[key], dict) and isinstance(other[key], dict):
            common[key] = _in_common(record[key], other[key])
        elif record[key] == other[key]:
            common[key] = record[key]
    return {key: common[key] for key in record if key in common}


def _without(record: Record, shared: Record) -> Record:
    differences: Record = {}
    for key, value in record.items():
        if key not in shared:
            differences[key] = value
        elif isinstance(value, dict) and (difference := _without(value, shared[key])):
            differences[key] = difference
    return differences


def _merged(shared: Record, differences: Record) -> Record:
    merged = dict(shared)
    for key, value in differences.items():
        both_are_tables = isinstance(value, dict) and isinstance(shared.get(key), dict)
        merged[key] = _merged(shared[key], value) if both_are_tables else value
    return merged


def thinned(records: Sequence[Record]) -> dict[str, list[Any]]:
    """Return a run's series as columns: every validation, and of other series the last value."""
    last_of = {key: record["step"] for record in records for key in record}
    thinned_records = []
    for record in records:
        is_kept = {key: key.startswith("val/") or last_of[key] == record["step"] for key in record}
        values = {
            key: _rounded(value) for key, value in record.items() if is_kept[key] and key != "step"
        }
        if values:
            thinned_records.append({"step": record["step"], **values})
    keys = dict.fromkeys(key for record in thinned_records for key in record)
    return {key: [record.get(key) for record in thinned_records] for key in keys}


def _rounded(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def unpack(study: Path, folder: Path) -> Path:
    """Write the runs of a study as folders that `aiayn table` reads. Return FOLDER/STUDY."""
    target = folder / study.stem
    runs = {name: record for name, record in read_study(study).items() if "config" in record}
    _drop_former_options(study, [record["config"] for record in runs.values()])
    for name, record in runs.items():
        run = RunFolder(target / name)
        run.path.mkdir(parents=True)
        run.config.write_text(yaml.safe_dump(record["config"], sort_keys=False), encoding="utf-8")
        for file in SMALL_FILES:
            if content := record.get(Path(file).stem):
                write_json(run.path / file, content)
        columns = record["metrics"]
        rows = zip(*columns.values(), strict=True)
        records = [dict(zip(columns, row, strict=True)) for row in rows]
        write_jsonl(
            run.metrics,
            [{key: value for key, value in row.items() if value is not None} for row in records],
        )
        for test_set, scores in record["evaluation"].items():
            evaluation = run.evaluation(test_set)
            evaluation.folder.mkdir(parents=True)
            write_json(evaluation.scores, scores)
    return target


def _drop_former_options(study: Path, configs: Sequence[Record]) -> None:
    """Drop options that this version does not have. Raises RefusedError if the runs of the study
    differ in them.
    """
    known = options_of(Config)
    for key in dict.fromkeys(key for config in configs for key in flatten(config)):
        if key in known or key.startswith("extension."):
            continue
        if len({repr(flatten(config).get(key)) for config in configs}) > 1:
            raise RefusedError(
                f"{study}: its runs differ in {key}, which this version does not have; train them "
                "again"
            )
        section, _, option = key.rpartition(".")
        for config in configs:
            (config[section] if section else config).pop(option)


def published(name: str) -> list[MeasuredRun]:
    """Return the runs of results/NAME.jsonl."""
    with TemporaryDirectory() as folder:
        return read_runs([unpack(RESULTS / f"{name}.jsonl", Path(folder))])[0]


def translations_of(study: Path) -> Path:
    return study.parent / "translations" / f"{study.stem}.jsonl.xz"


def write_translations(study: Path, translations: Sequence[Record]) -> None:
    """Write translations: `run`, `test_set`, `reference_sha256`, and numbered `hypotheses`, each
    [line, text].
    """
    content = "".join(
        json.dumps(translation, ensure_ascii=False) + "\n" for translation in translations
    )
    path = translations_of(study)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, lzma.compress(content.encode(), preset=9))


def read_translations(study: Path) -> list[Record]:
    """Return what `write_translations` wrote; nothing for a study that has none."""
    path = translations_of(study)
    content = lzma.decompress(path.read_bytes()).decode() if path.exists() else ""
    return [json.loads(line) for line in content.splitlines()]


def translation(run: str, test_set: str, hypotheses: list[str], references: list[str]) -> Record:
    numbered = [[number, text] for number, text in enumerate(hypotheses, start=1)]
    return {
        "run": run,
        "test_set": test_set,
        "reference_sha256": lines_sha256(references),
        "hypotheses": numbered,
    }


def rescored(study: Path, references: Sequence[list[str]]) -> Iterator[tuple[str, Record, Record]]:
    """Yield (RUN/TEST SET, stored scores, scores computed again) of each translation of one of
    these references.

    Raises RefusedError if a stored translation is not the one that was scored.
    """
    runs = read_study(study)
    by_checksum = {lines_sha256(lines): lines for lines in references}
    for stored in read_translations(study):
        name = f"{stored['run']}/{stored['test_set']}"
        scores = runs[stored["run"]]["evaluation"][stored["test_set"]]
        hypotheses = [text for _, text in stored["hypotheses"]]
        if lines_sha256(hypotheses) != scores["hypotheses_sha256"]:
            raise RefusedError(
                f"{study}: {name}: these translations are not those that were scored; collect again"
            )
        if reference := by_checksum.get(stored["reference_sha256"]):
            yield name, scores["metrics"], score(hypotheses, reference, scores["tgt_lang"]).metrics


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", type=Path, help="results/NAME.jsonl")
    parser.add_argument("folder", type=Path, nargs="?", help="where the folders of its runs go")
    parser.add_argument(
        "--rescore", type=Path, nargs="+", default=[], metavar="REFERENCE", help="reference files"
    )
    options = parser.parse_args()
    if options.folder:
        print(unpack(options.study, options.folder))
    for name, stored, again in rescored(
        options.study, [read_lines(path) for path in options.rescore]
    ):
        for kind, value in stored.items():
            print(f"{name} {kind}: stored {value}, computed again {again[kind]}")


if __name__ == "__main__":
    main()
