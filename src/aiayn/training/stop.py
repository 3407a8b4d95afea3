"""Requests to stop: what a signal does to a run."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiayn.errors import InterruptedRunError


class Stop:
    """A request to stop, made by a signal. While training it waits for the end of the step; else it acts at once."""

    SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def __init__(self) -> None:
        self.requested: int | None = None
        self.training = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handles the signals for as long as the context lasts."""
        before = self.listen()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def listen(self) -> dict[int, Any]:
        """Installs the handlers. Returns those that were there before."""
        return {number: signal.signal(number, self._ask) for number in self.SIGNALS}

    def check(self, message: str) -> None:
        """Raises InterruptedRunError if a stop was requested."""
        if self.requested:
            raise InterruptedRunError(message, self.requested)

    def _ask(self, number: int, frame: object) -> None:
        self.requested = number
        if not self.training:
            self.check("stopped before training; run the same command to start again")
