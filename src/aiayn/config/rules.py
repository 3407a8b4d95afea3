"""How options are declared, and the rules they share: each raises ConfigError in one line that
names the option.

Type, help, rule, and what may become of an option later stand where it is declared; its value
stands in conf/.
"""

import math
import os
import re
import sys
from collections.abc import Callable, Collection
from dataclasses import MISSING, Field, field, fields, is_dataclass
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

# The largest count that all libraries take. Options that exhaust a machine long before it have
# smaller limits.
MAX_COUNT = 2**31 - 1
MAX_DIGITS = 300  # a float has 308, and Python reads numbers of 4,300
HUGE = 10**MAX_DIGITS
# Of a run's name: file systems allow 255 bytes, which files named after a run need, too; and 4,096
# of a path.
MAX_NAME, MAX_PATH = 200, 1000

TAG = r"<[^<>\s]+>"  # of a corpus, and other words that are never divided
NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def option(
    help: str,
    rule: Callable[[str, Any], None] | None = None,
    *,
    least: float | None = None,
    most: float = MAX_COUNT,
    choices: tuple[Any, ...] = (),
    default: Any = MISSING,
    absent: Any = MISSING,
    inferred_from_data: bool = False,
    mutable_on_resume: bool = False,
) -> Any:
    """Returns the field of an option.

    help: what `--help` says about it.
    rule, called with the option's name and its value, or least and most, or choices: what
    `check_rules` checks. default: only where conf/ has none, see `defaults_in_conf`.
    absent: of an option that was added later, the value that runs had which were stored without it.
    inferred_from_data: the option may be null until `config/resolve.py` infers it from the training
    text. mutable_on_resume: the option may change between two starts of a run, because no training
    step depends on it. All others define the training, and a run continues only with the values
    that it began with.
    """
    if least is not None:
        rule = partial(at_least, least=least, most=most)
    elif choices:
        rule = partial(one_of, choices=choices)
        names = " | ".join(str(as_option(choice)) for choice in choices)
        help = f"{names}; {help}" if help else names
    metadata = {
        "help": help,
        "rule": rule,
        "absent": absent,
        "inferred_from_data": inferred_from_data,
        "mutable_on_resume": mutable_on_resume,
    }
    return field(default=default, metadata=metadata)


def resolved() -> Any:
    """Returns the field of an option in the resolved class of its section, where it has a value."""
    return field()


def section(schema: type, mutable_on_resume: bool = False) -> Any:
    """Returns the field of a section of options. mutable_on_resume: every one of its options is,
    see `option`.
    """
    return field(default_factory=schema, metadata={"mutable_on_resume": mutable_on_resume})


def check_rules(prefix: str, options: Any, declared: Any = None) -> None:
    """Checks all options of a section, each by the rule that it was declared with, there or in a
    class above it.

    null breaks no rule.
    """
    for option in fields(declared or options):
        value, rule = getattr(options, option.name), option.metadata.get("rule")
        if rule is not None and value is not None:
            rule(prefix + option.name, value)


def is_section(option_type: object) -> "TypeGuard[type[DataclassInstance]]":
    return isinstance(option_type, type) and is_dataclass(option_type)


@cache
def options_of(schema: "type[DataclassInstance]") -> "dict[str, Field[Any]]":
    """Returns every option of a schema class by its dotted name, in order."""
    options: dict[str, Field[Any]] = {}
    for declared in fields(schema):
        if is_section(declared.type):
            for name, option in options_of(declared.type).items():
                options[f"{declared.name}.{name}"] = option
        else:
            options[declared.name] = declared
    return options


def as_option(value: Any) -> Any:
    """Returns a value as it is written on the command line."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else value


def require(holds: bool, message: str) -> None:
    """Raises ConfigError(message) unless the rule holds."""
    if not holds:
        raise ConfigError(message)


def written(key: str, value: Any) -> str:
    """Returns KEY=VALUE for a message; of a long value its beginning and its length."""
    if isinstance(value, int) and not -HUGE < value < HUGE:  # Python writes 4,300 digits at most
        return f"{key}: a number of more than {MAX_DIGITS} digits"
    text = str(value)
    return f"{key}={text}" if len(text) <= 100 else f"{key}={text[:60]}... ({len(text)} characters)"


def one_of(key: str, value: Any, choices: tuple[Any, ...]) -> None:
    require(
        value in choices, f"{written(key, value)}: choose one of {', '.join(map(str, choices))}"
    )


def at_least(key: str, value: float | None, least: float, most: float = MAX_COUNT) -> None:
    if value is None:
        return
    shown = written(key, value)
    require(least <= value < math.inf, f"{shown}: must be at least {least:g}, and finite")
    require(value <= most, f"{shown}: must be at most {most}")


def fraction(key: str, value: float) -> None:
    require(0 <= value < 1, f"{written(key, value)}: must be at least 0 and below 1")


def positive(key: str, value: float) -> None:
    is_finite = 0 < value <= sys.float_info.max
    require(is_finite, f"{written(key, value)}: must be above 0 and finite")


def valid_name(key: str, name: str) -> None:
    """Refuses names of runs that would leave their root, need quoting on a command line, or be too
    long for a folder.
    """
    shown, parts = written(key, name), name.split("/")
    form = "use letters, digits, '.', '_' and '-', beginning with a letter or digit"
    for part in parts:
        require(part[:1].isalnum() and set(part) <= NAME_CHARACTERS, f"{shown}: {form}")
    require(
        len(name) <= MAX_PATH and all(len(part) <= MAX_NAME for part in parts),
        f"{shown}: must have at most {MAX_NAME} characters, with its folders {MAX_PATH}; choose a "
        "shorter one",
    )


def language_code(key: str, code: str) -> None:
    """Refuses languages that are not codes: they are parts of file names, which must not lead
    anywhere else.
    """
    require(code != "", f"{key} is empty: set it, for example {key}=en")
    is_code = re.fullmatch("[A-Za-z0-9][A-Za-z0-9_-]*", code) is not None
    form = "a language is a code of letters, digits, '-' and '_', such as en or pt-BR"
    require(is_code, f"{key}={code}: {form}")


def path_or_paths(expected: str, key: str, value: Any, may_be_empty: bool = False) -> None:
    """Refuses what is neither a path nor a list of paths; OmegaConf cannot check that."""
    paths = [value] if isinstance(value, str) else value
    message = f"{key}={value}: must be {expected} or a list of them, {key}=[A,B]"
    require(isinstance(paths, (list, tuple)), message)
    require(len(paths) > 0 or may_be_empty, message)
    require(all(isinstance(path, str) and path for path in paths), message)


def tagged(name: str) -> tuple[str, str]:
    """Splits <2de>PREFIX into its tag, empty without one, and the path."""
    matched = re.fullmatch(rf"({TAG})?(.*)", name, re.DOTALL)
    assert matched is not None
    return matched[1] or "", matched[2]


def known_tags(key: str, names: Paths, known: Collection[str]) -> None:
    """Refuses tags before names that a model has not learned: it would read them letter by
    letter.
    """
    learned = ", ".join(known) or "it has none"
    for name in listed(names):
        tag, _ = tagged(name)
        is_known = not tag or tag in known
        require(is_known, f"{key}: {tag} is not a tag of the training text ({learned})")


def listed(values: Paths) -> list[str]:
    """Returns the values of an option that takes none, one or a list of them."""
    return [values] if isinstance(values, str) else list(values or [])


def outputs_folder(typed: str | None) -> Path:
    """Returns the root of all runs. Raises ConfigError if its name would need quoting on a command
    line.
    """
    folder = typed or os.environ.get("AIAYN_OUTPUTS") or "outputs"
    name = "outputs" if typed else "AIAYN_OUTPUTS"
    require(
        all(letter.isalnum() or letter in "/._-+@~" for letter in folder),
        f"{name}={folder}: use letters, digits, '/', '.', '_' and '-', so that printed commands "
        "need no quotes",
    )
    return Path(folder).expanduser()
