"""Runs the jobs of a sweep, each in a process of its own, and reports progress."""

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from statistics import mean
from subprocess import DEVNULL, STDOUT, Popen

from hydra.conf import HydraConf

from aiayn.config import program
from aiayn.config.schema import Config
from aiayn.config.stored import as_option, to_dict, too_late
from aiayn.errors import (
    ConfigError,
    DivergedError,
    FailedJobsError,
    InterruptedRunError,
    RefusedError,
    ResourceError,
    UserError,
    counted,
)
from aiayn.runs.continuation import is_in_use, read_options
from aiayn.runs.run_folder import RunFolder, refuse_link, series
from aiayn.signals import PARENT, exit_signal, handle_signals
from aiayn.sweep.jobs import SweepJob, is_finished, is_scored, job_of_row

# In the refusal of a run that another process trains, such as an equal sweep
IN_USE = " is in use by "


class Processes:
    """Trains and then scores the jobs that are not finished, at most `parallel` at a time, in the
    order given.
    """

    def __init__(
        self, jobs: Sequence[SweepJob], train: list[str], evaluate: list[str], parallel: int = 1
    ) -> None:
        """train and evaluate are the beginnings of the commands that train and score a job."""
        self.jobs, self.commands, self.folder = jobs, (train, evaluate), jobs[0].folder.parent
        self.finished = [job for job in jobs if is_finished(job)]
        self.waiting = [job for job in jobs if job not in self.finished]
        self.parallel = parallel
        self.gpus: list[str] = []
        if parallel > 1:
            from aiayn.hardware import visible_gpus

            self.gpus = visible_gpus()
        # Of what follows: a thread for each place, and the main one, which gets signals
        self.lock = threading.RLock()
        self.free = list(range(parallel))  # places, each of which has GPUs of its own
        self.running: set[Popen[bytes]] = set()
        self.left = len(self.waiting)
        self.seconds: list[float] = []  # how long each successful job ran
        self.failed: dict[str, int] = {}  # job -> exit code
        self.requested: int | None = None  # the signal that asked to stop

    def run(self) -> dict[str, int]:
        """Returns the exit codes of the jobs that failed.

        Raises ConfigError for GPUs that a job lacks here, and InterruptedRunError after a signal.
        """
        for trainer in [job.config.trainer for job in self.waiting]:
            if trainer.needs_gpus:
                # Counts GPUs only: the context of a GPU would stay in this process
                from aiayn.hardware import choose_accelerator

                choose_accelerator(trainer)
        self.say_start()
        with handle_signals(self._stop), ThreadPoolExecutor(self.parallel) as threads:
            runs = [threads.submit(self._run_job, job) for job in self.waiting]
            # Python handles a signal that another thread got, or that came just before a wait, only
            # when the main thread goes on.
            while wait(runs, timeout=1).not_done:
                pass
            for run in runs:
                run.result()  # raises its error
        summary = f"{len(self.finished) + len(self.seconds)} of {len(self.jobs)} jobs finished"
        if self.requested:
            raise InterruptedRunError(
                f"stopped  {summary}; run the same command to continue", self.requested
            )
        say(f"sweep {self.folder}: {summary}")
        from aiayn.reports.comparison import comparisons
        from aiayn.reports.report import write_report
        from aiayn.reports.runs import read_runs
        from aiayn.reports.tables import notes_table, text

        with suppress(UserError):  # jobs that failed before they wrote anything
            page = RunFolder(self.folder).report
            if self.waiting or not page.exists():
                write_report(self.folder)
            runs, notes = read_runs([self.folder])
            say(f"{text([*comparisons(runs), *notes_table(notes)])}\npage     {page}")
        say(f"next     {program.typed('table')} {self.folder}")
        return self.failed

    def say_start(self) -> None:
        """Says how many jobs there are, and what the finished ones cannot follow any more."""
        say(
            f"sweep {self.folder}: {counted(len(self.jobs), 'job')}, {len(self.finished)} "
            "finished before"
        )
        for job in self.finished:
            if changed := too_late(read_options(RunFolder(job.folder)), job.config):
                remedy = "remove its folder to train it again"
                say(f"warning  {job.name}: {changed} has no effect on a finished run; {remedy}")

    def _run_job(self, job: SweepJob) -> None:
        """Runs the processes of a job one after the other, and says how it ended."""
        with self.lock:
            if self.requested:
                return
            slot, began = self.free.pop(0), time.monotonic()
        log = job.folder.with_name(f"{job.name}.log")
        title = f"sweep {self.jobs.index(job) + 1}/{len(self.jobs)} {job.name}:"
        gpus = self._gpus_of(slot, job)
        say(f"{title} started, log {log}")
        code, message = self._train_and_score(job, log, gpus)
        while code == ConfigError.exit_code and IN_USE in message and not self.requested:
            say(f"{title} {message.partition(';')[0]}; waiting for it")
            while is_in_use(RunFolder(job.folder)) and not self.requested:
                time.sleep(1)
            code, message = self._train_and_score(job, log, gpus)
        seconds = time.monotonic() - began
        duration = _clock(seconds)
        with self.lock:
            self.free.append(slot)
            self.left -= 1
            if self.requested and code:
                say(f"{title} stopped after {duration}")
                return
            if code:
                self.failed[job.name] = code
                outcome = f"failed with exit code {code} after {duration}: {message}"
            else:
                self.seconds.append(seconds)
                outcome = f"done in {duration}"
            eta = ""
            if self.left and self.seconds:
                eta = f", ETA {_clock(mean(self.seconds) * self.left / self.parallel)}"
            say(f"{title} {outcome}; {self.left} left{eta}")

    def _train_and_score(self, job: SweepJob, log: Path, gpus: str | None) -> tuple[int, str]:
        """Runs what is left of a job. Returns the exit code of the first process that failed, and
        its last error.
        """
        try:
            for command in () if is_finished(job) else self._commands_of(job):
                code, error_line = self._run_command(command, log, gpus)
                if code := code or self.requested:
                    return code, error_line
        except OSError as error:
            return ResourceError.exit_code, f"{error.filename}: {error.strerror}"
        except RefusedError as error:
            return error.exit_code, str(error)
        return self.requested or 0, ""

    def _commands_of(self, job: SweepJob) -> Iterator[list[str]]:
        """Yields the commands that train a job and, after that, make the scores that are
        missing.
        """
        train, evaluate = self.commands
        yield job.train_command(train)
        # The search as configured now: the checkpoint may have been written with another one, and
        # null would keep that.
        search = to_dict(job.config.search) | {"patience": job.config.search.patience or 0}
        options = [f"search.{key}={as_option(value)}" for key, value in search.items()]
        files = ",".join("'" + path.replace("'", r"\'") + "'" for path in job.config.extensions)
        options += [f"accelerator={job.config.trainer.accelerator}", f"extensions=[{files}]"]
        for split, checkpoint in job.scored.items():
            if not is_scored(job, split):
                scored = [f"run={job.folder}", f"split={split}", f"checkpoint={checkpoint}"]
                yield [*evaluate, *scored, "trusted=true", *options]

    def _run_command(self, command: list[str], log: Path, gpus: str | None) -> tuple[int, str]:
        """Returns the exit code of a process, and its last error or else its last line.

        Raises OSError if the log cannot be written.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        refuse_link(log)
        env = os.environ | {PARENT: str(os.getpid())}
        if gpus is not None:
            env["CUDA_VISIBLE_DEVICES"] = gpus
        with open(log, "a+b") as file:
            previous_end = file.tell()
            with self.lock:
                # In a session of its own, so that the terminal's Ctrl-C reaches it only once,
                # through the sweep.
                process = Popen(
                    command,
                    env=env,
                    stdin=DEVNULL,
                    stdout=file,
                    stderr=STDOUT,
                    start_new_session=True,
                )
                self.running.add(process)
                if self.requested:  # since the last look
                    process.send_signal(self.requested)
            code = process.wait()
            with self.lock:
                self.running.remove(process)
            if code:  # other ranks of a job that died would wait for it until their time-out
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            file.seek(previous_end)
            texts = file.read().decode(errors="replace").split("\n")
        lines = [text.strip() for text in texts if text.strip()]
        errors = [line for line in lines if line.startswith("error: ")]
        last = (errors or lines or ["no output"])[-1].removeprefix("error: ")
        return (128 - code, f"killed by signal {-code}; {last}") if code < 0 else (code, last)

    def _stop(self, number: int, frame: object) -> None:
        """Passes every signal on to the running jobs as the first one; no more are started."""
        with self.lock:
            self.requested = self.requested or exit_signal(number)
            for process in self.running:
                process.send_signal(self.requested)

    def _gpus_of(self, slot: int, job: SweepJob) -> str | None:
        """Returns the CUDA_VISIBLE_DEVICES of a job, shared evenly; None leaves them as they
        are.
        """
        trainer = job.config.trainer
        if trainer.accelerator == "cpu" or trainer.devices > len(self.gpus):
            return None
        numbers = range(slot * trainer.devices, (slot + 1) * trainer.devices)
        return ",".join(self.gpus[number % len(self.gpus)] for number in numbers)


def run_row(options: Config, settings: HydraConf, overrides: Sequence[str]) -> float | None:
    """Trains and scores one row for a launcher of Hydra's own; settings are Hydra's, overrides the
    row's.

    Returns its exit code to our grid, and to a sweeper that searches the last value of
    `optimized_metric`, as `value_of_row` does.
    """
    job = job_of_row(options, settings.runtime.choices, overrides)
    sweep = Processes([job], program.process("train"), program.process("evaluate"))
    code = sweep.run().get(job.name, 0)
    if settings.runtime.choices["hydra/sweeper"] == "grid":
        return code
    code, value = value_of_row(job, code, settings.sweeper.get("direction"))
    if code:
        raise FailedJobsError(f"{job.name} (exit {code})", code)
    return value


def value_of_row(job: SweepJob, code: int, direction: object) -> tuple[int, float | None]:
    """Returns a row's exit code and the last value of its `optimized_metric`.

    For a search, which has a direction, a row that diverged has the worst of all values, and does
    not end it.
    """
    if direction and code == DivergedError.exit_code:
        return 0, -math.inf if "maximize" in str(direction) else math.inf
    values = series(RunFolder(job.folder).read_metrics(), job.config.optimized_metric)
    return code, values[-1][1] if values else None


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def say(text: str) -> None:
    with suppress(BrokenPipeError):
        print(text, file=sys.stderr, flush=True)
