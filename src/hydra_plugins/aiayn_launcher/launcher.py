"""Hydra's launcher of `train.py`: checks all jobs, then runs each in a process of its own.

Jobs in one process would share leftover state of distributed training, loggers and allocators: with several devices
the second job would silently train on a part of its data.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from aiayn import program
from aiayn.config import at_least
from aiayn.errors import ConfigError
from hydra_plugins.aiayn_launcher.jobs import check_texts, make_jobs
from hydra_plugins.aiayn_launcher.processes import Processes


@dataclass
class LauncherConfig:
    _target_: str = "hydra_plugins.aiayn_launcher.launcher.ProcessLauncher"
    jobs: int = 1  # that run at the same time


ConfigStore.instance().store(group="hydra/launcher", name="processes", node=LauncherConfig, provider="aiayn")

# Hydra's own flags that are passed on to the jobs.
FLAGS = ("--config-dir", "-cd", "--config-path", "-cp", "--config-name", "-cn")


class ProcessLauncher(Launcher):
    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.context: HydraContext | None = None
        self.config: DictConfig | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.context, self.config = hydra_context, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Trains and scores every job that is not finished, and returns an empty list: results are in the folders.

        Raises ConfigError or DataError before the first job starts, FailedJobsError after the last one, and
        InterruptedRunError after a signal.
        """
        assert self.context is not None
        at_least("hydra.launcher.jobs", self.jobs, 1)
        if "LOCAL_RANK" in os.environ:
            raise ConfigError("-m starts processes of its own: use it without torchrun, with trainer.devices=N")
        loader, config, conf = self.context.config_loader, self.config, program.conf_folder()
        jobs = make_jobs(lambda overrides: loader.load_sweep_config(config, overrides), job_overrides, conf)
        check_texts(jobs)
        train, evaluate = program.process("train"), program.process("evaluate")
        Processes(jobs, [*train, *_flags(sys.argv[1:])], evaluate, self.jobs).run()
        return []


def _flags(arguments: Sequence[str]) -> list[str]:
    """Returns ["-cd", "mine"] for ["-m", "-cd", "mine", "seed=1,2"]."""
    flags = []
    for number, argument in enumerate(arguments):
        if argument in FLAGS:
            flags += arguments[number : number + 2]
        elif argument.split("=")[0] in FLAGS:
            flags.append(argument)
    return flags
