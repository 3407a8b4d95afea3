"""Replacements and additions of extensions and callers in Python: module, callbacks, metrics, model
parts. A run stores what callers gave, and runs with other arguments differ.
"""

import enum
import functools
import hashlib
import inspect
import logging
import re
import sys
import types
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import PurePath
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import (
    BatchSizeFinder,
    GradientAccumulationScheduler,
    LearningRateFinder,
    ModelPruning,
    ProgressBar,
    StochasticWeightAveraging,
)

from aiayn.config.extensions import (
    Extension,
    Metrics,
    check_extensions,
    code_of_class,
    file_names,
    ids_of_builders,
    ids_of_classes,
    ids_of_files,
    metrics_of,
    register_extensions,
    sources_of,
)
from aiayn.config.rules import one_of
from aiayn.config.schema import Config
from aiayn.config.tasks import TASKS
from aiayn.data.datamodule import TranslationDataModule
from aiayn.errors import ConfigError, RefusedError
from aiayn.runs.run_folder import UNKNOWN
from aiayn.training.module import TranslationModule

log = logging.getLogger(__name__)

# What a file may define
BRINGS = ("PARTS", "Module", "DataModule", "callbacks", "METRICS", "constraint")
FINDERS = (
    "the rate follows equation (3), and a step has data.tokens_per_step tokens; sweep "
    "optim.peak_lr=0.0005,0.001, and if memory runs out, set data.max_tokens_per_device"
)
UNSUPPORTED: dict[type[pl.Callback], str] = {
    LearningRateFinder: FINDERS,
    BatchSizeFinder: FINDERS,
    GradientAccumulationScheduler: "a step is cut into micro-batches once; set data.micro_batches",
    ProgressBar: (
        "the run has its own display (trainer.enable_progress_bar); leave the callback out"
    ),
    StochasticWeightAveraging: (
        "it averages after the last checkpoint is saved; use EMAWeightAveraging("
        "use_buffers=False), or trainer.average_last for the mean of the last checkpoints"
    ),
    ModelPruning: "its masks are not restored from a checkpoint; mask weights inside a part",
}


LONGEST = 2000  # characters of a description; of a longer one its hash is stored
# In names of attributes: only a hash is stored
SECRET = re.compile("key|token|secret|passw|credential", re.IGNORECASE)
PLAIN = (
    *(types.NoneType, bool, int, float, complex, str, bytes, PurePath, enum.Enum),
    *(torch.dtype, torch.device, torch.Size),
)
VALUES = (*PLAIN, Mapping, list, tuple, set, frozenset, torch.Tensor, functools.partial)
LIBRARIES = ("aiayn", "torch", "pytorch_lightning", "lightning", "lightning_fabric")
_described: "weakref.WeakKeyDictionary[Any, str]" = weakref.WeakKeyDictionary()
# Class -> its description for a training, and its text afterwards
_trained: "weakref.WeakKeyDictionary[type, tuple[str, str]]" = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Research:
    """The module that is trained, and what is added to it."""

    extensions: Sequence[Extension] = ()
    module: type[TranslationModule] = TranslationModule
    datamodule: type[TranslationDataModule] = TranslationDataModule
    callbacks: Sequence[pl.Callback] = ()  # instances, from Python
    metrics: Metrics = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)  # FILE:SHA-256 of all the code, as a run stores it
    sources: Mapping[str, bytes] = field(default_factory=dict)  # the files, as a run copies them
    # Of the files with this code, and of Lightning's classes, as messages name them
    file_names: Sequence[str] = ()

    def callbacks_of(self, run: Any) -> list[pl.Callback]:
        """Returns the instances and what functions of extensions make for this run. Raises
        ConfigError.
        """
        callbacks = list(self.callbacks)
        for extension in self.extensions:
            if hasattr(extension.module, "callbacks"):
                own = list(extension.module.callbacks(run))
                refuse_unsupported(own)
                callbacks += own
        return callbacks


def research_of(
    options: Config,
    module: type[TranslationModule] | None,
    datamodule: type[TranslationDataModule] | None,
    callbacks: Sequence[pl.Callback],
) -> tuple[Config, Research]:
    """Imports the files that `extensions` names. Returns the options with their ids, and what they
    bring.

    Raises ConfigError for files that fail or contradict each other, RefusedError for a file that is
    not the one that `extensions_sha256` names.
    """
    if isinstance(callbacks, pl.Callback):
        raise ConfigError(f"callbacks: {callbacks!r:.80} is not a list; pass a list of callbacks")
    components = [*filter(None, (module, datamodule)), *callbacks]
    extensions = register_extensions(options.extensions)
    # Before anything is written; those of extensions are made for a run
    refuse_unsupported(callbacks)
    research = _combined(extensions, module, datamodule, callbacks)
    warn_of_unused_code(research)
    if options.extensions_sha256 not in ([], research.ids):
        raise RefusedError(
            f"extensions_sha256={options.extensions_sha256}: the files have changed to "
            f"{research.ids}; restore them, or leave out extensions_sha256"
        )
    metrics = ["val/loss", TASKS[options.data.task].val_metric]
    metrics += [f"val/{name}" for name in research.metrics]
    one_of("trainer.best_metric", options.trainer.best_metric, tuple(metrics))
    parts = ids_of_builders(extensions, research.module)
    stored = {
        "extensions_sha256": research.ids,
        "given": [description(component) for component in components],
        # `aiayn.train` has not checked it yet
        "extension": check_extensions(options.extensions, options.extension),
        "model": replace(options.model, parts=parts),
    }
    if stored != {name: getattr(options, name) for name in stored}:
        options = replace(options, **stored)
    return options, research


def _combined(
    extensions: Sequence[Extension],
    module: type[TranslationModule] | None,
    datamodule: type[TranslationDataModule] | None,
    callbacks: Sequence[pl.Callback],
) -> Research:
    """Returns what extensions and a caller bring. Raises ConfigError for what only one of them
    may.
    """
    module_class = _chosen("Module", extensions, module) or TranslationModule
    data_class = _chosen("DataModule", extensions, datamodule) or TranslationDataModule
    for cls, base in ((module_class, TranslationModule), (data_class, TranslationDataModule)):
        if not (isinstance(cls, type) and issubclass(cls, base)):
            raise ConfigError(f"{cls!r:.80} is not a subclass of {base.__name__}; pass the class")
    from_caller = [*filter(None, (module, datamodule)), *map(type, callbacks)]
    own_classes = [cls for cls in from_caller if not is_library(cls)]
    ids = list(dict.fromkeys([*ids_of_files(extensions), *ids_of_classes(own_classes)]))
    return Research(
        extensions,
        module_class,
        data_class,
        callbacks,
        metrics_of(extensions),
        ids,
        sources_of(extensions, own_classes),
        file_names(",".join(ids)) + [cls.__name__ for cls in from_caller if is_library(cls)],
    )


def warn_of_unused_code(research: Research) -> None:
    """Warns of files that define nothing for a training, and of methods that it never calls."""
    for extension in research.extensions:
        if not any(hasattr(extension.module, name) for name in BRINGS):
            log.warning(
                "warning  extensions: %s has no effect: it defines none of %s",
                extension.path,
                ", ".join(BRINGS),
            )
    for name in ("forward", "predict_step"):
        if getattr(research.module, name) is not getattr(TranslationModule, name):
            log.warning(
                "warning  %s.%s: not called here, only by a Trainer of your own",
                research.module.__name__,
                name,
            )


def refuse_unsupported(callbacks: Sequence[pl.Callback]) -> None:
    """Raises ConfigError for callbacks of Lightning that would change what a step is, or whose work
    would be lost, and for objects that are not callbacks.
    """
    for callback in callbacks:
        if not isinstance(callback, pl.Callback):
            raise ConfigError(
                f"callbacks: {callback!r:.80} is not a Lightning Callback; leave it out"
            )
    for callback, (unsupported, instead) in product(callbacks, UNSUPPORTED.items()):
        if isinstance(callback, unsupported):
            raise ConfigError(f"{type(callback).__name__} is not supported: {instead}")


def refuse_manual_optimization(module: pl.LightningModule) -> None:
    """Raises ConfigError for a module that steps its optimizer itself."""
    if not module.automatic_optimization:
        raise ConfigError(
            f"{type(module).__name__}: manual optimization is not supported (accumulation, "
            "clipping and resuming are by step); override training_loss and configure_optimizers"
        )


def _chosen(name: str, extensions: Sequence[Extension], from_caller: type | None) -> Any:
    """Returns the class of this name that an extension or the caller brings. Raises ConfigError for
    two of them.
    """
    modules = [extension.module for extension in extensions]
    classes = [getattr(module, name) for module in modules if hasattr(module, name)]
    classes += [from_caller] if from_caller else []
    if len(classes) > 1:
        raise ConfigError(
            f"extensions: two of them define a {name}; make one a subclass of the other, in one "
            "file"
        )
    return next(iter(classes), None)


def description(component: Any) -> str:
    """Returns class, attributes and closures of an object as text that is the same in every
    process.

    Raises nothing: `UNKNOWN` stands where something has no such text. An object that is given again
    keeps its first description, as a training changes the state of callbacks; so does a class,
    unless its user has changed it since.
    """
    if isinstance(component, type):
        text = _text(component, ())
        first_text, trained_text = _trained.get(component, ("", ""))
        if text == trained_text:
            return first_text
    else:
        text = None
        with suppress(TypeError):  # no hash, or no weak references
            text = _described.get(component)
        if text is None:
            text = _text(component, ())
            with suppress(TypeError):
                # Later, a callback holds its Trainer, which holds everything
                _described[component] = text
    if len(text) <= LONGEST:
        return text
    return f"{text[:80]}... {_sha256(text)}{UNKNOWN * (UNKNOWN in text)}"


def keep_description(cls: type, first_text: str) -> None:
    """Notes how a training leaves a class that was described like this before it: what a training
    assigns to its class is no change by the user.
    """
    _trained[cls] = first_text, _text(cls, ())


def _text(value: Any, within: tuple[int, ...]) -> str:
    """Describes a value; those that contain it are `within`, by id."""
    if isinstance(value, PLAIN):
        return repr(value)
    if id(value) in within:
        return "..."
    within = (*within, id(value))
    if isinstance(value, torch.Tensor):
        return f"tensor({value.dtype}, {tuple(value.shape)}, {_sha256(str(value.tolist()))})"
    if isinstance(value, Mapping):
        entries = (f"{_text(key, within)}: {_text(value[key], within)}" for key in value)
        return f"{{{', '.join(entries)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_text(element, within) for element in value)}]"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(_text(element, within) for element in value))}}}"
    if isinstance(value, types.MethodType):
        return f"{_text(value.__func__, within)} of {_text(value.__self__, within)}"
    if isinstance(value, functools.partial):
        return f"partial({_text([value.func, value.args, value.keywords], within)})"
    if isinstance(value, type):  # its code is stored by SHA-256 of its file
        members = _members(value)
        name = _name(value)
        return f"{name}({_attributes(members, within)})" if members else name
    if isinstance(value, types.FunctionType):
        members = dict(inspect.getclosurevars(value).nonlocals)
        members.pop("__class__", None)
        if value.__defaults__:
            members["defaults"] = value.__defaults__
        if value.__kwdefaults__:
            members["named defaults"] = value.__kwdefaults__
        if "site-packages" not in value.__code__.co_filename:
            members["code"] = _sha256(_code(value.__code__))
        return f"{_name(value)}({_attributes(members, within)})"
    if isinstance(value, types.BuiltinFunctionType):
        return _name(value)
    if isinstance(value, types.ModuleType):  # such as all of numpy
        return repr(value.__name__)
    if isinstance(value, logging.Logger):  # which holds all others
        return repr(value.name)
    if not hasattr(value, "__dict__"):
        return UNKNOWN
    cls = type(value)
    class_name = _name(cls) if is_library(cls) else _text(cls, within)
    attributes = dict(vars(value))
    if within[1:] and not is_library(cls) and (sources := code_of_class(cls)[1]):
        attributes["code"] = _sha256(str(sources))  # its file is not among those of the run
    # Slots, or a state in C: there is more than its attributes
    hidden = UNKNOWN if cls.__basicsize__ > Research.__basicsize__ else ""
    return f"{class_name}({_attributes(attributes, within)}){hidden}"


def _members(cls: type) -> dict[str, Any]:
    """Returns what the body of a class, and of those above it that are the user's, does not tell,
    as it may have been computed: values, functions with closures or from elsewhere.
    """
    members: dict[str, Any] = {}
    for base in cls.__mro__:
        if is_library(base) or base.__module__.partition(".")[0] in sys.stdlib_module_names:
            continue
        for name, member in vars(base).items():
            if isinstance(member, functools.cached_property):
                member = member.func
            # Of a static or class method, and of a property
            member = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
            is_written_here = getattr(member, "__qualname__", "").startswith(base.__qualname__)
            is_value = not (is_written_here or name.startswith("__") or name == "_abc_impl")
            has_closure = bool(getattr(member, "__closure__", None))
            if has_closure or (is_value and not inspect.isdatadescriptor(member)):
                members[name if base is cls else f"{base.__qualname__}.{name}"] = member
    return members


def _name(named: Any) -> str:
    return f"{named.__module__}.{named.__qualname__}"


def _attributes(values: Mapping[str, Any], within: tuple[int, ...]) -> str:
    texts = {name: _text(value, within) for name, value in sorted(values.items())}
    return ", ".join(
        f"{name}={_sha256(text) if SECRET.search(name) else text}" for name, text in texts.items()
    )


def _code(code: types.CodeType) -> str:
    constants = []
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            constants.append(_code(constant))
        elif isinstance(constant, frozenset):  # each process has an order of its own
            constants.append(str(sorted(map(repr, constant))))
        else:
            constants.append(repr(constant))
    return f"{code.co_code.hex()} {constants} {code.co_names}"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def is_library(cls: type) -> bool:
    """Returns whether a class comes with this program, torch or Lightning."""
    return cls.__module__.partition(".")[0] in LIBRARIES
