"""Files outside this program that a run names with `extensions=[FILE.py]`, and the options that they declare.

A file's options are the fields of its dataclass `Options`; they are written `extension.NAME.OPTION=value`, where NAME
is the file's name without `.py`. Only what the user names on a command line or in a configuration file is imported.
"""

import difflib
import hashlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from aiayn.config.rules import require
from aiayn.config.stored import from_plain, to_plain
from aiayn.errors import ConfigError, UserError


@dataclass(frozen=True)
class Extension:
    """An imported file."""

    name: str
    path: Path
    sha256: str  # over the bytes of the file
    module: ModuleType
    options: type | None  # the dataclass of its options, if it declares any


def load_extension(path: str) -> Extension:
    """Imports a file, again only where it has changed: a notebook trains more than once.

    Raises ConfigError if it is missing, has no usable name, or fails.
    """
    file = Path(path).expanduser()
    require(file.suffix == ".py" and file.stem.isidentifier(), f"extensions: {path}: name a Python file, NAME.py")
    try:
        source = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"extensions: {path}: cannot be read ({error.strerror})") from error
    return _imported(path, file, source)


@cache
def _imported(path: str, file: Path, source: bytes) -> Extension:
    name = f"aiayn_extension_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # as dataclasses and loader processes expect
    try:
        # The bytes that were read, and no __pycache__, which may hold others.
        exec(compile(source, str(file), "exec", dont_inherit=True), vars(module))
    except UserError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(f"extensions: {path}: fails when imported ({reason:.200}); debug=true shows where") from error
    options = getattr(module, "Options", None)
    declared = options if isinstance(options, type) and is_dataclass(options) else None
    return Extension(file.stem, file, hashlib.sha256(source).hexdigest(), module, declared)


def load_extensions(paths: Sequence[str]) -> list[Extension]:
    """Imports the files in order. Raises ConfigError as `load_extension` does, and if two have the same name."""
    found = [load_extension(path) for path in paths]
    names = [extension.name for extension in found]
    for name in names:
        require(names.count(name) == 1, f"extensions: two files are called {name}.py; rename one")
    return found


def check_extensions(paths: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of all extensions with their defaults, as plain values by the extension's name.

    Raises ConfigError for options of no extension, and for unknown, mistyped or impossible ones.
    """
    extensions = {extension.name: extension for extension in load_extensions(paths)}
    for name, values in given.items():
        declared = extensions[name].options if name in extensions else None
        require(
            name in extensions,
            f"extension.{name}: no such extension; name its file as well, extensions=[{name}.py]",
        )
        require(isinstance(values, Mapping), f"extension.{name}: write extension.{name}.OPTION=value")
        known = [option.name for option in fields(declared)] if declared is not None else []
        for key in values:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean extension.{name}.{near[0]}?" if near else f"it has {', '.join(known) or 'none'}"
            require(key in known, f"extension.{name}.{key}: no such option; {hint}")
    return {
        name: to_plain(_options_of(extension, given.get(name, {})))
        for name, extension in extensions.items()
        if extension.options is not None
    }


def _options_of(extension: Extension, values: Mapping[str, Any]) -> Any:
    assert extension.options is not None
    # What Hydra does to options of this program: 1 and 1.0 would be two rows of a table.
    floats = {option.name for option in fields(extension.options) if option.type in (float, float | None)}
    values = {key: float(one) if key in floats and type(one) is int else one for key, one in values.items()}
    try:
        return from_plain(extension.options, values, f"extension.{extension.name}.")
    except (ValueError, TypeError) as error:  # from its __post_init__
        raise ConfigError(f"extension.{extension.name}: {error}") from error
