"""Memory of several processes together (Linux)."""

import os
import threading
from pathlib import Path


class PeakOfAll:
    """Looks every `EVERY` seconds at how much memory all processes take that this one has
    started.
    """

    EVERY = 0.5

    def __init__(self):
        self.mb = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "PeakOfAll":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.mb = max(self.mb, sum(map(_pss_mb, _descendants(os.getpid()))))
            if self._over.wait(self.EVERY):
                return


def _descendants(pid: int) -> list[int]:
    try:
        files = Path(f"/proc/{pid}/task").glob("*/children")
        children = [int(child) for file in files for child in file.read_text("utf-8").split()]
    except OSError:  # it has ended
        return []
    return children + [descendant for child in children for descendant in _descendants(child)]


def _pss_mb(pid: int) -> float:
    """Memory of a process, where pages that it shares with n - 1 others count as 1/n of a page."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8").split("\n")
    except OSError:  # it has ended
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
