"""Replacements and additions of extensions and callers in Python: module, callbacks, metrics, model
parts.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from traceback import walk_tb
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import (
    BatchSizeFinder,
    GradientAccumulationScheduler,
    LearningRateFinder,
    ProgressBar,
    StochasticWeightAveraging,
)

from aiayn.config.extensions import (
    IMPORTED_AS,
    Extension,
    Metrics,
    check_extensions,
    id_of_class,
    ids_of_builders,
    ids_of_files,
    metrics_of,
    register_extensions,
)
from aiayn.config.rules import one_of
from aiayn.config.schema import Config
from aiayn.config.tasks import TASKS
from aiayn.data.datamodule import TranslationDataModule
from aiayn.errors import ConfigError, RefusedError, UserError, summary_of
from aiayn.training.given import description
from aiayn.training.module import TranslationModule

log = logging.getLogger(__name__)

BRINGS = (
    "PARTS",
    "Module",
    "DataModule",
    "callbacks",
    "METRICS",
    "constraint",
)  # what a file may define
FINDERS = (
    "the rate follows equation (3), and a step has data.tokens_per_step tokens; sweep "
    "optim.peak_lr=0.0005,0.001, and if memory runs out, set data.max_tokens_per_device"
)
UNSUPPORTED: dict[type[pl.Callback], str] = {
    LearningRateFinder: FINDERS,
    BatchSizeFinder: FINDERS,
    GradientAccumulationScheduler: "a step is cut into micro-batches once; set data.micro_batches",
    ProgressBar: (
        "the run has its own display; leave it out, or set trainer.enable_progress_bar=false"
    ),
    StochasticWeightAveraging: (
        "it averages after the last checkpoint is saved; use EMAWeightAveraging("
        "use_buffers=False), or trainer.average_last for the mean of the last checkpoints"
    ),
}


@dataclass(frozen=True)
class Research:
    """The module that is trained, and what is added to it."""

    extensions: Sequence[Extension] = ()
    module: type[TranslationModule] = TranslationModule
    datamodule: type[TranslationDataModule] = TranslationDataModule
    callbacks: Sequence[pl.Callback] = ()  # instances, from Python

    @property
    def ids(self) -> list[str]:
        """Returns FILE:SHA-256 of all the code, as a run stores it."""
        ids = ids_of_files(self.extensions)
        for cls in dict.fromkeys([self.module, self.datamodule, *map(type, self.callbacks)]):
            if cls.__module__.partition(".")[0] not in ("aiayn", "pytorch_lightning", "lightning"):
                file_id = id_of_class(cls)
                ids += [file_id] if file_id not in ids else []
        return ids

    @property
    def metrics(self) -> Metrics:
        return metrics_of(self.extensions)

    def callbacks_of(self, run: Any) -> list[pl.Callback]:
        """Returns the instances and what functions of extensions make for this run. Raises
        ConfigError.
        """
        makers = [
            extension.module.callbacks
            for extension in self.extensions
            if hasattr(extension.module, "callbacks")
        ]
        callbacks = [*self.callbacks, *(callback for make in makers for callback in make(run))]
        refuse_unsupported(callbacks)
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
    extensions = register_extensions(options.extensions)
    # Before anything is written; those of extensions are made for a run
    refuse_unsupported(callbacks)
    research = Research(
        extensions,
        _chosen("Module", extensions, module) or TranslationModule,
        _chosen("DataModule", extensions, datamodule) or TranslationDataModule,
        tuple(callbacks),
    )
    warn_of_unused_code(research)
    ids = research.ids
    components = [part for part in (module, datamodule, *callbacks) if part is not None]
    descriptions = [description(component) for component in components]
    if options.extensions_sha256 not in ([], ids):
        raise RefusedError(
            f"extensions_sha256={options.extensions_sha256}: the files are {ids} now"
        )
    metrics = ["val/loss", TASKS[options.data.task].val_metric]
    metrics += [f"val/{name}" for name in research.metrics]
    one_of("trainer.best_metric", options.trainer.best_metric, tuple(metrics))
    parts = ids_of_builders(extensions, research.module)
    # `aiayn.train` has not checked it yet
    extension = check_extensions(options.extensions, options.extension)
    seen = (options.extensions_sha256, options.given, options.extension, options.model.parts)
    if seen != (ids, descriptions, extension, parts):
        model = replace(options.model, parts=parts)
        options = replace(
            options, extensions_sha256=ids, given=descriptions, extension=extension, model=model
        )
    return options, research


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
                "warning  %s.%s: only your own Trainer calls it",
                research.module.__name__,
                name,
            )


def refuse_unsupported(callbacks: Sequence[pl.Callback]) -> None:
    """Raises ConfigError for callbacks of Lightning that would change what a step is, or whose work
    would be lost.
    """
    for callback in callbacks:
        for unsupported, instead in UNSUPPORTED.items():
            if isinstance(callback, unsupported):
                raise ConfigError(f"{type(callback).__name__} is not supported: {instead}")


def refuse_other_optimization(module: TranslationModule) -> None:
    """Raises ConfigError for manual optimization, and has `configure_optimizers` raise it for
    several optimizers.
    """
    name, configure = type(module).__name__, module.configure_optimizers
    if not module.automatic_optimization:
        raise ConfigError(
            f"{name}: manual optimization is not supported (accumulation, clipping and resuming "
            "are by step); override training_loss and configure_optimizers"
        )

    def configure_one() -> Any:
        configured = configure()
        optimizers: Any = configured or []
        if not isinstance(optimizers, list | tuple):
            optimizers = [optimizers]
        if optimizers and isinstance(optimizers[0], list | tuple):  # then lists of schedules
            optimizers = optimizers[0]
        if len(optimizers) != 1:
            raise ConfigError(
                f"{name}: configure_optimizers returns {len(optimizers)} optimizers; return one, "
                "with parameter groups"
            )
        return configured

    module.configure_optimizers = configure_one


@contextmanager
def own_errors_explained() -> Iterator[None]:
    """Raises ConfigError with file and line for an error in the code of an extension."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        for frame, line in reversed([*walk_tb(error.__traceback__)]):
            if frame.f_globals.get("__name__", "").startswith(IMPORTED_AS):
                raise ConfigError(
                    f"extensions: {frame.f_code.co_filename}, line {line}: {summary_of(error)}; "
                    "debug=true shows the traceback"
                ) from error
        raise


def _chosen(name: str, extensions: Sequence[Extension], from_caller: type | None) -> Any:
    """Returns the class of this name that an extension or the caller brings. Raises ConfigError for
    two of them.
    """
    classes = [
        getattr(extension.module, name)
        for extension in extensions
        if hasattr(extension.module, name)
    ]
    classes += [from_caller] if from_caller else []
    if len(classes) > 1:
        raise ConfigError(
            f"extensions: two of them define a {name}; make one a subclass of the other, in one "
            "file"
        )
    return next(iter(classes), None)
