"""Groups of runs that differ in their seed only.

A group is identified by everything that shapes training and scoring, so that only seeds are averaged.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from aiayn.config.stored import may_change
from aiayn.errors import ConfigError
from aiayn.reports.intervals import Sample
from aiayn.reports.metrics import Metric
from aiayn.reports.runs import PARAMETERS, SPLITS, MeasuredRun
from aiayn.runs.run_folder import Record

PRECISION = "trainer.precision"
# Options that change no result, and options derived from others.
NOT_SHAPING = ("seed", "logger.group", PARAMETERS)
EARLY_STOPPING = ("trainer.max_steps", "trainer.patience", "trainer.best_metric")
WITHOUT_SEED = re.compile(r"[-_.]?seed-?\d+$")


@dataclass
class Group:
    """Runs with the same options except the seed."""

    runs: list[MeasuredRun]
    training: Record  # the options that shaped the weights
    scoring: Record = field(default_factory=dict)  # weights and search of each split that was scored

    @property
    def options(self) -> Record:
        return self.training | self.scoring

    @property
    def name(self) -> str:
        """The first run's folder, without its seed."""
        folder = self.runs[0].folder.path
        return WITHOUT_SEED.sub("", folder.name) or folder.resolve().parent.name

    @property
    def seeds(self) -> list[Any]:
        return sorted({run.seed for run in self.runs}, key=lambda seed: (seed is None, seed))

    def sample(self, metric: Metric) -> Sample | None:
        """Returns one measurement per seed, the mean of its runs; None where none was measured."""
        found: dict[Any, list[float]] = {}
        for run in self.runs:
            if (value := metric.of(run)) is not None:
                found.setdefault(run.seed, []).append(value)
        return Sample(tuple(fmean(values) for values in found.values())) if found else None

    def record(self) -> Record:
        """Returns the runs and the number of seeds under the keys that every table has."""
        names = [run.name for run in self.runs]
        return {"run": names[0], "runs": names, "seeds": self.seeds, "n": len(self.seeds)}

    def is_called(self, name: str) -> bool:
        """Whether `name` is the group's, a run's, a run's path, or options of the group, such as optim.lr_scale=3."""
        names = {self.name, *(run.folder.path.name for run in self.runs), *(run.name for run in self.runs)}
        pairs = [part.partition("=") for part in name.split(",")]
        by_options = all(sign and value == option_text(self.options.get(key)) for key, sign, value in pairs)
        return name.rstrip("/") in names or by_options


def record_of(group: Group | None) -> Record:
    """Returns the same keys for a row that was not run, too."""
    return group.record() if group else {"run": None, "runs": [], "seeds": [], "n": None}


def group_runs(runs: Iterable[MeasuredRun], by: Sequence[str] = ()) -> list[Group]:
    """Groups runs by everything that shapes training and scoring except the seed; every run needs a configuration.

    `by` names the only options in which groups may differ: raises ConfigError if runs that agree in these differ in
    others.
    """
    runs = list(runs)
    place = {id(run): number for number, run in enumerate(runs)}
    trainings: dict[str, list[Group]] = {}
    for run in sorted(runs, key=lambda run: -len(scoring_options(run))):
        training, scoring = training_options(run), scoring_options(run)
        known = trainings.setdefault(str(sorted(training.items(), key=str)), [])
        group = next((group for group in known if agree(group.scoring, scoring)), None)
        if group is None:
            group = Group([], training)
            known.append(group)
        group.runs.append(run)
        group.scoring |= scoring
    found = [group for known in trainings.values() for group in known]
    for group in found:
        group.runs.sort(key=lambda run: place[id(run)])
    found.sort(key=lambda group: place[id(group.runs[0])])
    if by:
        _check_by(found, by)
    return found


def agree(known: Record, found: Record) -> bool:
    """Whether two records agree in every key that both have."""
    return all(known.get(key, value) == value for key, value in found.items())


def training_options(run: MeasuredRun) -> Record:
    """Returns all options that shaped the run's weights, except the seed."""
    options = {key: value for key, value in run.options.items() if not may_change(key) and key not in NOT_SHAPING}
    if options.get(PRECISION) == "auto" and run.precision:
        options[PRECISION] = run.precision  # as machine.json has it
    if options.get("init_fingerprint"):
        options.pop("init_from", None)  # the weights count, not where they were kept
    if run.options.get("trainer.patience") is None:
        options["step"] = run.step
    else:  # each seed ends where it stopped improving
        options |= {key: run.options.get(key) for key in EARLY_STOPPING}
    return options


def scoring_options(run: MeasuredRun) -> Record:
    """Returns how each scored split was translated: weights and search. For texts and signatures see `partitions`."""
    return {
        key: value
        for split in SPLITS
        if (evaluation := run.evaluations.get(split))
        for key, value in _scoring_of(split, evaluation, run.step).items()
    }


def _scoring_of(split: str, evaluation: Record, step: int) -> Record:
    found = {
        f"{split} {key}": value for key, value in (evaluation.get("search") or {}).items() if key != "batch_tokens"
    }
    averaged, checkpoint = evaluation.get("averaged"), str(evaluation.get("checkpoint", ""))
    weights = (
        f"average of {len(averaged)}" if averaged else "best" if checkpoint.startswith("best") else "one checkpoint"
    )
    found[f"{split} weights"] = weights
    if evaluation["step"] != step and weights != "best":
        found[f"{split} step"] = evaluation["step"]
    if ensemble := evaluation.get("ensemble"):
        found[f"{split} ensemble"] = len(ensemble) + 1
    return found


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
    """Returns the options in which the groups differ, in the order of the configuration."""
    keys = dict.fromkeys(key for group in groups for key in group.options)

    def values(key: str) -> set[str]:
        # Groups that were not scored on a split do not differ in how it is scored.
        having = [group.options for group in groups if key in group.options or key not in scoring]
        return {str(options.get(key)) for options in having}

    scoring = {key for group in groups for key in group.scoring}
    return [key for key in keys if len(values(key)) > 1]


def option_text(value: Any) -> str:
    """Returns an option as it is written on the command line."""
    return "null" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def partitions(runs: Sequence[MeasuredRun], metrics: Sequence[Metric]) -> list[list[MeasuredRun]]:
    """Splits runs into parts whose scores can be compared: of one language, one text and one signature.

    A run that was not scored joins the first compatible part.
    """
    parts: list[tuple[Record, list[MeasuredRun]]] = []
    for run in sorted(runs, key=lambda run: -len(scored_text(run, metrics))):
        text = scored_text(run, metrics)
        for known, members in parts:
            if agree(known, text):
                known |= text
                members.append(run)
                break
        else:
            parts.append((dict(text), [run]))
    order = {id(run): place for place, run in enumerate(runs)}
    found = [sorted(members, key=lambda run: order[id(run)]) for _, members in parts]
    return sorted(found, key=lambda members: order[id(members[0])])


def scored_text(run: MeasuredRun, metrics: Sequence[Metric]) -> Record:
    """Returns what runs must have in common for their scores to be compared."""
    found: Record = {key: run.options.get(key) for key in ("data.task", "data.src_lang", "data.tgt_lang")}
    for metric in metrics:
        evaluation = run.evaluations.get(metric.split or "", {})
        if metric.of(run) is None:
            continue
        signature = (evaluation.get("signatures") or {}).get(metric.name)
        other = f"test set {evaluation.get('test_set')}"  # by versions that stored no checksum
        facts = {"text": evaluation.get("text_sha256") or other, metric.name: signature}
        found |= {f"{metric.split} {name}": fact for name, fact in facts.items() if fact is not None}
    return found
