"""What a run's folder holds: every file name, reader and writer in one place (docs/run-folder.md lists the files).

Readers pass over what a kill or another program left unreadable, so that a page or a table can still be made.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from aiayn.config import Config
from aiayn.errors import RefusedError
from aiayn.files import atomic_write_text
from aiayn.options import to_plain

Record = dict[str, Any]

# The scores in evaluation.json, in the order in which they are shown.
METRIC_KINDS = ("sacrebleu", "bleu_tokenized", "bleu_tokenized_lc", "bleu_compound_split", "chrf", "ter")


@dataclass(frozen=True)
class Evaluation:
    """`RUN/evaluation/NAME/`: what `evaluate.py` wrote for one test set."""

    folder: Path

    @property
    def scores(self) -> Path:
        return self.folder / "evaluation.json"

    @property
    def hypotheses(self) -> Path:
        return self.folder / "hypotheses.txt"

    @property
    def samples(self) -> Path:
        return self.folder / "samples.jsonl"


@dataclass(frozen=True)
class RunFolder:
    """`outputs/NAME`."""

    path: Path

    # What continuing and translating need.

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def checkpoints(self) -> Path:
        """The folder of step_N.ckpt, step_N.optim, last.ckpt and averaged.ckpt; see `aiayn.checkpoints`."""
        return self.path / "checkpoints"

    @property
    def averaged(self) -> Path:
        return self.checkpoints / "averaged.ckpt"

    @property
    def last(self) -> Path:
        return self.checkpoints / "last.ckpt"

    @property
    def lock(self) -> Path:
        return self.path / ".lock"

    # What was measured.

    @property
    def metrics(self) -> Path:
        """One JSON object a line: {"step": 100, "train/loss": 4.2, ...}."""
        return self.path / "metrics.jsonl"

    @property
    def samples(self) -> Path:
        """Validation sentences with their translations, one JSON object a line."""
        return self.path / "samples.jsonl"

    @property
    def corpus(self) -> Path:
        return self.path / "corpus.json"

    @property
    def machine(self) -> Path:
        return self.path / "machine.json"

    def evaluation(self, name: str) -> Evaluation:
        return Evaluation(self.path / "evaluation" / name)

    # What people look at.

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def learning_curve(self) -> Path:
        return self.path / "learning_curve.png"

    @property
    def attention_picture(self) -> Path:
        return self.path / "attention.png"

    @property
    def corpus_picture(self) -> Path:
        return self.path / "corpus.png"

    @property
    def attention(self) -> Path:
        """The folder that `aiayn attention` writes into."""
        return self.path / "attention"

    def exists(self) -> bool:
        return self.checkpoints.is_dir() or self.config.is_file()

    def write_config(self, config: Config) -> None:
        atomic_write_text(self.config, yaml.safe_dump(to_plain(config), sort_keys=False, allow_unicode=True))

    def read_config(self) -> Record:
        """config.yaml as it stands. Raises RefusedError where it is missing or not the configuration of a run."""
        try:
            config = yaml.safe_load(self.config.read_text(encoding="utf-8"))
            for section, option in (("trainer", "max_steps"), ("data", "src_lang"), ("data", "tgt_lang")):
                config[section][option]
        except (OSError, ValueError, yaml.YAMLError, TypeError, KeyError) as error:
            raise RefusedError(f"{self.config}: not the configuration of a run; restore it, or train again") from error
        return config

    def read_evaluations(self) -> dict[str, Record]:
        """evaluation.json by name of the test set, `test` first."""
        found = {path.parent.name: read_json(path) for path in sorted(self.path.glob("evaluation/*/evaluation.json"))}
        usable = {name: result for name, result in found.items() if isinstance(result.get("metrics"), dict)}
        return dict(sorted(usable.items(), key=lambda item: (item[0] != "test", item[0])))


def runs_within(folder: Path) -> Iterator[RunFolder]:
    """The folder itself if it is a run, else every run at any depth inside it, by name."""
    # Loggers keep folders with a config.yaml of their own inside a run: the search ends at a run.
    run = RunFolder(folder)
    if run.exists():
        yield run
    elif folder.is_dir():
        for inner in sorted(folder.iterdir()):
            if inner.is_dir() and not inner.is_symlink() and not inner.name.startswith("."):
                yield from runs_within(inner)


def read_json(path: Path) -> Record:
    """An object; empty where the file is missing or holds none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    atomic_write_text(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_jsonl(path: Path) -> list[Record]:
    """The objects of a .jsonl file in order; none where there is no file. A line cut off by a kill is skipped."""
    if not path.exists():
        return []
    records = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def write_jsonl(path: Path, records: list[Record]) -> None:
    atomic_write_text(path, "".join(map(jsonl_line, records)))


def append_jsonl(path: Path, records: list[Record]) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write("".join(map(jsonl_line, records)))


def jsonl_line(record: Record) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"


def drop_records_after(path: Path, step: int) -> None:
    """Drops the later records of a .jsonl file: a run that resumes at `step` takes those steps again."""
    write_jsonl(path, [record for record in read_jsonl(path) if record["step"] <= step])


def series(records: list[Record], key: str) -> list[tuple[float, float]]:
    """(step, value) of every record that has the key."""
    return [(record["step"], record[key]) for record in records if record.get(key) is not None]


def best_and_last(records: list[Record], key: str, best: Any = min) -> tuple[float, float, float] | None:
    """The best value, its step, and the last value; None where nothing was measured. `best` is min or max."""
    points = series(records, key)
    if not points:
        return None
    value = best(value for _, value in points)
    return value, next(step for step, found in points if found == value), points[-1][1]
