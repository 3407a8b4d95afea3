"""Hydra's launchers of `train.py`: they check all jobs, then run each in a process, or a SLURM job, of its own.

Jobs in one process would share leftover state of distributed training, loggers and allocators: with several devices
the second job would silently train on a part of its data.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from aiayn.config import program
from aiayn.config.rules import at_least
from aiayn.errors import ConfigError, FailedJobsError
from aiayn.sweep.jobs import SweepJob, check_texts, make_jobs, scorings_of
from aiayn.sweep.processes import Processes
from aiayn.sweep.slurm import check_slurm, submit


@dataclass
class ProcessesConfig:
    _target_: str = "hydra_plugins.aiayn_sweep.ProcessLauncher"
    jobs: int = 1  # that run at the same time
    score: list[str] = field(default_factory=lambda: ["val"])  # val, test; with another checkpoint: test:last


@dataclass
class SlurmConfig:
    _target_: str = "hydra_plugins.aiayn_sweep.SlurmLauncher"
    partition: str | None = None  # null: the cluster's default
    time: int = 1440  # minutes
    gpus: int | None = None  # a node; null: trainer.devices, or none with trainer.accelerator=cpu
    cpus: int = 4  # a device
    memory: float | None = None  # GB a node; null: the cluster's default
    requeue: bool = True  # requeue a job after a time-out or preemption
    score: list[str] = field(default_factory=lambda: ["val"])  # as above
    sbatch: dict[str, Any] = field(default_factory=dict)  # any other option of sbatch: {account: mine}


# Hydra's own flags that are passed on to the jobs, as `cli/hydra_commands.py` writes them: --config-dir=FOLDER.
FLAGS = ("--config-dir", "--config-path", "--config-name")


class SweepLauncher(Launcher):
    """What both launchers share."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.context, self.config = hydra_context, config

    def jobs_and_commands(
        self, batch: Sequence[Sequence[str]], score: Sequence[str]
    ) -> tuple[list[SweepJob], list[str], list[str]]:
        """Returns the jobs, each to be scored on these splits, and the beginnings of the commands that train and score.

        Raises ConfigError or DataError with a line for each mistake.
        """
        if "LOCAL_RANK" in os.environ:
            raise ConfigError("-m starts processes of its own: use it without torchrun, with trainer.devices=N")
        loader, config = self.context.config_loader, self.config
        jobs = make_jobs(lambda overrides: loader.load_sweep_config(config, overrides), batch)
        jobs = [replace(job, scorings=scorings_of(score)) for job in jobs]
        if "test" in {one.split for one in jobs[0].scorings} and any(job.config.data.test is None for job in jobs):
            raise ConfigError("hydra.launcher.score: there is no data.test to score; set it, or leave out test")
        check_texts(jobs)
        return jobs, [*program.process("train"), *_flags(sys.argv[1:])], program.process("evaluate")


class ProcessLauncher(SweepLauncher):
    def __init__(self, jobs: int, score: Sequence[str]) -> None:
        self.jobs, self.score = jobs, score

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Trains and scores every job that is not finished, and returns an empty list: results are in the folders.

        Raises ConfigError or DataError before the first job starts, FailedJobsError after the last one, and
        InterruptedRunError after a signal.
        """
        at_least("hydra.launcher.jobs", self.jobs, 1)
        Processes(*self.jobs_and_commands(job_overrides, self.score), self.jobs).run()
        return []


class SlurmLauncher(SweepLauncher):
    def __init__(self, **options: Any) -> None:
        self.options = SlurmConfig(**options)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Submits every job that is neither finished nor in SLURM's queue, and returns an empty list.

        Raises ConfigError or DataError before the first one is submitted, and ConfigError if SLURM refuses one.
        """
        check_slurm(self.options)
        submit(*self.jobs_and_commands(job_overrides, self.options.score), self.options)
        return []


@dataclass
class ScoresConfig:
    _target_: str = "hydra_plugins.aiayn_sweep.ScoresLauncher"


class ScoresLauncher(Launcher):
    """`evaluate.py -m run=A,B`: each evaluation in a process of its own, one after the other."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config = config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Scores every run and returns an empty list. Raises FailedJobsError after the last one if any failed."""
        command = [*program.process("evaluate"), *_flags(sys.argv[1:])]
        codes = {" ".join(options): subprocess.run([*command, *options]).returncode for options in job_overrides}
        failed = {options: code for options, code in codes.items() if code}
        if failed:
            listed = ", ".join(f"{options} (exit {code})" for options, code in failed.items())
            text = f"{len(failed)} of {len(codes)} evaluations failed: {listed}"
            raise FailedJobsError(text, next(iter(failed.values())))
        return []


def _flags(arguments: Sequence[str]) -> list[str]:
    """Returns ["--config-dir=mine"] for ["--multirun", "--config-dir=mine", "seed=1,2"]."""
    return [argument for argument in arguments if argument.partition("=")[0] in FLAGS]
