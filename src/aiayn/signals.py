"""The signals that ask a program to end, and what they mean here."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# Schedulers announce the end of a job's time by SIGUSR1 or SIGTERM; both mean the same here.
TERMINATION_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


def exit_signal(number: int) -> int:
    """The signal that stands in the exit code: all but Ctrl-C say in other words what SIGTERM says."""
    return int(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)


@contextmanager
def handle_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handles the signals for as long as the context lasts, except those that were ignored before it."""
    # Who started the program under `nohup` wants it to go on.
    heeded = [number for number in TERMINATION_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before: dict[int, Any] = {number: signal.signal(number, handler) for number in heeded}
    try:
        yield
    finally:
        for number, restored in before.items():
            signal.signal(number, restored)
