"""Groups of runs that differ in their seed only, by the content of their text; pandas does the grouping."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from aiayn.config.stored import as_option, may_change
from aiayn.errors import ConfigError
from aiayn.reports.differences import Sample
from aiayn.reports.metrics import Metric
from aiayn.reports.runs import PARAMETERS, SPLITS, TEXT_LOCATION, MeasuredRun
from aiayn.runs.results import search_of
from aiayn.runs.run_folder import UNKNOWN, Record

PRECISION = "trainer.precision"
NOT_SHAPING = ("seed", PARAMETERS)  # the one that is drawn anew, and what follows from others
EARLY_STOPPING = ("trainer.max_steps", "trainer.patience", "trainer.best_metric", "trainer.val_every")
WITHOUT_SEED = re.compile(r"[-_.]?seed-?\d+$")
ONE_CHECKPOINT = "one checkpoint"  # that the scored weights are of, which is not the best
TEXT, TOKENIZER = "text", "tokenizer"  # fingerprints, shown where nothing else differs


@dataclass
class Group:
    """Runs with the same options and text, and other seeds; none where something was not run."""

    runs: list[MeasuredRun]
    options: Record  # those that shaped the weights, and how each split was translated

    @property
    def name(self) -> str:
        """The first run's folder, without its seed."""
        folder = self.runs[0].folder.path
        return WITHOUT_SEED.sub("", folder.name) or folder.resolve().parent.name

    @property
    def first(self) -> MeasuredRun | None:
        return self.runs[0] if self.runs else None

    @property
    def path(self) -> str:
        return self.runs[0].name

    @property
    def seeds(self) -> list[Any]:
        return sorted({run.seed for run in self.runs}, key=lambda seed: (seed is None, seed))

    def evaluation(self, split: str) -> Record:
        """Returns the scores of a split of the first run that has some; empty where none has."""
        return next((run.evaluations[split] for run in self.runs if split in run.evaluations), {})

    def measured(self, metric: Metric) -> list[tuple[MeasuredRun, float]]:
        """Returns runs and values, in the order of `seeds`, of a metric of as much of the text as the first run's."""
        runs = [run for seed in self.seeds for run in self.runs if run.seed == seed]
        found = [(run, value) for run in runs if (value := metric.of(run)) is not None]
        return [(run, value) for run, value in found if metric.amount(run) == metric.amount(found[0][0])]

    def sample(self, metric: Metric | None) -> Sample | None:
        """Returns one measurement per seed, in the order of `seeds`, the mean of its runs; None without any."""
        found: dict[Any, list[float]] = {}
        for run, value in self.measured(metric) if metric else ():
            found.setdefault(run.seed, []).append(value)
        return Sample({seed: fmean(values) for seed, values in found.items()}) if found else None

    def record(self) -> Record:
        """Returns the runs and the number of seeds under the keys that every table has."""
        names = [run.name for run in self.runs]
        return {"run": names[0] if names else None, "runs": names, "seeds": self.seeds, "n": len(self.seeds) or None}

    def is_called(self, name: str) -> bool:
        """Whether `name` is the group's, a run's, a run's path, or options of the group, such as optim.lr_scale=3."""
        names = {self.name, *(run.folder.path.name for run in self.runs), *(run.name for run in self.runs)}
        pairs = [part.partition("=") for part in name.split(",")]
        by_options = all(sign and option_text(text) == option_text(self.options.get(key)) for key, sign, text in pairs)
        return name.rstrip("/") in names or by_options


def comparable(metric: Metric, *groups: Group) -> bool:
    """Whether a metric has the same unit in all groups."""
    first = [next((run for run, _ in group.measured(metric)), group.runs[0]) for group in groups]
    return len({str(metric.unit(run)) for run in first}) == 1


def partitions(runs: Sequence[MeasuredRun], metrics: Sequence[Metric]) -> list[list[MeasuredRun]]:
    """Splits runs into parts whose scores can be compared: of one language, one text and one signature.

    A run that was not scored joins the part that most runs of its language are in.
    """
    scores = [metric for metric in metrics if metric.split is not None]
    keys = [{metric.key: str(metric.unit(run)) for metric in scores if metric.of(run) is not None} for run in runs]
    return _alike(runs, [str(run.languages) for run in runs], keys)


def group_runs(runs: Iterable[MeasuredRun], by: Sequence[str] = ()) -> list[Group]:
    """Groups runs by everything that shapes training and scoring except the seed; every run needs a configuration.

    A run that was not scored on a split belongs to the group that most runs of its training are in.
    `by` names the only options in which groups may differ: raises ConfigError if runs that agree in these differ in
    others.
    """
    runs = list(runs)
    trainings = [str(sorted(training_options(run).items(), key=str)) for run in runs]
    scorings = [{split: str(found) for split, found in scoring_options(run).items()} for run in runs]
    found = []
    for members in _alike(runs, trainings, scorings):
        first = members[0]
        options = {key: first.options[key] for key in TEXT_LOCATION if key in first.options} | training_options(first)
        for run in members:
            options |= {
                f"{split} {key}": value for split, of in scoring_options(run).items() for key, value in of.items()
            }
        found.append(Group(members, options))
    if by:
        _check_by(found, by)
    return found


def _alike(runs: Sequence[MeasuredRun], within: list[str], keys: list[dict[str, str]]) -> list[list[MeasuredRun]]:
    """Returns runs that agree in `within` and in all keys, in their order; a missing key is that of most others."""
    import pandas as pd

    if not runs:
        return []
    frame = pd.DataFrame(keys, index=range(len(runs)), dtype=object).assign(within=within)
    for key in frame.columns.drop("within"):
        usual = frame.groupby("within")[key].transform(lambda one: next(iter(one.value_counts().index), ""))
        frame[key] = frame[key].where(frame[key].notna(), usual)
    return [[runs[place] for place in part.index] for _, part in frame.groupby([*frame.columns], sort=False)]


def training_options(run: MeasuredRun) -> Record:
    """Returns all options that shaped the run's weights, except the seed; its text by content, where that is known."""
    options = {key: value for key, value in run.options.items() if not may_change(key) and key not in NOT_SHAPING}
    if options.get(PRECISION) == "auto" and run.precision:
        options[PRECISION] = run.precision  # as machine.json has it
    if options.get("init_fingerprint"):
        options.pop("init_from", None)  # the weights count, not where they were kept
    if corpus := run.content.get("corpus"):
        options = {key: value for key, value in options.items() if key not in TEXT_LOCATION}
        options |= {TEXT: corpus[:12], TOKENIZER: run.content.get("tokenizer", "")[:12]}
    if any(UNKNOWN in str(each) for each in options.get("given") or []):
        options["given"] = [*options["given"], run.name]  # the seed of no other run
    if run.options.get("trainer.patience") is None:
        options["step"] = run.step
    else:  # each seed ends where it stopped improving
        options |= {key: run.options.get(key) for key in EARLY_STOPPING}
    return options


def scoring_options(run: MeasuredRun) -> dict[str, Record]:
    """Returns how each scored split was translated: weights and search. For texts and signatures see `partitions`."""
    return {split: _scoring_of(run.evaluations[split], run) for split in SPLITS if split in run.evaluations}


def _scoring_of(evaluation: Record, run: MeasuredRun) -> Record:
    found, averaged = search_of(evaluation), evaluation.get("averaged") or []
    is_best, by_rule = str(evaluation.get("checkpoint")).startswith("best"), run.prefers_best(evaluation)
    count, apart = len(averaged), averaged[1] - averaged[0] if len(averaged) > 1 else 0
    if by_rule:  # by which other seeds may have their average
        trainer = run.settled().trainer
        count, apart = trainer.average_last, trainer.checkpoint_every
    average = f"average of {count}" + (f", {apart} steps apart" if count > 1 else "")
    found["weights"] = average if count else "best" if is_best else ONE_CHECKPOINT
    if is_best and not by_rule:
        found |= {key: run.options.get(f"trainer.{key}") for key in ("best_metric", "val_every")}  # which step that is
    if evaluation["step"] != run.step and not is_best:
        found["step"] = evaluation["step"]
    if ensemble := evaluation.get("ensemble"):
        found["ensemble"] = len(ensemble) + 1
    return found


def find_baseline(groups: Sequence[Group], name: str) -> Group:
    """Returns the group with this name. Raises ConfigError unless exactly one has it."""
    found = [group for group in groups if group.is_called(name)]
    if len(found) != 1:
        said = "names several groups" if found else "is none of these groups"
        names = ", ".join(dict.fromkeys(run.name for group in found or groups for run in group.runs[:1]))
        raise ConfigError(f"--baseline {name}: {said}; name a run's folder, such as one of {names}")
    return found[0]


def _check_by(groups: Sequence[Group], by: Sequence[str]) -> None:
    known = {key for group in groups for key in group.options}
    if unknown := [key for key in by if key not in known]:
        raise ConfigError(f"--by {','.join(by)}: no option of these runs is called {unknown[0]}")
    others = [key for key in differing_options(groups) if key not in by]
    places: dict[str, Group] = {}
    for group in groups:
        first = places.setdefault(str([group.options.get(key) for key in by]), group)
        if first is not group:
            more = [key for key in others if first.options.get(key) != group.options.get(key)]
            raise ConfigError(
                f"--by {','.join(by)}: {first.runs[0].name} and {group.runs[0].name} agree in these and differ in "
                f"{', '.join(more)}, so they are no seeds of each other; add these to --by, or leave it out"
            )


def differing_options(groups: Sequence[Group]) -> list[str]:
    """Returns the options in which the groups differ, in the order of the configuration.

    Fingerprints of the text are among them only where groups differ in these and in no option, or no option of text.
    """

    def kinds(of: Sequence[Group], keys: Sequence[str]) -> int:
        return len({str([group.options.get(key) for key in keys]) for group in of})

    found = differing([group.options for group in groups])
    options = [key for key in found if key not in (TEXT, TOKENIZER)]
    of_text = [key for key in options if key.startswith("data.")]
    known = [group for group in groups if TEXT in group.options]
    texts_are_told = kinds(known, of_text) == kinds(known, [*of_text, TEXT, TOKENIZER])
    return options if texts_are_told and kinds(groups, options) == len(groups) else found


def differing(options: Sequence[Record]) -> list[str]:
    """Returns the keys with several values; what was not scored on a split does not differ in how it is scored."""
    found = []
    for key in dict.fromkeys(key for one in options for key in one):
        having = [one for one in options if key in one or not key.startswith(("val ", "test "))]
        found += [key] * (len({str(one.get(key)) for one in having}) > 1)
    return found


def option_text(value: Any) -> str:
    """Returns an option as it is written on the command line, the SHA-256 of extensions by their first digits."""
    text = f"{value:g}" if isinstance(value, float) else str(as_option(value))
    return re.sub(r"\b([0-9a-f]{8})[0-9a-f]{56}\b", r"\1", text)
