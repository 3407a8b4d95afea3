"""Checks that the options of all sections share. Each raises ConfigError with one line that names the option."""

import math
import os
import re
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiayn.errors import ConfigError

if TYPE_CHECKING:
    OneOrMore = str | list[str]
    Paths = OneOrMore | None
else:
    # OmegaConf has no unions with lists; the options' own checks look at the type.
    OneOrMore = Paths = Any

# The largest count that all libraries take. Options that exhaust a machine long before it have smaller limits.
MAX_COUNT = 2**31 - 1

TAG = r"<[^<>\s]+>"  # of a corpus, and other words that are never divided
NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def require(holds: bool, message: str) -> None:
    """Raises ConfigError(message) unless the rule holds."""
    if not holds:
        raise ConfigError(message)


def one_of(key: str, value: Any, choices: tuple[str, ...]) -> None:
    require(value in choices, f"{key}={value}: choose one of {', '.join(choices)}")


def at_least(key: str, value: float | None, least: float, most: float = MAX_COUNT) -> None:
    require(value is None or least <= value < math.inf, f"{key}={value}: must be at least {least:g}, and finite")
    require(value is None or value <= most, f"{key}={value}: must be at most {most}")


def fraction(key: str, value: float | None) -> None:
    require(value is None or 0 <= value < 1, f"{key}={value}: must be at least 0 and below 1")


def valid_name(key: str, name: str | None) -> None:
    """Refuses names of runs that would leave their root or need quoting on a command line."""
    parts = [] if name is None else name.split("/")
    good = all(part and part[0].isalnum() and set(part) <= NAME_CHARACTERS for part in parts)
    require(good, f"{key}={name}: use letters, digits, '.', '_' and '-', beginning with a letter or digit")


def language_code(key: str, code: str) -> None:
    """Refuses languages that are no codes: they are parts of file names, which must not lead anywhere else."""
    good = bool(re.fullmatch("[A-Za-z0-9][A-Za-z0-9_-]*", code))
    require(good, f"{key}={code}: a language is a code of letters, digits, '-' and '_', such as en or pt-BR")


def are_paths(value: Any) -> bool:
    """Whether an option is a path or a list of paths; OmegaConf cannot check that."""
    paths = [value] if isinstance(value, str) else value
    return isinstance(paths, (list, tuple)) and len(paths) > 0 and all(isinstance(path, str) and path for path in paths)


def tagged(name: str) -> tuple[str, str]:
    """Splits <2de>PREFIX into its tag, empty without one, and the path."""
    found = re.fullmatch(rf"({TAG})?(.*)", name, re.DOTALL)
    assert found is not None
    return found[1] or "", found[2]


def listed(values: Paths) -> list[str]:
    """Returns the values of an option that takes none, one or a list of them."""
    return [values] if isinstance(values, str) else list(values or [])


def outputs_folder(typed: str | None) -> Path:
    """Returns the root of all runs. Raises ConfigError if its name would need quoting on a command line."""
    folder = typed or os.environ.get("AIAYN_OUTPUTS") or "outputs"
    require(
        all(letter.isalnum() or letter in "/._-+@~" for letter in folder),
        f"{'outputs' if typed else 'AIAYN_OUTPUTS'}={folder}: use letters, digits, '/', '.', '_' and '-', so that "
        "printed commands need no quotes",
    )
    return Path(folder).expanduser()


def by_text(default: Any) -> Any:
    """Returns the field of an option that may be null until `config/settle.py` fits it to the text."""
    return field(default=default, metadata={"by_text": True})
