"""Reads what was measured from the folder of a run, even if it is unfinished or damaged."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiayn.config import program
from aiayn.config.schema import Config
from aiayn.config.stored import flatten, may_change, stored_config, to_plain
from aiayn.config.tasks import TASKS
from aiayn.errors import ConfigError, RefusedError
from aiayn.model.flops import n_parameters, training_flops
from aiayn.runs.results import is_of_split, last_step, read_evaluations, runs_within
from aiayn.runs.run_folder import Record, RunFolder, read_json, saved_steps, series
from aiayn.runs.validations import ValidationHistory

PARAMETERS = "parameters (M)"
SPLITS = ("val", "test")
# Options that say where the text is. What it is, fingerprints say.
TEXT_LOCATION = tuple(f"data.{name}" for name in ("source", "train", "val", "hub_path", "hub_name", "hub_revision"))
OF_STEPS = ("data.tokens_per_step", "data.micro_batches", "data.parts_per_step")  # they shape steps and no text


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
    content: dict[str, str]  # SHA-256 of corpus, tokenizer, val and val_text, as far as the run stored them
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
    def languages(self) -> tuple[Any, ...]:
        return tuple(self.options.get(key) for key in ("data.task", "data.src_lang", "data.tgt_lang"))

    @property
    def text_options(self) -> Record:
        """All options that shaped the text: what is known of it where the run stored no fingerprints."""
        shaping = [key for key in self.options if key.startswith("data.") and key not in OF_STEPS]
        return {key: self.options[key] for key in shaping if not may_change(key)}

    def last(self, key: str) -> float | None:
        """Returns the last measurement of a series, such as val/ppl."""
        measured = series(self.records, key)
        return measured[-1][1] if measured else None

    def prefers_best(self, evaluation: Record) -> bool:
        """Whether this was scored with the best checkpoint because that validates better than the average."""
        return evaluation.get("checkpoint") == "best.ckpt" and read_json(self.folder.validated).get("worse") is True

    def settled(self) -> Config:
        """Returns the configuration. Raises RefusedError if it was written by another version of this program."""
        if self.config is None:
            raise RefusedError(self.unreadable)
        return self.config

    @property
    def parameters(self) -> int:
        config = self.settled()
        return n_parameters(config.model, config.data.vocab_size, config.data.src_vocab_size)

    def epoch(self) -> Record:
        """Returns what corpus.json counts of an epoch: `kept` pairs, `src_tokens`, `tgt_tokens` and `steps`.

        Empty without corpus.json, and where an epoch has some pairs more often than others: it counts each once.
        """
        if self.options.get("data.weights") or self.options.get("data.temperature", 1) != 1:
            return {}
        corpus = read_json(self.folder.corpus)
        try:
            return corpus["splits"]["train"] | {"steps": corpus["steps_per_epoch"]}
        except (KeyError, TypeError):
            return {}

    def flops(self, steps: int | None = None) -> tuple[float, bool]:
        """Returns the FLOPs of so many steps, or all so far, and whether they were counted from the corpus' tokens.

        Pairs are taken to have the corpus' mean lengths; where `epoch` is empty every step counts as full.
        """
        config, train, steps = self.settled(), self.epoch(), self.step if steps is None else steps
        model, vocab_size = config.model, config.data.vocab_size
        try:
            pairs = train["kept"]
            lengths = [(train[f"{side}_tokens"] + pairs) / pairs for side in ("src", "tgt")]  # end marks included
            epoch = pairs * training_flops(model, vocab_size, *lengths)
            return float(epoch * steps / train["steps"]), True
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            # Without the scores of attention, which add less than 1 % to a base model.
            return float(config.data.tokens_per_step * steps * training_flops(model, vocab_size, 1, 1)), False


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
        options = flatten(to_plain(config))
    except (ConfigError, ValueError, TypeError, AttributeError) as error:
        unreadable = f"{folder.config}: {error}; it was written by another version of this program"
    records = folder.read_metrics()
    step = max(saved_steps(folder.checkpoints), default=last_step(records))
    evaluations = read_evaluations(folder)
    content = _content(read_json(folder.corpus), evaluations)
    precision = read_json(folder.machine).get("precision")
    run = MeasuredRun(folder, options, config, unreadable, step, records, evaluations, content, precision)
    if config is not None:
        options[PARAMETERS] = f"{run.parameters / 1e6:.2f}"
    _note_what_is_missing(run)
    return run


def _content(corpus: Record, evaluations: dict[str, Record]) -> dict[str, str]:
    """Returns the fingerprints that corpus.json has, or else evaluation.json."""
    keys = {"corpus": "fingerprint", "tokenizer": "tokenizer_sha256"}
    keys |= {"val": "val_sha256", "val_text": "val_text_sha256"}
    found = {name: corpus.get(key) for name, key in keys.items()}
    for evaluation in evaluations.values():
        for name, key in (("corpus", "corpus"), ("tokenizer", "tokenizer_sha256")):
            found[name] = found[name] or evaluation.get(key)
    return {name: value for name, value in found.items() if isinstance(value, str)}


def read_runs(folders: Iterable[Path]) -> tuple[list[MeasuredRun], list[str]]:
    """Returns the runs that can be compared, and a line for each unreadable one.

    A last line counts the runs of older versions, whose text is known by its options only.

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
    old = sum("corpus" not in run.content for run in runs)
    said = f"{old} of {len(runs)} runs stored no fingerprint of their text: seeds are told by their options alone"
    return runs, left_out + [said] * bool(old)


def _note_what_is_missing(run: MeasuredRun) -> None:
    config = run.config
    if config is not None and run.step < config.trainer.max_steps:
        trainer, records = config.trainer, [record for record in run.records if record["step"] <= run.step]
        is_over = ValidationHistory(trainer, records).is_out_of_patience()
        ended = f"ended by trainer.patience={trainer.patience}" if is_over else "unfinished"
        run.notes.append(f"{ended}: step {run.step:,} of {trainer.max_steps:,}")
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
    elif (own := run.options.get(f"data.{split}")) is not None and not is_of_split(result, split, own):
        text = result["text"] if result.get("split") != split else f"data.{split}={result['prefix']}"
        run.notes.append(f"{path} has the scores of other text ({text}): {command}")
        del run.evaluations[split]
    elif run.prefers_best(result):
        run.notes.append(f"{split} was scored with the best checkpoint, which validates better than the average")
    elif result.get("checkpoint") == "best.ckpt":
        run.notes.append(f"{split} was scored with the best checkpoint, of step {result['step']:,}")
    elif result["step"] != run.step:
        run.notes.append(f"{split} was scored at step {result['step']:,}, the run is at {run.step:,}: {command}")
