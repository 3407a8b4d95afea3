"""Chooses the engine, CTranslate2 if it supports model and options, else torch, and gives the
reason.

Nothing here imports torch before it is needed.
"""

import ctypes
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiayn.config.extensions import constraining, load_extensions, register_extensions
from aiayn.config.rules import at_least
from aiayn.config.search import SearchConfig, SearchOverrides
from aiayn.errors import ConfigError, RefusedError
from aiayn.search.fast_translator import (
    FastTranslator,
    converted_folder,
    fingerprint,
    read_converted,
)
from aiayn.search.line_translator import LineTranslator, require_gpus

if TYPE_CHECKING:
    from aiayn.config.extensions import Extension
    from aiayn.runs.checkpoints import Checkpoint
    from aiayn.search.translator import Translator


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What a command translates with."""

    checkpoints: Sequence[Path]  # several are an ensemble
    search: SearchOverrides
    engine: str = "auto"
    accelerator: str = "auto"
    precision: str = "float32"
    devices: int = 1
    extensions: Sequence[str] = ()
    only_torch: str | None = None  # why this command needs torch

    def __post_init__(self) -> None:
        at_least("devices", self.devices, 1, most=1000)


class _UnableError(Exception):
    """Says why CTranslate2 does not translate this."""


@contextmanager
def open_translator(choice: Choice) -> Iterator[tuple[LineTranslator, str]]:
    """Yields a translator, and a line that says which engine it is and why.

    Raises ConfigError for an engine that cannot do what is asked, RefusedError for a damaged
    checkpoint.
    """
    try:
        device = _device(choice)
        with tempfile.TemporaryDirectory(prefix="aiayn-") as temporary:
            made = _in_ctranslate2(choice, device, Path(temporary))
    except _UnableError as error:
        reason = error
    else:  # it has read its files: a signal that ends the command leaves none
        yield made, f"engine   CTranslate2, {choice.precision}, {device}"
        return
    if choice.engine == "ctranslate2":
        raise ConfigError(f"engine=ctranslate2: {reason}; choose torch or auto")
    if choice.precision == "int8":
        raise ConfigError(f"precision=int8: needs CTranslate2, but {reason}; choose float32")
    from aiayn.search.processes import on_devices
    from aiayn.search.translator import load_translator

    made_of, extensions = _made_of(choice)
    translator = load_translator(*made_of, extensions=extensions)
    line = f"engine   torch, {choice.precision}, {translator.device.type}: {reason}"
    with on_devices(translator, choice.devices, made_of, choice.extensions) as shared:
        yield shared, line


def _made_of(
    choice: Choice,
) -> "tuple[tuple[Checkpoint, SearchOverrides, str, str, list[Checkpoint]], list[Extension]]":
    """Registers the extensions. Returns the arguments of `load_translator`, and the extensions."""
    from aiayn.runs.checkpoints import load

    extensions = register_extensions(choice.extensions)
    first, *others = map(load, choice.checkpoints)
    precision = "float32" if choice.precision == "int8" else choice.precision
    return (first, choice.search, choice.accelerator, precision, others), extensions


def _device(choice: Choice) -> str:
    """Returns CTranslate2's device. Raises _UnableError for what it cannot do, as far as known
    without the model.
    """
    if choice.engine == "torch":
        raise _UnableError("torch was requested")
    if choice.only_torch:
        raise _UnableError(choice.only_torch)
    if constraining(load_extensions(choice.extensions)):
        raise _UnableError("an extension constrains the search")
    if len(choice.checkpoints) > 1:
        raise _UnableError("an ensemble needs torch")
    try:
        import ctranslate2
    except (ImportError, OSError) as error:
        raise _UnableError(f"CTranslate2 cannot be imported ({error!s:.100})") from error
    gpus = ctranslate2.get_cuda_device_count()
    if choice.accelerator == "gpu" and not gpus:
        raise _UnableError("CTranslate2 finds no GPU")
    device = "cuda" if gpus and choice.accelerator != "cpu" else "cpu"
    if device == "cuda":
        require_gpus(choice.devices, gpus)
        if not _load_cublas():
            remedy = "pip install nvidia-cublas-cu12"
            raise _UnableError(f"CTranslate2 finds no libcublas.so.12 ({remedy})")
    if choice.precision == "bfloat16":
        supported = ctranslate2.get_supported_compute_types(device)
        if "bfloat16" not in supported:
            raise _UnableError(f"CTranslate2 does not support bfloat16 on this {device}")
    return device


def _load_cublas() -> bool:
    """Loads libcublas, which CTranslate2 needs for its first product, also from where pip puts it.

    Returns whether it is there: torch for CUDA 13 brings another version.
    """
    if sys.platform != "linux":
        return True
    library = "libcublas.so.12"
    spec = find_spec("nvidia")
    locations = (spec and spec.submodule_search_locations) or ()
    for path in (library, *(f"{location}/cublas/lib/{library}" for location in locations)):
        with suppress(OSError):
            ctypes.CDLL(path)
            return True
    return False


def _in_ctranslate2(choice: Choice, device: str, temporary: Path) -> FastTranslator:
    """Returns a translator, with a model that is converted if it was not yet. Raises
    _UnableError.
    """
    [path] = choice.checkpoints
    stamp, folder = fingerprint(path), converted_folder(path)
    about = read_converted(folder, path)
    if about is None:
        folder, about = _convert(choice, path, temporary)
    search = choice.search.apply(SearchConfig(**about["search"]))
    if search.beam_size > 1 and search.patience is None:
        raise _UnableError("an exact search (search.patience=0 or null) needs torch")

    def in_torch() -> "Translator":
        from aiayn.search.translator import load_translator

        if fingerprint(path) != stamp:
            raise RefusedError(f"{path}: has been replaced since this command began; run it again")
        made_of, extensions = _made_of(choice)
        return load_translator(*made_of, extensions=extensions)

    try:
        return FastTranslator(
            folder, about, search, device, choice.precision, choice.devices, in_torch
        )
    except RuntimeError as error:  # such as a GPU without its libraries
        raise _UnableError(f"CTranslate2 fails ({error!s:.200})") from error


def _convert(choice: Choice, path: Path, temporary: Path) -> tuple[Path, dict[str, Any]]:
    """Returns the folder of the converted model and its settings: a temporary folder where none can
    be written, and for a model that a user's code builds, which may have changed the next time.

    Raises _UnableError for a model that cannot be converted.
    """
    from aiayn.search.build import load_model
    from aiayn.search.convert import why_not_converted, write_converted

    (checkpoint, *_), _ = _made_of(choice)
    model = load_model(checkpoint)
    if reason := why_not_converted(model):
        raise _UnableError(f"CTranslate2 does not support {reason}")
    if checkpoint.config.model.parts is None:
        with suppress(OSError):  # a folder that only its owner may write, or a full disk
            return write_converted(path, checkpoint, model)
    return write_converted(path, checkpoint, model, temporary / "model")
