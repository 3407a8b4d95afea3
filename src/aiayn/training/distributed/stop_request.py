"""Requests to stop: what a signal does to a run, on one device or on many."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from aiayn.errors import InterruptedRunError
from aiayn.signals import exit_signal, handle_signals
from aiayn.training.distributed.control_group import ControlGroup


class AbandonedError(Exception):
    """Work between two steps was given up for a request to stop; who continues the run does it again."""


class StopRequest:
    """A request to stop, made by a signal. While training it waits for the end of the step; else it acts at once.

    One device's signal is every device's request: all save the same step together.
    """

    def __init__(self) -> None:
        self.requested: int | None = None
        self.training = False
        self.state = "stopped before training"
        self.peers: ControlGroup | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handles the signals for as long as the context lasts."""
        with handle_signals(self._ask):
            yield

    def after(self, what: str) -> None:
        """From now on a signal stops at once, with this to say; one that came before stops now."""
        self.state, self.training = what, False
        self.check(what)

    def check(self, what: str) -> None:
        """Raises InterruptedRunError if a stop was requested."""
        if self.requested:
            raise InterruptedRunError(f"{what}; continue with: {command()}", self.requested)

    def agreed(self) -> int | None:
        """The signal that any device got, or None: the same answer on all devices, which must all ask together."""
        if not self.peers:
            return self.requested
        heard = self.peers.largest(self.requested or 0)
        if heard:  # else leave what may have come meanwhile for the next time
            self.requested = heard
        return heard or None

    def poll(self) -> None:
        """Raises AbandonedError if this device has a request, or has heard of one; no other needs to ask."""
        if self.requested and self.peers:
            self.peers.post("stop")
        if self.requested or (self.peers and self.peers.posted("stop")):
            raise AbandonedError

    @contextmanager
    def abandonable(self) -> Iterator[None]:
        """Work that ends early where `poll` is called in it: then AbandonedError is raised, on all devices."""
        with suppress(AbandonedError):
            yield
        if self.agreed():
            raise AbandonedError

    def _ask(self, number: int, frame: object) -> None:
        if self.requested and not self.training:
            return  # already on the way out
        self.requested = self.requested or exit_signal(number)
        if not self.training:
            self.check(self.state)


def command() -> str:
    """The command line that this process runs."""
    return shlex.join([Path(sys.executable).name, *sys.argv])
