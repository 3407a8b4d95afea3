"""Runs the jobs of a sweep, each in a process of its own, and reports progress."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import IO

from aiayn.config.stored import as_option, to_plain
from aiayn.errors import FailedJobsError, InterruptedRunError, UserError
from aiayn.runs.run_folder import RunFolder
from aiayn.signals import exit_signal, handle_signals
from aiayn.sweep.jobs import SweepJob, is_finished

ORPHANS_TIMEOUT = 10  # seconds that the children of an ended job may keep running


class Processes:
    """Trains and then scores each job, at most `parallel` at a time, in the order given."""

    def __init__(self, jobs: Sequence[SweepJob], train: list[str], evaluate: list[str], parallel: int) -> None:
        """train and evaluate are the beginnings of the commands that train and score a job."""
        self.jobs, self.train, self.evaluate, self.parallel = jobs, train, evaluate, parallel
        self.folder = jobs[0].folder.parent
        # Reentrant, because the signal handler runs in the main thread, which may hold it.
        self.lock = threading.RLock()
        self.running: set[subprocess.Popen] = set()
        self.requested: int | None = None  # the signal that asked to stop
        self.gpu_users: dict[str, int] = {}  # GPU -> running jobs on it; one job at a time may use all GPUs
        if parallel > 1:
            from aiayn.hardware import visible_gpus

            self.gpu_users = dict.fromkeys(visible_gpus(), 0)
        self.open = [job.name for job in jobs if not is_finished(job)]
        self.seconds: list[float] = []  # how long each successful job ran
        self.failed: dict[str, int] = {}  # job -> exit code

    def run(self) -> None:
        """Raises InterruptedRunError after a signal, FailedJobsError if a job could not be trained or scored."""
        to_run = [(number, job) for number, job in enumerate(self.jobs, 1) if job.name in self.open]
        say(f"sweep {self.folder}: {len(self.jobs)} jobs, {len(self.jobs) - len(to_run)} finished before")
        with handle_signals(self._stop), ThreadPoolExecutor(self.parallel) as pool:
            futures = [pool.submit(self._run_job, *job) for job in to_run]
            # The main thread alone runs signal handlers, and a signal that another thread received does not wake it.
            while wait(futures, timeout=1).not_done:
                pass
            for future in futures:
                future.result()
        done = f"{len(self.jobs) - len(self.open) - len(self.failed)} of {len(self.jobs)} jobs finished"
        if self.requested:
            raise InterruptedRunError(f"sweep stopped, {done}; run the same command to continue", self.requested)
        say(f"sweep {self.folder}: {done}")
        self._summarise(write=bool(to_run))
        codes = {job.name: self.failed[job.name] for job in self.jobs if job.name in self.failed}
        if codes:
            listed = ", ".join(f"{name} (exit {code})" for name, code in codes.items())
            raise FailedJobsError(
                f"{len(codes)} of {len(self.jobs)} jobs failed: {listed}; the same command tries them again",
                next(iter(codes.values())),
            )

    def _summarise(self, write: bool) -> None:
        """Prints scores, the sweep's page, and what to type next. Writes the page if jobs ran."""
        from aiayn.reports.report import sweep_summary, write_report

        with suppress(UserError):  # jobs that failed before they wrote anything
            page = write_report(self.folder) if write else RunFolder(self.folder).report
            say(f"{sweep_summary(self.folder)}\npage     {page}")
        say(f"next     aiayn table {self.folder}")

    def _run_job(self, number: int, job: SweepJob) -> None:
        if self.requested:
            return
        title = f"sweep {number}/{len(self.jobs)} {job.name}:"
        log = self.folder / f"{job.name}.log"
        say(f"{title} started, log {log}")
        start = time.monotonic()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._own_gpus(job) as environment:
                code, last = self._train_and_score(job, log, environment)
        except OSError as error:
            code, last = 6, f"{error.filename}: {error.strerror}"
        seconds = time.monotonic() - start
        if code and self.requested:
            say(f"{title} stopped after {_clock(seconds)}")
            return
        with self.lock:
            self.open.remove(job.name)
            if code:
                self.failed[job.name] = code
                result = f"failed with exit code {code} after {_clock(seconds)}: {last}"
            else:
                self.seconds.append(seconds)
                result = f"done in {_clock(seconds)}"
            left = f"{len(self.open)} left"
            if self.open and self.seconds:
                mean = sum(self.seconds) / len(self.seconds)
                left += f", ETA {_clock(mean * len(self.open) / self.parallel)}"
        say(f"{title} {result}; {left}")

    @contextmanager
    def _own_gpus(self, job: SweepJob) -> Iterator[dict[str, str]]:
        """Yields environment variables that show a parallel job `trainer.devices` GPUs, those that fewest jobs use."""
        count = job.config.trainer.devices
        if job.config.trainer.accelerator == "cpu" or count > len(self.gpu_users):
            yield {}
            return
        with self.lock:
            chosen = sorted(self.gpu_users, key=self.gpu_users.__getitem__)[:count]
            for gpu in chosen:
                self.gpu_users[gpu] += 1
        try:
            yield {"CUDA_VISIBLE_DEVICES": ",".join(chosen)}
        finally:
            with self.lock:
                for gpu in chosen:
                    self.gpu_users[gpu] -= 1

    def _train_and_score(self, job: SweepJob, log: Path, environment: dict[str, str]) -> tuple[int, str]:
        """Returns exit code and last line of the first process that failed, or else 0 and the last line."""
        code, last = self._run_process([*self.train, *job.overrides], job.name, log, environment)
        if code or self.requested:
            return code or 128 + (self.requested or 0), last
        # The search as configured now: the checkpoint may have been written with another one.
        search = [f"search.{key}={as_option(value)}" for key, value in to_plain(job.config.search).items()]
        for scoring in job.scorings:
            asked = [f"run={job.folder}", f"split={scoring.split}", f"checkpoint={scoring.checkpoint}"]
            asked.append(f"accelerator={job.config.trainer.accelerator}")
            code, last = self._run_process([*self.evaluate, *asked, *search], job.name, log, environment)
            if code or self.requested:
                break
        return code, last

    def _run_process(
        self, command: Sequence[str], name: str, log: Path, environment: dict[str, str]
    ) -> tuple[int, str]:
        """Returns the exit code, as a shell shows it, and the last error line of the output, or else the last line."""
        kept: list[str] = []
        with open(log, "ab", buffering=0) as file:
            # In a session of its own, so that the terminal's Ctrl-C reaches it only once, through this process.
            process = subprocess.Popen(
                command,
                env=os.environ | {"PYTHONUNBUFFERED": "1"} | environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            with self.lock:
                self.running.add(process)
                if self.requested:
                    process.send_signal(self.requested)
            reader = threading.Thread(target=_copy_output, args=(process.stdout, name, file, kept), daemon=True)
            reader.start()
            code = process.wait()
            with self.lock:
                self.running.discard(process)
            reader.join(ORPHANS_TIMEOUT)
            if reader.is_alive():  # other ranks of a job that died would wait for it until their time-out
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                reader.join()
        errors = [line for line in kept if line.startswith("error: ")]
        last = (errors or kept or ["no output"])[-1].removeprefix("error: ")
        return (128 - code, f"killed by signal {-code}; {last}") if code < 0 else (code, last)

    def _stop(self, number: int, frame: object) -> None:
        """Passes the first signal on to the running jobs; no more are started."""
        with self.lock:
            self.requested = self.requested or exit_signal(number)
            for process in self.running:
                process.send_signal(self.requested)


def _copy_output(stream: IO[bytes], name: str, log: IO[bytes], kept: list[str]) -> None:
    """Copies every line to the job's log and, with the job's name, to stderr. Keeps error lines and the last line."""
    with stream:
        for raw in stream:
            with suppress(OSError):  # if a full disk stopped this thread, the job would block on its output
                log.write(raw)
            line = raw.decode(errors="replace").rstrip()
            if line:
                say(f"[{name}] {line}")
                kept[:] = [*(other for other in kept if other.startswith("error: ")), line]


def say(text: str) -> None:
    # One write per line, so that the lines of parallel jobs do not mix.
    with suppress(BrokenPipeError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
