"""The signals that ask a program to end."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# Schedulers announce the end of a job's time by SIGUSR1 or SIGTERM.
TERMINATION_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


def exit_signal(number: int) -> int:
    """Returns the signal that the exit code shows: SIGINT for Ctrl-C, SIGTERM for all others."""
    return int(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)


@contextmanager
def handle_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handles the termination signals inside the context, except those already ignored (as under `nohup`)."""
    handled = [number for number in TERMINATION_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before: dict[int, Any] = {number: signal.signal(number, handler) for number in handled}
    try:
        yield
    finally:
        for number, restored in before.items():
            signal.signal(number, restored)
