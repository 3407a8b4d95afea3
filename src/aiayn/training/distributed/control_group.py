"""Messages between ranks besides gradients: requests to stop, and the loss of a rank."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import NoReturn

import torch
from torch import distributed

from aiayn.config import program
from aiayn.errors import InterruptedRunError
from aiayn.signals import exit_signal

# The other ranks of this machine, where this process has started them
STARTED: list[subprocess.Popen] = []
RUN_AGAIN = "run the same command to continue from the last checkpoint"
LOST_RANK_GRACE = (
    5.0  # seconds that a process has to end by its own error once another rank is gone
)


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

    def set_flag(self, name: str) -> None:
        """Sets a flag that every rank can read at any time: not a collective call."""
        self.store.set(f"aiayn/{name}", "1")

    def has_flag(self, name: str) -> bool:
        return self.store.check([f"aiayn/{name}"])

    def announce(self, code: int) -> None:
        """Tells the other ranks that this one ends with this exit code, and says why itself."""
        self.store.set("aiayn/failed", str(code))

    def missing_ranks(self) -> tuple[list[int], int]:
        """Returns the ranks that do not answer within seconds, and the code that one of them
        announced, or 0; called by the others.

        Rank 0 holds the store, so it is missing if the store does not answer.
        """
        missing: tuple[list[int], int] = [0], 0

        def ask() -> None:
            nonlocal missing
            with suppress(RuntimeError):  # the store is gone
                self.set_flag(f"alive/{distributed.get_rank()}")
                deadline, silent = (
                    time.monotonic() + LOST_RANK_GRACE / 2,
                    list(range(distributed.get_world_size())),
                )
                while silent and time.monotonic() < deadline and not self.has_flag("failed"):
                    time.sleep(0.1)
                    silent = [rank for rank in silent if not self.has_flag(f"alive/{rank}")]
                missing = (
                    silent,
                    int(self.store.get("aiayn/failed")) if self.has_flag("failed") else 0,
                )

        # A call to a stopped rank 0 never returns
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(LOST_RANK_GRACE)
        return missing


def lost_contact(error: BaseException) -> bool:
    """Returns True for an error that means only that other ranks do not answer."""
    message = str(error)
    return isinstance(error, RuntimeError) and (
        isinstance(error, distributed.DistError)
        or "gloo" in message
        or "Connection closed by peer" in message
    )


def exit_after(seconds: float, code: int, message: str = "") -> None:
    """Ends this process after `seconds` should its own end hang, as the shutdown of a process group
    can.
    """
    timer = threading.Timer(seconds, exit_at_once, (message, code))
    timer.daemon = True
    timer.start()


def exit_at_once(message: str, code: int) -> NoReturn:
    """Ends this process, and the ranks that it started, from any thread: the main thread may be
    waiting for ever.
    """
    if message:
        print(f"error: {message}", file=sys.stderr, flush=True)
    for process in STARTED:
        process.kill()
    os._exit(code)


class ValidationInterrupted(Exception):  # noqa: N818 - not an error
    """A validation ended early because a stop was requested; the resumed run validates again."""

    def __init__(self, agreed: bool = False):
        super().__init__()
        self.agreed = agreed  # all ranks know


class StopRequest:
    """A signal's request to stop: during training it takes effect at the end of the step, otherwise
    at once.

    A signal to any rank stops all of them, at the same step.
    """

    def __init__(self) -> None:
        self.signal: int | None = None  # that was received
        self.control_group: ControlGroup | None = None
        self._training = False
        self._message = "stopped before training"

    def connect_ranks(self, timeout: int) -> None:
        """Makes a signal to any rank reach all of them from now on; called by all ranks of a
        process group together.
        """
        self.control_group = ControlGroup(timeout)
        if self.signal_of_any_rank():
            self.raise_if_requested("stopped before training")

    def begin_training(self) -> None:
        """Makes signals wait for the end of the step from now on."""
        self._training = True

    def end_training(self, message: str) -> None:
        """Makes signals stop at once from now on, with this message."""
        self._training, self._message = False, message

    def enter_phase(self, message: str) -> None:
        """Makes signals stop at once from now on, with this message; an earlier one stops now."""
        self.end_training(message)
        self.raise_if_requested(message)

    def raise_if_requested(self, message: str) -> None:
        """Raises InterruptedRunError if a stop was requested."""
        if self.signal:
            raise InterruptedRunError(
                f"{message}; continue with: {program.typed_again()}", self.signal
            )

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
        return (
            bool(self.control_group.max_over_ranks(int(condition)))
            if self.control_group
            else condition
        )

    @contextmanager
    def interruptible_validation(self) -> Iterator[None]:
        """Raises ValidationInterrupted on all ranks if `interrupt_if_requested` did on any."""
        with suppress(ValidationInterrupted):
            yield
        if self.signal_of_any_rank():
            raise ValidationInterrupted

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
        if self.signal and not self._training:
            return  # already stopping
        self.signal = self.signal or exit_signal(number)
        if not self._training:
            self.raise_if_requested(self._message)
