"""What ranks tell each other besides gradients, and how they notice that one of them is gone."""

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import NoReturn

import torch
from torch import distributed

STARTED: list[subprocess.Popen] = []  # the other ranks of this machine, where this process has started them
LOST_RANK_GRACE = 5.0  # seconds that a process has to end by its own error once another rank is gone


class ControlGroup:
    """A gloo process group beside NCCL, so that asking the other ranks never waits for a GPU's queue."""

    def __init__(self, timeout: int):
        """Created by all ranks together, after the default process group."""
        self.group = distributed.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
        self.store = distributed.distributed_c10d._get_default_store()

    def max_over_ranks(self, value: int) -> int:
        """The largest of all ranks' values; a collective call."""
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
        """Ranks that do not answer within seconds, and the code that one of them announced, or 0; called by the others.

        Rank 0 holds the store, so it is missing if the store does not answer.
        """
        found: tuple[list[int], int] = [0], 0

        def ask() -> None:
            nonlocal found
            with suppress(RuntimeError):  # the store is gone
                self.set_flag(f"alive/{distributed.get_rank()}")
                deadline, silent = time.monotonic() + LOST_RANK_GRACE / 2, list(range(distributed.get_world_size()))
                while silent and time.monotonic() < deadline and not self.has_flag("failed"):
                    time.sleep(0.1)
                    silent = [rank for rank in silent if not self.has_flag(f"alive/{rank}")]
                found = silent, int(self.store.get("aiayn/failed")) if self.has_flag("failed") else 0

        asking = threading.Thread(target=ask, daemon=True)  # a call to a stopped rank 0 never returns
        asking.start()
        asking.join(LOST_RANK_GRACE)
        return found


def lost_contact(error: BaseException) -> bool:
    """True for an error that means only that other ranks do not answer."""
    message = str(error)
    return isinstance(error, RuntimeError) and (
        isinstance(error, distributed.DistError) or "gloo" in message or "Connection closed by peer" in message
    )


def exit_after(seconds: float, code: int, message: str = "") -> None:
    """Ends this process after `seconds` should its own end hang, as the shutdown of a process group can."""

    def end() -> None:
        time.sleep(seconds)
        exit_at_once(message, code)

    threading.Thread(target=end, daemon=True).start()


def exit_at_once(message: str, code: int) -> NoReturn:
    """Ends this process, and the ranks that it started, from any thread: the main thread may be waiting for ever."""
    if message:
        print(f"error: {message}", file=sys.stderr, flush=True)
    for process in STARTED:
        process.kill()
    os._exit(code)
