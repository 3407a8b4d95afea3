"""Reads what was measured from the folder of a run, even if it is unfinished or damaged."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from aiayn.config import program
from aiayn.config.resolve import RunConfig
from aiayn.config.stored import flatten, mutable_on_resume, stored_config, to_dict
from aiayn.config.tasks import FORCED_KINDS, METRICS, TASKS, VAL_METRICS, MetricEntry
from aiayn.errors import ConfigError, RefusedError
from aiayn.model.flops import n_parameters, training_flops
from aiayn.runs.continuation import ValidationHistory, end_reason, stored_end
from aiayn.runs.results import Evaluation, last_step, read_evaluations, runs_within
from aiayn.runs.run_folder import (
    Record,
    RunFolder,
    is_count,
    read_json,
    saved_steps,
    series,
    similar_run,
)

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
RATIO = " length ratio"  # the ratio of lengths of a kind of BLEU


@dataclass
class MeasuredRun:
    """What was measured of a run; `notes` name what is missing or cannot be read, with RUN for its
    folder.
    """

    folder: RunFolder
    options: Record  # by dotted name, d_k and d_v resolved
    config: RunConfig
    step: int
    records: list[Record]  # the lines of metrics.jsonl
    # By name of the test set; val and test are the run's own splits
    evaluations: dict[str, Evaluation]
    corpus: Record
    machine: Record
    average_is_worse: bool  # than the best checkpoint, which is then the default
    notes: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        return str(self.folder.path)

    @property
    def seed(self) -> int:
        return self.config.seed

    @property
    def task(self) -> str:
        return self.config.data.task

    @property
    def languages(self) -> tuple[str, ...]:
        settings = self.config.data
        return settings.task, settings.src_lang, settings.tgt_lang

    def content(self, key: str) -> str:
        """Returns a SHA-256 from corpus.json, or else all options that shaped the text: they also
        identify it.
        """
        shaping = {
            name: value
            for name, value in self.options.items()
            if name.startswith("data.") and name not in STEP_OPTIONS and not mutable_on_resume(name)
        }
        return str(self.corpus.get(key, shaping))

    @property
    def fingerprint(self) -> str:
        """Returns options and measurements, the same for a copy of the folder with another name."""
        options = {key: value for key, value in self.options.items() if key not in NAMING}
        return repr((options, self.records, self.evaluations))

    @property
    def parameters(self) -> int:
        settings = self.config.data
        return n_parameters(self.config.model, settings.vocab_size, settings.src_vocab_size)

    def prefers_best(self, evaluation: Evaluation) -> bool:
        """Returns whether this was scored with the best checkpoint because that validates better
        than the average.
        """
        return evaluation.checkpoint == "best.ckpt" and self.average_is_worse

    def epoch(self) -> Record | None:
        """Returns what corpus.json counts of an epoch: `kept` pairs, `tgt_tokens`, `steps`, and
        `src_tokens`, None if it lacks only these.

        None without a whole corpus.json, and where an epoch has some pairs more often than others:
        it counts each once.
        """
        settings = self.config.data
        if settings.weights or settings.temperature != 1:
            return None
        try:
            train = self.corpus["splits"]["train"]
            counts = {key: train[key] for key in ("kept", "tgt_tokens")}
            counts["steps"] = self.corpus["steps_per_epoch"]
            src_tokens = train.get("src_tokens")
        except (KeyError, TypeError, AttributeError):
            return None
        if not all(is_count(count) and count for count in counts.values()):
            return None
        return counts | {"src_tokens": src_tokens if is_count(src_tokens) else None}

    def flops(self, steps: int) -> float:
        """Returns the FLOPs of so many steps: of pairs of the corpus' mean lengths or, where these
        are not known, of full steps.
        """
        settings = self.config.data
        model = self.config.model
        epoch = self.epoch()
        if epoch and epoch["src_tokens"] is not None:
            pairs = epoch["kept"]
            # Lengths count the end mark.
            lengths = (epoch[f"{side}_tokens"] / pairs + 1 for side in ("src", "tgt"))
            per_step = pairs / epoch["steps"] * training_flops(model, settings.vocab_size, *lengths)
        else:
            # Without the scores of attention, which add less than 1 % to a base model.
            per_step = settings.tokens_per_step * training_flops(model, settings.vocab_size, 1, 1)
        return float(per_step * steps)


@dataclass(frozen=True)
class Metric:
    """A logged series such as val/ppl, whose last value counts, or a score in the evaluation of a
    split.
    """

    name: str
    split: str | None = None  # None: a series

    @property
    def key(self) -> str:
        return f"{self.split}/{self.name}" if self.split else self.name

    @property
    def title(self) -> str:
        return f"{self.name} ({self.split})" if self.split else self.name

    @property
    def entry(self) -> MetricEntry:
        """Returns decimals and direction; of a metric of an extension the usual ones."""
        return METRICS.get(self.name, MetricEntry(self.name, self.name, ""))

    @property
    def ratio(self) -> "Metric":
        """Returns the ratio of lengths that stands beside a BLEU score; no other metric has one."""
        return Metric(self.name + RATIO, self.split)

    def of(self, run: MeasuredRun) -> float | None:
        """Returns the value that was measured; None if there is none."""
        if self.split is None:
            points = series(run.records, self.name)
            return points[-1][1] if points else None
        evaluation = run.evaluations.get(self.split)
        if evaluation is None:
            return None
        kind = self.name.removesuffix(RATIO)
        return evaluation.score(kind) if kind == self.name else evaluation.length_ratio(kind)

    def extent(self, run: MeasuredRun) -> object:
        """Returns how much of its text a validation translated or read; None for a score."""
        if self.split:
            return None
        trainer = run.config.trainer
        is_read = self.name in ("val/loss", "val/ppl", "val/accuracy")
        return str(trainer.limit_val_batches if is_read else trainer.val_bleu_sentences)

    def comparable_by(self, run: MeasuredRun) -> object:
        """Returns what the values of two runs must have in common to be compared, by content.

        Scores need the same text and signature, figures per subword the same tokenizer, and losses
        also the same smoothing.
        """
        tokenizer = run.content("tokenizer_sha256")
        if self.split:
            evaluation = run.evaluations[self.split]
            text = evaluation.text_sha256 or evaluation.test_set
            signature = evaluation.signatures.get(self.name.removesuffix(RATIO))
            return run.languages, text, tokenizer if self.name in FORCED_KINDS else signature
        if self.name in VAL_METRICS:
            return run.languages, run.content("val_text_sha256"), self.extent(run)
        smoothing = run.config.optim.label_smoothing if self.name.endswith("loss") else None
        if self.name.startswith("val/"):
            return tokenizer, run.content("val_sha256"), smoothing, self.extent(run)
        return self.name == "train/loss" and (run.content("fingerprint"), smoothing)


def find_runs(folders: Iterable[Path]) -> list[RunFolder]:
    """Returns every run among these folders and within them once. Raises ConfigError for a folder
    without any.
    """
    runs = {}
    for folder in folders:
        within = list(runs_within(folder))
        if not within:
            remedy = similar_run(folder, of_folders=True) or "; name one, such as outputs/NAME"
            raise ConfigError(
                f"{folder}: neither a run nor a folder of runs (no checkpoints/ and no "
                f"config.yaml){remedy}"
            )
        for run in within:
            runs.setdefault(run.path.resolve(), run)
    return list(runs.values())


def read_run(folder: RunFolder) -> MeasuredRun:
    """Reads the run's small files; no checkpoint is opened. Raises RefusedError without a
    config.yaml of this version of the program.
    """
    tree = folder.read_config()
    try:
        config = stored_config(tree)
    except (ConfigError, ValueError, TypeError, AttributeError) as error:
        raise RefusedError(
            f"{folder.config}: {error}; use the version of this program that wrote it"
        ) from error
    records = folder.read_metrics()
    step = max(saved_steps(folder.checkpoints), default=last_step(records))
    run = MeasuredRun(
        folder=folder,
        options=flatten(to_dict(config)),
        config=config,
        step=step,
        records=records,
        evaluations=read_evaluations(folder),
        corpus=read_json(folder.corpus),
        machine=read_json(folder.machine),
        average_is_worse=read_json(folder.validated).get("worse") is True,
    )
    run.options[PARAMETERS] = f"{run.parameters / 1e6:.2f}"
    run.notes += _training_notes(run)
    for split in TASKS[run.task].scored_on:
        run.notes += _check_evaluation(run, split)
    return run


def read_runs(folders: Iterable[Path]) -> tuple[list[MeasuredRun], list[str]]:
    """Returns the runs that can be compared, each once, and the notes about them and about those
    left out.

    Raises ConfigError for a folder that holds no run.
    """
    runs: dict[str, MeasuredRun] = {}
    left_out = []
    for folder in find_runs(folders):
        try:
            run = read_run(folder)
        except RefusedError as error:
            left_out.append(f"{folder.path}: not shown: {error}")
            continue
        first = runs.setdefault(run.fingerprint, run)
        if first is not run:
            left_out.append(f"{run.path}: a copy of {first.path}, which counts once")
    notes = gathered((run.path, note) for run in runs.values() for note in run.notes)
    return [*runs.values()], notes + left_out


def gathered(notes: Iterable[tuple[str, str]]) -> list[str]:
    """Returns a line for each note: the names that have it, the first few, then the note."""
    names_of = defaultdict(list)
    for name, note in notes:
        names_of[note].append(name)
    lines = []
    for note, names in names_of.items():
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        text = note if names[1:] else note.replace("run=RUN", f"run={names[0]}")
        lines.append(f"{', '.join(names[:MAX_NAMES])}{more}: {text}")
    return lines


def _training_notes(run: MeasuredRun) -> list[str]:
    notes = []
    trainer = run.config.trainer
    if run.step < trainer.max_steps:
        records = [record for record in run.records if record["step"] <= run.step]
        # Only the run's own code knows which values of a metric of one's own are better.
        is_known = trainer.best_metric in METRICS
        validations = ValidationHistory(trainer, records if is_known else ())
        reason = end_reason(run.folder, trainer, run.step, validations)
        if reason is None and not read_json(run.folder.end).get("limits"):
            reason = stored_end(run.folder, run.step)  # divergence
        end = f"ended by {reason}" if reason else "unfinished"
        notes.append(f"{end}: step {run.step:,} of {trainer.max_steps:,}")
    perplexities = series(run.records, "val/ppl")
    if not perplexities:
        notes.append("no perplexity in metrics.jsonl")
    elif perplexities[-1][0] != run.step:
        notes.append(f"the perplexity is that of step {perplexities[-1][0]:,}")
    return notes


def _check_evaluation(run: MeasuredRun, split: str) -> list[str]:
    """Returns what is wrong with the scores of a split, and drops scores of other text."""
    path = run.folder.evaluation(split).scores
    command = f"{program.typed('evaluate')} run=RUN split={split}"
    if split == "val":
        command += " checkpoint=last"
    evaluation = run.evaluations.get(split)
    if not path.exists():
        # A sweep scores nothing but the development set by default.
        is_missing = split == "val" and not run.evaluations
        return [f"not scored on {split}: {command}"] if is_missing else []
    if evaluation is None:
        return [f"{path.name} of {split} is damaged; score again: {command}"]
    own_text = run.options[f"data.{split}"]
    if own_text is not None and not evaluation.is_of_split(split, own_text):
        is_split = evaluation.split == split
        text = f"data.{split}={evaluation.prefix}" if is_split else evaluation.text
        del run.evaluations[split]
        return [f"{path.name} of {split} has scores of other text ({text}): {command}"]
    if file := evaluation.search.get("hypotheses"):
        return [f"the scores of {split} are those of the translations in {file}"]
    if evaluation.checkpoint == "best.ckpt":
        why = f", of step {evaluation.step:,}"
        if run.average_is_worse:
            why = ", which validates better than the average"
        return [f"{split} was scored with the best checkpoint{why}"]
    if evaluation.step != run.step:
        return [
            f"{split} was scored at step {evaluation.step:,}, the run is at {run.step:,}: {command}"
        ]
    return []
