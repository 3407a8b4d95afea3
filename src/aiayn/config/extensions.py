"""Files outside this program that a run names with `extensions=[FILE.py]`: how they are imported,
the options that they declare, and what they bring.

A file's options are the fields of its dataclass `Options`; they are written
`extension.NAME.OPTION=value`, where NAME is the file's name without `.py`. Only what the user names
on a command line or in a configuration file is imported.

A run stores name and SHA-256 of each, and a copy of it with the files that it imports. A model that
a file's code builds can be loaded only in a process that has named a file of this name, so that
loading never runs code by itself. The hash is a record: a changed file loads, with a warning.
"""

import ast
import hashlib
import importlib.util
import inspect
import logging
import math
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from aiayn.config.rules import is_section, path_or_paths, require
from aiayn.config.stored import from_dict, to_dict
from aiayn.config.tasks import METRICS
from aiayn.errors import (
    EXTENSIONS,
    ConfigError,
    RefusedError,
    UserError,
    explain_own_code,
    is_own_file,
    library_folders,
    summary_of,
)

log = logging.getLogger(__name__)

STORED = "stored"  # in the place of a file: the run's own copies
NOTEBOOK = "notebook"  # in the place of the file of a class that has none
# What this program measures itself, under val/NAME or in evaluation.json.
OWN_METRICS = {name.rpartition("/")[2] for name in METRICS}
# Functions of hypotheses and references, by name; one with a parameter `sources` gets those, too
# (COMET).
Metrics = Mapping[str, Callable[..., float]]
# By file_id: what builds models in this process, with PARTS or a Module
_named: dict[str, Any] = {}
_named_classes: dict[str, type] = {}  # those that a caller gave, by FILE or FILE#CLASS
_imported_files: dict[str, "Extension"] = {}  # by name, as they were imported last
_imported_helpers: dict[str, bytes] = {}  # contents of their modules, by the modules' names


@dataclass(frozen=True)
class Extension:
    """An imported file."""

    name: str
    path: Path
    source: bytes
    module: ModuleType
    options: type | None  # the dataclass of its options, if it declares any
    helpers: Mapping[str, bytes]  # what it imports, beside it: relative path -> content

    @property
    def file_id(self) -> str:
        """Returns what a run stores of the file: FILE:SHA-256."""
        return _file_id(self.path.name, self.source)


def _file_id(name: str, content: bytes) -> str:
    return f"{name}:{hashlib.sha256(content).hexdigest()}"


def load_extensions(paths: Sequence[str]) -> list[Extension]:
    """Imports the files in order. Raises ConfigError as `load_extension` does, and if two have the
    same name.
    """
    extensions = [load_extension(path) for path in paths]
    names = [extension.name for extension in extensions]
    for name in names:
        require(names.count(name) == 1, f"extensions: two files are called {name}.py; rename one")
    sources_of(extensions, ())  # refuses two files with one path
    return extensions


def load_extension(path: str) -> Extension:
    """Imports a file, again only where it has changed: a notebook trains more than once.

    Raises ConfigError if it is missing, has no usable name, or fails.
    """
    file = Path(path).expanduser()
    require(
        file.suffix == ".py" and file.stem.isidentifier(),
        f"extensions: {path}: name a Python file, such as my_file.py",
    )
    try:
        source = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"extensions: {path}: cannot be read ({error.strerror})") from error
    return _imported(path, file, source, tuple(_helpers_of(source, file.parent).items()))


@cache
def _imported(
    path: str, file: Path, source: bytes, helpers: tuple[tuple[str, bytes], ...]
) -> Extension:
    name = f"{EXTENSIONS}{file.stem}"
    # Of other contents, such as files of the same names, nothing must stay imported
    contents = {_module_name(helper): content for helper, content in helpers}
    if any(_imported_helpers.get(key, contents[key]) != contents[key] for key in contents):
        for key in contents:
            sys.modules.pop(key, None)
    _imported_helpers.update(contents)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # as dataclasses and loader processes expect
    folder = str(file.parent.absolute())
    sys.path.insert(0, folder)  # helpers beside the file are importable
    try:
        with own_code_explained([path]):
            # The bytes that were read, and no __pycache__, which may hold others.
            exec(compile(source, str(file), "exec", dont_inherit=True), vars(module))
    finally:
        sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)  # for imports inside functions
    options = getattr(module, "Options", None)
    options = options if is_section(options) else None
    extension = Extension(file.stem, file, source, module, options, dict(helpers))
    _imported_files[file.stem] = extension
    return extension


def _module_name(file: str) -> str:
    """Returns the name of a module by its path below its import root."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@contextmanager
def own_code_explained(files: Sequence[str]) -> Iterator[None]:
    """Raises ConfigError, in the place of an error inside the context, that names the line of the
    user's code which the error passed through; else these files, if there are any.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        named = "" if isinstance(error, OSError) else ", ".join(files)
        if not (line := explain_own_code(error, named)):
            raise
        raise ConfigError(line) from error


def imported(paths: Sequence[str]) -> list[Extension]:
    """Returns those of the files that this process has imported already, because its user named
    them.
    """
    names = [Path(path).stem for path in paths]
    return [_imported_files[name] for name in names if name in _imported_files]


def _helpers_of(source: bytes, folder: Path, package: str = "") -> dict[str, bytes]:
    """Returns the files that Python code imports, directly or through each other, from outside
    site-packages and the standard library.

    The key is the path of the module below its import root, such as `mine/layers.py`; `package` is
    that of the code.
    """
    helpers: dict[str, bytes] = {}
    pending = [(source, package)]
    while pending:
        for module in _imported_modules(*pending.pop()):
            name, file = _own_file(module, folder)
            if file is not None and name not in helpers:
                helpers[name] = file.read_bytes()
                package = ".".join(Path(name).parent.parts)
                pending.append((helpers[name], package))
    return dict(sorted(helpers.items()))


def _imported_modules(code: bytes, package: str) -> set[str]:
    """Returns the dotted names of all modules that code may import, and of their packages."""
    names: set[str] = set()
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):  # its import says where
        return names
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            names |= _imported_by_call(node)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (package or not node.level):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            names |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    parts = [name.split(".") for name in names]
    return {".".join(part[:end]) for part in parts for end in range(1, len(part) + 1)}


def _imported_by_call(call: ast.Call) -> set[str]:
    """Returns the module that a call such as `importlib.import_module("NAME")` imports."""
    function = getattr(call.func, "attr", getattr(call.func, "id", ""))
    name = getattr(call.args[0], "value", None) if call.args else None
    is_import = function in ("import_module", "__import__") and isinstance(name, str)
    return {str(name)} if is_import else set()


def _own_file(module: str, folder: Path) -> tuple[str, Path | None]:
    """Returns a module's file and its path below its import root; no file for libraries."""
    below = module.replace(".", "/")
    if below.partition("/")[0] in {*sys.stdlib_module_names, "aiayn", "torch"}:
        return below, None
    for root in dict.fromkeys([folder, *map(Path, sys.path)]):
        for name in (f"{below}.py", f"{below}/__init__.py"):
            file = (root / name).resolve()
            if file.is_file():
                is_library = any(map(file.is_relative_to, library_folders()))
                return name, None if is_library else file
    return below, None


def check_extensions(paths: Sequence[str], typed: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of all extensions with their defaults, as plain values by the extension's
    name.

    Raises ConfigError for options of no extension, and for unknown, mistyped or impossible ones.
    """
    path_or_paths("a Python file", "extensions", paths, may_be_empty=True)
    extensions = load_extensions(paths)
    for name in typed:
        require(
            name in [extension.name for extension in extensions],
            f"extension.{name}: no such extension; name its file as well, extensions=[{name}.py]",
        )
    values = {}
    for extension in extensions:
        if extension.options or typed.get(extension.name):
            options = _options_of(extension.options, extension.name, typed)
            values[extension.name] = to_dict(options)
    return values


def _options_of(schema: Any, name: str, typed: Mapping[str, Any]) -> Any:
    """Returns an instance of the dataclass that declares an extension's options."""
    prefix, values = f"extension.{name}", typed.get(name, {})
    require(isinstance(values, Mapping), f"{prefix}: write {prefix}.OPTION=value")
    types = {option.name: option.type for option in fields(schema)} if schema else {}
    for key in values:
        names = f"choose one of {', '.join(types)}" if types else f"{name}.py declares none"
        require(key in types, f"{prefix}.{key}: no such option; {names}")
    # What Hydra does to options of this program: 1 and 1.0 would be two rows of a table.
    options = dict(values)
    for key, value in values.items():
        if types[key] in (float, float | None) and type(value) is int:
            options[key] = float(value)
    try:
        return from_dict(schema, options, f"{prefix}.")
    except (ValueError, TypeError) as error:  # from its __post_init__
        raise ConfigError(f"{prefix}: {error}") from error


def own_options(cls: type, extension: Mapping[str, Any]) -> Any:
    """Returns the `Options` of the file that defines a class, or a base class of it, with a run's
    values (`config.extension`); None if no file declares them.
    """
    for base in cls.__mro__:
        file = base.__module__.removeprefix(EXTENSIONS)
        options = getattr(sys.modules.get(base.__module__), "Options", None)
        if file != base.__module__ and is_section(options) and file in extension:
            return options(**extension[file])
    return None


def ids_of_files(extensions: Sequence[Extension]) -> list[str]:
    """Returns what a run stores of files and of what they import: FILE:SHA-256, each once."""
    ids = [extension.file_id for extension in extensions]
    for extension in extensions:
        ids += [_file_id(*helper) for helper in extension.helpers.items()]
    return list(dict.fromkeys(ids))


def register_extensions(paths: Sequence[str]) -> list[Extension]:
    """Imports the files, so that models with their parts can be loaded from now on. Raises as
    `load_extensions`.
    """
    extensions = load_extensions(paths)
    metrics_of(extensions)
    _named.update({extension.file_id: extension.module for extension in extensions})
    return extensions


def metrics_of(extensions: Sequence[Extension]) -> Metrics:
    """Returns the METRICS of all files. Raises ConfigError for names that are taken, and for what
    is no function.
    """
    metrics: dict[str, Any] = {}
    for extension in extensions:
        where = f"extensions: {extension.path}: METRICS"
        for name, metric in getattr(extension.module, "METRICS", {}).items():
            owner = "this program" if name in OWN_METRICS else "another extension"
            require(
                name not in {*OWN_METRICS, *metrics},
                f"{where}: {name} is taken by {owner}; rename it",
            )
            require(
                isinstance(name, str) and callable(metric),
                f"{where} must map names to functions, but has {name!r}: {metric!r}; correct it",
            )
            metrics[name] = metric
    return metrics


def is_lower_better(metrics: Metrics, best_metric: str) -> bool:
    """Returns whether `trainer.best_metric` is one of these, and has an attribute
    `lower_is_better`.
    """
    return getattr(metrics.get(best_metric.removeprefix("val/")), "lower_is_better", False)


def measure(
    metrics: Metrics, hypotheses: list[str], references: list[str], sources: list[str]
) -> dict[str, float | None]:
    """Returns what every metric gives, as floats; None, with a warning, for one that fails or gives
    no finite number.

    A metric that fails must not lose the translations. It gets both sides in Unicode's form NFC.
    """
    hypotheses, references = (
        [unicodedata.normalize("NFC", line) for line in lines] for lines in (hypotheses, references)
    )
    scores: dict[str, float | None] = {}
    for name, metric in metrics.items():
        try:
            more = {"sources": sources} if "sources" in inspect.signature(metric).parameters else {}
            score, reason = float(metric(hypotheses, references, **more)), ""
        except Exception as error:  # whatever an extension raises
            score, reason = math.nan, f" ({summary_of(error)})"
        scores[name] = score if math.isfinite(score) else None
        if scores[name] is None:
            log.warning(
                "the extension's metric %s did not return a finite number%s: left out", name, reason
            )
    return scores


def constraining(extensions: Sequence[Extension]) -> list[Extension]:
    """Returns the files that define a `constraint` of the search."""
    return [extension for extension in extensions if hasattr(extension.module, "constraint")]


def constraint_of(extensions: Sequence[Extension], tokenizer: Any) -> Callable[..., Any] | None:
    """Returns one constraint of the search (`search/beam_search.py`) that applies those of all
    files in turn; None without any.
    """
    constraints = [extension.module.constraint(tokenizer) for extension in constraining(extensions)]

    def allowed(src: Any, prefixes: Any, log_probs: Any) -> Any:
        for constraint in constraints:
            log_probs = constraint(src, prefixes, log_probs)
        return log_probs

    return allowed if constraints else None


def name_class(cls: type) -> str:
    """Makes models that a caller's Module builds loadable in this process. Returns its file_id.

    If a function or a notebook's cell has made several classes from one source, the latest counts.
    """
    file_id, _ = code_of_class(cls)
    # A file that brings the class may bring PARTS, too
    if not isinstance(_named.get(file_id), ModuleType):
        _named[file_id] = SimpleNamespace(Module=cls)
        _named_classes[file_id.rpartition(":")[0]] = cls
    return file_id


def code_of_class(cls: type) -> tuple[str, dict[str, bytes]]:
    """Returns what a run stores of a class that a caller in Python gave: FILE:SHA-256, or
    FILE#CLASS:SHA-256, with the file's path below its import root; and that file, before those that
    it imports, by their paths.

    A class of a notebook has its own lines alone; one of a library has no files.
    """
    try:
        path = Path(inspect.getsourcefile(cls) or "").absolute()
        content = path.read_bytes() if path.is_file() else inspect.getsource(cls).encode()
    except (OSError, TypeError):
        return f"{cls.__qualname__}:unknown", {}
    if path.is_file():
        package = getattr(sys.modules.get(cls.__module__), "__package__", None) or ""
        folders = package.split(".") if package else []
        # An extension's package is no folder
        is_inside = path.parts[-len(folders) - 1 : -1] == tuple(folders)
        root = path.parents[len(folders) if is_inside else 0]
        name, sources = path.relative_to(root).as_posix(), {}
        if is_own_file(str(path)):
            package = ".".join(path.relative_to(root).parent.parts)
            sources = {name: content} | _helpers_of(content, root, package)
    else:
        name, sources = NOTEBOOK, {f"{NOTEBOOK}/{cls.__name__}.py": content}
    is_usual = cls.__qualname__ in ("Module", "DataModule")
    return _file_id(name if is_usual else f"{name}#{cls.__qualname__}", content), sources


def ids_of_classes(classes: Sequence[type]) -> list[str]:
    """Returns what a run stores of classes that a caller in Python gave, and of what their files
    import, each once.
    """
    ids: list[str] = []
    for file_id, sources in map(code_of_class, classes):
        ids += [file_id, *(_file_id(*helper) for helper in [*sources.items()][1:])]
    return list(dict.fromkeys(ids))


def sources_of(extensions: Sequence[Extension], classes: Sequence[type]) -> dict[str, bytes]:
    """Returns all files of a run's code, by their paths below their import roots. Raises
    ConfigError if two of them have one path.
    """
    sources: dict[str, bytes] = {}
    contents_of = [
        {**extension.helpers, extension.path.name: extension.source} for extension in extensions
    ]
    contents_of += [code_of_class(cls)[1] for cls in classes]
    for contents in contents_of:
        for name, content in contents.items():
            require(
                sources.setdefault(name, content) == content,
                f"extensions: two different files are imported as {name}; rename one",
            )
    return sources


def builds_model(cls: type) -> bool:
    """Returns whether a Module builds its model itself, not by `build_model` of this program."""
    owner = next((base for base in cls.__mro__ if "build_model" in vars(base)), None)
    return owner is not None and owner.__module__.partition(".")[0] != "aiayn"


def ids_of_builders(extensions: Sequence[Extension], module: type | None = None) -> str | None:
    """Returns what `model.parts` stores: the ids of the files whose code builds the model; None
    without any.

    `module`: the Module that is trained, if it comes from Python.
    """
    brought = [getattr(extension.module, "Module", object) for extension in extensions]
    ids = [
        extension.file_id
        for extension, own_module in zip(extensions, brought, strict=True)
        if hasattr(extension.module, "PARTS") or builds_model(own_module)
    ]
    if module and builds_model(module) and module not in brought:
        ids.append(name_class(module))
    return ",".join(ids) or None


def file_names(ids: str | None) -> list[str]:
    """Returns the names of the files, or FILE#CLASS, that `model.parts` stores."""
    return [file_id.partition(":")[0] for file_id in ids.split(",")] if ids else []


def is_importable(name: str) -> bool:
    """Returns whether a command can import FILE or FILE#CLASS: no module of a package, and no class
    of a notebook or of a function.
    """
    file, _, class_name = name.partition("#")
    return file.endswith(".py") and not {"/", "."}.intersection(file[:-3] + class_name)


def builders_of(ids: str | None) -> list[Any]:
    """Returns the modules that a model was built with. Raises RefusedError if a file of this name
    is not named.
    """
    builders = []
    for file_id in ids.split(",") if ids else []:
        name, _, sha256 = file_id.partition(":")
        file, _, class_name = name.partition("#")
        for other, code in [*_named.items()] if class_name else ():
            if other.partition(":")[0] == file and hasattr(code, class_name):
                name_class(getattr(code, class_name))
        same_name = [other for other in _named if other.partition(":")[0] == name]
        if not same_name:
            remedy = "pass the class to aiayn.load(RUN, module=CLASS)"
            if is_importable(name):
                remedy = (
                    f"add extensions=[FOLDER/{file}], or --extension FOLDER/{file} to `aiayn` "
                    f"commands; --extension {STORED} runs the run's own copy"
                )
            raise RefusedError(
                f"the model needs the extension {name} (SHA-256 {sha256[:16]}...), and code runs "
                f"only if you name it: {remedy}"
            )
        builders.append(_named.get(file_id, _named[same_name[-1]]))
    return builders


def warn_of_changed_files(ids: Sequence[str], parts: str | None) -> None:
    """Warns of files of this process, and of what they import, that differ from those of the same
    names that a run stores: all of its code, and what builds its model.
    """

    def by_file(ids: Sequence[str]) -> dict[str, str]:  # FILE.py#CLASS has the SHA-256 of FILE.py
        names = [re.sub(r"(?<=\.py)#[^:]*", "", file_id) for file_id in ids]
        return {name: digits for name, _, digits in (name.rpartition(":") for name in names)}

    stored = by_file([*ids, *(parts.split(",") if parts else ())])
    here = [by_file(ids_of_files([extension])) for extension in _imported_files.values()]
    here += [by_file(ids_of_classes([cls])) for cls in _named_classes.values()]
    for files in here:
        if next(iter(files)) in stored:
            for name, sha256 in files.items():
                if stored.get(name, sha256) != sha256:
                    _warn_of_other_source(name, stored[name], sha256)


@cache  # one line a process
def _warn_of_other_source(name: str, stored: str, sha256: str) -> None:
    log.warning(
        "warning  %s differs from the file that the model was trained with (SHA-256 %.16s..., "
        "here %.16s...); --extension %s runs the run's own copy",
        *(name, stored, sha256, STORED),
    )
