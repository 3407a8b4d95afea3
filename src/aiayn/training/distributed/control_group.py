"""What the processes of one run tell each other besides gradients, and how they notice that one of them is gone."""

import os
import threading
import time
from datetime import timedelta

import torch
from torch import distributed

from aiayn.errors import ResourceError

GRACE = 5.0  # seconds that a process has to end by its own error, once another one is gone


class ControlGroup:
    """A line of their own between the devices' processes: over the network, without a GPU's queue, so that asking
    costs no waiting for it."""

    def __init__(self, timeout: int):
        """To be made by all processes together, once their process group stands."""
        self.timeout = timeout
        self.group = distributed.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
        self.store = distributed.distributed_c10d._get_default_store()

    def largest(self, value: int) -> int:
        """The largest of all devices' values; all must ask."""
        tensor = torch.tensor(value)
        distributed.all_reduce(tensor, op=distributed.ReduceOp.MAX, group=self.group)
        return int(tensor)

    def post(self, message: str) -> None:
        """Leaves a message that every process can see."""
        self.store.set(f"aiayn/{message}", "1")

    def posted(self, message: str) -> bool:
        return self.store.check([f"aiayn/{message}"])

    def missing(self) -> list[int]:
        """Devices that do not report within seconds; to be asked by those that have lost contact."""
        world_size, found = distributed.get_world_size(), [0]  # no answer at all: device 0 holds the store

        def ask() -> None:
            self.post(f"alive/{distributed.get_rank()}")
            deadline, gone = time.monotonic() + GRACE / 2, list(range(world_size))
            while gone and time.monotonic() < deadline:
                time.sleep(0.1)
                gone = [rank for rank in gone if not self.posted(f"alive/{rank}")]
            found[:] = gone

        def quietly() -> None:
            try:
                ask()
            except RuntimeError:
                found[:] = [0]

        asking = threading.Thread(target=quietly, daemon=True)
        asking.start()
        asking.join(GRACE)
        return list(found)


def lost_contact(error: BaseException) -> bool:
    """True for an error that says no more than that other processes do not answer."""
    said = str(error)
    return isinstance(error, RuntimeError) and (
        isinstance(error, distributed.DistError) or "gloo" in said or "Connection closed by peer" in said
    )


def exit_after(seconds: float) -> None:
    """Ends the process by then, should its own end wait for a device that is gone."""

    def end() -> None:
        time.sleep(seconds)
        os._exit(ResourceError.exit_code)

    threading.Thread(target=end, daemon=True).start()
