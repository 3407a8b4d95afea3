"""Hydra's plugins: the sweeper and the launchers of `train.py -m` and `evaluate.py -m`. Hydra looks
for them here.

The launchers check all jobs, then run each in a process, or a SLURM job, of its own. Jobs in one
process would share leftover state of distributed training, loggers and allocators: with several
devices the second job would silently train on a part of its data.
"""

import math
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from itertools import product
from pathlib import PurePosixPath
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override, RangeSweep
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from aiayn.config import program
from aiayn.config.compose import typed_keys
from aiayn.config.messages import values_of
from aiayn.config.rules import at_least, flatten, require
from aiayn.errors import ConfigError, FailedJobsError
from aiayn.sweep.jobs import SweepJob, asked_scores, check_texts, make_jobs
from aiayn.sweep.runner import Processes, say, value_of_row
from aiayn.sweep.slurm import check_slurm, submit


@dataclass
class ProcessesConfig:
    _target_: str = f"{__name__}.ProcessLauncher"
    jobs: int = 1  # that run at the same time
    # Val, test; with another checkpoint: test:last
    score: list[str] = field(default_factory=lambda: ["val"])


@dataclass
class SlurmConfig:
    _target_: str = f"{__name__}.SlurmLauncher"
    partition: str | None = None  # null: the cluster's default
    time: int = 1440  # minutes
    gpus: int | None = None  # a node; null: trainer.devices, or none with trainer.accelerator=cpu
    cpus: int = 4  # a device
    memory: float | None = None  # GB a node; null: the cluster's default
    requeue: bool = True  # requeue a job after a time-out or preemption
    score: list[str] = field(default_factory=lambda: ["val"])  # as above
    # Any other option of sbatch: {account: mine}
    sbatch: dict[str, Any] = field(default_factory=dict)


class Grid(Sweeper):
    """Unlike Hydra's own sweeper it writes no files: a refused sweep must leave nothing behind."""

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self.context, self.config = hydra_context, config
        self.make_launcher = partial(
            Plugins.instance().instantiate_launcher,
            hydra_context=hydra_context,
            task_function=task_function,
            config=config,
        )
        self.launcher = self.make_launcher()

    def sweep(self, arguments: list[str]) -> None:
        """Raises FailedJobsError, with the exit code of the first job that failed, after all have
        run.
        """
        assert self.launcher is not None, "setup has been called"
        assert self.config is not None
        overrides = OverridesParser.create(
            config_loader=self.context.config_loader
        ).parse_overrides(arguments)
        values = {override.get_key_element(): self._values(override) for override in overrides}
        batch = [list(job) for job in product(*values.values())]
        # Those of Hydra know nothing of rows
        if not isinstance(self.launcher, SweepLauncher):
            jobs = checked_jobs(self.context, self.config, batch, ["val"])
            batch = [job.overrides for job in _distinct(jobs)]
            self.launcher = self.make_launcher()  # which writes below the sweep's folder, now known
        job_returns = self.launcher.launch(batch, initial_job_idx=0)
        # Equal points have one job, and its result
        job_returns = {id(job_return): job_return for job_return in job_returns}.values()
        if failed := list(filter(None, map(_error_of, job_returns))):
            raise FailedJobsError(
                f"{len(failed)} of {len(job_returns)} jobs failed: {', '.join(map(str, failed))}; "
                "the same command tries them again",
                getattr(failed[0], "exit_code", 1),
            )

    def _values(self, override: Override) -> Sequence[str]:
        """Returns the override once for each of its values. Raises ConfigError for what cannot be
        swept.
        """
        key, line = override.key_or_group, override.input_line or ""
        require(
            key != "name",
            "name=: each job of a sweep has its own folder; name the sweep with sweep=NAME instead",
        )
        if not override.is_sweep_override():
            return [line]
        require(key not in ("sweep", "outputs"), f"{key}=: takes one name, for all jobs")
        require(
            override.is_discrete_sweep(),
            f"{line}: has no list of values; write {key}=A,B or {key}=range(A,B,STEP), or choose "
            "a sweeper that searches, such as hydra/sweeper=optuna (docs/sweeps.md)",
        )
        swept = override.value()
        if isinstance(swept, RangeSweep):
            require(swept.step != 0, f"{line}: its step is 0; give another, range(A,B,STEP)")
            values = _values_of_range(swept)
        else:
            values = list(override.sweep_string_iterator())
        if isinstance(swept, Glob):  # Hydra matches the files of the group's own folder only
            folders = {str(PurePosixPath(pattern).parent) for pattern in swept.include}
            for folder in sorted(folders - {"."}):
                files = self.context.config_loader.get_group_options(f"{key}/{folder}")
                values += swept.filter([f"{folder}/{name}" for name in files])
        require(values != [], f"{line}: matches nothing")
        return [f"{override.get_key_element()}={value}" for value in values]


def _error_of(job_return: JobReturn) -> Exception | None:
    """Returns why a job failed, None if it did not. Under a launcher of Hydra's own it returns its
    exit code, and has its folder among its overrides.
    """
    if job_return.status == JobStatus.FAILED:
        return job_return._return_value
    code = job_return.return_value
    if type(code) is not int or not code:
        return None
    options = dict(override.split("=", 1) for override in job_return.overrides or ())
    row = PurePosixPath(options.get("name", "a row").strip("\"'")).name
    return FailedJobsError(f"{row} (exit {code})", code)


def _values_of_range(ends: RangeSweep) -> list[str]:
    """Returns the values of range(START,STOP,STEP), without STOP.

    Computes in decimals: in binary fractions 0.1 + 0.1 + 0.1 is above 0.3, and adding 0.1 once more
    stays below 0.4.
    """
    start, stop, step = (Decimal(str(number)) for number in (ends.start, ends.stop, ends.step))
    count = max(0, math.ceil((stop - start) / step))
    values = [str(start + step * number) for number in range(count)]
    if ends.shuffle:
        random.shuffle(values)
    return values


class SweepLauncher(Launcher):
    """What all launchers share."""

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self.context, self.config = hydra_context, config


def checked_jobs(
    context: HydraContext, config: DictConfig, batch: Sequence[Sequence[str]], score: Sequence[str]
) -> list[SweepJob]:
    """Returns the jobs of a sweep, each to be scored on these splits.

    Raises ConfigError or DataError with a line for each mistake.
    """
    require(
        "LOCAL_RANK" not in os.environ,
        "-m starts processes of its own: use it without torchrun, with trainer.devices=N",
    )
    # As typed: iterating would interpolate
    typed: Any = OmegaConf.to_container(config.hydra.overrides.task)
    searched = map(str, config.hydra.sweeper.get("params") or {})
    fixed = {key for override in typed for key in values_of(override)}
    for key in sorted(fixed & typed_keys(searched)):
        raise ConfigError(
            f"{key}: both fixed on the command line and searched by hydra.sweeper.params; leave "
            "one out"
        )
    if config.hydra.sweeper.get("direction"):
        _refuse_fixed_by_files(context, config, typed)
    jobs = make_jobs(
        lambda overrides: context.config_loader.load_sweep_config(config, overrides), batch, typed
    )
    for job in jobs if config.hydra.sweeper.get("direction") else ():
        require(
            job.config.trainer.limit_val_batches > 0,
            f"hydra/sweeper={config.hydra.runtime.choices['hydra/sweeper']}: searches for the best "
            f"{job.config.optimized_metric}, which trainer.limit_val_batches=0 does not measure; "
            "raise that",
        )
    for name, count in Counter(job.name for job in jobs).items():
        if count > 1:
            say(f"sweep    {name}: {count} equal jobs run as one")
    asked = asked_scores(score)  # but of a try, of which nothing is kept
    jobs = [replace(job, scored={} if job.config.trainer.fast_dev_run else asked) for job in jobs]
    require(
        "test" not in jobs[0].scored or all(job.config.data.test for job in jobs),
        "hydra.launcher.score: data.test is not set; set it, or leave out test",
    )
    check_texts(jobs)
    with read_write(config), open_dict(config):
        # Where a sweeper may write what it found
        config.hydra.sweep.dir = str(jobs[0].folder.parent)
    return jobs


def _refuse_fixed_by_files(context: HydraContext, config: DictConfig, typed: Sequence[str]) -> None:
    """Raises ConfigError for an option that a search varies although a chosen file sets it.

    A row of Table 3 is defined by what its file sets, so no search may vary that. The command line
    may search over what an experiment sets, as it may change it; hydra.sweeper.params, which is in
    a file itself, may not.
    """
    loader: Any = context.config_loader  # of Hydra, whose abstract class has no repository
    params: Any = OmegaConf.to_container(config.hydra.sweeper.get("params") or OmegaConf.create())
    in_files = [f"{key}={value}" for key, value in params.items()]
    parser, names = OverridesParser.create(), dict(config.hydra.runtime.choices)
    chosen = {group: [str(names[group])] for group in ("ablation", "experiment")}
    swept = []
    for override in parser.parse_overrides([*typed, *in_files]):
        if override.is_sweep_override():
            swept.append(override.key_or_group)
            if override.key_or_group in chosen and override.is_choice_sweep():
                chosen[override.key_or_group] = list(override.sweep_string_iterator())
    for group, searched in (("ablation", {*swept, *params}), ("experiment", {*params})):
        for name in chosen[group]:
            file = loader.repository.load_config(f"{group}/{name}")
            settings: Any = OmegaConf.to_container(file.config) if file else {}
            for key in sorted(searched & flatten(settings).keys()):
                raise ConfigError(
                    f"{key}: both fixed by {group}={name} and searched by "
                    f"hydra/sweeper={names['hydra/sweeper']}; leave one out"
                )


def _distinct(jobs: Sequence[SweepJob]) -> list[SweepJob]:
    """Returns each job once: equal points are one row."""
    return list({job.name: job for job in jobs}.values())


@dataclass
class ProcessLauncher(SweepLauncher):
    jobs: int
    score: Sequence[str]

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Trains and scores every job that is not finished. A job returns the last value of its
        `optimized_metric`, to a search the worst of all if it diverged.

        Raises ConfigError or DataError before the first job starts, and InterruptedRunError after a
        signal.
        """
        at_least("hydra.launcher.jobs", self.jobs, 1)
        jobs = checked_jobs(self.context, self.config, job_overrides, self.score)
        rows = _distinct(jobs)
        train, evaluate = program.process("train"), program.process("evaluate")
        failed = Processes(rows, train, evaluate, self.jobs).run()
        direction = self.config.hydra.sweeper.get("direction")  # of a search
        returned = {
            job.name: _returned(job.name, *value_of_row(job, failed.get(job.name, 0), direction))
            for job in rows
        }
        return [returned[job.name] for job in jobs]


class SlurmLauncher(SweepLauncher):
    def __init__(self, **options: Any) -> None:
        self.options = SlurmConfig(**options)

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Submits every job that is neither finished nor in SLURM's queue, and returns an empty
        list.

        Raises ConfigError or DataError before the first one is submitted, and ConfigError if SLURM
        refuses one.
        """
        sweeper = self.config.hydra.runtime.choices["hydra/sweeper"]
        require(
            sweeper == "grid",
            f"hydra/launcher=slurm: does not wait for results; leave out hydra/sweeper={sweeper}",
        )
        check_slurm(self.options)
        jobs = checked_jobs(self.context, self.config, job_overrides, self.options.score)
        train, evaluate = program.process("train"), program.process("evaluate")
        submit(_distinct(jobs), train, evaluate, self.options)
        return []


class ScoresLauncher(SweepLauncher):
    """`evaluate.py -m run=A,B`: each evaluation in a process of its own, one after the other."""

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        # With the flags of this command, as `cli/hydra_commands.py` writes them: --config-dir=x.
        flags = [argument for argument in sys.argv[1:] if argument.startswith("--config-")]
        command = [*program.process("evaluate"), *flags]
        return [
            _returned(" ".join(options), subprocess.run([*command, *options]).returncode)
            for options in job_overrides
        ]


def _returned(name: str, code: int, value: float | None = None) -> JobReturn:
    """Returns a job's result in Hydra's form; reading that of one that failed raises
    FailedJobsError.
    """
    job_return = JobReturn(status=JobStatus.FAILED if code else JobStatus.COMPLETED)
    job_return.return_value = FailedJobsError(f"{name} (exit {code})", code) if code else value
    return job_return


store = ConfigStore.instance()
for group, name, node in (
    ("sweeper", "grid", {"_target_": f"{__name__}.Grid"}),
    ("launcher", "processes", ProcessesConfig),
    ("launcher", "slurm", SlurmConfig),
    ("launcher", "scores", {"_target_": f"{__name__}.ScoresLauncher"}),
):
    store.store(group=f"hydra/{group}", name=name, node=node, provider="aiayn")
