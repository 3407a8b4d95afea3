"""Reads what was measured from the folder of a run, even if it is unfinished or damaged."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiayn.config import program
from aiayn.config.resolve import RunConfig
from aiayn.config.stored import flatten, mutable_on_resume, stored_config, to_dict
from aiayn.config.tasks import TASKS
from aiayn.errors import ConfigError, RefusedError
from aiayn.model.flops import n_parameters, training_flops
from aiayn.runs.continuation import ValidationHistory
from aiayn.runs.results import Evaluation, last_step, read_evaluations, runs_within
from aiayn.runs.run_folder import Record, RunFolder, read_json, saved_steps, series, similar_run

PARAMETERS = "parameters (M)"
SPLITS = ("val", "test")
# Options that say where the text is. What it is, fingerprints say.
TEXT_LOCATION = tuple(
    f"data.{name}" for name in ("source", "train", "val", "hub_path", "hub_name", "hub_revision")
)
# They shape steps and no text
STEP_OPTIONS = (
    "data.tokens_per_step",
    "data.micro_batches",
    "data.parts_per_step",
)
NAMING = ("name", "sweep", "outputs", "logger.group")
MAX_NAMES = 3  # runs that a note names


@dataclass
class MeasuredRun:
    """What was measured of a run; `notes` name what is missing or cannot be read, with RUN for its
    folder.
    """

    folder: RunFolder
    options: Record  # by dotted name, d_k and d_v resolved, as far as config.yaml has them
    config: RunConfig | None  # None: written by another version of this program, says `unreadable`
    unreadable: str
    step: int
    records: list[Record]  # the lines of metrics.jsonl
    # By name of the test set; val and test are the run's own splits
    evaluations: dict[str, Evaluation]
    corpus: Record
    machine: Record
    averaged: Record
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.folder.path)

    @property
    def seed(self) -> Any:
        return self.options.get("seed")

    @property
    def task(self) -> str:
        task = self.options.get("data.task")
        return task if task in TASKS else "translation"

    @property
    def languages(self) -> tuple[Any, ...]:
        return tuple(
            self.options.get(key) for key in ("data.task", "data.src_lang", "data.tgt_lang")
        )

    @property
    def content(self) -> dict[str, str]:
        """Return the SHA-256 of corpus, tokenizer, val and val_text, as far as corpus.json or an
        evaluation has them.
        """
        fingerprints = {
            "corpus": self.corpus.get("fingerprint"),
            "tokenizer": self.corpus.get("tokenizer_sha256"),
            "val": self.corpus.get("val_sha256"),
            "val_text": self.corpus.get("val_text_sha256"),
        }
        for evaluation in self.evaluations.values():
            fingerprints["corpus"] = fingerprints["corpus"] or evaluation.corpus
            fingerprints["tokenizer"] = fingerprints["tokenizer"] or evaluation.tokenizer_sha256
        return {name: digits for name, digits in fingerprints.items() if isinstance(digits, str)}

    @property
    def text_options(self) -> Record:
        """Return all options that shaped the text, which identify it if the run has no
        fingerprints.
        """
        shaping = [
            key for key in self.options if key.startswith("data.") and key not in STEP_OPTIONS
        ]
        return {key: self.options[key] for key in shaping if not mutable_on_resume(key)}

    @property
    def fingerprint(self) -> str:
        """Return the SHA-256 of options and measurements, the same for a copy of the folder under
        another name.
        """
        options = {key: value for key, value in self.options.items() if key not in NAMING}
        measured = (sorted(options.items()), self.records, self.evaluations)
        return hashlib.sha256(repr(measured).encode()).hexdigest()

    @property
    def parameters(self) -> int:
        config = self.resolved()
        return n_parameters(config.model, config.data.vocab_size, config.data.src_vocab_size)

    def last(self, key: str) -> float | None:
        """Return the last measurement of a series, such as val/ppl."""
        points = series(self.records, key)
        return points[-1][1] if points else None

    def prefers_best(self, evaluation: Evaluation) -> bool:
        """Return whether this was scored with the best checkpoint because that validates better
        than the average.
        """
        return evaluation.checkpoint == "best.ckpt" and self.averaged.get("worse") is True

    def resolved(self) -> RunConfig:
        """Return the configuration. Raises RefusedError if another version of this program wrote
        it.
        """
        if self.config is None:
            raise RefusedError(self.unreadable)
        return self.config

    def epoch(self) -> Record:
        """Return what corpus.json counts of an epoch: `kept` pairs, `src_tokens`, `tgt_tokens` and
        `steps`.

        Empty without corpus.json, and where an epoch has some pairs more often than others: it
        counts each once.
        """
        if self.options.get("data.weights") or self.options.get("data.temperature", 1) != 1:
            return {}
        try:
            return self.corpus["splits"]["train"] | {"steps": self.corpus["steps_per_epoch"]}
        except (KeyError, TypeError):
            return {}

    def flops(self, steps: int | None = None) -> tuple[float, bool]:
        """Return the FLOPs of so many steps, or all so far, and whether they were counted from the
        corpus' tokens.

        Pairs are taken to have the corpus' mean lengths; where `epoch` is empty every step counts
        as full.
        """
        config = self.resolved()
        steps = self.step if steps is None else steps
        model, vocab_size = config.model, config.data.vocab_size
        epoch = self.epoch()
        try:
            pairs = epoch["kept"]
            # With end marks
            src_length, tgt_length = (
                epoch[f"{side}_tokens"] / pairs + 1 for side in ("src", "tgt")
            )
            per_pair = training_flops(model, vocab_size, src_length, tgt_length)
            return float(per_pair * pairs / epoch["steps"] * steps), True
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            # Without the scores of attention, which add less than 1 % to a base model.
            return float(
                config.data.tokens_per_step * steps * training_flops(model, vocab_size, 1, 1)
            ), False


def find_runs(folders: Iterable[Path]) -> list[RunFolder]:
    """Return every run among these folders and within them once. Raises ConfigError for a folder
    without any.
    """
    by_place: dict[Path, RunFolder] = {}
    for folder in folders:
        runs = list(runs_within(folder))
        if not runs:
            raise ConfigError(
                f"{folder}: neither a run nor a folder of runs (no checkpoints/ and no "
                f"config.yaml){similar_run(folder)}"
            )
        for run in runs:
            by_place.setdefault(run.path.resolve(), run)
    return list(by_place.values())


def read_run(folder: RunFolder) -> MeasuredRun:
    """Read the run's small files; no checkpoint is opened. Raises RefusedError without a readable
    config.yaml.
    """
    tree = folder.read_config()
    options, config, unreadable = flatten(tree), None, ""
    try:
        config = stored_config(tree)
        options = flatten(to_dict(config))
    except (ConfigError, ValueError, TypeError, AttributeError) as error:
        unreadable = f"{folder.config}: {error}; it was written by another version of this program"
    records = folder.read_metrics()
    run = MeasuredRun(
        folder=folder,
        options=options,
        config=config,
        unreadable=unreadable,
        step=max(saved_steps(folder.checkpoints), default=last_step(records)),
        records=records,
        evaluations=read_evaluations(folder),
        corpus=read_json(folder.corpus),
        machine=read_json(folder.machine),
        averaged=read_json(folder.validated),
    )
    if config is not None:
        options[PARAMETERS] = f"{run.parameters / 1e6:.2f}"
    run.notes += _training_notes(run)
    for split in TASKS[run.task].scored_on:
        run.notes += _check_evaluation(run, split)
    return run


def read_runs(folders: Iterable[Path]) -> tuple[list[MeasuredRun], list[str]]:
    """Return the runs that can be compared, each once, and the notes about them and about those
    left out.

    Raises RefusedError for a folder that holds no run.
    """
    runs: dict[str, MeasuredRun] = {}
    left_out = []
    for folder in find_runs(folders):
        try:
            run = read_run(folder)
            run.resolved()
        except RefusedError as error:
            left_out.append(f"{folder.path}: not shown: {error}")
            continue
        first = runs.setdefault(run.fingerprint, run)
        if first is not run:
            left_out.append(f"{run.name}: a copy of {first.name}, which counts once")
    unique_runs = [*runs.values()]
    return unique_runs, gathered_notes(unique_runs) + left_out


def gathered_notes(runs: Sequence[MeasuredRun]) -> list[str]:
    """Return a line for each note: the runs that have it, the first few by name."""
    names_of_note: dict[str, list[str]] = {}
    for run in runs:
        for note in run.notes:
            names_of_note.setdefault(note, []).append(run.name)
    lines = []
    for note, run_names in names_of_note.items():
        more = f" and {len(run_names) - MAX_NAMES} more" if len(run_names) > MAX_NAMES else ""
        text = note.replace("RUN", run_names[0]) if len(run_names) == 1 else note
        lines.append(f"{', '.join(run_names[:MAX_NAMES])}{more}: {text}")
    return lines


def _training_notes(run: MeasuredRun) -> list[str]:
    notes = []
    config = run.config
    if config is not None and run.step < config.trainer.max_steps:
        trainer = config.trainer
        records = [record for record in run.records if record["step"] <= run.step]
        if any(run.folder.path.glob("not_finite_at_step_*.tsv")):
            end = "diverged"
        elif ValidationHistory(trainer, records).is_out_of_patience():
            end = f"ended by trainer.patience={trainer.patience}"
        else:
            end = "unfinished"
        notes.append(f"{end}: step {run.step:,} of {trainer.max_steps:,}")
    perplexities = series(run.records, "val/ppl")
    if not perplexities:
        notes.append("no perplexity in metrics.jsonl")
    elif perplexities[-1][0] != run.step:
        notes.append(f"the perplexity is that of step {perplexities[-1][0]:,}")
    return notes


def _check_evaluation(run: MeasuredRun, split: str) -> list[str]:
    """Return what is wrong with the scores of a split, and drop scores of other text."""
    path = run.folder.evaluation(split).scores
    command = f"{program.typed('evaluate')} run=RUN split={split}" + " checkpoint=last" * (
        split == "val"
    )
    evaluation = run.evaluations.get(split)
    own_text = run.options.get(f"data.{split}")
    if not path.exists():
        # A sweep scores nothing but the development set by default.
        return (
            [f"not scored on {split}: {command}"] if split == "val" and not run.evaluations else []
        )
    if evaluation is None:
        return [f"{path.name} of {split} is damaged; score again: {command}"]
    if own_text is not None and not evaluation.is_of_split(split, own_text):
        is_split = evaluation.split == split
        text = f"data.{split}={evaluation.prefix}" if is_split else evaluation.text
        del run.evaluations[split]
        return [f"{path.name} of {split} has scores of other text ({text}): {command}"]
    if run.prefers_best(evaluation):
        return [
            f"{split} was scored with the best checkpoint, which validates better than the average"
        ]
    if evaluation.checkpoint == "best.ckpt":
        return [f"{split} was scored with the best checkpoint, of step {evaluation.step:,}"]
    if evaluation.step != run.step:
        return [
            f"{split} was scored at step {evaluation.step:,}, the run is at {run.step:,}: {command}"
        ]
    return []
