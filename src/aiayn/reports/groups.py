"""Groups of runs that differ in their seed only, by the content of their text; pandas does the
grouping.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from aiayn.config.stored import as_option, mutable_on_resume
from aiayn.errors import ConfigError
from aiayn.reports.differences import Sample
from aiayn.reports.runs import PARAMETERS, SPLITS, TEXT_LOCATION, MeasuredRun
from aiayn.reports.table_metrics import Metric
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
ONE_CHECKPOINT = "one checkpoint"  # whose weights were scored, and which is not the best
TEXT, TOKENIZER = "text", "tokenizer"  # fingerprints, shown where nothing else differs


@dataclass
class Group:
    """Runs that differ only in their seed; empty for a row that was not run."""

    runs: list[MeasuredRun]
    options: Record  # those that shaped the weights, and how each split was translated

    @property
    def name(self) -> str:
        """Return the first run's folder, without its seed."""
        folder = self.runs[0].folder.path
        return SEED_SUFFIX.sub("", folder.name) or folder.resolve().parent.name

    @property
    def first(self) -> MeasuredRun | None:
        return self.runs[0] if self.runs else None

    @property
    def path(self) -> str:
        return self.runs[0].name

    @property
    def seeds(self) -> list[Any]:
        return sorted({run.seed for run in self.runs}, key=lambda seed: (seed is None, seed))

    def evaluation(self, split: str) -> Evaluation | None:
        """Return the scores of a split of the first run that has some."""
        return next((run.evaluations[split] for run in self.runs if split in run.evaluations), None)

    def measured(self, metric: Metric) -> list[tuple[MeasuredRun, float]]:
        """Return runs and values, in the order of `seeds`, of a metric of as much of the text as
        the first run's.
        """
        runs = [run for seed in self.seeds for run in self.runs if run.seed == seed]
        values = [(run, value) for run in runs if (value := metric.of(run)) is not None]
        return [
            (run, value)
            for run, value in values
            if metric.amount(run) == metric.amount(values[0][0])
        ]

    def sample(self, metric: Metric | None) -> Sample | None:
        """Return one measurement per seed, in the order of `seeds`, the mean of its runs; None
        without any.
        """
        values_of_seed: dict[Any, list[float]] = {}
        for run, value in self.measured(metric) if metric else ():
            values_of_seed.setdefault(run.seed, []).append(value)
        means = {seed: fmean(values) for seed, values in values_of_seed.items()}
        return Sample(means) if means else None

    def record(self) -> Record:
        """Return the runs and the number of seeds under the keys that every table has."""
        names = [run.name for run in self.runs]
        return {
            "run": names[0] if names else None,
            "runs": names,
            "seeds": self.seeds,
            "n": len(self.seeds) or None,
        }

    def is_called(self, name: str) -> bool:
        """Return whether `name` is the group's, a run's, a run's path, or options of the group,
        such as optim.lr_scale=3.
        """
        names = {
            self.name,
            *(run.folder.path.name for run in self.runs),
            *(run.name for run in self.runs),
        }
        if name.rstrip("/") in names:
            return True
        pairs = [part.partition("=") for part in name.split(",")]
        return all(
            sign and option_text(text) == option_text(self.options.get(key))
            for key, sign, text in pairs
        )


def comparable(metric: Metric, *groups: Group) -> bool:
    """Return whether a metric has the same unit in all groups."""
    first_runs = [
        next((run for run, _ in group.measured(metric)), group.runs[0]) for group in groups
    ]
    return len({str(metric.unit(run)) for run in first_runs}) == 1


def partitions(runs: Sequence[MeasuredRun], metrics: Sequence[Metric]) -> list[list[MeasuredRun]]:
    """Split runs into parts whose scores can be compared: of one language, one text and one
    signature.

    A run that was not scored joins the part that most runs of its language are in.
    """
    scores = [metric for metric in metrics if metric.split]
    units = [
        {metric.key: str(metric.unit(run)) for metric in scores if metric.of(run) is not None}
        for run in runs
    ]
    return _alike(runs, [str(run.languages) for run in runs], units)


def group_runs(runs: Iterable[MeasuredRun], by: Sequence[str] = ()) -> list[Group]:
    """Group runs by everything that shapes training and scoring except the seed; every run needs a
    configuration.

    A run that was not scored on a split belongs to the group that most runs of its training are in.
    `by` names the only options in which groups may differ: raises ConfigError if runs that agree in
    these differ in others.
    """
    runs = list(runs)
    trainings = [str(sorted(training_options(run).items(), key=str)) for run in runs]
    scorings = [
        {split: str(options) for split, options in scoring_options(run).items()} for run in runs
    ]
    groups = []
    for members in _alike(runs, trainings, scorings):
        first = members[0]
        options = {key: first.options[key] for key in TEXT_LOCATION if key in first.options}
        options |= training_options(first)
        for run in members:
            for split, scoring in scoring_options(run).items():
                options |= {f"{split} {key}": value for key, value in scoring.items()}
        groups.append(Group(members, options))
    if by:
        _check_by(groups, by)
    return groups


def _alike(
    runs: Sequence[MeasuredRun], within: list[str], keys: list[dict[str, str]]
) -> list[list[MeasuredRun]]:
    """Return runs that agree in `within` and in all keys, in their order; a missing key is that of
    most others.
    """
    import pandas as pd

    if not runs:
        return []
    frame = pd.DataFrame(keys, index=range(len(runs)), dtype=object).assign(within=within)
    for key in frame.columns.drop("within"):
        most_frequent = frame.groupby("within")[key].transform(
            lambda values: next(iter(values.value_counts().index), "")
        )
        frame[key] = frame[key].where(frame[key].notna(), most_frequent)
    parts = frame.groupby([*frame.columns], sort=False)
    return [[runs[number] for number in part.index] for _, part in parts]


def training_options(run: MeasuredRun) -> Record:
    """Return all options that shaped the run's weights, except the seed; its text by content, where
    that is known.
    """
    options = {
        key: value
        for key, value in run.options.items()
        if not mutable_on_resume(key) and key not in NOT_SHAPING
    }
    precision = run.machine.get("precision")
    if options.get(PRECISION) == "auto" and precision:
        options[PRECISION] = precision  # as the machine chose it
    if options.get("init_fingerprint"):
        options.pop("init_from", None)  # the weights count, not where they were kept
    if corpus := run.content.get("corpus"):
        options = {key: value for key, value in options.items() if key not in TEXT_LOCATION}
        options |= {TEXT: corpus[:12], TOKENIZER: run.content.get("tokenizer", "")[:12]}
    if any(UNKNOWN in str(given_part) for given_part in options.get("given") or []):
        options["given"] = [*options["given"], run.name]  # the seed of no other run
    if run.options.get("trainer.patience") is None:
        options["step"] = run.step
    else:  # each seed ends where it stopped improving
        options |= {key: run.options.get(key) for key in EARLY_STOPPING}
    return options


def scoring_options(run: MeasuredRun) -> dict[str, Record]:
    """Return how each scored split was translated: weights and search. For texts and signatures see
    `partitions`.
    """
    return {
        split: _scoring_of(run.evaluations[split], run)
        for split in SPLITS
        if split in run.evaluations
    }


def _scoring_of(evaluation: Evaluation, run: MeasuredRun) -> Record:
    is_best = (evaluation.checkpoint or "").startswith("best")
    prefers_best = run.prefers_best(evaluation)
    weights = _weights(evaluation, run, is_best, prefers_best)
    options = evaluation.search_options | {"weights": weights}
    if is_best and not prefers_best:  # which step that is
        options |= {key: run.options.get(f"trainer.{key}") for key in ("best_metric", "val_every")}
    if evaluation.step != run.step and not is_best:
        options["step"] = evaluation.step
    if evaluation.ensemble:
        options["ensemble"] = len(evaluation.ensemble) + 1
    return options


def _weights(evaluation: Evaluation, run: MeasuredRun, is_best: bool, prefers_best: bool) -> str:
    """Return whose weights were scored; where a rule preferred the best, other seeds may have their
    average.
    """
    steps = evaluation.averaged
    count, interval = len(steps), steps[1] - steps[0] if len(steps) > 1 else 0
    if prefers_best:
        trainer = run.resolved().trainer
        count, interval = trainer.average_last, trainer.checkpoint_every
    if count:
        return f"average of {count}" + (f", {interval} steps apart" if count > 1 else "")
    return "best" if is_best else ONE_CHECKPOINT


def find_baseline(groups: Sequence[Group], name: str) -> Group:
    """Return the group with this name. Raises ConfigError unless exactly one has it."""
    matches = [group for group in groups if group.is_called(name)]
    if len(matches) != 1:
        problem = "names several groups" if matches else "is not one of these groups"
        names = ", ".join(dict.fromkeys(group.path for group in matches or groups))
        raise ConfigError(
            f"--baseline {name}: {problem}; name a run's folder, such as one of {names}"
        )
    return matches[0]


def _check_by(groups: Sequence[Group], by: Sequence[str]) -> None:
    known = {key for group in groups for key in group.options}
    if unknown := [key for key in by if key not in known]:
        raise ConfigError(f"--by {','.join(by)}: no option of these runs is called {unknown[0]}")
    other_options = [key for key in differing_options(groups) if key not in by]
    first_of: dict[str, Group] = {}
    for group in groups:
        first = first_of.setdefault(str([group.options.get(key) for key in by]), group)
        if first is not group:
            differing_keys = [
                key for key in other_options if first.options.get(key) != group.options.get(key)
            ]
            raise ConfigError(
                f"--by {','.join(by)}: {first.path} and {group.path} also differ in "
                f"{', '.join(differing_keys)}, so they are not seeds of one group; add these to "
                "--by, or leave it out"
            )


def differing_options(groups: Sequence[Group]) -> list[str]:
    """Return the options in which the groups differ, in the order of the configuration.

    Fingerprints of the text are among them only where groups differ in these and in no option, or
    no option of text.
    """

    def n_kinds(members: Sequence[Group], keys: Sequence[str]) -> int:
        return len({str([group.options.get(key) for key in keys]) for group in members})

    keys = differing([group.options for group in groups])
    options = [key for key in keys if key not in (TEXT, TOKENIZER)]
    text_options = [key for key in options if key.startswith("data.")]
    known = [group for group in groups if TEXT in group.options]
    options_tell_texts = n_kinds(known, text_options) == n_kinds(
        known, [*text_options, TEXT, TOKENIZER]
    )
    return options if options_tell_texts and n_kinds(groups, options) == len(groups) else keys


def differing(options: Sequence[Record]) -> list[str]:
    """Return the keys with several values; what was not scored on a split does not differ in how it
    is scored.
    """
    keys = []
    for key in dict.fromkeys(key for record in options for key in record):
        is_scoring = key.startswith(("val ", "test "))
        values = {str(record.get(key)) for record in options if key in record or not is_scoring}
        if len(values) > 1:
            keys.append(key)
    return keys


def option_text(value: Any) -> str:
    """Return an option as it is written on the command line, the SHA-256 of extensions by their
    first digits.
    """
    text = f"{value:g}" if isinstance(value, float) else str(as_option(value))
    return re.sub(r"\b([0-9a-f]{8})[0-9a-f]{56}\b", r"\1", text)
