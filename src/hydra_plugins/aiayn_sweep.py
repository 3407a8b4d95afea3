"""Where Hydra looks for plugins, by the module in which a class is defined: the code is in aiayn.sweep."""

from aiayn.sweep import grid, launcher


class Grid(grid.Grid):
    """The sweeper."""


class ProcessLauncher(launcher.ProcessLauncher):
    """A process per job."""


class SlurmLauncher(launcher.SlurmLauncher):
    """A SLURM job per job."""
