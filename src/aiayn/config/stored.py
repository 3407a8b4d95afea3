"""Options as plain data: dotted names, dictionaries, what a run stored, and what may change when it
continues.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import MISSING, Field, asdict, fields
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

from aiayn.config.resolve import RunConfig, fill, run_config
from aiayn.config.rules import as_option, flatten, is_section, options_of, require, written
from aiayn.config.schema import Config
from aiayn.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

MAX_DEPTH, MAX_VALUES = 20, 100_000  # of one stored option

# What decides which checkpoints a training keeps: of no effect once it is finished.
UNTIL_THE_END = ("trainer.average_last", "trainer.best_metric")


@cache
def mutable_on_resume(key: str) -> bool:
    """Returns whether an option may change between two starts of a run."""
    sections = {option.name: option for option in fields(Config)}
    declared = (sections.get(key.partition(".")[0]), options_of(Config).get(key))
    return any(option and option.metadata["mutable_on_resume"] for option in declared)


def short_names(keys: Sequence[str]) -> list[str]:
    """Returns options without their section where that is enough to tell them apart."""
    short = [key.rpartition(".")[2] for key in keys]
    return [name if short.count(name) == 1 else key for key, name in zip(keys, short, strict=True)]


# Options as nested dictionaries of plain values, fit for JSON, YAML and checkpoints
to_dict = asdict


def from_dict(schema: type[T], tree: Mapping[str, Any], prefix: str = "") -> T:
    """Rebuilds options from what `to_dict` returned.

    Options added since have the value that they declare for that (`absent`). Messages begin their
    names with prefix. Values are only data: nothing in `tree` can name code.
    Raises ConfigError for unknown, mistyped or impossible options, and for a missing section.
    """
    section = prefix.rstrip(".") or "what is stored"
    require(isinstance(tree, Mapping), f"{section} is not a table of options")
    names = {option.name for option in fields(schema)}
    unknown = sorted(f"{prefix}{name}" for name in tree if name not in names)
    require(not unknown, f"unknown options are stored: {', '.join(unknown)}")
    values = {}
    for option in fields(schema):
        key, name = prefix + option.name, option.name
        if is_section(option.type):
            require(name in tree, f"stored options lack {key}")
            values[name] = from_dict(option.type, tree[name], f"{key}.")
        elif name in tree:
            values[name] = _checked(key, tree[name], option)
        elif "absent" in option.metadata or option.default is option.default_factory is MISSING:
            absent = option.metadata.get("absent", MISSING)
            require(absent is not MISSING, f"stored options lack {key}")
            values[name] = deepcopy(absent)  # and an extension's option has its default
    return schema(**values)


def _checked(key: str, value: Any, option: "Field[Any]") -> Any:
    """Returns the value of an option. Raises ConfigError if it is not of the option's type, such as
    `int | None`.
    """
    option_type = option.type
    is_union = get_origin(option_type) not in (None, list, dict)
    members = get_args(option_type) if is_union else (option_type,)
    types = {get_origin(member) or member for member in members}
    lists = [member for member in members if get_origin(member) is list]
    of_list = {entry for member in lists for entry in get_args(member)}
    for allowed in (types, of_list):
        if float in allowed:
            allowed.add(int)
    name = option_type.__name__ if isinstance(option_type, type) else option_type
    require(_is_bounded(value), f"{key}: nested too deeply, or too large")
    is_of_type = option_type is Any or type(value) in types
    if isinstance(value, list) and of_list and of_list <= {str, int, float, bool}:
        is_of_type = all(type(entry) in of_list for entry in value)
    if not is_of_type:
        raise ConfigError(f"{written(key, value)}: must be of type {name}")
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str) and "\0" in text:
            raise ConfigError(f"{key}={value!r:.80}: contains a NUL character")
    return value


def _is_bounded(value: Any) -> bool:
    """Returns whether a value can be copied and written: an alias of YAML may contain itself, or
    stand for billions of values.
    """
    pending, count = [(value, 0)], 0
    while pending:
        container, depth = pending.pop()
        if isinstance(container, Mapping | list | tuple):
            count += len(container)
            if depth > MAX_DEPTH or count > MAX_VALUES:
                return False
            values = container.values() if isinstance(container, Mapping) else container
            pending += [(inner, depth + 1) for inner in values]
    return True


def comparable(options: Config) -> dict[str, Any]:
    """Returns the options by dotted name; sizes of heads that follow from others are None."""
    values = flatten(to_dict(options))
    d_model, n_heads = values["model.d_model"], values["model.n_heads"]
    are_known = isinstance(d_model, int) and isinstance(n_heads, int)
    usual = d_model // n_heads if are_known else None
    for key in ("model.d_k", "model.d_v"):
        if values[key] == usual:
            values[key] = None
    return values


def filled(options: Config, stored: Config) -> Config:
    """Returns the options; those that are open get the values that the run's first start inferred.

    Another `max_epochs` than the stored one infers the steps anew: they may have followed from
    that.
    """
    values = comparable(stored)
    if values["trainer.max_epochs"] not in (None, options.trainer.max_epochs):
        del values["trainer.max_steps"]
    return fill(options, values)


def stored_config(tree: Mapping[str, Any]) -> RunConfig:
    """Rebuilds a run's configuration from what it stored. Raises ConfigError as `from_dict` and
    `run_config` do.
    """
    return run_config(from_dict(Config, tree))


def changed_options(stored: Config, options: Config) -> dict[str, str]:
    """Returns what defines the training and differs from stored options: {"model.d_k": "null ->
    64"}.
    """
    was, is_now = comparable(stored), comparable(options)
    follow = ["extension"]  # {}: its options follow one by one
    if was["optim.peak_lr"] or is_now["optim.peak_lr"]:
        follow.append("optim.lr_scale")
    changed = {}
    for key in was | is_now:
        old, new = was.get(key), is_now.get(key)
        if key not in follow and not mutable_on_resume(key) and _differ(key, old, new):
            was_text, now_text = str(as_option(old)), str(as_option(new))
            pairs = enumerate(zip(was_text, now_text, strict=False))
            first = next((i for i, (one, other) in pairs if one != other), 0)
            changed[key] = f"{_around(was_text, first)} -> {_around(now_text, first)}"
    return changed


def _around(text: str, index: int) -> str:
    """Returns a value as a message shows it: of a long one, what is around this index."""
    if len(text) <= 400:
        return text
    start = max(0, index - 80)
    return f"{'...' if start else ''}{text[start : index + 80]}..."


def too_late(stored: Config, options: Config) -> str:
    """Returns the options that differ from stored ones and that a finished run cannot follow; empty
    without any.
    """
    was, is_now = comparable(stored), comparable(options)
    changed = [key for key in UNTIL_THE_END if was[key] != is_now[key]]
    return "; ".join(f"{key}: {was[key]} -> {is_now[key]}" for key in changed)


def _differ(key: str, old: Any, new: Any) -> bool:
    """Returns whether two values of an option mean different things: 1 is one step of an epoch, 1.0
    is all.
    """
    is_count_or_share = key in ("trainer.limit_train_steps", "trainer.overfit_steps")
    return old != new or (is_count_or_share and {str(old), str(new)} == {"1", "1.0"})
