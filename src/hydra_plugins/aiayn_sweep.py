"""Where Hydra looks for plugins; the code is in aiayn.sweep.

Hydra takes only classes that are defined in this package, and executes this file anew whenever it looks for them.
"""

from hydra.core.config_store import ConfigStore

from aiayn.sweep import grid, launcher


class Grid(grid.Grid):
    """The sweeper."""


class ProcessLauncher(launcher.ProcessLauncher):
    """A process per job."""


class SlurmLauncher(launcher.SlurmLauncher):
    """A SLURM job per job."""


class ScoresLauncher(launcher.ScoresLauncher):
    """A process per evaluation."""


store = ConfigStore.instance()
store.store(group="hydra/sweeper", name="grid", node=grid.GridConfig, provider="aiayn")
store.store(group="hydra/launcher", name="processes", node=launcher.ProcessesConfig, provider="aiayn")
store.store(group="hydra/launcher", name="slurm", node=launcher.SlurmConfig, provider="aiayn")
store.store(group="hydra/launcher", name="scores", node=launcher.ScoresConfig, provider="aiayn")
