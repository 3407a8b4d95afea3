"""Many devices on one run: how they start, agree, and notice that one of them is gone."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from pytorch_lightning.strategies import DDPStrategy
from pytorch_lightning.strategies.launchers import _SubprocessScriptLauncher
from torch import distributed

from aiayn.errors import ResourceError

GRACE = 5.0  # seconds that a process has to end by its own error, once another one is gone


class DataParallel(DDPStrategy):
    """One process for each device, all on the same step; a device that is gone or stuck ends the run on all."""

    def __init__(self, timeout: int):
        """`timeout`: seconds that one device waits for the others."""
        # Every device computes its own table of sinusoids; there is nothing to broadcast.
        super().__init__(broadcast_buffers=False, gradient_as_bucket_view=True, timeout=timedelta(seconds=timeout))

    def _configure_launcher(self) -> None:
        self._launcher = _Launcher(self.cluster_environment, self.num_processes, self.num_nodes)

    def end_others(self) -> None:
        """Ends the processes that this one started."""
        if self.launcher:
            self.launcher.kill(signal.SIGKILL)


class _Launcher(_SubprocessScriptLauncher):
    """Lightning's, but for its observer, which ends the first process without a word when another one has ended."""

    def launch(self, function: Callable, *args: Any, trainer: Any = None, **kwargs: Any) -> Any:
        if not self.cluster_environment.creates_processes_externally:
            self._call_children_scripts()
            threading.Thread(target=_watch_children, args=(self.procs,), daemon=True).start()
        elif self.cluster_environment.local_rank() and "TORCHELASTIC_RUN_ID" not in os.environ:
            threading.Thread(target=_watch_parent, args=(os.getppid(),), daemon=True).start()
        return function(*args, **kwargs)


def _watch_children(children: list[subprocess.Popen]) -> None:
    while any(child.poll() is None for child in children):
        time.sleep(0.5)
        for number, child in enumerate(children, 1):
            if child.poll():
                time.sleep(GRACE)  # usually the main thread has noticed too, and says more
                for other in children:
                    other.kill()
                _exit(f"device {number} (process {child.pid}) ended with code {child.returncode}")


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    time.sleep(GRACE)
    _exit(f"device 0 (process {parent}) has ended")


def _exit(message: str) -> None:
    """Ends this process from a thread: the main thread may wait for the lost device for ever."""
    print(f"error: {message}; run the same command to continue from the last checkpoint", file=sys.stderr, flush=True)
    os._exit(ResourceError.exit_code)


class Peers:
    """What the devices' processes tell each other besides gradients: over the network, without a GPU's queue, so that
    asking costs no waiting for it."""

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
