"""The jobs of a sweep: their names, their checked options, and whether they are finished."""

import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import BooleanNode, DictConfig, FloatNode, IntegerNode, ValueNode
from omegaconf.errors import ValidationError

from aiayn.config.compose import (
    chosen_options,
    for_hydra,
    key_of,
    resolve_options,
    typed_keys,
    without_hydra,
)
from aiayn.config.data import OF_VOCABULARY
from aiayn.config.extensions import (
    ids_of_builders,
    ids_of_files,
    is_lower_better,
    load_extensions,
    metrics_of,
)
from aiayn.config.messages import hydra_errors_explained
from aiayn.config.rules import NAME_CHARACTERS, as_option, options_of, require
from aiayn.config.schema import Config
from aiayn.config.stored import changed_options, filled, short_names, to_dict
from aiayn.errors import NEXT_ERROR, ConfigError, DataError, RefusedError, UserError
from aiayn.files import sha256, write_json
from aiayn.runs.continuation import ValidationHistory, end_reason, read_options
from aiayn.runs.results import read_evaluation, without_batching
from aiayn.runs.run_folder import RunFolder, is_count, read_json, refuse_link, saved_steps

# Characters of a folder's name, of a value in it, and what is kept of a longer one.
MAX_NAME, MAX_VALUE, KEPT_OF_VALUE = 150, 60, 24
# How OmegaConf reads a value: 2, 02 and "2" are one number, and true and yes are equal.
NODES: dict[Any, Callable[[Any], ValueNode]] = {
    form: node
    for plain, node in ((int, IntegerNode), (float, FloatNode), (bool, BooleanNode))
    for form in (plain, plain | None)
}
SEED = re.compile(r"(?:^|_)seed-\d+(?=_|$)")  # in a job's name
# The checkpoint that a split is scored with; Table 3 has the former
SCORED = {"val": "last", "test": "averaged"}


@dataclass(frozen=True)
class SweepJob:
    """One run of a sweep: `overrides` make `config`; `chosen` are the options that they set."""

    name: str
    overrides: list[str]
    config: Config
    chosen: frozenset[str]
    # Splits, and with which checkpoint
    scored: dict[str, str] = field(default_factory=lambda: {"val": "last"})

    @property
    def folder(self) -> Path:
        return self.config.outputs_folder / self.config.run_name

    def train_command(self, train: Sequence[str]) -> list[str]:
        """Returns the command that trains the job, after writing its checked options for it: a
        process of a row composes none. Raises OSError where they cannot be written, RefusedError
        where their folder is a link.
        """
        file = self.folder.parent / ".rows" / f"{self.name}.json"
        refuse_link(file.parent)
        write_json(file, {"options": to_dict(self.config), "chosen": sorted(self.chosen)})
        return [*train, f"--row={file}", f"debug={as_option(self.config.debug)}"]


def make_jobs(
    compose: Callable[[list[str]], DictConfig],
    batch: Sequence[Sequence[str]],
    typed: Sequence[str] = (),
) -> list[SweepJob]:
    """Returns a job for each list of overrides, the same one for equal lists; checks the options of
    all.

    compose returns Hydra's configuration for a list of overrides; typed are the arguments of the
    whole sweep.
    Raises ConfigError with a line for each mistake.
    """
    parser = OverridesParser.create()
    typed = [for_hydra(override, Config) for override in typed]
    # Sweepers other than ours write fixed values anew, and null as None.
    fixed = {
        key_of(line): canonical_override(line)
        for line in typed
        if not parser.parse_override(line).is_sweep_override()
    }
    points = []
    for job in batch:
        lines = [canonical_override(for_hydra(override, Config)) for override in job]
        points.append(tuple(fixed.get(key_of(line), line) for line in lines))
    rows = list(dict.fromkeys(points))
    names = job_names(rows, fixed.values())
    with_seeds = job_names(rows, [fixed[key] for key in fixed if key != "seed"])
    resolved, choices, mistakes = [], [], defaultdict(list)
    for name, overrides in zip(names, rows, strict=True):
        try:
            with hydra_errors_explained(Config):
                composed = compose(list(overrides))
                choices.append(composed.hydra.runtime.choices)
                resolved.append(resolve_options(without_hydra(composed), choices[-1], overrides))
        except ConfigError as error:
            mistakes[str(error)].append(name)
    _refuse(mistakes, len(rows), ConfigError)
    sweep = resolved[0].sweep or _sweep_name(choices)
    jobs = {}
    for name, with_seed, overrides, options in zip(names, with_seeds, rows, resolved, strict=True):
        # The folder of a row that has begun may be named otherwise, of a time with other seeds; and
        # another seed may have the one without.
        without_seed = SEED.sub("", with_seed).strip("_") or "base"
        candidates = [
            _job(candidate, sweep, overrides, options)
            for candidate in (name, with_seed, without_seed)
        ]
        begun = next(filter(_began_as, candidates), None)
        jobs[overrides] = begun or candidates[bool(_began_as(candidates[0], but={"seed"}))]
    return [jobs[point] for point in points]


def job_of_row(options: Config, choices: Mapping[str, str], overrides: Sequence[str]) -> SweepJob:
    """Returns the job of one row of a sweep; a launcher of Hydra's own knows its overrides
    alone.
    """
    if "name" in typed_keys(overrides):  # as the grid has named it
        chosen = frozenset(chosen_options(overrides, options))
        return SweepJob(PurePath(options.run_name).name, list(overrides), options, chosen)
    varied = [
        canonical_override(line) for line in overrides if key_of(line) not in ("sweep", "outputs")
    ]
    [name] = job_names([varied], [])
    return _job(name, options.sweep or _sweep_name([choices]), overrides, options)


def canonical_override(override: str) -> str:
    """Returns an override with its value in the form that all equal values share.

    1e-4 and 0.0001 are one row, and so are 1 and 1.0 where the option is a float.
    0.30000000000000004, from adding 0.1 three times, is 0.3.
    """
    key, _, text = override.partition("=")
    value = OverridesParser.create().parse_override(override).value()
    option = options_of(Config).get(key)
    node = NODES.get(option.type) if option is not None else None
    if node is not None and isinstance(value, bool | int | str):
        with suppress(ValidationError):  # which refuses the value when the row is composed
            value = node(value)._value()
    if isinstance(value, float) and math.isfinite(value):
        rounded = float(f"{value:.12g}")
        # A value that was drawn has 16 digits
        text = repr(rounded if len(repr(rounded)) <= 10 else value)
    elif value is None or isinstance(value, bool | int):
        text = str(as_option(value))
    elif isinstance(value, str) and re.fullmatch(r"[A-Za-z_][\w./-]*", value, re.ASCII):
        bare = f"{key}={value}"  # without its quotes, unless Hydra would read it as something else
        text = value if for_hydra(bare, Config) == bare else text
    elif isinstance(value, str) and text[:1] == "'" and not re.search(r"""["'\\]""", value):
        text = f'"{value}"'  # both quotes mean the same
    return f"{key}={text}"


def _job(name: str, sweep: str, overrides: Sequence[str], options: Config) -> SweepJob:
    settings = {"name": f"sweeps/{sweep}/{name}", "sweep": sweep}
    options = replace(options, **settings)
    if options.logger.group is None:
        settings["logger.group"] = sweep
        options = replace(options, logger=replace(options.logger, group=sweep))
    all_overrides = [line for line in overrides if key_of(line) != "sweep"]
    all_overrides += [for_hydra(f"{key}={value}", Config) for key, value in settings.items()]
    return SweepJob(name, all_overrides, options, frozenset(chosen_options(all_overrides, options)))


def job_names(batch: Sequence[Sequence[str]], typed: Collection[str]) -> list[str]:
    """Returns what each job changes, as a folder name: a_h1, n_heads-4_d_k-16,
    train-news-en-3f9a01c2.

    typed are the overrides of the whole sweep. A value that is long, or has letters other than
    ASCII's, is cut and followed by a hash; so is one that would share its name with another job's.
    """
    jobs = [dict(line.split("=", 1) for line in job) for job in batch]
    varied = [key for key in jobs[0] if any(f"{key}={job[key]}" not in typed for job in jobs)]
    swept = [key for key in varied if key != "ablation"]
    labels = dict(zip(swept, short_names(swept), strict=True))
    changes = [{key: job[key] for key in ("ablation", *swept) if key in job} for job in jobs]
    plain = [_folder_name(change, labels) for change in changes]
    return [
        name if plain.count(name) == 1 else _folder_name(change, labels, is_shared=True)
        for name, change in zip(plain, changes, strict=True)
    ]


def _folder_name(
    changes: Mapping[str, str], labels: Mapping[str, str], is_shared: bool = False
) -> str:
    """Returns a job's folder name; labels are the short names of options. is_shared: by another
    job, without hashes.
    """
    parts = []
    for key, value in changes.items():
        shown = value.rpartition("/")[2] if key == "ablation" else re.sub("['\"]", "", value)
        name = "".join(letter if letter in NAME_CHARACTERS else "-" for letter in shown)
        label = f"{labels[key]}-" if key in labels else ""
        is_exact = f"{label}{name}".strip("-._") == f"{label}{value}"
        if len(shown) > MAX_VALUE or not shown.isascii() or (is_shared and not is_exact):
            name = f"{name[-KEPT_OF_VALUE:].strip('-._')}-{_hash(value)}".lstrip("-")
        parts.append(f"{label}{name}".strip("-._") or "empty")
    whole = "_".join(parts) or "base"
    return whole if len(whole) <= MAX_NAME else f"{whole[:MAX_NAME]}-{_hash(str(changes))}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def asked_scores(requested: Sequence[str]) -> dict[str, str]:
    """Returns the checkpoint for each split of hydra.launcher.score=[val,test:last]. Raises
    ConfigError for others.
    """
    checkpoints = {}
    for text in requested:
        split, _, checkpoint = text.partition(":")
        is_known = split in SCORED and checkpoint in ("", "last", "averaged", "best")
        require(
            is_known and split not in checkpoints,
            f"hydra.launcher.score={','.join(requested)}: name val, test or both, each once; to "
            "choose a checkpoint: [val:averaged,test:last]",
        )
        checkpoints[split] = checkpoint or SCORED[split]
    return checkpoints


def check_texts(jobs: Sequence[SweepJob]) -> None:
    """Raises DataError if the text of an unfinished job is missing, or the test set that it is to
    be scored on.
    """
    mistakes, checked_texts = defaultdict(list), []
    for job in jobs:
        if job.config.data in checked_texts or job.config.init_from or is_finished(job):
            continue
        from aiayn.data.preparation import check_text
        from aiayn.data.sources import text_of

        checked_texts.append(job.config.data)
        try:
            check_text(job.config.data)
            if "test" in job.scored:
                next(text_of(job.config.data, "test").pairs(), None)
        except DataError as error:
            mistakes[str(error)].append(job.name)
    _refuse(mistakes, len(checked_texts), DataError)


def is_finished(job: SweepJob) -> bool:
    """Returns whether the run was trained with these options to its end, and then scored with this
    search.
    """
    run, config = RunFolder(job.folder), _began_as(job)
    is_trained = config is not None and run.averaged.exists() and _has_ended(run, config)
    return is_trained and all(is_scored(job, split) for split in job.scored)


def _began_as(job: SweepJob, but: AbstractSet[str] = frozenset()) -> Config | None:
    """Returns the job's options, those that are open as its run settled them; None unless that
    began with the same, `but` for some.
    """
    try:
        stored = read_options(RunFolder(job.folder))
        extensions = load_extensions(job.config.extensions)
        model = replace(job.config.model, parts=ids_of_builders(extensions))
        current = replace(job.config, extensions_sha256=ids_of_files(extensions), model=model)
        config = filled(current, stored)
        changed = set(changed_options(stored, config)) - but
    except RefusedError:
        return None
    if job.config.init_from is not None:
        changed -= {key for key in changed if is_from_source(key) and key not in job.chosen}
    return None if changed else config


def _has_ended(run: RunFolder, config: Config) -> bool:
    """Returns whether a training has nothing left to do: at its last step, out of patience, or
    ended by something else.
    """
    trainer, epoch = config.trainer, read_json(run.corpus).get("steps_per_epoch")
    if is_count(epoch):
        trainer = replace(trainer, max_steps=trainer.last_step(epoch))
    reached = max(saved_steps(run.checkpoints), default=0)
    metrics = metrics_of(load_extensions(config.extensions))
    records = [record for record in run.read_metrics() if record["step"] <= reached]
    is_lower = is_lower_better(metrics, trainer.best_metric)
    return (
        end_reason(run, trainer, reached, ValidationHistory(trainer, records, is_lower)) is not None
    )


def is_scored(job: SweepJob, split: str) -> bool:
    """Returns whether this text was scored with this search and the job's checkpoint for it, as the
    training left that.
    """
    run, checkpoint = RunFolder(job.folder), job.scored[split]
    scored = read_evaluation(run.evaluation(split).scores)
    if (
        scored is None
        or not scored.is_of_split(split, getattr(job.config.data, split))
        or scored.checkpoint != f"{checkpoint}.ckpt"
        or scored.search_options != without_batching(to_dict(job.config.search))
    ):
        return False
    if checkpoint == "best":  # of any step
        return run.best.exists() and scored.checkpoint_sha256 == sha256(run.best)
    return scored.step >= max(saved_steps(run.checkpoints), default=0)


def _refuse(mistakes: Mapping[str, Sequence[str]], jobs: int, error_class: type[UserError]) -> None:
    """Raises an error with each message once, after the names of the jobs concerned if these are
    not all.
    """
    if mistakes:
        lines = [
            text if len(names) == jobs else f"{', '.join(names)}: {text}"
            for text, names in mistakes.items()
        ]
        raise error_class(NEXT_ERROR.join(lines))


def _sweep_name(choices: Sequence[Mapping[str, str]]) -> str:
    """Returns data and model, or the one of them that all jobs share."""
    files_of_groups = [{choice[group] for choice in choices} for group in ("data", "model")]
    common = [min(files) for files in files_of_groups if len(files) == 1]
    require(common != [], "sweep is missing: the jobs share neither data nor model; set sweep=NAME")
    return "-".join(common)


def is_from_source(key: str) -> bool:
    """Returns whether a run takes an option over from the one that `init_from` names, unless the
    user sets it.
    """
    keys = ("init_fingerprint", *(f"data.{name}" for name in OF_VOCABULARY))
    return key.startswith("model.") or key in keys
