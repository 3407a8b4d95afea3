"""The signals that ask a program to end."""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from aiayn.errors import ConfigError

# Schedulers announce the end of a job's time by SIGUSR1 or SIGTERM. Windows has only the first two.
NAMES = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1")
PR_SET_PDEATHSIG = 1  # of prctl(2)
# Seconds within which the same signal is still the first one: the kernel may send that of
# PR_SET_PDEATHSIG once for each thread of the parent.
SAME_SIGNAL = 0.5
TERMINATION_SIGNALS = tuple(signal.Signals[name] for name in NAMES if hasattr(signal, name))


def refuse_windows() -> None:
    """Raises ConfigError where training cannot run: Windows has no SIGHUP, no fork, and no locks
    that end by a kill.
    """
    if not hasattr(os, "fork"):
        raise ConfigError(
            "training needs Linux, macOS or WSL; translating, scoring and tables work here"
        )


def exit_signal(number: int) -> int:
    """Returns the signal that the exit code shows: SIGINT for Ctrl-C, SIGTERM for all others."""
    return int(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raises KeyboardInterrupt, which no `except Exception` catches; but some libraries do while
    they are imported.

    Then the process ends at once.
    """
    while frame and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    if frame:
        os.write(2, b"interrupted\n")
        os._exit(128 + exit_signal(number))
    raise KeyboardInterrupt(exit_signal(number))


PARENT = "AIAYN_PARENT"  # the process that a sweep's row ends with


def end_with_parent() -> None:
    """Has the kernel send SIGTERM to this process when the one that $AIAYN_PARENT names ends,
    however that ends.

    So a row of a sweep that was killed saves and ends, and the same command can continue it. Linux
    only.
    """
    parent = os.environ.pop(PARENT, None)
    if parent is None or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
    try:
        os.kill(int(parent), 0)
    except ProcessLookupError:  # it has ended already
        sys.exit(128 + signal.SIGTERM)


@contextmanager
def handle_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handles the termination signals inside the context, except those already ignored (as under
    `nohup`).
    """
    handled = [
        number for number in TERMINATION_SIGNALS if signal.getsignal(number) != signal.SIG_IGN
    ]
    previous_handlers: dict[int, Any] = {
        number: signal.signal(number, handler) for number in handled
    }
    try:
        yield
    finally:
        for number, restored in previous_handlers.items():
            signal.signal(number, restored)


@contextmanager
def on_second_signal(end: Callable[[int], None]) -> Iterator[None]:
    """Calls `end` in a thread of its own when the same termination signal comes again inside the
    context.

    Handlers wait for the main thread, which may wait for a lost rank inside a library for ever.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    previous_fd = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def watch() -> None:
        first_seen: dict[int, float] = {}
        while received := os.read(reading, 1):
            number, seconds = received[0], time.monotonic()
            is_again = number in first_seen and seconds - first_seen[number] >= SAME_SIGNAL
            if is_again and number in TERMINATION_SIGNALS:
                end(number)
            first_seen.setdefault(number, seconds)
        os.close(reading)

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous_fd)
        os.close(writing)
