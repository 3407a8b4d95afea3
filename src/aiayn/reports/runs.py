"""Reads what was measured from the folder of a run, even if it is unfinished or damaged."""

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from aiayn.config import program
from aiayn.config.schema import Config
from aiayn.config.stored import flatten, stored_config, to_plain
from aiayn.config.tasks import TASKS
from aiayn.errors import ConfigError, RefusedError
from aiayn.model.flops import n_parameters, training_flops
from aiayn.runs.run_folder import (
    Record,
    RunFolder,
    is_count,
    is_of_split,
    read_json,
    read_seal,
    runs_within,
    saved_steps,
    series,
)

PARAMETERS = "parameters (M)"
SPLITS = ("val", "test")


@dataclass
class MeasuredRun:
    """What was measured of a run; `notes` names what is missing or cannot be read."""

    folder: RunFolder
    options: Record  # by dotted name, d_k and d_v resolved, as far as config.yaml has them
    config: Config | None  # None: written by another version of this program, says `unreadable`
    unreadable: str
    step: int
    records: list[Record]  # the lines of metrics.jsonl
    evaluations: dict[str, Record]  # by name of the test set; val and test are the run's own splits
    precision: str | None = None  # the trainer's, as the machine chose it
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.folder.path)

    @property
    def seed(self) -> Any:
        return self.options.get("seed")

    @property
    def task(self) -> str:
        found = self.options.get("data.task")
        return found if found in TASKS else "translation"

    @property
    def ppl(self) -> float | None:
        """Perplexity of the validation set: unsmoothed, per subword."""
        return self.last("val/ppl")

    def last(self, key: str) -> float | None:
        """Returns the last measurement of a series, such as val/ppl."""
        measured = series(self.records, key)
        return measured[-1][1] if measured else None

    def settled(self) -> Config:
        """Returns the configuration. Raises RefusedError if it was written by another version of this program."""
        if self.config is None:
            raise RefusedError(self.unreadable)
        return self.config

    @property
    def parameters(self) -> int:
        config = self.settled()
        return n_parameters(config.model, config.data.vocab_size)

    def flops(self) -> tuple[float, bool]:
        """Returns the FLOPs of training so far, and whether they were counted over the corpus.

        Without the lengths of its sentences every step counts as full.
        """
        return _flops(self.settled(), self.step, read_json(self.folder.corpus))


def find_runs(folders: Iterable[Path]) -> list[RunFolder]:
    """Returns every run among these folders and within them once. Raises RefusedError for a folder without any."""
    found: dict[Path, RunFolder] = {}
    for folder in folders:
        runs = list(runs_within(folder))
        if not runs:
            raise RefusedError(f"{folder}: neither a run nor a folder of runs (no checkpoints/ and no config.yaml)")
        for run in runs:
            found.setdefault(run.path.resolve(), run)
    return list(found.values())


def read_run(folder: RunFolder) -> MeasuredRun:
    """Reads the run's small files; no checkpoint is opened. Raises RefusedError without a readable config.yaml."""
    tree = folder.read_config()
    options, config, unreadable = flatten(tree), None, ""
    try:
        config = stored_config(tree)
    except (ConfigError, ValueError, TypeError, AttributeError) as error:
        unreadable = f"{folder.config}: {error}; it was written by another version of this program"
    if config is not None:
        model = config.model
        options = flatten(to_plain(config)) | {"model.d_k": model.d_k, "model.d_v": model.d_v}
        options[PARAMETERS] = f"{n_parameters(model, config.data.vocab_size) / 1e6:.2f}"
    records = folder.read_metrics()
    measured = max((record["step"] for record in records), default=0)
    step = max(saved_steps(folder.checkpoints), default=measured)
    precision = read_json(folder.machine).get("precision")
    run = MeasuredRun(folder, options, config, unreadable, step, records, folder.read_evaluations(), precision)
    _note_what_is_missing(run)
    return run


def read_runs(folders: Iterable[Path]) -> tuple[list[MeasuredRun], list[str]]:
    """Returns the runs that can be compared, and a line for each of the others, copies and unreadable ones.

    Raises RefusedError for a folder that holds no run.
    """
    runs, left_out = [], []
    for folder in find_runs(folders):
        try:
            run = read_run(folder)
            run.settled()
            runs.append(run)
        except RefusedError as error:
            left_out.append(f"{folder.path}: not shown: {error}")
    found, copies = without_copies(runs)
    return found, left_out + copies


def without_copies(runs: Iterable[MeasuredRun]) -> tuple[list[MeasuredRun], list[str]]:
    """Returns each training once, and a line for each copy: a run is its options, seed and weights, not its path."""
    kept: list[MeasuredRun] = []
    copies = []
    first: dict[tuple[str, str], MeasuredRun] = {}
    for run in runs:
        training = str(
            sorted((key, str(value)) for key, value in run.options.items() if key not in ("name", "outputs"))
        )
        marks = [(training, mark) for mark in fingerprints(run)]
        if known := [first[mark] for mark in marks if mark in first]:
            copies.append(f"{run.name}: a copy of {known[0].name} (same options, seed and weights): counted once")
            continue
        first |= dict.fromkeys(marks, run)
        kept.append(run)
    return kept, copies


def fingerprints(run: MeasuredRun) -> set[str]:
    """Returns what only this training has: checksums of its checkpoints, and its last measurements to all digits."""
    found = set()
    step = run.folder.checkpoints / f"step_{run.step}.ckpt"
    for path in (step, run.folder.averaged):
        with suppress(OSError):
            seal = read_seal(path)
            found |= {seal.decode("ascii")} if seal and seal.isascii() else set()
    found |= {sha256 for one in run.evaluations.values() if isinstance(sha256 := one.get("checkpoint_sha256"), str)}
    ends = [series(run.records, key)[-1:] for key in ("train/loss", "val/ppl")]
    return found | ({f"measured {ends}"} if all(ends) else set())


def _note_what_is_missing(run: MeasuredRun) -> None:
    config = run.config
    if config is not None and run.step < config.trainer.max_steps:
        run.notes.append(f"unfinished: step {run.step:,} of {config.trainer.max_steps:,}")
    measured = series(run.records, "val/ppl")
    if not measured:
        run.notes.append("no perplexity in metrics.jsonl")
    elif measured[-1][0] != run.step:
        run.notes.append(f"the perplexity is that of step {measured[-1][0]:,}")
    for split in TASKS[run.task].scored_on:
        _check_evaluation(run, split)


def _check_evaluation(run: MeasuredRun, split: str) -> None:
    """Notes what is wrong with the scores of a split, and drops scores of other text."""
    path = run.folder.evaluation(split).scores
    command = f"{program.typed('evaluate')} run={run.name} split={split}" + " checkpoint=last" * (split == "val")
    result = run.evaluations.get(split)
    if not path.exists():
        if split == "val" and not run.evaluations:  # a sweep scores nothing else by default
            run.notes.append(f"not scored on {split}: {command}")
    elif result is None:
        run.notes.append(f"{path}: damaged; score again: {command}")
    elif not is_of_split(result, split) and run.options.get(f"data.{split}") is not None:
        run.notes.append(f"{path} has the scores of other text ({result['text']}): {command}")
        del run.evaluations[split]
    elif result["step"] != run.step:
        run.notes.append(f"{split} was scored at step {result['step']:,}, the run is at {run.step:,}: {command}")


def _flops(config: Config, step: int, corpus: Record) -> tuple[float, bool]:
    model, vocab_size = config.model, config.data.vocab_size
    try:
        src, tgt = (tuple(corpus["lengths"][side]) for side in ("src", "tgt"))
        epoch = sum(n * training_flops(model, vocab_size, s, t) for (s, t), n in _pair_lengths(src, tgt).items())
        return float(epoch) * step / corpus["steps_per_epoch"], True
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        # Without the lengths of sentences no scores of attention: they add less than 1 % to a base model.
        return float(config.data.tokens_per_step * step * training_flops(model, vocab_size, 1, 1)), False


@cache
def _pair_lengths(src: tuple[int, ...], tgt: tuple[int, ...]) -> Counter[tuple[int, int]]:
    """Pairs by source and target tokens, end marks included, from sentences of 0, 1, 2, ... subwords on each side.

    The n-th shortest source is taken for the one of the n-th shortest target. Which of them belong together matters to
    the scores of cross-attention only, a term of about 0.1 %.
    """
    if not all(map(is_count, (*src, *tgt))):
        raise ValueError("corpus.json: lengths that are no counts")
    sides = (chain.from_iterable(repeat(n, count) for n, count in enumerate(counts, 1)) for counts in (src, tgt))
    return Counter(zip(*sides, strict=True))
