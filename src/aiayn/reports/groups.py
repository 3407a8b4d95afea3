"""Groups of runs that differ in their seed only, by the content of their text; pandas does the
grouping.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from aiayn.config.stored import as_option, mutable_on_resume
from aiayn.errors import ConfigError
from aiayn.reports.differences import Sample
from aiayn.reports.runs import PARAMETERS, SPLITS, TEXT_LOCATION, MeasuredRun, Metric
from aiayn.runs.results import Evaluation
from aiayn.runs.run_folder import UNKNOWN, Record

PRECISION = "trainer.precision"
NOT_SHAPING = ("seed", PARAMETERS)  # the one that is drawn anew, and what follows from others
EARLY_STOPPING = (
    "trainer.max_steps",
    "trainer.patience",
    "trainer.best_metric",
    "trainer.val_every",
)
SEED_SUFFIX = re.compile(r"[-_.]?seed-?\d+$")
ONE_CHECKPOINT = "one checkpoint"  # scored alone, and not the best one
TEXT, TOKENIZER = "text", "tokenizer"  # fingerprints, shown where nothing else differs


@dataclass
class Group:
    """Runs that differ only in their seed; empty for a row that was not run."""

    runs: list[MeasuredRun]
    options: Record  # the options behind the weights and the translations of each split

    @property
    def name(self) -> str:
        """Returns the first run's folder, without its seed."""
        folder = self.runs[0].folder.path
        return SEED_SUFFIX.sub("", folder.name) or folder.resolve().parent.name

    @property
    def first(self) -> MeasuredRun | None:
        return self.runs[0] if self.runs else None

    @property
    def path(self) -> str:
        return self.runs[0].path

    @property
    def seeds(self) -> list[int]:
        return sorted({run.seed for run in self.runs})

    def evaluation(self, split: str) -> Evaluation | None:
        """Returns the scores of a split of the first run that has some."""
        return next((run.evaluations[split] for run in self.runs if split in run.evaluations), None)

    def measured(self, metric: Metric) -> list[MeasuredRun]:
        """Returns the runs that measured a metric by seed, of as much of the text as the first of
        them.
        """
        by_seed = sorted(self.runs, key=lambda run: run.seed)
        runs = [run for run in by_seed if metric.of(run) is not None]
        return [run for run in runs if metric.extent(run) == metric.extent(runs[0])]

    def sample(self, metric: Metric) -> Sample | None:
        """Returns one measurement per seed, in the order of `seeds`, the mean of its runs; None
        without any.
        """
        values = defaultdict(list)
        for run in self.measured(metric):
            values[run.seed].append(metric.of(run))
        return Sample({seed: fmean(values[seed]) for seed in values}) if values else None

    def is_comparable(self, other: "Group", metric: Metric) -> bool:
        """Returns whether the values of a metric in both groups can be compared."""
        first_runs = self.measured(metric)[:1] + other.measured(metric)[:1]
        return len({str(metric.comparable_by(run)) for run in first_runs}) < 2

    def record(self) -> Record:
        """Returns the runs and the number of seeds under the keys that every table has."""
        paths = [run.path for run in self.runs]
        return {
            "run": paths[0] if paths else None,
            "runs": paths,
            "seeds": self.seeds,
            "n": len(self.seeds) or None,
        }

    def is_called(self, name: str) -> bool:
        """Returns whether `name` is the group's, a run's, a run's path, or options of the group,
        such as optim.lr_scale=3.
        """
        folders = [run.folder.path for run in self.runs]
        names = {self.name, *(folder.name for folder in folders), *map(str, folders)}
        if name.rstrip("/") in names:
            return True
        pairs = [part.partition("=") for part in name.split(",")]
        return all(
            sign and option_text(text) == option_text(self.options.get(key))
            for key, sign, text in pairs
        )


def partitions(runs: Sequence[MeasuredRun], metrics: Sequence[Metric]) -> list[list[MeasuredRun]]:
    """Splits runs into parts whose scores can be compared: of one language, one text and one
    signature.

    A run that was not scored joins the part that most runs of its language are in.
    """
    measured = [
        {
            metric.key: metric.comparable_by(run)
            for metric in metrics
            if metric.split and metric.of(run) is not None
        }
        for run in runs
    ]
    parts = _alike([run.languages for run in runs], measured)
    return [[runs[number] for number in part] for part in parts]


def group_runs(runs: Sequence[MeasuredRun], by: Sequence[str] = ()) -> list[Group]:
    """Groups runs by everything that shapes training and scoring except the seed.

    A run that was not scored on a split belongs to the group that most runs of its training are in.
    `by` names the only options in which groups may differ: raises ConfigError if runs that agree in
    these differ in others.
    """
    trainings = [training_options(run) for run in runs]
    scorings = [
        {split: scoring_options(run, split) for split in SPLITS if split in run.evaluations}
        for run in runs
    ]
    groups = []
    for numbers in _alike([sorted(training.items()) for training in trainings], scorings):
        members = [runs[number] for number in numbers]
        first_options = members[0].options
        options = {key: first_options[key] for key in TEXT_LOCATION} | trainings[numbers[0]]
        for number in numbers:
            for scoring in scorings[number].values():
                options |= scoring
        groups.append(Group(members, options))
    if by:
        _check_by(groups, by)
    return groups


def _alike(required: Sequence[Any], optional: Sequence[Record]) -> list[list[int]]:
    """Returns the numbers of the runs that agree in what is required and in all that is optional,
    in their order. An optional value that a run lacks is that of most runs that agree with it.
    """
    import pandas as pd

    records = [{key: str(record[key]) for key in record} for record in optional]
    frame = pd.DataFrame(records, index=range(len(required)), dtype=object)
    columns = [*frame.columns]
    frame["required"] = [*map(str, required)]
    for key in columns:
        frame[key] = frame.groupby("required")[key].transform(
            lambda values: values.fillna(next(iter(values.value_counts().index), ""))
        )
    return [[*part.index] for _, part in frame.groupby(["required", *columns], sort=False)]


def training_options(run: MeasuredRun) -> Record:
    """Returns all options that shaped the run's weights, except the seed; its text by content,
    where that is known.
    """
    options = {
        key: value
        for key, value in run.options.items()
        if not mutable_on_resume(key) and key not in NOT_SHAPING
    }
    if options[PRECISION] == "auto":
        options[PRECISION] = run.machine.get("precision", "auto")  # which the machine chose
    if options["init_fingerprint"]:
        del options["init_from"]  # the weights count, not where they were kept
    if "fingerprint" in run.corpus:
        options = {key: value for key, value in options.items() if key not in TEXT_LOCATION}
        options[TEXT] = str(run.corpus["fingerprint"])[:12]
        options[TOKENIZER] = str(run.corpus.get("tokenizer_sha256", ""))[:12]
    if UNKNOWN in str(options["given"]):
        options["given"] = [*options["given"], run.path]  # the seed of no other run
    if run.config.trainer.patience is None:
        options["step"] = run.step
    else:  # each seed ends where it stopped improving
        options |= {key: run.options[key] for key in EARLY_STOPPING}
    return options


def scoring_options(run: MeasuredRun, split: str) -> Record:
    """Returns how a split was translated, such as {"val beam_size": 4}: weights and search.

    For texts and signatures see `partitions`.
    """
    evaluation = run.evaluations[split]
    trainer = run.config.trainer
    steps = evaluation.averaged
    is_best = (evaluation.checkpoint or "").startswith("best")
    is_preferred = run.prefers_best(evaluation)
    count, interval = len(steps), steps[1] - steps[0] if len(steps) > 1 else 0
    if is_preferred:  # a rule chose it: other seeds may have their average
        count, interval = trainer.average_last, trainer.checkpoint_every
    weights = "best" if is_best else ONE_CHECKPOINT
    if count:
        weights = f"average of {count}" + (f", {interval} steps apart" if count > 1 else "")
    options = evaluation.search_options | {"weights": weights}
    if is_best and not is_preferred:  # these options decide which step it is
        options |= {"best_metric": trainer.best_metric, "val_every": trainer.val_every}
    elif evaluation.step != run.step and not is_best:
        options["step"] = evaluation.step
    if evaluation.ensemble:
        options["ensemble"] = len(evaluation.ensemble) + 1
    return {f"{split} {key}": value for key, value in options.items()}


def find_baseline(groups: Sequence[Group], name: str) -> Group:
    """Returns the group with this name. Raises ConfigError unless exactly one has it."""
    matches = [group for group in groups if group.is_called(name)]
    if len(matches) != 1:
        problem = "names several groups" if matches else "is not one of these groups"
        names = ", ".join(dict.fromkeys(group.path for group in matches or groups))
        raise ConfigError(
            f"--baseline {name}: {problem}; name a run's folder, such as one of {names}"
        )
    return matches[0]


def _check_by(groups: Sequence[Group], by: Sequence[str]) -> None:
    option = f"--by {','.join(by)}"
    for key in by:
        if not any(key in group.options for group in groups):
            raise ConfigError(f"{option}: {key} is not an option that groups of runs differ in")
    first_of = {}
    for group in groups:
        first = first_of.setdefault(str([group.options.get(key) for key in by]), group)
        if first is not group:
            raise ConfigError(
                f"{option}: {first.path} and {group.path} also differ in "
                f"{', '.join(differing_options([first, group]))}; add these to --by, or leave out "
                "--by"
            )


def differing_options(groups: Sequence[Group]) -> list[str]:
    """Returns the options in which the groups differ, in the order of the configuration.

    Fingerprints of the text are left out where an option of the text tells the groups apart.
    """
    keys = differing([group.options for group in groups])
    options = [key for key in keys if key not in (TEXT, TOKENIZER)]
    if any(key.startswith("data.") for key in options):
        distinct = {str([group.options.get(key) for key in options]) for group in groups}
        if len(distinct) == len(groups):
            return options
    return keys


def differing(options: Sequence[Record]) -> list[str]:
    """Returns the keys with several values; what was not scored on a split does not differ in how
    it is scored.
    """
    keys = []
    for key in dict.fromkeys(key for record in options for key in record):
        is_scoring = key.startswith(("val ", "test "))
        holders = [record for record in options if key in record or not is_scoring]
        if len({str(record.get(key)) for record in holders}) > 1:
            keys.append(key)
    return keys


def option_text(value: Any) -> str:
    """Returns an option as it is written on the command line, the SHA-256 of extensions by their
    first digits.
    """
    text = f"{value:g}" if isinstance(value, float) else str(as_option(value))
    return re.sub(r"\b([0-9a-f]{8})[0-9a-f]{56}\b", r"\1", text)
