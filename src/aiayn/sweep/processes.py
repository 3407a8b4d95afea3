"""Runs the jobs of a sweep, each in a process of its own, and reports progress."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from aiayn.config.stored import as_option, to_plain
from aiayn.errors import InterruptedRunError, ResourceError, UserError
from aiayn.runs.run_folder import RunFolder
from aiayn.signals import exit_signal, handle_signals
from aiayn.sweep.jobs import SweepJob, is_finished

POLL = 0.2  # seconds


class JobProcess:
    """A job's processes, one after the other: its training, then the scores that were asked for."""

    def __init__(self, job: SweepJob, train: list[str], evaluate: list[str], gpus: str | None) -> None:
        self.job, self.began = job, time.monotonic()
        self.environment = os.environ | ({} if gpus is None else {"CUDA_VISIBLE_DEVICES": gpus})
        self.log = job.folder.with_name(f"{job.name}.log")
        self.commands = [[*train, *job.overrides]]
        # The search as configured now: the checkpoint may have been written with another one.
        search = [f"search.{key}={as_option(value)}" for key, value in to_plain(job.config.search).items()]
        for split, checkpoint in job.scored.items():
            asked = [f"run={job.folder}", f"split={split}", f"checkpoint={checkpoint}", "trusted=true"]
            self.commands.append([*evaluate, *asked, f"accelerator={job.config.trainer.accelerator}", *search])

    def start(self) -> None:
        """Starts the next process. Raises OSError if the log cannot be written."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log, "ab") as file:
            self.read_from = file.tell()
            # In a session of its own, so that the terminal's Ctrl-C reaches it only once, through the sweep.
            self.process = subprocess.Popen(
                self.commands.pop(0),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def said_last(self) -> str:
        """Returns the last error, or else the last line, that the newest process wrote to the log."""
        with open(self.log, "rb") as file:
            file.seek(self.read_from)
            lines = [line.strip() for line in file.read().decode(errors="replace").split("\n") if line.strip()]
        errors = [line for line in lines if line.startswith("error: ")]
        return (errors or lines or ["no output"])[-1].removeprefix("error: ")

    def seconds(self) -> float:
        return time.monotonic() - self.began


class Processes:
    """Trains and then scores the jobs that are not finished, at most `parallel` at a time, in the order given."""

    def __init__(self, jobs: Sequence[SweepJob], train: list[str], evaluate: list[str], parallel: int = 1) -> None:
        """train and evaluate are the beginnings of the commands that train and score a job."""
        self.jobs, self.commands, self.folder = jobs, (train, evaluate), jobs[0].folder.parent
        self.waiting = [job for job in jobs if not is_finished(job)]
        self.running: list[JobProcess | None] = [None] * parallel  # each of the places has GPUs of its own
        self.gpus: list[str] = []
        if parallel > 1:
            from aiayn.hardware import visible_gpus

            self.gpus = visible_gpus()
        self.seconds: list[float] = []  # how long each successful job ran
        self.failed: dict[str, int] = {}  # job -> exit code
        self.requested: int | None = None  # the signal that asked to stop

    def run(self) -> dict[str, int]:
        """Returns the exit codes of the jobs that failed. Raises InterruptedRunError after a signal."""
        to_run, finished = len(self.waiting), len(self.jobs) - len(self.waiting)
        say(f"sweep {self.folder}: {len(self.jobs)} jobs, {finished} finished before")
        with handle_signals(self._stop):
            while any(self.running) or (self.waiting and not self.requested):
                for place, row in enumerate(self.running):
                    if row is None and self.waiting and not self.requested:
                        job = self.waiting.pop(0)
                        row = JobProcess(job, *self.commands, self._gpus_of(place, job))
                        say(f"{self._title(row)} started, log {row.log}")
                        self._start(place, row)
                    elif row is not None and (code := row.process.poll()) is not None:
                        self.running[place] = None
                        self._continue(place, row, code)
                time.sleep(POLL)
        done = f"{finished + len(self.seconds)} of {len(self.jobs)} jobs finished"
        if self.requested:
            raise InterruptedRunError(f"sweep stopped, {done}; run the same command to continue", self.requested)
        say(f"sweep {self.folder}: {done}")
        from aiayn.reports.report import sweep_summary, write_report

        with suppress(UserError):  # jobs that failed before they wrote anything
            page = write_report(self.folder) if to_run else RunFolder(self.folder).report
            say(f"{sweep_summary(self.folder)}\npage     {page}")
        say(f"next     aiayn table {self.folder}")
        return self.failed

    def _start(self, place: int, row: JobProcess) -> None:
        """Starts the row's next process."""
        try:
            row.start()
        except OSError as error:
            self._end(row, ResourceError.exit_code, f"{error.filename}: {error.strerror}")
            return
        self.running[place] = row
        if self.requested:  # since the loop looked
            row.process.send_signal(self.requested)

    def _continue(self, place: int, row: JobProcess, code: int) -> None:
        """Starts the next process of a row whose last one ended, or ends the row."""
        if code == 0 and row.commands and not self.requested:
            self._start(place, row)
            return
        if code:  # other ranks of a job that died would wait for it until their time-out
            with suppress(ProcessLookupError):
                os.killpg(row.process.pid, signal.SIGKILL)
        if self.requested and (code or row.commands):
            say(f"{self._title(row)} stopped after {_clock(row.seconds())}")
        elif code < 0:
            self._end(row, 128 - code, f"killed by signal {-code}; {row.said_last()}")
        else:
            self._end(row, code, row.said_last())

    def _end(self, row: JobProcess, code: int, last: str) -> None:
        if code:
            self.failed[row.job.name] = code
            result = f"failed with exit code {code} after {_clock(row.seconds())}: {last}"
        else:
            self.seconds.append(row.seconds())
            result = f"done in {_clock(row.seconds())}"
        count = len(self.waiting) + sum(map(bool, self.running))
        left = f"{count} left"
        if count and self.seconds:
            mean = sum(self.seconds) / len(self.seconds)
            left += f", ETA {_clock(mean * count / len(self.running))}"
        say(f"{self._title(row)} {result}; {left}")

    def _stop(self, number: int, frame: object) -> None:
        """Passes every signal on to the running jobs as the first one; no more are started."""
        self.requested = self.requested or exit_signal(number)
        for row in filter(None, self.running):
            row.process.send_signal(self.requested)

    def _gpus_of(self, place: int, job: SweepJob) -> str | None:
        """Returns the CUDA_VISIBLE_DEVICES of a job, shared evenly; None leaves them as they are."""
        trainer = job.config.trainer
        if trainer.accelerator == "cpu" or trainer.devices > len(self.gpus):
            return None
        numbers = range(place * trainer.devices, (place + 1) * trainer.devices)
        return ",".join(self.gpus[number % len(self.gpus)] for number in numbers)

    def _title(self, row: JobProcess) -> str:
        return f"sweep {self.jobs.index(row.job) + 1}/{len(self.jobs)} {row.job.name}:"


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def say(text: str) -> None:
    with suppress(BrokenPipeError):
        print(text, file=sys.stderr, flush=True)
