"""Records the files that `extensions` names, whose parts a model may be built of.

A run stores name and SHA-256 of each, and a copy of it with the files that it imports. A model that
a file's code builds can be loaded only in a process that has named a file of this name, so that
loading never runs code by itself. The hash is a record: a changed file loads, with a warning.
"""

import functools
import hashlib
import inspect
import logging
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from aiayn.config.extension_files import Extension, load_extensions
from aiayn.errors import ConfigError, RefusedError
from aiayn.files import atomic_file
from aiayn.runs.metrics import METRICS
from aiayn.runs.run_folder import RunFolder, folder_of, is_number

log = logging.getLogger(__name__)

# Functions of hypotheses and references, by name; one with a parameter `sources` gets those, too
# (COMET).
Metrics = Mapping[str, Callable[..., float]]
# What this program measures itself, under val/NAME or in evaluation.json.
OWN_METRICS = {name for name in METRICS if "/" not in name}
OWN_METRICS |= {"loss", "ppl", "accuracy", "bleu", "length_ratio"}
STORED = "stored"  # in the place of a file: the run's own copies
# By file_id: what builds models in this process, with PARTS or a Module
_named: dict[str, Any] = {}


def id_of_file(extension: Extension) -> str:
    """Returns what a run stores of a file: FILE:SHA-256."""
    return f"{extension.path.name}:{extension.sha256}"


def ids_of_files(extensions: Sequence[Extension]) -> list[str]:
    """Returns what a run stores of files and of what they import: FILE:SHA-256, each once."""
    ids = [id_of_file(extension) for extension in extensions]
    for extension in extensions:
        ids += [
            f"{name}:{hashlib.sha256(content).hexdigest()}"
            for name, content in extension.helpers.items()
        ]
    return list(dict.fromkeys(ids))


def store_sources(folder: RunFolder, extensions: Sequence[Extension]) -> None:
    """Copies the files, and those that they import, into the run."""
    for extension in extensions:
        sources = {**extension.helpers, extension.path.name: extension.source}
        for name, content in sources.items():
            path = folder.extensions / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(path) as file:
                file.write(content)


def with_stored(paths: Sequence[str] | None, run: Path) -> list[str]:
    """Returns the paths of extensions, with the run's own copies in the place of `stored`.

    Warns of files that this run does not use. Raises RefusedError if the run holds no copies.
    """
    files: list[str] = []
    for path in paths or ():
        if path != STORED:
            files.append(path)
            continue
        folder = RunFolder(folder_of(run))
        names = [Path(name).name for name in folder.read_config()["extensions"]]
        copies = [folder.extensions / name for name in names]
        if not copies or not all(copy.is_file() for copy in copies):
            raise RefusedError(
                f"extension {STORED}: {folder.extensions} holds no copies of this run's "
                "extensions; name the file instead"
            )
        files += map(str, copies)
    if files:
        _warn_of_unused(files, run)
    return files


def _warn_of_unused(paths: Sequence[str], run: Path) -> None:
    """Logs a line for each file that the run was not trained with and that brings nothing else."""
    try:
        ids = RunFolder(folder_of(run)).read_config().get("extensions_sha256") or []
    except RefusedError:  # a checkpoint by itself
        return
    trained_with = {file_id.partition(":")[0].partition("#")[0] for file_id in ids}
    for extension in load_extensions(paths):
        brings = any(hasattr(extension.module, name) for name in ("METRICS", "constraint"))
        if extension.path.name not in trained_with and not brings:
            log.warning(
                "warning  extension %s: not used; the run was trained without it, and it brings "
                "neither METRICS nor a constraint",
                extension.path,
            )


def register_extensions(paths: Sequence[str]) -> list[Extension]:
    """Imports the files, so that models with their parts can be loaded from now on. Raises as
    `load_extensions`.
    """
    extensions = load_extensions(paths)
    metrics_of(extensions)
    _named.update({id_of_file(extension): extension.module for extension in extensions})
    return extensions


def metrics_of(extensions: Sequence[Extension]) -> Metrics:
    """Returns the METRICS of all files. Raises ConfigError for names that are taken, and for what
    is no function.
    """
    metrics: dict[str, Any] = {}
    for extension in extensions:
        for name, metric in getattr(extension.module, "METRICS", {}).items():
            if name in OWN_METRICS or name in metrics:
                owner = "this program" if name in OWN_METRICS else "another extension"
                raise ConfigError(
                    f"extensions: {extension.path}: METRICS has {name}, a score of {owner}; "
                    "rename it"
                )
            if not (isinstance(name, str) and callable(metric)):
                raise ConfigError(
                    f"extensions: {extension.path}: METRICS must be functions by name, not "
                    f"{name!r}: {metric!r}"
                )
            metrics[name] = metric
    return metrics


def constraining(extensions: Sequence[Extension]) -> list[Extension]:
    """Returns the files that define a `constraint` of the search."""
    return [extension for extension in extensions if hasattr(extension.module, "constraint")]


def constraint_of(extensions: Sequence[Extension], tokenizer: Any) -> Callable[..., Any] | None:
    """Returns what the `constraint(tokenizer)` of all files let a search continue with, one after
    the other, as `search/constraint.py` declares it; None without any.
    """
    constraints = [extension.module.constraint(tokenizer) for extension in constraining(extensions)]

    def allowed(src: Any, prefixes: Any, log_probs: Any) -> Any:
        for constraint in constraints:
            log_probs = constraint(src, prefixes, log_probs)
        return log_probs

    return allowed if constraints else None


def metric_falls(metrics: Metrics, best_metric: str) -> bool:
    """Returns whether `trainer.best_metric` is one of these, and has an attribute
    `lower_is_better`.
    """
    return getattr(metrics.get(best_metric.removeprefix("val/")), "lower_is_better", False)


def measure(
    metrics: Metrics, hypotheses: list[str], references: list[str], sources: list[str]
) -> dict[str, float | None]:
    """Returns what every metric gives, as floats; None, with a warning, for one that fails or gives
    no finite number.

    It must not cost the translations, which took long. Both sides are given in Unicode's form NFC.
    """
    hypotheses, references = (
        [unicodedata.normalize("NFC", line) for line in lines] for lines in (hypotheses, references)
    )
    scores: dict[str, float | None] = {}
    for name, metric in metrics.items():
        try:
            more = {"sources": sources} if "sources" in inspect.signature(metric).parameters else {}
            value, reason = float(metric(hypotheses, references, **more)), ""
        except Exception as error:  # whatever an extension raises
            value, reason = (
                float("nan"),
                f" ({type(error).__name__}: {' '.join(str(error).split())[:200]})",
            )
        scores[name] = value if is_number(value) else None
        if scores[name] is None:
            log.warning(
                "the extension's metric %s did not return a finite number%s: left out", name, reason
            )
    return scores


def id_of_class(cls: type) -> str:
    """Returns what a run stores of a class that a caller in Python gave: FILE:SHA-256, or
    FILE#CLASS:SHA-256.
    """
    try:
        path = Path(inspect.getsourcefile(cls) or "")
        content = path.read_bytes() if path.is_file() else inspect.getsource(cls).encode()
    except (OSError, TypeError):
        return f"{cls.__qualname__}:unknown"
    name = path.name if path.is_file() else "notebook"
    name += "" if cls.__qualname__ in ("Module", "DataModule") else f"#{cls.__qualname__}"
    return f"{name}:{hashlib.sha256(content).hexdigest()}"


def name_class(cls: type) -> str:
    """Makes models that this Module builds loadable in this process. Returns its file_id.

    Of classes with one source, as a function or a notebook's cell makes them, the latest is taken.
    """
    file_id = id_of_class(cls)
    if not isinstance(
        _named.get(file_id), ModuleType
    ):  # a file that brings the class may bring PARTS, too
        _named[file_id] = SimpleNamespace(Module=cls)
    return file_id


def builds_model(cls: type) -> bool:
    """Returns whether a Module builds its model itself, not by `build_model` of this program."""
    owner = next((base for base in cls.__mro__ if "build_model" in vars(base)), cls)
    return hasattr(cls, "build_model") and owner.__module__.partition(".")[0] != "aiayn"


def ids_of_builders(extensions: Sequence[Extension], module: type | None = None) -> str | None:
    """Returns what `model.parts` stores: the ids of the files whose code builds the model; None
    without any.

    `module`: the Module that is trained, if it comes from Python.
    """
    ids = [
        id_of_file(extension)
        for extension in extensions
        if hasattr(extension.module, "PARTS")
        or builds_model(getattr(extension.module, "Module", object))
    ]
    brought = [getattr(extension.module, "Module", None) for extension in extensions]
    if module and builds_model(module) and module not in brought:
        ids.append(name_class(module))
    return ",".join(ids) or None


@functools.cache  # one line a process
def _warn_of_other_source(stored: str, named: str) -> None:
    log.warning(
        "warning  %s differs from the file that the model was trained with (SHA-256 %.16s..., "
        "here %.16s...); --extension %s runs the run's own copy",
        *(stored.partition(":")[0], stored.rpartition(":")[2], named.rpartition(":")[2], STORED),
    )


def builders_of(ids: str | None) -> list[Any]:
    """Returns the modules that a model was built with. Warns of a file that has changed. Raises
    RefusedError if a file of this name is not named.
    """
    builders = []
    for file_id in ids.split(",") if ids else []:
        if file_id not in _named:
            name, _, sha256 = file_id.partition(":")
            if same_name := [other for other in _named if other.partition(":")[0] == name]:
                _warn_of_other_source(file_id, same_name[-1])
                builders.append(_named[same_name[-1]])
                continue
            raise RefusedError(
                f"the model needs the extension {name} (SHA-256 {sha256[:16]}...), and code runs "
                f"only if you name it: add extensions=[FOLDER/{name}], or --extension "
                f"FOLDER/{name} to `aiayn` commands; --extension {STORED} runs the run's own copy"
            )
        builders.append(_named[file_id])
    return builders
