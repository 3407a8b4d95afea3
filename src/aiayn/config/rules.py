"""How options are declared, and the rules they share: each raises ConfigError in one line that
names the option.

An option's declaration has its type, help and rule, and says whether it may change; its value is in
conf/ alone.
"""

import os
import re
import sys
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard, TypeVar, dataclass_transform

from aiayn.config.program import conf_folder
from aiayn.errors import ConfigError, without_controls

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
MAX_LANGUAGE = 35  # RFC 5646, section 4.4.1

TAG = r"<[^<>\s]+>"  # a corpus's tag, or another word that is never divided
NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")

T = TypeVar("T", bound="Options")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def option_group(command: str, section: str = "") -> Callable[[type[T]], type[T]]:
    """Decorates a class of options, and makes it a dataclass.

    An option that is not given has its value in conf/COMMAND.yaml, which is read when a value is
    first needed: composed and stored options need none. An option of the class above that is
    declared anew by `field()`, which has such a value then, keeps its help and rule.
    """

    def decorate(schema: type[T]) -> type[T]:
        schema.prefix = f"{section}." if section else ""
        inherited = getattr(schema, "__dataclass_fields__", {})
        for name, declared in vars(schema).items():
            if (
                isinstance(declared, Field)
                and declared.default_factory is MISSING is declared.default
            ):
                declared.metadata = declared.metadata or inherited[name].metadata
                key = schema.prefix + name
                declared.default_factory = partial(_default_value, command, key)
        return dataclass(frozen=True, kw_only=True)(schema)

    return decorate


def _default_value(command: str, key: str) -> Any:
    value = default_values(command)[key]
    require(value != "???", f"{key} is missing: set {key}=VALUE")
    return value


def default_values(command: str) -> dict[str, Any]:
    """Returns what conf/COMMAND.yaml composes to without arguments, by dotted names."""
    return deepcopy(flatten(_read_defaults(conf_folder() / f"{command}.yaml")))


@cache
def _read_defaults(path: Path) -> dict[str, Any]:
    """Returns the values of a file, over those of the files in its defaults list."""
    from omegaconf import OmegaConf  # PyYAML alone reads 1e-9 as text

    tree: Any = OmegaConf.to_container(OmegaConf.load(path))
    inherited: dict[str, Any] = {}
    for entry in tree.pop("defaults", []):
        group, name = next(iter(entry.items())) if isinstance(entry, dict) else ("", entry)
        file = path.parent / group / f"{name}.yaml"
        if file.is_file():  # others, such as _self_, are Hydra's
            inherited |= {group: _read_defaults(file)} if group else _read_defaults(file)
    return inherited | tree


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turns {"model": {"d_k": 64}} into {"model.d_k": 64}."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        is_filled = isinstance(value, Mapping) and bool(value)
        flat |= flatten(value, f"{prefix}{key}.") if is_filled else {f"{prefix}{key}": value}
    return flat


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

    help: what `--help` says about it. rule: `Options` calls it with the option's name and value;
    least and most, or choices, are rules, too. default: used only if conf/ has no value, see
    `option_group`. absent: for an option that was added later, the value of runs that were stored
    without it. inferred_from_data: the option may be null until `config/resolve.py` infers it from
    the training text. mutable_on_resume, as of every `mutable_option`: the option may change
    between two starts of a run, because no training step depends on it. All others define the
    training, and a run continues only with the values that it began with.
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


mutable_option = partial(option, mutable_on_resume=True)


def flag(default: Any, help: str, *names: str, **settings: Any) -> Any:
    """Returns the field of an option of an `aiayn` command, `--NAME` unless it has other names.

    default may be `list`, for an empty one; settings are those of `typer.Option`.
    """
    start: dict[str, Any] = {"default_factory": list} if default is list else {"default": default}
    return field(**start, metadata={"names": names, "help": help, **settings})


def section(schema: type, mutable_on_resume: bool = False) -> Any:
    """Returns the field of a section of options. mutable_on_resume: every one of its options is,
    see `option`.
    """
    return field(default_factory=schema, metadata={"mutable_on_resume": mutable_on_resume})


class Options:
    """A group of options. Checks each by the rule that it was declared with; null breaks no
    rule.
    """

    prefix: ClassVar[str]  # of their names

    def __post_init__(self: Any) -> None:
        for option in fields(self):
            value, rule = getattr(self, option.name), option.metadata.get("rule")
            if rule is not None and value is not None:
                rule(self.prefix + option.name, value)


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
    text = without_controls(str(value))
    return f"{key}={text}" if len(text) <= 100 else f"{key}={text[:60]}... ({len(text)} characters)"


def require_value(holds: bool, key: str, value: Any, rule: str) -> None:
    """Raises ConfigError for the value of an option that breaks a rule."""
    if not holds:
        raise ConfigError(f"{written(key, value)}: {rule}")


def one_of(key: str, value: Any, choices: tuple[Any, ...]) -> None:
    names = ", ".join(map(str, choices))
    require_value(value in choices, key, value, f"choose one of {names}")


def at_least(key: str, value: float | None, least: float, most: float = MAX_COUNT) -> None:
    if value is not None:
        require_value(least <= value, key, value, f"must be at least {least:g}")
        require_value(value <= most, key, value, f"must be at most {most}")


def fraction(key: str, value: float) -> None:
    require_value(0 <= value < 1, key, value, "must be at least 0 and below 1")


def positive(key: str, value: float) -> None:
    is_finite = 0 < value <= sys.float_info.max
    require_value(is_finite, key, value, "must be above 0 and finite")


def valid_name(key: str, name: str) -> None:
    """Refuses names of runs that would leave their root, need quoting on a command line, or be too
    long for a folder.
    """
    parts = name.split("/")
    form = "use letters, digits, '.', '_' and '-', beginning with a letter or digit"
    for part in parts:
        require_value(part[:1].isalnum() and set(part) <= NAME_CHARACTERS, key, name, form)
    length = f"must have at most {MAX_NAME} characters, with its folders {MAX_PATH}"
    is_short = len(name) <= MAX_PATH and max(map(len, parts)) <= MAX_NAME
    require_value(is_short, key, name, f"{length}; choose a shorter one")


def language_code(key: str, code: str) -> None:
    """Refuses languages that are not codes: they are parts of file names, which must not lead
    anywhere else.
    """
    form = f"a code of at most {MAX_LANGUAGE} letters, digits, '-' and '_', such as en or pt-BR"
    is_code = re.fullmatch("[A-Za-z0-9][A-Za-z0-9_-]*", code) is not None
    require_value(is_code and len(code) <= MAX_LANGUAGE, key, code, f"a language is {form}")


def path_or_paths(expected: str, key: str, value: Any, may_be_empty: bool = False) -> None:
    """Refuses what is neither a path nor a list of paths; OmegaConf cannot check that."""
    paths = [value] if isinstance(value, str) else value
    is_list = isinstance(paths, (list, tuple)) and (may_be_empty or len(paths) > 0)
    holds_paths = is_list and all(isinstance(path, str) and path for path in paths)
    require_value(holds_paths, key, value, f"must be {expected} or a list of them, {key}=[A,B]")


def tagged(name: str) -> tuple[str, str]:
    """Splits <2de>PREFIX into its tag, empty without one, and the path."""
    matched = re.match(TAG, name)
    tag = matched[0] if matched else ""
    return tag, name.removeprefix(tag)


def known_tags(key: str, names: Paths, known: Collection[str]) -> None:
    """Refuses tags before names that a model has not learned: it would read them letter by
    letter.
    """
    learned = ", ".join(known) or "it has none"
    for name in listed(names):
        tag, _ = tagged(name)
        require(tag in ("", *known), f"{key}: {tag} is not a tag of the training text ({learned})")


def listed(values: Paths) -> list[str]:
    """Returns the values of an option that takes none, one or a list of them."""
    return [values] if isinstance(values, str) else list(values or [])


def outputs_folder(typed: str | None) -> Path:
    """Returns the root of all runs. Raises ConfigError if its name would need quoting on a command
    line.
    """
    folder = typed or os.environ.get("AIAYN_OUTPUTS") or "outputs"
    name = "outputs" if typed else "AIAYN_OUTPUTS"
    is_plain = re.fullmatch(r"[\w/.+@~-]+", folder) is not None
    require_value(
        is_plain,
        name,
        folder,
        "use letters, digits, '/', '.', '_' and '-', so that printed commands need no quotes",
    )
    return Path(folder).expanduser()
