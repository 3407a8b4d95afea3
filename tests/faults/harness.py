"""Trainings that are killed on purpose, at the cost of a fork instead of a new interpreter.

The parent has imported everything; a child trains, dies at a chosen moment or a random one, and the
next child runs the same thing again. What they leave behind is compared with a run that nothing
interrupted.
"""

import contextlib
import logging
import os
import random
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytorch_lightning as pl
import torch
from applications import TWELVE_STEPS, composed, prove_searches_once, text_in, write_pairs
from pytorch_lightning.utilities import rank_zero_only

from aiayn.config.data import DataConfig
from aiayn.config.schema import Config
from aiayn.data.preparation import prepare_corpus
from aiayn.errors import one_line_errors
from aiayn.reports import report
from aiayn.runs import checkpoint_folder, checkpoints
from aiayn.runs.run_folder import read_jsonl, saved_steps
from aiayn.training import run
from aiayn.training.checkpoint_io import BackgroundWriter

SPLITS = ("train", "val", "test")
LIMIT = 400.0  # seconds after which what must happen is taken to hang, on the busiest machine


def write_splits(folder: Path, train: int = 120) -> Path:
    for seed, (split, count) in enumerate(zip(SPLITS, (train, 13, 5), strict=True)):
        write_pairs(folder / split, count, seed)
    return folder


def settings(text: Path) -> list[str]:
    """Options of the run on the text in a folder: twelve steps are three epochs."""
    return [*TWELVE_STEPS, *text_in(text), "name=run"]


def configured(text: Path, *overrides: str) -> Config:
    """The configuration of `python train.py` with these settings and overrides."""
    return composed(*settings(text), *overrides)


class End(NamedTuple):
    """How a child ended: exit code, or minus the signal's number; what it wrote; its CPU
    seconds.
    """

    code: int
    said: str
    seconds: float


class Child:
    """A forked process and its output."""

    def __init__(self, work: Callable[[], Any], log: Path):
        self.log = log
        log.write_bytes(b"")  # so that it exists even if the child dies at once
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _be_a_program(work, log)

    def wait(self) -> End:
        _, status, usage = os.wait4(self.pid, 0)
        said = self.log.read_text(encoding="utf-8", errors="replace")
        return End(os.waitstatus_to_exitcode(status), said, usage.ru_utime + usage.ru_stime)

    def send(self, number: int) -> None:
        os.kill(self.pid, number)


def _be_a_program(work: Callable[[], Any], log: Path) -> None:
    """Runs `work` as the entry point would: errors as one line on stderr, and their exit code.
    Never returns.
    """
    code = 1
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # whatever earlier tests of this process left
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        _log_to(sys.stderr)
        with one_line_errors():
            work()
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _log_to(stream: Any) -> None:
    logger = logging.getLogger("aiayn")
    logger.handlers = [logging.StreamHandler(stream)]


def warm_up(config: Config, outputs: Path) -> None:
    """Trains once in this process, so that no child need do what libraries do at the first time
    only.

    That is half of what a small training costs. With a GPU it would start threads of autograd,
    after which no child could train.
    """
    prove_searches_once()
    if not torch.accelerator.is_available():
        with pytest.MonkeyPatch.context() as patch:
            _spare_the_pictures(patch)
            run.train(config, outputs)


def train(config: Config, outputs: Path, prelude: Callable[[], Any] = lambda: None) -> End:
    """A training in a child, to its end; `prelude` is called in the child before."""
    return start(config, outputs, prelude).wait()


def start(
    config: Config, outputs: Path, prelude: Callable[[], Any] = lambda: None, log: str = "log"
) -> Child:
    outputs.mkdir(parents=True, exist_ok=True)

    def work() -> None:
        torch.set_num_threads(1)
        _spare_the_pictures(pytest.MonkeyPatch())
        prelude()
        run.train(config, outputs)

    return Child(work, outputs / log)


def start_ranks(
    config: Config, outputs: Path, preludes: dict[int, Callable[[], Any]] | None = None
) -> list[Child]:
    """A training on `trainer.devices` processes, as a cluster's scheduler starts them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(config.trainer.devices):

        def prelude(rank: int = rank) -> None:
            os.environ.update(
                MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), NODE_RANK="0", LOCAL_RANK=str(rank)
            )
            os.environ["WORLD_SIZE"] = str(config.trainer.devices)
            rank_zero_only.rank = rank
            (preludes or {}).get(rank, lambda: None)()

        children.append(start(config, outputs, prelude, f"log.{rank}"))
    return children


def _spare_the_pictures(patch: pytest.MonkeyPatch) -> None:
    """Most of a tiny run's time would go into drawings, which no test here looks at."""
    patch.setattr(report, "write_report", lambda *arguments: None)
    patch.setattr("aiayn.training.finish.summary", lambda folder: "done")
    patch.setattr(run, "RunArtifacts", _Nothing)


class _Nothing(pl.Callback):
    def __init__(self, *arguments: Any):
        pass


# When to die.


def dies_at(owner: Any, name: str, call: int = 1, after: bool = False) -> Callable[[], None]:
    """A prelude: the process is killed before (or after) the given call of `owner.name`."""
    return acts_at(owner, name, lambda: os.kill(os.getpid(), signal.SIGKILL), call, after)


def acts_at(
    owner: Any, name: str, act: Callable[[], Any], call: int = 1, after: bool = False
) -> Callable[[], None]:
    """A prelude: `act` is called before (or after) the given call of `owner.name`.

    In training that is after all checkpoints up to then are written, so that what is there does not
    depend on speed.
    """

    def prelude() -> None:
        plain, calls, submit, written = getattr(owner, name), [0], BackgroundWriter.submit, []

        def submitted(self: BackgroundWriter, write: Callable[..., None], *arguments: Any) -> None:
            submit(self, write, *arguments)
            written[:] = [self._last]

        def act_when_written() -> None:
            if threading.current_thread() is threading.main_thread():
                wait(written)
            act()

        def counted(*arguments: Any, **options: Any) -> Any:
            calls[0] += 1
            mine = calls[0] == call
            if mine and not after:
                act_when_written()
            result = plain(*arguments, **options)
            if mine and after:
                act_when_written()
            return result

        BackgroundWriter.submit = submitted

        setattr(owner, name, counted)

    return prelude


def dies_after(seconds: float) -> Callable[[], None]:
    """A prelude: the kernel ends the process after so many seconds of computing; no handler runs.

    Computing, not waiting: on a busy machine the same moments are met.
    """
    return lambda: signal.setitimer(signal.ITIMER_PROF, max(seconds, 1e-4))


def disk_is_full_beyond(size: int) -> Callable[[], None]:
    """A prelude: no file may grow beyond `size` bytes."""

    def prelude() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    return prelude


# What is left.


def differences(found: Path, expected: Path) -> list[str]:
    """What two finished runs differ in: weights, optimizer's moments, measurements, files."""
    wrong = []
    names = {path.name for path in (expected / "checkpoints").iterdir()}
    if (others := {path.name for path in (found / "checkpoints").iterdir()}) != names:
        wrong.append(f"files {sorted(others ^ names)}")
    for name in ("last.ckpt", "averaged.ckpt"):
        mine, theirs = (
            checkpoints.load(folder / "checkpoints" / name).weights for folder in (found, expected)
        )
        wrong += [f"{name} {key}" for key in theirs if not torch.equal(mine[key], theirs[key])]
    step = checkpoints.load(expected / "checkpoints" / "last.ckpt").step
    path = checkpoint_folder.optimizer_path(checkpoint_folder.step_path(Path("checkpoints"), step))
    mine, theirs = (
        checkpoints.read_tensors(folder / path)["lightning"]["optimizer_states"][0]["state"]
        for folder in (found, expected)
    )
    wrong += [
        f"{k} of weight {i}"
        for i in theirs
        for k in theirs[i]
        if not torch.equal(mine[i][k], theirs[i][k])
    ]
    if measured(found) != measured(expected):
        wrong.append("metrics.jsonl")
    if orphans := [path.name for path in found.rglob("*.part")]:
        wrong.append(f"orphans {orphans}")
    return wrong


def same_weights(found: Path, expected: Path, name: str = "last.ckpt") -> bool:
    ours, theirs = (
        checkpoints.load(folder / "checkpoints" / name).weights for folder in (found, expected)
    )
    return all(torch.equal(ours[key], theirs[key]) for key in theirs)


def measured(folder: Path) -> list[dict[str, float]]:
    """metrics.jsonl without what depends on the clock."""
    return [
        {key: value for key, value in record.items() if not key.startswith("perf/")}
        for record in read_jsonl(folder / "metrics.jsonl")
    ]


def bytes_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file's time and content."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@contextlib.contextmanager
def within(seconds: float = LIMIT) -> Iterator[None]:
    """Fails where something that must end does not."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"not over after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# Trials of a soak, and a few of them in the test suite.


def killed_at_random(
    config: Config, outputs: Path, seconds: float, draw: random.Random
) -> tuple[list[int], End]:
    """Starts a training again and again, each time with a random time to live, until it ends by
    itself.

    Returns for every kill the newest checkpoint's step then (0: none), and the last one's end. Of
    several processes each has a time of its own, and the first to die takes the others with it, as
    a scheduler has it.
    """
    kills: list[int] = []
    while True:
        preludes = {
            rank: dies_after(draw.uniform(0.0, seconds)) for rank in range(config.trainer.devices)
        }
        if config.trainer.devices == 1:
            ends = [train(config, outputs, preludes[0])]
        else:
            ends = until_one_dies(start_ranks(config, outputs, preludes))
        if all(end.code != -signal.SIGPROF for end in ends):
            return kills, max(ends, key=lambda end: abs(end.code))
        kills.append(max(saved_steps(outputs / "run" / "checkpoints"), default=0))


def until_one_dies(children: list[Child]) -> list[End]:
    """Waits for all; as soon as one was killed the others are."""
    while None in (codes := [_ended(child) for child in children]):
        if any(code is not None and code < 0 for code in codes):
            for child in children:
                child.send(signal.SIGKILL)  # harmless to one that is waited for
            break
        time.sleep(0.005)
    return [child.wait() for child in children]


def _ended(child: Child) -> int | None:
    """0 or more if it has ended by itself, less if a signal killed it, None if it runs; it can
    still be waited for.
    """
    end = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return (
        None if end is None else end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
    )


def content_of_corpus(folder: Path) -> dict[str, bytes]:
    """Every file of the one corpus in a data folder, and nothing else that stands there but locks
    and notes.
    """
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def prepare_in_child(
    config: DataConfig, log: Path, prelude: Callable[[], Any] = lambda: None
) -> Child:
    """Prepares a corpus in a child; `prelude` is called in the child before."""

    def work() -> None:
        prelude()
        prepare_corpus(config)

    return Child(work, log)


def wait_until(holds: Callable[[], bool], seconds: float = LIMIT) -> None:
    """Polls, instead of sleeping for a fixed time that is too long or too short."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.002)
