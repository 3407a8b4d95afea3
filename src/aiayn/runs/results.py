"""What was measured of a run, read from its folder for tables, reports and other commands."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aiayn.runs.run_folder import Record, RunFolder, is_count, is_number, read_json, read_jsonl, series


def runs_within(folder: Path) -> Iterator[RunFolder]:
    """Yields the folder itself if it is a run, else every run at any depth inside it, by name."""
    # The search ends at a run, because loggers keep folders with a config.yaml of their own inside it.
    run = RunFolder(folder)
    if run.exists():
        yield run
    elif folder.is_dir():
        for inner in sorted(folder.iterdir()):
            if inner.is_dir() and not inner.is_symlink() and not inner.name.startswith("."):
                yield from runs_within(inner)


def read_evaluations(run: RunFolder) -> dict[str, Record]:
    """Returns each evaluation.json with usable scores by name of the test set, `test` first."""
    found = {path.parent.name: read_json(path) for path in sorted(run.path.glob("evaluation/*/evaluation.json"))}
    usable = {name: result for name, result in found.items() if _has_scores(result)}
    return dict(sorted(usable.items(), key=lambda item: (item[0] != "test", item[0])))


def _has_scores(evaluation: Record) -> bool:
    metrics = evaluation.get("metrics")
    scored = isinstance(metrics, dict) and all(value is None or is_number(value) for value in metrics.values())
    return scored and is_count(evaluation.get("step")) and is_count(evaluation.get("lines"))


def is_of_split(evaluation: Record, split: str, prefix: Any = None) -> bool:
    """Whether these are scores of the run's own split, of what its option says now (None: whatever that says).

    Older evaluations have only the option that chose the text.
    """
    if prefix is not None and evaluation.get("prefix", prefix) != prefix:
        return False
    if "split" in evaluation:
        return evaluation["split"] == split
    return evaluation.get("text", f"split={split}") == f"split={split}"


def search_of(evaluation: Mapping[str, Any]) -> Record:
    """Returns the options of the search behind scores, without the one that changes no result."""
    search = evaluation.get("search")
    return {key: value for key, value in search.items() if key != "batch_tokens"} if isinstance(search, dict) else {}


def read_samples(path: Path) -> list[Record]:
    """Returns the lines of a samples.jsonl that have a source, a reference and a hypothesis."""
    texts = ("source", "reference", "hypothesis")
    return [record for record in read_jsonl(path) if all(isinstance(record.get(name), str) for name in texts)]


def last_step(records: list[Record]) -> int:
    return max((record["step"] for record in records), default=0)


def best_and_last(records: list[Record], key: str, best: Any = min) -> tuple[float, float, float] | None:
    """Returns the best value, its step, and the last value; None if nothing was measured. `best` is min or max."""
    points = series(records, key)
    if not points:
        return None
    value = best(value for _, value in points)
    return value, next(step for step, found in points if found == value), points[-1][1]
