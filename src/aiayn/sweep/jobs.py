"""The jobs of a sweep: their names, their checked options, and whether they are finished."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from aiayn.config.compose import chosen_options, for_hydra, resolve_options, without_hydra
from aiayn.config.data import OF_VOCABULARY
from aiayn.config.extensions import load_extensions
from aiayn.config.messages import COMPOSITION_ERRORS, one_line
from aiayn.config.rules import NAME_CHARACTERS
from aiayn.config.schema import Config
from aiayn.config.stored import changed_options, filled, short_names, to_plain
from aiayn.errors import ConfigError, DataError, RefusedError, UserError
from aiayn.files import sha256
from aiayn.runs.extensions import id_of_file, ids_of_builders, metric_falls, metrics_of
from aiayn.runs.results import is_of_split, search_of
from aiayn.runs.run_folder import RunFolder, is_count, read_json, saved_steps
from aiayn.runs.validations import ValidationHistory

MAX_NAME = 150  # characters of a folder's name
SEED = re.compile(r"(?:^|_)seed-\d+(?=_|$)")  # in a job's name
SCORED = {"val": "last", "test": "averaged"}  # the checkpoint that a split is scored with; Table 3 has the former


@dataclass(frozen=True)
class SweepJob:
    """One run of a sweep: `overrides` make `config` and start its process; `chosen` are the options they set."""

    name: str
    overrides: list[str]
    config: Config
    chosen: frozenset[str]
    scored: dict[str, str] = field(default_factory=lambda: {"val": "last"})  # splits, and with which checkpoint

    @property
    def folder(self) -> Path:
        return self.config.outputs_folder / self.config.run_name


def make_jobs(
    compose: Callable[[list[str]], DictConfig], batch: Sequence[Sequence[str]], typed: Sequence[str] = ()
) -> list[SweepJob]:
    """Checks the options of all jobs. Raises ConfigError with a line for each mistake.

    compose returns Hydra's configuration for a list of overrides; typed are the arguments of the whole sweep.
    """
    parser = OverridesParser.create()
    typed = [for_hydra(override, Config) for override in typed]
    # Sweepers other than ours write fixed values anew, and null as None.
    fixed = {line.partition("=")[0]: line for line in typed}
    fixed = {key: line for key, line in fixed.items() if not parser.parse_override(line).is_sweep_override()}
    batch = [[for_hydra(override, Config) for override in job] for job in batch]
    batch = [[fixed.get(line.partition("=")[0], line) for line in job] for job in batch]
    names, with_seeds = job_names(batch, typed), job_names(batch, [one for one in typed if one[:5] != "seed="])
    found, choices, mistakes = [], [], {}
    for name, overrides in zip(names, batch, strict=True):
        try:
            composed = compose(overrides)
            found.append(resolve_options(without_hydra(composed), composed.hydra.runtime.choices, overrides))
            choices.append(composed.hydra.runtime.choices)
        except ConfigError as error:
            mistakes.setdefault(str(error), []).append(name)
        except COMPOSITION_ERRORS as error:
            mistakes.setdefault(one_line(error, Config), []).append(name)
    _refuse(mistakes, len(batch), ConfigError)
    sweep = found[0].sweep or _sweep_name(choices)
    jobs = []
    for name, with_seed, overrides, options in zip(names, with_seeds, batch, found, strict=True):
        without = SEED.sub("", with_seed).strip("_") or "base"
        ways = [_job(each, sweep, overrides, options) for each in (name, with_seed, without)]
        # Its folder may be named otherwise, of a time with other seeds; and another seed may have the one without.
        begun = (job for job in ways if _began_as(job))
        is_taken = _began_as(ways[0], but={"seed"}) is not None
        jobs.append(next(begun, ways[1] if is_taken else ways[0]))
    return jobs


def _job(name: str, sweep: str, overrides: Sequence[str], options: Config) -> SweepJob:
    settings = {"name": f"sweeps/{sweep}/{name}", "sweep": sweep}
    options = replace(options, **settings)
    if options.logger.group is None:
        settings["logger.group"] = sweep
        options = replace(options, logger=replace(options.logger, group=sweep))
    written = [*overrides, *(for_hydra(f"{key}={value}", Config) for key, value in settings.items())]
    return SweepJob(name, written, options, frozenset(chosen_options(written, options)))


def job_names(batch: Sequence[Sequence[str]], typed: Sequence[str]) -> list[str]:
    """Returns what each job changes, as a folder name: a_h1, n_heads-4_d_k-16. Raises ConfigError if two are equal."""
    jobs = [{key: value for key, _, value in (line.partition("=") for line in job)} for job in batch]
    lines = {line.partition("=")[0]: line for line in typed}
    varied = [key for key in jobs[0] if any(f"{key}={job[key]}" != lines.get(key) for job in jobs)]
    swept = [key for key in varied if key != "ablation"]
    labels = short_names(swept)
    names: list[str] = []
    for job in jobs:
        changes = [job["ablation"].rpartition("/")[2]] if "ablation" in job else []  # quarter/a_h1: a_h1
        changes += [f"{label}-{job[key]}" for key, label in zip(swept, labels, strict=True)]
        name = "_".join(_as_name(change) for change in changes) or "base"
        if name in names or len(name) > MAX_NAME:
            raise ConfigError(f"{', '.join(varied)}: no distinct short folder names follow from these values ({name})")
        names.append(name)
    return names


def asked_scores(asked: Sequence[str]) -> dict[str, str]:
    """Returns the checkpoint for each split of hydra.launcher.score=[val,test:last]. Raises ConfigError for others."""
    found: dict[str, str] = {}
    for text in map(str, asked):
        split, _, checkpoint = text.partition(":")
        if split not in SCORED or checkpoint not in ("", "last", "averaged", "best") or split in found:
            raise ConfigError(
                f"hydra.launcher.score={','.join(map(str, asked))}: name val, test or both, each once, and if need be "
                "the checkpoint: [val:averaged,test:last]"
            )
        found[split] = checkpoint or SCORED[split]
    return found


def check_texts(jobs: Sequence[SweepJob]) -> None:
    """Raises DataError if the text of an unfinished job is missing, or the test set that it is to be scored on."""
    mistakes: dict[str, list[str]] = {}
    checked = []
    for job in jobs:
        if job.config.data in checked or job.config.init_from or is_finished(job):
            continue
        from aiayn.data.prepare import check_text
        from aiayn.data.sources import text_of

        checked.append(job.config.data)
        try:
            check_text(job.config.data)
            if "test" in job.scored:
                next(text_of(job.config.data, "test").pairs(), None)
        except DataError as error:
            mistakes.setdefault(str(error), []).append(job.name)
    _refuse(mistakes, len(checked), DataError)


def is_finished(job: SweepJob) -> bool:
    """Whether the run was trained with these options to its end, and then scored with this search."""
    run, config = RunFolder(job.folder), _began_as(job)
    is_trained = config is not None and run.averaged.exists() and _has_ended(run, config)
    return is_trained and all(is_scored(job, split) for split in job.scored)


def _began_as(job: SweepJob, but: AbstractSet[str] = frozenset()) -> Config | None:
    """Returns the job's options, those that are open as its run settled them; None unless that began with the same,
    `but` for some.
    """
    try:
        stored = RunFolder(job.folder).read_config()
        config = filled(_with_code(job.config), stored)
        changed = set(changed_options(stored, config)) - but
    except RefusedError:
        return None
    if job.config.init_from is not None:
        changed -= {key for key in changed if is_from_source(key) and key not in job.chosen}
    return None if changed else config


def _with_code(config: Config) -> Config:
    """Returns the options with what a run stores of the files that `extensions` names."""
    extensions = load_extensions(config.extensions)
    model = replace(config.model, parts=ids_of_builders(extensions))
    return replace(config, extensions_sha256=[id_of_file(each) for each in extensions], model=model)


def _has_ended(run: RunFolder, config: Config) -> bool:
    """Whether a training has nothing left to do: at `max_steps`, after `max_epochs`, or out of patience."""
    trainer, epoch = config.trainer, read_json(run.corpus).get("steps_per_epoch")
    reached = max(saved_steps(run.checkpoints), default=0)
    if reached >= ((trainer.last_step(epoch) if is_count(epoch) else trainer.max_steps) or math.inf):
        return True
    falls = metric_falls(metrics_of(load_extensions(config.extensions)), trainer.best_metric)
    records = [record for record in run.read_metrics() if record["step"] <= reached]
    return ValidationHistory(trainer, records, falls).is_out_of_patience()


def is_scored(job: SweepJob, split: str) -> bool:
    """Whether this text was scored with this search and the job's checkpoint for it, as the training left that."""
    run, checkpoint, text = RunFolder(job.folder), job.scored[split], getattr(job.config.data, split)
    scored = read_json(run.evaluation(split).scores)
    if search_of(scored) != search_of(to_plain(job.config)) or scored.get("checkpoint") != f"{checkpoint}.ckpt":
        return False
    if not is_of_split(scored, split, text):
        return False
    if checkpoint == "best":  # of any step
        return run.best.exists() and scored.get("checkpoint_sha256") == sha256(run.best)
    return scored.get("step", 0) >= max(saved_steps(run.checkpoints), default=0)


def _refuse(mistakes: Mapping[str, Sequence[str]], jobs: int, kind: type[UserError]) -> None:
    """Raises an error with each message once, after the names of the jobs concerned if these are not all."""
    if mistakes:
        lines = [text if len(names) == jobs else f"{', '.join(names)}: {text}" for text, names in mistakes.items()]
        raise kind("\nerror: ".join(lines))


def _sweep_name(choices: Sequence[Mapping[str, str]]) -> str:
    """Returns data and model, or the one of them that all jobs share."""
    common = [choices[0][group] for group in ("data", "model") if len({choice[group] for choice in choices}) == 1]
    if not common:
        raise ConfigError("sweep is missing: the jobs share neither data nor model; set sweep=NAME")
    return "-".join(common)


def _as_name(text: str) -> str:
    """Returns text without quotes, `=` and `/`, fit for a folder and a command line."""
    kept = "".join(letter if letter in NAME_CHARACTERS else "-" for letter in text.replace("'", "").replace('"', ""))
    return kept.strip("-._") or "empty"


def is_from_source(key: str) -> bool:
    """Whether a run takes an option over from the one that `init_from` names, unless the user sets it."""
    return key.startswith("model.") or key in ("init_fingerprint", *(f"data.{name}" for name in OF_VOCABULARY))
