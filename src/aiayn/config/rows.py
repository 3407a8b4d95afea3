"""The options that single files of conf/ and of `--config-dir` set: for rows of Table 3, and for `init_from`."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hydra.conf import RuntimeConf
from omegaconf import OmegaConf

from aiayn.config.schema import Options
from aiayn.config.stored import flatten, option_names, stored_options, to_plain
from aiayn.errors import ConfigError

GLOBAL = "# @package _global_"
MODEL_OPTIONS = frozenset(name for name in option_names(Options) if name.startswith("model."))


class ConfigFiles:
    """The YAML files that a composition could choose from, in the order of Hydra's search path."""

    def __init__(self, runtime: RuntimeConf) -> None:
        """runtime is `hydra.runtime` of the composed configuration."""
        self.choices: Mapping[str, str | None] = runtime.choices
        self.folders = [Path(source.path) for source in runtime.config_sources if source.schema == "file"]

    def options(self, name: str) -> dict[str, Any]:
        """Returns what GROUP/NAME, and the files of its group in its defaults list, set: {"model.n_heads": 4}."""
        return self._read(name)[0]

    def replaced_groups(self, name: str) -> set[str]:
        """Returns the groups for which these files choose another file, with `override /GROUP: FILE`."""
        return self._read(name)[1]

    def _read(self, name: str) -> tuple[dict[str, Any], set[str]]:
        path = next((path for folder in self.folders if (path := folder / f"{name}.yaml").is_file()), None)
        if path is None:
            return {}, set()
        text, tree = _load(path)
        group = name.rpartition("/")[0]
        options: dict[str, Any] = {}
        groups: set[str] = set()
        for entry in tree.get("defaults", []):
            if isinstance(entry, str) and entry != "_self_":
                file = entry.partition("@")[0]
                inherited, replaced = self._read(file.lstrip("/") if entry.startswith("/") else f"{group}/{file}")
                options, groups = options | inherited, groups | replaced
            elif isinstance(entry, dict):
                groups |= {key.removeprefix("override /") for key in entry if key.startswith("override /")}
        own = {key: value for key, value in tree.items() if key not in ("defaults", "hydra")}
        package = "" if text.startswith(GLOBAL) or not group else f"{group}."
        return options | flatten(own, package), groups


@cache
def _load(path: Path) -> tuple[str, dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    tree = OmegaConf.to_container(OmegaConf.create(text)) if text.strip() else {}
    return text, {str(key): value for key, value in tree.items()} if isinstance(tree, dict) else {}


def overridden(overrides: Sequence[str]) -> set[str]:
    """Returns the keys of command-line arguments: {"model.n_heads"} for ["+model.n_heads=4"]."""
    return {override.lstrip("+").partition("=")[0] for override in overrides}


def chosen_options(overrides: Sequence[str], runtime: RuntimeConf) -> set[str]:
    """Returns the options that the command line sets, by name or, for the model's, through the files it chooses."""
    files, keys = ConfigFiles(runtime), overridden(overrides)
    chosen = set(keys)
    if "model" in keys:
        chosen |= MODEL_OPTIONS
    for group in ("ablation", "experiment"):
        if group in keys:
            name = f"{group}/{files.choices[group]}"
            chosen |= (
                MODEL_OPTIONS if "model" in files.replaced_groups(name) else MODEL_OPTIONS & set(files.options(name))
            )
    return chosen


def check_row(options: Options, runtime: RuntimeConf, overrides: Sequence[str]) -> None:
    """Raises ConfigError for a row of Table 3 that changes nothing, or whose change other options override."""
    files = ConfigFiles(runtime)
    row = files.choices["ablation"]
    changes = files.options(f"ablation/{row}")
    now = flatten(to_plain(options))
    for key, value in changes.items():
        if now.get(key) != value:
            raise ConfigError(
                f"ablation={row} sets {key}={value}, which the experiment or the command line sets to {now.get(key)}"
            )
    if not changes:
        return
    listed = " and ".join(f"{key}={value}" for key, value in changes.items())
    if options.model.d_model is None and MODEL_OPTIONS & set(changes):
        raise ConfigError(
            f"ablation={row} sets {listed} of a known model, and model=auto is not known yet; choose model=base"
        )
    without = now | _without_row(files, set(changes), overrides)
    if stored_options(without) == stored_options(now):
        raise ConfigError(f"ablation={row} changes nothing: {listed} holds without it; choose another row or model=")


def _without_row(files: ConfigFiles, keys: set[str], overrides: Sequence[str]) -> dict[str, Any]:
    """Returns the values of these options before the row, where no later file or argument sets them again."""
    base = files.options("train")
    for group, choice in files.choices.items():
        if choice is not None and group not in ("ablation", "experiment") and not group.startswith("hydra/"):
            base |= files.options(f"{group}/{choice}")
    again = overridden(overrides) | set(files.options(f"experiment/{files.choices['experiment']}"))
    return {key: base[key] for key in keys - again if key in base}
