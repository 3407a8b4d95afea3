"""Default values of options. They are in conf/, and nowhere else."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import MISSING, Field
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from aiayn.config.program import conf_folder
from aiayn.errors import ConfigError

T = TypeVar("T")


def defaults_in_conf(command: str, section: str = "") -> Callable[[type[T]], type[T]]:
    """Decorates a class of options: one that is not given has its value in conf/COMMAND.yaml.

    The file is read when a value is first needed. Composed and stored options need none.
    """

    def decorate(schema: type[T]) -> type[T]:
        for name, declared in vars(schema).items():
            if (
                isinstance(declared, Field)
                and declared.default is declared.default_factory is MISSING
            ):
                key = f"{section}.{name}" if section else name
                declared.default_factory = partial(_default_value, command, key)
        return schema

    return decorate


def default_values(command: str) -> dict[str, Any]:
    """Returns what conf/COMMAND.yaml composes to without arguments, by dotted names."""
    return deepcopy(_default_values(conf_folder(), command))


def _default_value(command: str, key: str) -> Any:
    value = deepcopy(_default_values(conf_folder(), command)[key])
    if value == "???":
        raise ConfigError(f"{key} is missing: set {key}=VALUE")
    return value


@cache
def _default_values(conf: Path, command: str) -> dict[str, Any]:
    tree, groups = _read_yaml(conf / f"{command}.yaml")
    del tree["hydra"]
    sections = {key: values for key, values in tree.items() if isinstance(values, dict) and values}
    for entry in groups:
        [(group, name)] = entry.items() if isinstance(entry, dict) else [("", None)]
        if name is not None and (conf / group).is_dir():
            sections[group] = _read_with_parents(conf / group / f"{name}.yaml")
    flat = {key: value for key, value in tree.items() if key not in sections}
    for section, values in sections.items():
        flat |= {f"{section}.{name}": value for name, value in values.items()}
    return flat


def _read_yaml(path: Path) -> tuple[dict[str, Any], list[Any]]:
    """Returns the values of a file, and its defaults list."""
    from omegaconf import OmegaConf  # PyYAML alone reads 1e-9 as text

    tree: Any = OmegaConf.to_container(OmegaConf.load(path))
    return tree, tree.pop("defaults", [])


def _read_with_parents(path: Path) -> dict[str, Any]:
    values, parents = _read_yaml(path)
    inherited: dict[str, Any] = {}
    for parent in parents:
        if parent != "_self_":
            inherited |= _read_with_parents(path.with_name(f"{parent}.yaml"))
    return inherited | values
