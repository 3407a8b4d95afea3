"""What a run measured: its evaluations, and the series of metrics.jsonl."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from operator import itemgetter
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

from aiayn.config.tasks import FORCED_KINDS
from aiayn.runs.run_folder import (
    Record,
    RunFolder,
    is_count,
    is_number,
    read_json,
    read_jsonl,
    series,
)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Scores of one text, as evaluation.json holds them."""

    task: str = "translation"
    metrics: dict[str, float | None]  # by kind; None where a kind does not apply
    signature: str = ""  # of the score to report
    signatures: dict[str, str | None] = field(default_factory=dict)
    details: dict[str, Record | None] = field(default_factory=dict)  # of the kinds of BLEU
    lines: int
    n_references: int = 1
    recomposed: dict[str, int] | None = (
        None  # lines that were not in NFC, of hypotheses and references
    )
    brackets: Record | None = None  # of a parser
    forced: Record | None = (
        None  # forced decoding of the first reference: perplexity, accuracy in %, tokens
    )
    extensions_sha256: list[str] = field(default_factory=list)

    text: str = ""  # the option that chose the text
    test_set: str | None = None  # the paper's name of it
    split: str | None = None  # the run's own split, if it is that
    prefix: Any = None
    text_sha256: str | None = None  # of sources and references
    src_lang: str = ""
    tgt_lang: str = ""
    paper: Record | None = None  # the paper's figures for this text

    corpus: str | None = None  # fingerprint of the training text
    tokenizer_sha256: str | None = None
    checkpoint: str | None = None
    checkpoint_sha256: str | None = None
    step: int
    averaged: list[int] = field(default_factory=list)  # steps of the checkpoints behind an average
    # The other runs: run, checkpoint, checkpoint_sha256, step
    ensemble: list[Record] = field(default_factory=list)

    search: Record = field(default_factory=dict)  # of a file's translations: its name, `hypotheses`
    seconds: float = 0.0
    device: str = ""
    hypotheses_sha256: str | None = None
    baseline: Record | None = None  # paired tests against another run

    @property
    def search_options(self) -> Record:
        return without_batching(self.search)

    @property
    def made_with(self) -> Record:
        """Returns the options of `evaluate.py` behind the translations, by name."""
        options = self.search_options
        return {key if key == "hypotheses" else f"search.{key}": options[key] for key in options}

    def score(self, metric_name: str) -> float | None:
        """Returns the score of a kind, or of the references' forced decoding; None if it was not
        measured.
        """
        if metric_name in FORCED_KINDS:
            return (self.forced or {}).get(
                {"token_accuracy": "accuracy"}.get(metric_name, metric_name)
            )
        return self.metrics.get(metric_name)

    def length_ratio(self, metric_name: str) -> float | None:
        """Returns the tokens of the hypotheses divided by those of the references, as a kind of
        BLEU counts them.
        """
        lengths = self.details.get(metric_name) or {}
        ours, tokens = lengths.get("hypothesis_tokens"), lengths.get("reference_tokens")
        return ours / tokens if is_count(ours) and is_count(tokens) and tokens else None

    def is_of_split(self, split: str, prefix: Any = None) -> bool:
        """Returns whether these scores are of the run's own split, and of the text that its option
        names now.
        """
        return self.split == split and (None in (prefix, self.prefix) or prefix == self.prefix)


def without_batching(search: Record) -> Record:
    """Returns the options of a search without the one that changes no output."""
    return {key: value for key, value in search.items() if key != "batch_tokens"}


def read_evaluation(path: Path) -> Evaluation | None:
    """Returns the scores in an evaluation.json; None if the file is missing or damaged."""
    record = read_json(path)
    types = {field.name: field.type for field in fields(Evaluation)}
    known = {name: record[name] for name in types.keys() & record.keys()}
    is_whole = {"metrics", "step", "lines"} <= known.keys()
    if not is_whole or not all(_is_of(value, types[name]) for name, value in known.items()):
        return None
    return Evaluation(**known)


def _is_of(value: Any, declared: Any) -> bool:
    """Returns whether a value of JSON is of a declared type, such as dict[str, float | None]."""
    members = get_args(declared)
    if isinstance(declared, UnionType):
        return any(_is_of(value, member) for member in members)
    if get_origin(declared) is list:
        return isinstance(value, list) and all(_is_of(entry, members[0]) for entry in value)
    if get_origin(declared) is dict:
        is_table = isinstance(value, dict)
        return is_table and all(_is_of(entry, members[1]) for entry in value.values())
    if declared in (int, float):
        return is_count(value) if declared is int else is_number(value)
    return declared is Any or type(value) is declared


def read_evaluations(run: RunFolder) -> dict[str, Evaluation]:
    """Returns the readable evaluations of a run by name of the test set, `test` first."""
    paths = {path.parent.name: path for path in run.path.glob("evaluation/*/evaluation.json")}
    names = sorted(paths, key=lambda name: (name != "test", name))
    evaluations = {name: read_evaluation(paths[name]) for name in names}
    return {name: evaluation for name, evaluation in evaluations.items() if evaluation}


def runs_within(folder: Path) -> Iterator[RunFolder]:
    """Yields the folder itself if it is a run, else every run inside it at any depth, by name:
    d_k-8 before d_k-16.
    """
    # The search ends at a run, because loggers keep folders with a config.yaml of their own inside
    # it.
    run = RunFolder(folder)
    if run.exists():
        yield run
    elif folder.is_dir():
        for inner in sorted(folder.iterdir(), key=lambda path: numbers_by_size(path.name)):
            if inner.is_dir() and not inner.is_symlink() and not inner.name.startswith("."):
                yield from runs_within(inner)


def numbers_by_size(text: str) -> list[tuple[float, str]]:
    """Returns a key for sorting that compares the numbers in a text as numbers."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return [(float(part), "") if number % 2 else (-1.0, part) for number, part in enumerate(parts)]


def read_samples(path: Path) -> list[Record]:
    """Returns the lines of a samples.jsonl that have a source, a reference and a hypothesis."""
    texts = ("source", "reference", "hypothesis")
    return [
        record
        for record in read_jsonl(path)
        if all(isinstance(record.get(name), str) for name in texts)
    ]


def last_step(records: list[Record]) -> int:
    return max((record["step"] for record in records), default=0)


def best_and_last(
    records: list[Record], key: str, best: Callable[..., Any] = min
) -> tuple[float, float, float] | None:
    """Returns the best value, its step, and the last value; None if nothing was measured. `best` is
    min or max.
    """
    points = series(records, key)
    if not points:
        return None
    best_step, best_value = best(points, key=itemgetter(1))
    return best_value, best_step, points[-1][1]
