"""Submits the jobs of a sweep to SLURM, each as a job of its own, and runs one there."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from signal import SIGTERM
from typing import Any

from aiayn.config import program
from aiayn.config.rules import at_least, require
from aiayn.errors import ConfigError, InterruptedRunError, ResourceError, one_line
from aiayn.sweep.jobs import SweepJob, is_finished
from aiayn.sweep.runner import Processes, say


@dataclass
class SlurmRow:
    """What a SLURM job runs, in every task: one task for each device."""

    job: SweepJob
    train: list[str]
    evaluate: list[str]
    requeue: bool

    def __call__(self) -> None:
        """Trains the row, continuing it if it was begun, and scores it. Exits with the code of what
        failed.
        """
        import submitit

        if is_finished(self.job):
            return
        if submitit.JobEnvironment().global_rank:
            os.execv(self.train[0], self.job.train_command(self.train))
        try:
            code = Processes([self.job], self.train, self.evaluate, 1).run().get(self.job.name, 0)
        except InterruptedRunError as error:
            print(error, file=sys.stderr, flush=True)
            code = error.exit_code
        if self.requeue and code == 128 + SIGTERM:
            number = os.environ["SLURM_JOB_ID"]
            # A cancelled job is COMPLETING, and SLURM would put it back into the queue all the
            # same.
            state = _slurm("squeue", "--noheader", f"--jobs={number}", "--format=%T")
            if state.strip() == "RUNNING":
                _slurm("scontrol", "requeue", number)
        if code:
            sys.exit(code)


def check_slurm(options: Any) -> None:
    """Raises ConfigError for an option out of range, and where no job can be submitted."""
    for name, least in (("time", 1), ("gpus", 0), ("cpus", 1), ("memory", 0.001)):
        at_least(f"hydra.launcher.{name}", getattr(options, name), least)
    require(
        find_spec("submitit") is not None,
        "hydra/launcher=slurm: needs submitit: pip install 'aiayn[cluster]'",
    )
    for command in ("sbatch", "srun", "squeue"):
        require(
            shutil.which(command) is not None,
            f"hydra/launcher=slurm: {command} not found; use a login node",
        )


def submit(jobs: Sequence[SweepJob], train: list[str], evaluate: list[str], options: Any) -> None:
    """Submits every job that is neither finished nor in the queue; options are those of
    `hydra.launcher`.

    If all are finished it prints their scores. Raises ConfigError if SLURM refuses a job.
    """
    sweep = Processes(jobs, train, evaluate)
    if not sweep.waiting:
        sweep.run()
        return
    sweep.say_start()
    queue = set(_slurm("squeue", "--me", "--noheader", "--format=%i").split())
    for job in sweep.waiting:
        submission_folder = sweep.folder / ".slurm" / job.name
        submitted = queue & {
            path.name.partition("_")[0] for path in submission_folder.glob("*_submitted.pkl")
        }
        waiting = ", ".join(sorted(submitted))
        started = waiting or _submit(
            SlurmRow(job, train, evaluate, options.requeue), submission_folder, options
        )
        state = "already in the queue" if waiting else "submitted"
        number, log = jobs.index(job) + 1, sweep.folder / f"{job.name}.log"
        say(f"sweep {number}/{len(jobs)} {job.name}: SLURM job {started} {state}, log {log}")
    table = f"{program.typed('table')} {sweep.folder}"
    say(
        f"next     squeue --me, {table}, and this command again to resubmit cancelled and failed "
        "jobs"
    )


def _submit(row: SlurmRow, submission_folder: Path, options: Any) -> str:
    """Returns the number of the submitted job; `submission_folder` gets submitit's own files."""
    import submitit
    from submitit.core.utils import FailedJobError

    trainer = row.job.config.trainer
    usual = 0 if trainer.accelerator == "cpu" else trainer.devices
    gpus = usual if options.gpus is None else options.gpus
    executor = submitit.AutoExecutor(submission_folder, cluster="slurm")
    executor.update_parameters(
        name=row.job.config.run_name,
        slurm_partition=options.partition,
        timeout_min=options.time,
        nodes=trainer.num_nodes,
        tasks_per_node=trainer.devices,
        gpus_per_node=gpus or None,
        cpus_per_task=options.cpus,
        mem_gb=options.memory,
        stderr_to_stdout=True,
        # The first task goes on when the others have ended: it scores the row, or puts the job back
        # into the queue.
        slurm_srun_args=["--wait=0", "--kill-on-bad-exit=0"],
        # SIGTERM makes training save and end; submitit's own USR2 would kill it.
        slurm_additional_parameters={
            "signal": "TERM@120",
            "requeue" if options.requeue else "no-requeue": True,
            **options.sbatch,
        },
    )
    try:
        return executor.submit(row).job_id
    except FailedJobError as error:
        reason = str(error).strip().split("\n")[-1]
        raise ConfigError(f"SLURM: {row.job.name} was rejected: {reason}") from error


def _slurm(*command: str) -> str:
    """Returns what a command of SLURM prints. Raises ResourceError if it fails."""
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        raise ResourceError(f"{command[0]} failed: {one_line(ended.stderr)}")
    return ended.stdout
