"""Resolves options that are null in the configuration: sizes and steps that fit the text.

They are inferred when a run first starts, printed with their reason, and stored with the run, which
continues with them.
"""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, TypeVar, get_type_hints

from aiayn.config.data import DataConfig
from aiayn.config.model import ModelConfig
from aiayn.config.rules import is_section, options_of, require
from aiayn.config.schema import Config
from aiayn.config.training import OptimConfig, TrainerConfig
from aiayn.errors import ConfigError, counted

log = logging.getLogger(__name__)
T = TypeVar("T", bound=Config)


@dataclass(frozen=True)
class SizePreset:
    """Options that fit a text of at most `pairs` pairs."""

    pairs: float
    epochs: int
    vocab_size: int
    tokens_per_step: int
    n_layers: int
    d_model: int
    d_ff: int
    n_heads: int
    dropout: float


# Models, vocabularies and epochs are about those published for Multi30k (29,000 pairs; Wu et al.
# 2021), IWSLT14 (160,000 pairs) and WMT14 (4.5 M pairs); the vocabulary of the smallest texts is
# that of Sennrich and Zhang (2019).
SIZE_PRESETS = (
    SizePreset(20_000, 100, 2000, 2048, n_layers=4, d_model=128, d_ff=256, n_heads=4, dropout=0.3),
    SizePreset(100_000, 100, 8000, 4096, n_layers=4, d_model=128, d_ff=256, n_heads=4, dropout=0.3),
    SizePreset(
        1_000_000, 40, 10_000, 8192, n_layers=6, d_model=512, d_ff=1024, n_heads=4, dropout=0.3
    ),
    SizePreset(
        math.inf, 20, 37_000, 25_000, n_layers=6, d_model=512, d_ff=2048, n_heads=8, dropout=0.1
    ),
)
MAX_STEPS, MAX_WARMUP, MAX_INTERVAL = 100_000, 4000, 1500  # base's values
# steps; more often, validation with its translations would take longer than training itself
MIN_VALIDATION = 250


def preset_for(pairs: int) -> SizePreset:
    """Returns the preset for a number of training pairs."""
    return next(preset for preset in SIZE_PRESETS if pairs <= preset.pairs)


def usual_steps(pairs: int, steps_per_epoch: int) -> int:
    """Returns the steps of the usual number of epochs, rounded to two digits."""
    return min(MAX_STEPS, int(float(f"{preset_for(pairs).epochs * steps_per_epoch:.2g}")))


def usual_peak(d_model: int) -> float:
    """Returns the highest rate of base, 0.0007 at d_model 512, in proportion to 1 / d_model: 0.0028
    at 128, as for Multi30k.
    """
    return (512 * 4000) ** -0.5 * 512 / d_model


def model_of(preset: SizePreset) -> dict[str, Any]:
    """Returns the model of a preset by dotted names."""
    return {
        f"model.{name}": getattr(preset, name)
        for name in ("n_layers", "d_model", "d_ff", "n_heads", "dropout")
    }


def check_open_model(options: Config) -> None:
    """Raises ConfigError if the given sizes fit none of the models that could be inferred from the
    text.
    """
    refusal = None
    for preset in SIZE_PRESETS:
        try:
            sizes = _of_open(options, model_of(preset))
            by_name = {key.removeprefix("model."): sizes[key] for key in sizes}
            replace(options.model, **by_name)
            return
        except ConfigError as error:
            refusal = error
    raise ConfigError(f"{refusal} (for the largest model that data=files can choose)")


def open_options(options: Config) -> set[str]:
    """Returns the options that are null and still to be inferred."""
    return {
        key
        for key, option in options_of(Config).items()
        if option.metadata["inferred_from_data"] and attrgetter(key)(options) is None
    }


def fill(options: Config, values: Mapping[str, Any]) -> Config:
    """Returns the options, those that are open set to these values by dotted name."""
    return _rebuilt(Config, options, _of_open(options, values))


def _of_open(options: Config, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those of the values whose options are open."""
    still_open = open_options(options)
    return {key: value for key, value in values.items() if key in still_open}


def _log_inferred(values: Mapping[str, Any], reason: str) -> None:
    if values:
        pairs = " ".join(f"{key}={value}" for key, value in values.items())
        log.info("fitted   to %s: %s", reason, pairs)


class SizedConfig(Config):
    """Options whose model and vocabulary are known."""

    model: ModelConfig
    data: DataConfig


class RunConfig(SizedConfig):
    """The configuration of one start of a run. It is only read: every option has its value, and the
    run a name.
    """

    optim: OptimConfig
    trainer: TrainerConfig


def infer_sizes(
    options: Config,
    count_pairs: Callable[[], int],
    supported_vocab_size: Callable[[int], int] = int,
) -> SizedConfig:
    """Returns the options with vocabulary, tokens per step and model; reads the training text if
    that matters. `supported_vocab_size` returns a size, or a smaller one that the text supports.
    """
    inferred: dict[str, Any] = {}
    if any(key.startswith(("model.", "data.")) for key in open_options(options)):
        pairs = count_pairs()
        preset = preset_for(pairs)
        values = model_of(preset)
        # A small text cannot fill a large vocabulary, a repetitive one not even a small one.
        size = min(preset.vocab_size, max(300, pairs // 2))
        if options.data.vocab_size is None and (supported := supported_vocab_size(size)) < size:
            log.info("fitted   to a text of few different words: data.vocab_size=%d", supported)
            size = supported
        values["data.vocab_size"] = size
        values["data.tokens_per_step"] = max(preset.tokens_per_step, options.data.max_length + 1)
        inferred = _of_open(options, values)
        _log_inferred(inferred, counted(pairs, "pair"))
    return _rebuilt(SizedConfig, options, inferred)


def _rebuilt(schema: type[T], options: Config, values: Mapping[str, Any]) -> T:
    """Returns the options as an instance of `schema`, which may have other classes for its
    sections, with these values by dotted name.
    """
    sections = dict(vars(options))
    for name, section_class in get_type_hints(schema).items():
        prefix = f"{name}."
        changed = {
            key.removeprefix(prefix): value
            for key, value in values.items()
            if key.startswith(prefix)
        }
        if changed or (is_section(section_class) and section_class is not type(sections[name])):
            sections[name] = section_class(**vars(sections[name]) | changed)
    return schema(**sections)


def resolve(options: SizedConfig, pairs: int, steps_per_epoch: int) -> RunConfig:
    """Infers steps, warm-up, learning rate and intervals, and returns the configuration of a run
    on a prepared text of so many pairs.

    Raises ConfigError for options that have no value yet, and for values that contradict each
    other.
    """
    trainer, optim = options.trainer, options.optim
    last_step = trainer.last_step(steps_per_epoch)
    steps = last_step or usual_steps(pairs, steps_per_epoch)
    if last_step is None:
        log.info("fitted   to %d epochs: trainer.max_steps=%d", preset_for(pairs).epochs, steps)
    usual_warmup = max(1, min(MAX_WARMUP, steps // 10))
    shortest = min(steps, MIN_VALIDATION)
    intervals = {
        "optim.warmup_steps": usual_warmup,
        "trainer.val_every": min(MAX_INTERVAL, max(steps // 20, shortest)),
        "trainer.checkpoint_every": max(1, min(MAX_INTERVAL, steps // 50)),
    }
    inferred = _of_open(options, intervals)
    _log_inferred(inferred, counted(steps, "step"))
    warmup = optim.warmup_steps or usual_warmup
    # Equation (3) with lr_scale 1 has its peak at (d_model * warmup)^-0.5.
    d_model, scale = options.model.d_model, optim.lr_scale
    if optim.peak_lr is not None:
        scale = float(f"{optim.peak_lr * (d_model * warmup) ** 0.5:.6g}")
    elif scale is None:
        peak = usual_peak(d_model)
        scale = float(f"{peak * (d_model * warmup) ** 0.5:.3g}")
        reason = f"d_model and warm-up, for a peak learning rate of {peak:.2g}"
        _log_inferred({"optim.lr_scale": scale}, reason)
    inferred |= {"trainer.max_steps": steps, "optim.lr_scale": scale}
    return _rebuilt(RunConfig, options, inferred)


def run_config(options: Config) -> RunConfig:
    """Returns the options as those of a run. Raises ConfigError if any is open."""
    if isinstance(options, RunConfig):
        return options
    unset = sorted(open_options(options))
    require(not unset, f"unset options: {', '.join(unset)}")
    options.run_name  # noqa: B018  (raises ConfigError without one)
    return _rebuilt(RunConfig, options, {})
