"""Runs the jobs of a sweep, each in a process of its own, and says how far it is."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import IO

from aiayn.errors import FailedRowsError, InterruptedRunError, UserError
from aiayn.options import to_plain
from aiayn.signals import exit_signal, handle_signals
from hydra_plugins.aiayn_launcher.rows import Row, is_finished

LINGER = 10  # seconds that what a job started may outlive it


class Processes:
    """Trains and then scores each row, at most `jobs` at a time, in the order given."""

    def __init__(self, rows: Sequence[Row], script: Path, flags: Sequence[str], jobs: int) -> None:
        self.rows, self.script, self.flags, self.jobs = rows, script, flags, jobs
        self.folder = rows[0].folder.parent
        # Reentrant, since a signal's handler runs inside whatever the main thread does.
        self.lock = threading.RLock()
        self.running: set[subprocess.Popen] = set()
        self.requested: int | None = None  # the signal that asked to stop
        self.open = [row.name for row in rows if not is_finished(row)]
        self.seconds: list[float] = []  # of the rows that were run
        self.failed: dict[str, int] = {}  # row -> exit code, in the order of the rows

    def run(self) -> None:
        """Raises InterruptedRunError after a signal, FailedRowsError if a row could not be trained or scored."""
        n_open = len(self.open)
        _say(f"sweep {self.folder}: {len(self.rows)} rows, {len(self.rows) - n_open} finished before")
        with handle_signals(self._stop), ThreadPoolExecutor(self.jobs) as pool:
            rows = [(number, row) for number, row in enumerate(self.rows, 1) if row.name in self.open]
            for future in as_completed([pool.submit(self._row, *job) for job in rows]):
                future.result()
        done = f"{len(self.rows) - len(self.open) - len(self.failed)} of {len(self.rows)} rows finished"
        if self.requested:
            raise InterruptedRunError(f"sweep stopped, {done}; run the same command to continue", self.requested)
        _say(f"sweep {self.folder}: {done}")
        self._summarise(n_open > 0)
        if self.failed:
            codes = {row.name: self.failed[row.name] for row in self.rows if row.name in self.failed}
            listed = ", ".join(f"{name} (exit {code})" for name, code in codes.items())
            raise FailedRowsError(
                f"{len(codes)} of {len(self.rows)} rows failed: {listed}; the same command tries them again",
                next(iter(codes.values())),
            )

    def _summarise(self, changed: bool) -> None:
        """Scores, the sweep's page, what to type next. The page is written only where there is something new."""
        from aiayn.report.report import sweep_summary, write_report

        with suppress(UserError):  # rows that failed before they wrote anything
            page = write_report(self.folder) if changed else self.folder / "report.html"
            _say(f"{sweep_summary(self.folder)}\npage     {page}")
        _say(f"next     aiayn table {self.folder}")

    def _row(self, number: int, row: Row) -> None:
        if self.requested:
            return
        title = f"sweep {number}/{len(self.rows)} {row.name}:"
        log = self.folder / f"{row.name}.log"
        _say(f"{title} started, log {log}")
        start = time.monotonic()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            code, last = self._train_and_score(row, log)
        except OSError as error:
            code, last = 6, f"{error.filename}: {error.strerror}"
        seconds = time.monotonic() - start
        if code and self.requested:
            _say(f"{title} stopped after {_clock(seconds)}")
            return
        with self.lock:
            self.open.remove(row.name)
            if code:
                self.failed[row.name] = code
            else:
                self.seconds.append(seconds)
            left = f"{len(self.open)} left"
            if self.open and self.seconds:
                mean = sum(self.seconds) / len(self.seconds)
                left += f", ETA {_clock(mean * len(self.open) / self.jobs)}"
        result = (
            f"failed with exit code {code} after {_clock(seconds)}: {last}" if code else f"done in {_clock(seconds)}"
        )
        _say(f"{title} {result}; {left}")

    def _train_and_score(self, row: Row, log: Path) -> tuple[int, str]:
        """Exit code and last line of the first process that failed, or else 0 and the last line."""
        config = row.config
        # The search as configured now: the checkpoint may remember an earlier one.
        search = [f"search.{key}={value}" for key, value in to_plain(config.search).items()]
        score = [f"run={row.folder}", "split=val", "checkpoint=last", f"accelerator={config.trainer.accelerator}"]
        code, last = self._process([self.script, *self.flags, *row.overrides], row.name, log)
        if code or self.requested:
            return code or 128 + self.requested, last
        return self._process([self.script.with_name("evaluate.py"), *score, *search], row.name, log)

    def _process(self, command: Sequence[str | Path], name: str, log: Path) -> tuple[int, str]:
        """Exit code, as a shell has it, and the last error line, or else the last line, of what a process says."""
        said: list[str] = []
        with open(log, "ab", buffering=0) as file:
            # In a session of its own: the terminal's Ctrl-C reaches it once, through this process.
            process = subprocess.Popen(
                [sys.executable, *command],
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            with self.lock:
                self.running.add(process)
                if self.requested:
                    process.send_signal(self.requested)
            reader = threading.Thread(target=_pass_on, args=(process.stdout, name, file, said), daemon=True)
            reader.start()
            code = process.wait()
            with self.lock:
                self.running.discard(process)
            reader.join(LINGER)
            if reader.is_alive():  # other devices of a job that died would wait for it until their time-out
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                reader.join()
        errors = [line for line in said if line.startswith("error: ")]
        last = (errors or said or ["it said nothing"])[-1].removeprefix("error: ")
        return (128 - code, f"killed by signal {-code}; {last}") if code < 0 else (code, last)

    def _stop(self, number: int, frame: object) -> None:
        """Passes the first request on to the jobs that run; no more are started."""
        with self.lock:
            self.requested = self.requested or exit_signal(number)
            for process in self.running:
                process.send_signal(self.requested)


def _pass_on(stream: IO[bytes], name: str, log: IO[bytes], said: list[str]) -> None:
    """Every line to the row's log and, with the row's name, to stderr; keeps error lines and the last line."""
    with stream:
        for raw in stream:
            with suppress(OSError):  # a full disk must not stop the job's output, which would stop the job
                log.write(raw)
            line = raw.decode(errors="replace").rstrip()
            if line:
                _say(f"[{name}] {line}")
                said[:] = [*(kept for kept in said if kept.startswith("error: ")), line]


def _say(text: str) -> None:
    # One write a line, so that the lines of parallel jobs do not mix.
    with suppress(BrokenPipeError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
