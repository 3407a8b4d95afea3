"""What a run wrote line by line while it trained: one JSON object a line."""

import json
from pathlib import Path
from typing import Any


def read_records(path: Path) -> list[dict[str, Any]]:
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
