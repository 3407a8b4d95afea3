"""Files outside this program that a run names with `extensions=[FILE.py]`, and the options that
they declare.

A file's options are the fields of its dataclass `Options`; they are written
`extension.NAME.OPTION=value`, where NAME is the file's name without `.py`. Only what the user names
on a command line or in a configuration file is imported.
"""

import ast
import hashlib
import importlib.util
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from aiayn.config.rules import is_section, require
from aiayn.config.stored import from_dict, to_dict
from aiayn.errors import ConfigError, UserError

IMPORTED_AS = "aiayn_extension_"  # begins the names of their modules


@dataclass(frozen=True)
class Extension:
    """An imported file."""

    name: str
    path: Path
    source: bytes
    sha256: str  # over these bytes
    module: ModuleType
    options: type | None  # the dataclass of its options, if it declares any
    helpers: Mapping[str, bytes]  # what it imports, beside it: relative path -> content


def load_extension(path: str) -> Extension:
    """Imports a file, again only where it has changed: a notebook trains more than once.

    Raises ConfigError if it is missing, has no usable name, or fails.
    """
    file = Path(path).expanduser()
    require(
        file.suffix == ".py" and file.stem.isidentifier(),
        f"extensions: {path}: name a Python file, NAME.py",
    )
    try:
        source = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"extensions: {path}: cannot be read ({error.strerror})") from error
    return _imported(path, file, source)


@cache
def _imported(path: str, file: Path, source: bytes) -> Extension:
    name = f"{IMPORTED_AS}{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # as dataclasses and loader processes expect
    folder = str(file.parent.absolute())
    sys.path.insert(0, folder)  # helpers beside the file are importable
    try:
        # The bytes that were read, and no __pycache__, which may hold others.
        exec(compile(source, str(file), "exec", dont_inherit=True), vars(module))
    except UserError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(
            f"extensions: {path}: fails when imported ({reason:.200}); debug=true shows where"
        ) from error
    finally:
        sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)  # for imports inside functions
    options = getattr(module, "Options", None)
    options = options if is_section(options) else None
    sha256, helpers = hashlib.sha256(source).hexdigest(), helpers_of(source, file.parent)
    return Extension(file.stem, file, source, sha256, module, options, helpers)


def helpers_of(source: bytes, folder: Path) -> dict[str, bytes]:
    """Returns the files that Python code imports, directly or through each other, from outside
    site-packages and the standard library.

    The key is the path of the module below its import root, such as `mine/layers.py`.
    """
    helpers: dict[str, bytes] = {}
    pending = [(source, "")]
    while pending:
        code, package = pending.pop()
        for module in _imported_modules(code, package):
            name, file = _own_file(module, folder)
            if file is not None and name not in helpers:
                helpers[name] = file.read_bytes()
                parent = Path(name).parent.as_posix().replace("/", ".")
                pending.append((helpers[name], parent if parent != "." else ""))
    return dict(sorted(helpers.items()))


def _imported_modules(code: bytes, package: str) -> set[str]:
    """Returns the dotted names of all modules that code may import, and of their packages."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - max(0, node.level - 1)]
            base = ".".join([*(parents if node.level else []), *filter(None, [node.module])])
            names |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    parts = [name.split(".") for name in names]
    candidates = [
        part for part in parts if part[0] not in {*sys.stdlib_module_names, "aiayn", "torch"}
    ]
    return {".".join(part[:end]) for part in candidates for end in range(1, len(part) + 1)}


@cache
def _library_folders() -> list[Path]:
    """Returns where the standard library, site-packages and this program are."""
    folders = [*map(Path, sysconfig.get_paths().values()), Path(__file__).parents[1]]
    return [folder.resolve() for folder in folders]


def _own_file(module: str, folder: Path) -> tuple[str, Path | None]:
    """Returns a module's file and its path below its import root; no file for libraries."""
    below = module.replace(".", "/")
    for root in dict.fromkeys([folder, *map(Path, sys.path)]):
        for name in (f"{below}.py", f"{below}/__init__.py"):
            file = (root / name).resolve()
            if file.is_file():
                is_library = any(map(file.is_relative_to, _library_folders()))
                return name, None if is_library else file
    return below, None


def load_extensions(paths: Sequence[str]) -> list[Extension]:
    """Imports the files in order. Raises ConfigError as `load_extension` does, and if two have the
    same name.
    """
    extensions = [load_extension(path) for path in paths]
    names = [extension.name for extension in extensions]
    for name in names:
        require(names.count(name) == 1, f"extensions: two files are called {name}.py; rename one")
    return extensions


def check_extensions(paths: Sequence[str], typed: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of all extensions with their defaults, as plain values by the extension's
    name.

    Raises ConfigError for options of no extension, and for unknown, mistyped or impossible ones.
    """
    extensions = {extension.name: extension for extension in load_extensions(paths)}
    for name in typed:
        missing = (
            f"extension.{name}: no such extension; name its file as well, extensions=[{name}.py]"
        )
        require(name in extensions, missing)
    options_by_name = {
        name: _options_of(extension, typed.get(name, {})) for name, extension in extensions.items()
    }
    return {
        name: to_dict(options) for name, options in options_by_name.items() if options is not None
    }


def own_options(cls: type, extension: Mapping[str, Any]) -> Any:
    """Returns an instance of the `Options` of the file that brings a class, or a class above it,
    with a run's values (`config.extension`); None without any.
    """
    for base in cls.__mro__:
        file = base.__module__.removeprefix(IMPORTED_AS)
        options = getattr(sys.modules.get(base.__module__), "Options", None)
        if file != base.__module__ and is_section(options) and file in extension:
            return options(**extension[file])
    return None


def _options_of(extension: Extension, values: Any) -> Any:
    """Returns an instance of the dataclass that declares the extension's options; None if it has
    none.
    """
    prefix = f"extension.{extension.name}"
    require(isinstance(values, Mapping), f"{prefix}: write {prefix}.OPTION=value")
    declared = fields(extension.options) if extension.options else ()
    types = {option.name: option.type for option in declared}
    for key in values:
        names = ", ".join(types) or "none"
        require(key in types, f"{prefix}.{key}: no such option; it has {names}")
    if extension.options is None:
        return None
    # What Hydra does to options of this program: 1 and 1.0 would be two rows of a table.
    floats = [
        key
        for key, value in values.items()
        if types[key] in (float, float | None) and type(value) is int
    ]
    try:
        return from_dict(
            extension.options,
            {**values, **{key: float(values[key]) for key in floats}},
            f"{prefix}.",
        )
    except (ValueError, TypeError) as error:  # from its __post_init__
        raise ConfigError(f"{prefix}: {error}") from error
