"""The processes of a run: finds the rank of this one, starts the others of this machine, passes
messages between them, and notices when one has died.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.plugins.environments.lsf import LSFEnvironment
from lightning_fabric.plugins.environments.mpi import MPIEnvironment
from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from pytorch_lightning.utilities import rank_zero_only
from torch import distributed

from aiayn.config import program
from aiayn.config.training import TrainerOptions
from aiayn.errors import ConfigError, InterruptedRunError, ResourceError, one_line
from aiayn.signals import TERMINATION_SIGNALS, exit_signal, on_second_signal

# As the Trainer looks for them
STARTERS = (TorchElasticEnvironment, SLURMEnvironment, LSFEnvironment, MPIEnvironment)
# As Lightning reads them
RANK_VARIABLES = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")
# The other ranks of this machine, where this process has started them
STARTED: list[subprocess.Popen] = []
RUN_AGAIN = "run the same command to continue from the last checkpoint"
# Seconds that a process has to end by its own error once another rank is gone
LOST_RANK_GRACE = 5.0


def global_rank() -> int:
    """Returns the rank of this process, as Lightning reads it from the environment; 0 for a single
    process.
    """
    return getattr(rank_zero_only, "rank", 0)


def find_rank(settings: TrainerOptions) -> None:
    """Lets `global_rank` return now what it will return once there is a Trainer.

    Lightning ignores NODE_RANK when it is imported, so until then it would be 0 on every machine.
    Raises ConfigError where the environment contradicts `trainer.devices` and `trainer.num_nodes`.
    """
    if settings.world_size == 1 and (rank := global_rank()):
        stray = [name for name in RANK_VARIABLES if name in os.environ]
        raise ConfigError(
            f"trainer.devices=1: the environment sets rank {rank}; unset {' '.join(stray)}"
        )
    try:
        environment = next(
            (starter() for starter in STARTERS if starter.detect()), LightningEnvironment()
        )
    except RuntimeError as error:
        raise ConfigError(
            f"SLURM_NTASKS={os.environ.get('SLURM_NTASKS')} without SLURM_NTASKS_PER_NODE: start "
            "the job with --ntasks-per-node, or unset SLURM_NTASKS to train in this process alone"
        ) from error
    if settings.world_size == 1:
        return
    node = environment.node_rank()
    if isinstance(environment, LightningEnvironment):
        if not 0 <= node < settings.num_nodes:
            raise ConfigError(
                f"trainer.num_nodes={settings.num_nodes}: NODE_RANK={node} in the environment "
                f"must be from 0 to {settings.num_nodes - 1}; set trainer.num_nodes, or another "
                "NODE_RANK"
            )
        environment.set_global_rank(node * settings.devices + environment.local_rank())
    vars(rank_zero_only)["rank"] = environment.global_rank()


@contextmanager
def local_ranks(trainer: pl.Trainer) -> Iterator[None]:
    """Starts the other ranks of this machine, unless SLURM, torchrun or the like does, and watches
    them.

    An error inside the context kills the ranks that it started. Raises ConfigError where the
    cluster's environment contradicts the options.
    """
    environment = getattr(trainer.strategy, "cluster_environment", None)  # none for a single device
    if environment is None:
        yield
        return
    try:
        environment.validate_settings(trainer.num_devices, trainer.num_nodes)
    except ValueError as error:
        raise ConfigError(f"trainer.devices, trainer.num_nodes: {one_line(error)}") from error
    # Otherwise Lightning would change the number of threads, on which the rounding of sums depends.
    os.environ.setdefault("OMP_NUM_THREADS", str(torch.get_num_threads()))
    starts_here = not environment.creates_processes_externally
    if starts_here:
        os.environ.update(
            MASTER_ADDR=environment.main_address,
            MASTER_PORT=str(environment.main_port),
            NODE_RANK=str(environment.node_rank()),
            LOCAL_RANK="0",  # tells Lightning that the ranks are started
        )
        STARTED[:] = [
            subprocess.Popen(program.same_again(), env=os.environ | {"LOCAL_RANK": str(rank)})
            for rank in range(1, trainer.num_devices)
        ]
        threading.Thread(target=_watch_children, daemon=True).start()
    elif environment.local_rank() and "TORCHELASTIC_RUN_ID" not in os.environ:
        threading.Thread(target=_watch_parent, args=(os.getppid(),), daemon=True).start()
    say = f"stopped  at once by the second signal; {RUN_AGAIN}"
    try:
        with on_second_signal(lambda number: exit_at_once(say, 128 + exit_signal(number))):
            yield
    except (Exception, SystemExit, KeyboardInterrupt):
        for child in STARTED:
            child.kill()
        raise
    finally:
        STARTED.clear()
        if starts_here:
            del os.environ["LOCAL_RANK"]


def _watch_children() -> None:
    children, running = list(STARTED), True
    while running:
        # Before the codes: one may end in between
        running = any(child.poll() is None for child in children)
        for rank, child in enumerate(children, 1):
            if code := child.poll():
                # Usually the main thread notices too, and its message says more
                time.sleep(LOST_RANK_GRACE)
                if code == ConfigError.exit_code:  # it has said why
                    exit_at_once("", code)
                for number in TERMINATION_SIGNALS:  # before training; later its code is 0
                    if code in (-number, 128 + number):
                        exit_at_once(stopped("before training"), 128 + exit_signal(number))
                _exit_lost(f"local rank {rank} (process {child.pid}) ended with code {code}")
        time.sleep(0.5)


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    time.sleep(LOST_RANK_GRACE)
    _exit_lost(f"local rank 0 (process {parent}) has ended")


def _exit_lost(message: str) -> None:
    exit_at_once(f"{message}; {RUN_AGAIN}", ResourceError.exit_code)


class ControlGroup:
    """A gloo process group beside NCCL, so that asking the other ranks never waits for a GPU's
    queue.
    """

    def __init__(self, timeout: int):
        """Created by all ranks together, after the default process group."""
        self.group = distributed.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
        self.store = distributed.distributed_c10d._get_default_store()

    def max_over_ranks(self, value: int) -> int:
        """Returns the largest of all ranks' values; a collective call."""
        tensor = torch.tensor(value)
        distributed.all_reduce(tensor, op=distributed.ReduceOp.MAX, group=self.group)
        return int(tensor)

    def set_flag(self, name: str, value: int = 1) -> None:
        """Sets a flag that every rank can read at any time: not a collective call.

        `failed` tells the others that this rank ends with that exit code, and says why itself.
        """
        self.store.set(f"aiayn/{name}", str(value))

    def has_flag(self, name: str) -> bool:
        return self.store.check([f"aiayn/{name}"])

    def missing_ranks(self) -> tuple[list[int], int]:
        """Returns the ranks that do not answer within seconds, and the flag `failed` of one of
        them, or 0; called by the others.

        Rank 0 holds the store, so it is missing if the store does not answer.
        """
        missing: tuple[list[int], int] = [0], 0

        def ask() -> None:
            nonlocal missing
            with suppress(RuntimeError):  # the store is gone
                self.set_flag(f"alive/{distributed.get_rank()}")
                deadline = time.monotonic() + LOST_RANK_GRACE / 2
                silent = list(range(distributed.get_world_size()))
                while silent and time.monotonic() < deadline and not self.has_flag("failed"):
                    time.sleep(0.1)
                    silent = [rank for rank in silent if not self.has_flag(f"alive/{rank}")]
                code = self.store.get("aiayn/failed") if self.has_flag("failed") else 0
                missing = silent, int(code)

        # A call to a stopped rank 0 never returns
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(LOST_RANK_GRACE)
        return missing


def lost_contact(error: BaseException) -> bool:
    """Returns True for an error that means only that other ranks do not answer."""
    is_of_gloo = "gloo" in str(error) or "Connection closed by peer" in str(error)
    return isinstance(error, distributed.DistError) or (
        isinstance(error, RuntimeError) and is_of_gloo
    )


def exit_after(seconds: float, code: int, message: str = "") -> None:
    """Ends this process after `seconds` should its own end hang, as the shutdown of a process group
    can.
    """
    timer = threading.Timer(seconds, exit_at_once, (message, code))
    timer.daemon = True
    timer.start()


def stopped(when: str) -> str:
    """Says how to continue a training that a signal stopped."""
    return f"stopped  {when}; continue with: {program.typed_again()}"


def exit_at_once(message: str, code: int) -> NoReturn:
    """Ends this process, and the ranks that it started, from any thread: the main thread may be
    waiting for ever.
    """
    if message:
        prefix = "" if code > 128 else "error: "  # a signal is not an error
        print(f"{prefix}{message}", file=sys.stderr, flush=True)
    for process in STARTED:
        process.kill()
    os._exit(code)


@dataclass(eq=False)
class ValidationInterrupted(Exception):  # noqa: N818 - not an error
    """A validation ended early because a stop was requested; the resumed run validates again."""

    agreed: bool = False  # all ranks know


class StopRequest:
    """A signal's request to stop: during training it takes effect at the end of the step, otherwise
    at once. Messages say when, such as "before training".

    A signal to any rank stops all of them, at the same step.
    """

    signal: int | None = None  # that was received
    control_group: ControlGroup | None = None
    # That signals stop with at once; None: they wait for the step's end
    message: str | None = "before training"

    def connect_ranks(self, timeout: int) -> None:
        """Makes a signal to any rank reach all of them from now on; called by all ranks of a
        process group together.
        """
        self.control_group = ControlGroup(timeout)
        if self.signal_of_any_rank():
            self.raise_if_requested("before training")

    def enter_phase(self, message: str) -> None:
        """Makes signals stop at once from now on, with this message; an earlier one stops now."""
        self.message = message
        self.raise_if_requested(message)

    def raise_if_requested(self, message: str) -> None:
        """Raises InterruptedRunError if a stop was requested."""
        if self.signal:
            raise InterruptedRunError(stopped(message), self.signal)

    def signal_of_any_rank(self) -> int | None:
        """Returns the signal that any rank received, the same on all ranks; a collective call."""
        if not self.control_group:
            return self.signal
        received = self.control_group.max_over_ranks(self.signal or 0)
        if received:  # else keep a signal that came during the call for the next one
            self.signal = received
        return received or None

    def on_any_rank(self, condition: bool) -> bool:
        """Returns whether a condition holds on any rank, the same answer on all; a collective
        call.
        """
        group = self.control_group
        return bool(group.max_over_ranks(int(condition))) if group else condition

    def interrupt_if_requested(self) -> None:
        """Raises ValidationInterrupted if this rank received a signal or another has announced one;
        not collective.
        """
        if self.signal and self.control_group:
            self.control_group.set_flag("stop")
        if self.signal or (self.control_group and self.control_group.has_flag("stop")):
            raise ValidationInterrupted

    def on_signal(self, number: int, frame: object) -> None:
        """Handles one of the termination signals."""
        if self.signal and self.message:
            return  # already stopping
        self.signal = self.signal or exit_signal(number)
        if self.message:
            self.raise_if_requested(self.message)
