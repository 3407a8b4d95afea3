"""What a run stores of the files that `extensions` names, and whose parts a model may be built of.

A run stores name and SHA-256 of each. A model with parts of a file can be loaded only in a process that has named this
very file, so that loading never runs code by itself.
"""

from collections.abc import Callable, Sequence
from typing import Any

from aiayn.config.extensions import Extension, load_extensions
from aiayn.errors import RefusedError

_named: dict[str, Extension] = {}  # by mark: those of this process


def mark(extension: Extension) -> str:
    """What a run stores of a file: FILE:SHA-256."""
    return f"{extension.path.name}:{extension.sha256}"


def name_extensions(paths: Sequence[str]) -> list[Extension]:
    """Imports the files, so that models with their parts can be loaded from now on. Raises as `load_extensions`."""
    found = load_extensions(paths)
    _named.update({mark(extension): extension for extension in found})
    return found


def metrics_of(extensions: Sequence[Extension]) -> dict[str, Callable[[list[str], list[str]], float]]:
    """Returns the METRICS of all files: functions of hypotheses and references, by name."""
    return {name: metric for each in extensions for name, metric in getattr(each.module, "METRICS", {}).items()}


def marks_of_parts(extensions: Sequence[Extension]) -> str | None:
    """Returns what `model.parts` stores: the marks of the files that bring PARTS; None without any."""
    return ",".join(mark(each) for each in extensions if hasattr(each.module, "PARTS")) or None


def parts_of(marks: str | None) -> list[Any]:
    """Returns the PARTS that a model was built with. Raises RefusedError if a file that brings some is not named."""
    found = []
    for each in marks.split(",") if marks else []:
        if each not in _named:
            name, _, sha256 = each.partition(":")
            raise RefusedError(
                f"the model has parts of an extension, {name} (SHA-256 {sha256[:16]}...), and code runs only where it "
                f"is named: add extensions=[FOLDER/{name}], with `aiayn` commands --extension FOLDER/{name}"
            )
        found.append(_named[each].module.PARTS)
    return found
