"""Describes what a caller in Python gave to a training: a run stores it, and runs with other
arguments differ.
"""

import enum
import functools
import hashlib
import inspect
import re
import types
import weakref
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import torch

from aiayn.runs.run_folder import UNKNOWN

LONGEST = 2000  # characters of a description; of a longer one its hash is stored
# In names of attributes: only a hash is stored
SECRET = re.compile("key|token|secret|passw|credential", re.IGNORECASE)
PLAIN = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    PurePath,
    enum.Enum,
    torch.dtype,
    torch.device,
    torch.Size,
)
_described: "weakref.WeakKeyDictionary[Any, str]" = weakref.WeakKeyDictionary()


def description(value: Any) -> str:
    """Returns class, attributes and closures of an object as text that is the same in every
    process.

    Raises nothing: `UNKNOWN` stands where something has no such text. An object that is given again
    keeps its first description: a training changes the state of callbacks.
    """
    try:
        text = _described.setdefault(value, _text(value, ()))
    except TypeError:  # no hash, or no weak references
        text = _text(value, ())
    return (
        text
        if len(text) <= LONGEST
        else f"{text[:80]}... {_sha256(text)}{UNKNOWN * (UNKNOWN in text)}"
    )


def _text(value: Any, within: tuple[int, ...]) -> str:
    if id(value) in within:
        return "..."
    within = (*within, id(value))
    if isinstance(value, PLAIN):
        return repr(value)
    if isinstance(value, torch.Tensor):
        return f"tensor({value.dtype}, {tuple(value.shape)}, {_sha256(str(value.tolist()))})"
    if isinstance(value, type):
        return _of_class(value, within)
    if isinstance(value, Mapping):
        entries = (f"{_text(key, within)}: {_text(value[key], within)}" for key in value)
        return f"{{{', '.join(entries)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_text(element, within) for element in value)}]"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(_text(element, within) for element in value))}}}"
    if isinstance(value, types.FunctionType):
        return _of_function(value, within)
    if isinstance(value, types.BuiltinFunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, types.MethodType):
        return f"{_text(value.__func__, within)} of {_text(value.__self__, within)}"
    if isinstance(value, functools.partial):
        return f"partial({_text([value.func, value.args, value.keywords], within)})"
    if not hasattr(value, "__dict__"):
        return UNKNOWN
    cls = type(value)
    is_library = cls.__module__.partition(".")[0] in ("torch", "pytorch_lightning", "lightning")
    name = _name(cls) if is_library else _of_class(cls, within)
    return f"{name}({_attributes(vars(value), within)})"


def _of_class(cls: type, within: tuple[int, ...]) -> str:
    """Describes a class by its name and what its functions close over; its code is stored by
    SHA-256 of its file.
    """
    closures = {
        name: attribute
        for name, attribute in vars(cls).items()
        if getattr(attribute, "__closure__", None)
    }
    values = {
        name: attribute
        for name, attribute in vars(cls).items()
        if isinstance(attribute, PLAIN) and not name.startswith("__")
    }
    return (
        f"{_name(cls)}({_attributes(values | closures, within)})"
        if values or closures
        else _name(cls)
    )


def _of_function(function: types.FunctionType, within: tuple[int, ...]) -> str:
    """Describes a function by its name, defaults and closure, and, unless it is a library's, by its
    code as well.
    """
    variables = inspect.getclosurevars(function).nonlocals
    parts: dict[str, Any] = {
        name: value for name, value in variables.items() if name != "__class__"
    }
    if function.__defaults__:
        parts["defaults"] = function.__defaults__
    if "site-packages" not in function.__code__.co_filename:
        parts["code"] = _sha256(_code(function.__code__))
    return f"{_name(function)}({_attributes(parts, within)})"


def _code(code: types.CodeType) -> str:
    constants = [
        _code(constant) if isinstance(constant, types.CodeType) else repr(constant)
        for constant in code.co_consts
    ]
    return f"{code.co_code.hex()} {constants} {code.co_names}"


def _attributes(values: Mapping[str, Any], within: tuple[int, ...]) -> str:
    texts = {name: _text(value, within) for name, value in sorted(values.items())}
    return ", ".join(
        f"{name}={_sha256(text) if SECRET.search(name) else text}" for name, text in texts.items()
    )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def _name(named: Any) -> str:
    return f"{named.__module__}.{named.__qualname__}"
