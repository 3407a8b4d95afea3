"""How options are declared, and the rules that they share: each raises ConfigError with one line that names the option.

Everything about an option stands where it is declared: type, default, rule, and what may become of it later.
"""

import math
import os
import re
from collections.abc import Callable, Collection
from dataclasses import Field, field, fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from aiayn.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    OneOrMore = str | list[str]
    Paths = OneOrMore | None
else:
    # OmegaConf has no unions with lists; the options' own checks look at the type.
    OneOrMore = Paths = Any

# The largest count that all libraries take. Options that exhaust a machine long before it have smaller limits.
MAX_COUNT = 2**31 - 1

TAG = r"<[^<>\s]+>"  # of a corpus, and other words that are never divided
NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def option(
    default: Any = None,
    rule: Callable[[str, Any], None] | None = None,
    *,
    least: float | None = None,
    most: float = MAX_COUNT,
    choices: tuple[Any, ...] = (),
    factory: Callable[[], Any] | None = None,
    by_text: bool = False,
    may_change: bool = False,
) -> Any:
    """Returns the field of an option.

    rule, called with the option's name and its value, or least and most, or choices: what `check_rules` checks.
    factory: returns the default, if that is a list or a section.
    by_text: the option may be null until `config/settle.py` fits it to the text.
    may_change: the option, or every one of a section, may change between two starts of a run, because no training step
    depends on it. All others define the training, and a run continues only with the values that it began with.
    """
    if least is not None:
        rule = partial(at_least, least=least, most=most)
    elif choices:
        rule = partial(one_of, choices=choices)
    metadata = {"rule": rule, "by_text": by_text, "may_change": may_change}
    return field(default_factory=factory, metadata=metadata) if factory else field(default=default, metadata=metadata)


def check_rules(prefix: str, options: Any, declared: Any = None) -> None:
    """Checks all options of a section, each by the rule that it was declared with, there or in a class above it.

    null breaks no rule.
    """
    for each in fields(declared or options):
        value, rule = getattr(options, each.name), each.metadata.get("rule")
        if rule is not None and value is not None:
            rule(prefix + each.name, value)


def is_section(kind: object) -> "TypeGuard[type[DataclassInstance]]":
    return isinstance(kind, type) and is_dataclass(kind)


@cache
def options_of(schema: "type[DataclassInstance]") -> "dict[str, Field[Any]]":
    """Returns every option of a schema class by its dotted name, in order."""
    found: dict[str, Field[Any]] = {}
    for each in fields(schema):
        below = options_of(each.type) if is_section(each.type) else {}
        found |= {f"{each.name}.{name}": option for name, option in below.items()} or {each.name: each}
    return found


def require(holds: bool, message: str) -> None:
    """Raises ConfigError(message) unless the rule holds."""
    if not holds:
        raise ConfigError(message)


def one_of(key: str, value: Any, choices: tuple[Any, ...]) -> None:
    require(value in choices, f"{key}={value}: choose one of {', '.join(map(str, choices))}")


def at_least(key: str, value: float | None, least: float, most: float = MAX_COUNT) -> None:
    require(value is None or least <= value < math.inf, f"{key}={value}: must be at least {least:g}, and finite")
    require(value is None or value <= most, f"{key}={value}: must be at most {most}")


def fraction(key: str, value: float) -> None:
    require(0 <= value < 1, f"{key}={value}: must be at least 0 and below 1")


def positive(key: str, value: float) -> None:
    require(0 < value < math.inf, f"{key}={value}: must be above 0 and finite")


def valid_name(key: str, name: str) -> None:
    """Refuses names of runs that would leave their root or need quoting on a command line."""
    good = all(part and part[0].isalnum() and set(part) <= NAME_CHARACTERS for part in name.split("/"))
    require(good, f"{key}={name}: use letters, digits, '.', '_' and '-', beginning with a letter or digit")


def language_code(key: str, code: str) -> None:
    """Refuses languages that are no codes: they are parts of file names, which must not lead anywhere else."""
    require(code != "", f"{key} is empty: set it, for example {key}=en")
    good = bool(re.fullmatch("[A-Za-z0-9][A-Za-z0-9_-]*", code))
    require(good, f"{key}={code}: a language is a code of letters, digits, '-' and '_', such as en or pt-BR")


def path_or_paths(what: str, key: str, value: Any, may_be_empty: bool = False) -> None:
    """Refuses what is neither a path nor a list of paths; OmegaConf cannot check that."""
    each = [value] if isinstance(value, str) else value
    good = isinstance(each, (list, tuple)) and all(isinstance(path, str) and path for path in each)
    good = good and (len(each) > 0 or may_be_empty)
    require(good, f"{key}={value}: must be {what} or a list of them, {key}=[A,B]")


def tagged(name: str) -> tuple[str, str]:
    """Splits <2de>PREFIX into its tag, empty without one, and the path."""
    found = re.fullmatch(rf"({TAG})?(.*)", name, re.DOTALL)
    assert found is not None
    return found[1] or "", found[2]


def known_tags(key: str, names: Paths, known: Collection[str]) -> None:
    """Refuses tags before names that a model has not learned: it would read them letter by letter."""
    for tag in filter(None, (tagged(name)[0] for name in listed(names))):
        require(tag in known, f"{key}: {tag} is no tag of the training text ({', '.join(known) or 'it has none'})")


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
