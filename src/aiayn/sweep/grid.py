"""Hydra's sweeper for `train.py`: every combination of the values on the command line."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import PurePath

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from aiayn.errors import ConfigError


@dataclass
class GridConfig:
    _target_: str = "hydra_plugins.aiayn_sweep.Grid"


class Grid(Sweeper):
    """Unlike Hydra's own sweeper it writes no files: a refused sweep must leave nothing behind."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.context = hydra_context
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        parser = OverridesParser.create(config_loader=self.context.config_loader)
        overrides = parser.parse_overrides(arguments)
        values = {override.get_key_element(): _values(override, self.context.config_loader) for override in overrides}
        assert self.launcher is not None, "setup has been called"
        self.launcher.launch([list(job) for job in product(*values.values())], initial_job_idx=0)


def _values(override: Override, loader: ConfigLoader) -> Sequence[str]:
    """Returns the override once for each of its values. Raises ConfigError for keys and ranges that cannot be swept."""
    key, line = override.key_or_group, override.input_line or ""
    if key == "name":
        raise ConfigError("name=: each job of a sweep has its own folder; name the sweep with sweep=NAME instead")
    if not override.is_sweep_override():
        return [line]
    if key in ("sweep", "outputs"):
        raise ConfigError(f"{key}=: takes one {'name' if key == 'sweep' else 'folder'}, for all jobs")
    if not override.is_discrete_sweep():
        raise ConfigError(f"{line}: has no list of values; write {key}=A,B or {key}=range(A,B,STEP)")
    glob = override.value()
    # Hydra matches the files of the group's own folder only.
    found = _in_folders(glob, key, loader) if isinstance(glob, Glob) else []
    values = [f"{override.get_key_element()}={value}" for value in (*override.sweep_string_iterator(), *found)]
    if not values:
        raise ConfigError(f"{line}: matches nothing")
    twice = [value for value in dict.fromkeys(values) if values.count(value) > 1]
    if twice:
        raise ConfigError(f"{line}: gives {twice[0]} twice; give each value once")
    return values


def _in_folders(glob: Glob, group: str, loader: ConfigLoader) -> list[str]:
    """What patterns with a folder match: quarter/* the files of conf/ablation/quarter."""
    folders = dict.fromkeys(PurePath(pattern).parent.as_posix() for pattern in glob.include if "/" in pattern)
    names = [f"{folder}/{name}" for folder in folders for name in loader.get_group_options(f"{group}/{folder}")]
    return glob.filter(names)
