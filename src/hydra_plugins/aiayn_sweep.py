"""Where Hydra looks for plugins: the sweeper and the launchers live in aiayn.sweep."""

from aiayn.sweep.grid import Grid
from aiayn.sweep.launcher import ProcessLauncher, SlurmLauncher

__all__ = ["Grid", "ProcessLauncher", "SlurmLauncher"]
