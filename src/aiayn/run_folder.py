"""What a run wrote into its folder: measurements and samples line by line, its configuration, its scores."""

import json
from pathlib import Path
from typing import Any

import yaml

from aiayn.errors import RefusedError
from aiayn.files import atomic_write_text

# The scores in evaluation.json, in the order in which they are shown.
METRIC_KINDS = ("sacrebleu", "bleu_tokenized", "bleu_tokenized_lc", "bleu_compound_split", "chrf", "ter")


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The objects of a .jsonl file, in order, none where there is no file; a line torn by a kill is passed over."""
    if not path.exists():
        return []
    records = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        records.append(record)
    return records


def jsonl_line(record: dict[str, Any]) -> str:
    """A record as a line of a .jsonl file."""
    return json.dumps(record, ensure_ascii=False) + "\n"


def drop_records_after(path: Path, step: int) -> None:
    """Drops the later records of a .jsonl file: a run that continues at `step` takes those steps again."""
    atomic_write_text(path, "".join(jsonl_line(record) for record in read_jsonl(path) if record["step"] <= step))


def series(records: list[dict[str, Any]], key: str) -> list[tuple[float, float]]:
    """(step, value) of every record that has the key."""
    return [(record["step"], record[key]) for record in records if record.get(key) is not None]


def best_and_last(records: list[dict[str, Any]], key: str, best: Any = min) -> tuple[float, float, float] | None:
    """The best value, its step, and the last value; None where nothing was measured. `best` is min or max."""
    points = series(records, key)
    if not points:
        return None
    value = best(value for _, value in points)
    return value, next(step for step, found in points if found == value), points[-1][1]


def read_config(run: Path) -> dict[str, Any]:
    """A run's config.yaml as it stands. Raises RefusedError for what is not the configuration of a run."""
    path = run / "config.yaml"
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        for section, option in (("trainer", "max_steps"), ("data", "src_lang"), ("data", "tgt_lang")):
            config[section][option]
    except (OSError, yaml.YAMLError, TypeError, KeyError) as error:
        raise RefusedError(f"{path}: not the configuration of a run; restore it, or train again") from error
    return config


def read_evaluations(run: Path) -> dict[str, dict[str, Any]]:
    """evaluation.json by name of the test set, `test` first; files that cannot be read are passed over."""
    found = {path.parent.name: read_json(path) for path in sorted(run.glob("evaluation/*/evaluation.json"))}
    usable = {name: result for name, result in found.items() if isinstance(result.get("metrics"), dict)}
    return dict(sorted(usable.items(), key=lambda item: (item[0] != "test", item[0])))


def read_json(path: Path) -> dict[str, Any]:
    """An object; empty where the file is missing or holds none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def runs_in(folder: Path) -> list[Path]:
    """The runs that stand in a folder, by name."""
    return sorted(path.parent for path in folder.glob("*/config.yaml"))
