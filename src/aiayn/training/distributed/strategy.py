"""Many devices on one run: how their processes start, and watch over each other."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from pytorch_lightning.strategies import DDPStrategy
from pytorch_lightning.strategies.launchers import _SubprocessScriptLauncher

from aiayn.errors import ResourceError
from aiayn.signals import TERMINATION_SIGNALS, exit_signal
from aiayn.training.distributed.control_group import GRACE
from aiayn.training.distributed.stop_request import command

AGAIN = "run the same command to continue from the last checkpoint"


class WatchedDDPStrategy(DDPStrategy):
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
                if asked := _asked_to_stop(child.returncode):
                    _exit(f"stopped before training; continue with: {command()}", 128 + asked)
                _exit(f"device {number} (process {child.pid}) ended with code {child.returncode}; {AGAIN}")


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    time.sleep(GRACE)
    _exit(f"device 0 (process {parent}) has ended; {AGAIN}")


def _asked_to_stop(code: int) -> int | None:
    """The signal that ended a process which has not yet trained, by its exit code; later ones end with 0 instead."""
    return next((exit_signal(number) for number in TERMINATION_SIGNALS if code in (-number, 128 + number)), None)


def _exit(message: str, code: int = ResourceError.exit_code) -> None:
    """Ends this process from a thread: the main thread may wait for the lost device for ever."""
    print(f"error: {message}", file=sys.stderr, flush=True)
    os._exit(code)
