"""Options left to the program, null in the configuration: sizes and steps that fit the text.

They are settled when a run first starts, printed with their reason, and stored with the run, which continues with them.
"""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from aiayn.config.rules import options_of, require
from aiayn.config.schema import Config
from aiayn.errors import ConfigError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fit:
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


# Models, vocabularies and epochs are about those published for Multi30k (29,000 pairs; Wu et al. 2021), IWSLT14
# (160,000 pairs) and WMT14 (4.5 M pairs); the vocabulary of the smallest texts is that of Sennrich and Zhang (2019).
FITS = (
    Fit(20_000, 100, 2000, 2048, n_layers=4, d_model=128, d_ff=256, n_heads=4, dropout=0.3),
    Fit(100_000, 100, 8000, 4096, n_layers=4, d_model=128, d_ff=256, n_heads=4, dropout=0.3),
    Fit(1_000_000, 40, 10_000, 8192, n_layers=6, d_model=512, d_ff=1024, n_heads=4, dropout=0.3),
    Fit(math.inf, 20, 37_000, 25_000, n_layers=6, d_model=512, d_ff=2048, n_heads=8, dropout=0.1),
)
MAX_STEPS, MAX_WARMUP, MAX_INTERVAL = 100_000, 4000, 1500  # base's values
MIN_VALIDATION = 250  # steps; more often, validation with its translations would take longer than training itself


def fit(pairs: int) -> Fit:
    """Returns the row of FITS for a number of training pairs."""
    return next(row for row in FITS if pairs <= row.pairs)


def usual_steps(pairs: int, steps_per_epoch: int) -> int:
    """Steps of the usual number of epochs, to two digits."""
    return min(MAX_STEPS, int(float(f"{fit(pairs).epochs * steps_per_epoch:.2g}")))


def usual_peak(d_model: int) -> float:
    """The highest rate of base, 0.0007 at d_model 512, in proportion to 1 / d_model: 0.0028 at 128, as for Multi30k."""
    return (512 * 4000) ** -0.5 * 512 / d_model


def sizes_of(row: Fit) -> dict[str, Any]:
    """Returns the model of a row of FITS by dotted names."""
    return {f"model.{name}": getattr(row, name) for name in ("n_layers", "d_model", "d_ff", "n_heads", "dropout")}


def check_open_model(options: Config) -> None:
    """Raises ConfigError if the sizes that are given fit no model that the text could choose."""
    if not any(key.startswith("model.") for key in open_options(options)):
        return
    message = ""
    for row in FITS:
        try:
            fill(options, sizes_of(row))
            return
        except ConfigError as error:
            message = str(error)
    raise ConfigError(f"{message} (of the models that the text can choose, this is the largest)")


def open_options(options: Config) -> set[str]:
    """Returns the options that are null and still to be settled."""
    inferred = [key for key, option in options_of(Config).items() if option.metadata["inferred_from_data"]]
    return {key for key in inferred if attrgetter(key)(options) is None}


def fill(options: Config, values: Mapping[str, Any], reason: str | None = None) -> Config:
    """Returns the options, those that are open set to these values by dotted name; a reason is printed with them."""
    still_open = open_options(options)
    chosen = {key: value for key, value in values.items() if key in still_open}
    if reason and chosen:
        log.info("fitted   to %s: %s", reason, " ".join(f"{key}={value}" for key, value in chosen.items()))
    sections: dict[str, dict[str, Any]] = {}
    for key, value in chosen.items():
        section, _, name = key.partition(".")
        sections.setdefault(section, {})[name] = value
    return replace(options, **{name: replace(getattr(options, name), **of) for name, of in sections.items()})


def settle_sizes(options: Config, count_pairs: Callable[[], int]) -> Config:
    """Settles vocabulary, tokens per step and model by the number of training pairs, which is counted if it matters."""
    if any(key.startswith(("model.", "data.")) for key in open_options(options)):
        pairs = count_pairs()
        row = fit(pairs)
        values = sizes_of(row)
        # A small text cannot fill a large vocabulary.
        values["data.vocab_size"] = min(row.vocab_size, max(300, pairs // 2))
        values["data.tokens_per_step"] = max(row.tokens_per_step, options.data.max_length + 1)
        options = fill(options, values, f"{pairs:,} pairs")
    return options


def settle_steps(sized: Config, pairs: int, steps_per_epoch: int) -> Config:
    """Settles the number of steps, the warm-up, the learning rate and the intervals."""
    epochs = f"{fit(pairs).epochs} epochs"
    options = fill(sized, {"trainer.max_steps": usual_steps(pairs, steps_per_epoch)}, epochs)
    steps = options.trainer.max_steps
    values = {
        "optim.warmup_steps": max(1, min(MAX_WARMUP, steps // 10)),
        "trainer.val_every": min(MAX_INTERVAL, max(steps // 20, min(steps, MIN_VALIDATION))),
        "trainer.checkpoint_every": max(1, min(MAX_INTERVAL, steps // 50)),
    }
    options = fill(options, values, f"{steps:,} steps")
    warmup, d_model = options.optim.warmup_steps, sized.model.d_model
    if options.optim.peak_lr is not None:
        scale = float(f"{options.optim.peak_lr * (d_model * warmup) ** 0.5:.6g}")
        return settled(replace(options, optim=replace(options.optim, lr_scale=scale)))
    # Equation (3) with lr_scale 1 has its peak at (d_model * warmup)^-0.5.
    peak = usual_peak(d_model)
    scale = float(f"{peak * (d_model * warmup) ** 0.5:.3g}")
    reason = f"d_model and warm-up, for a peak learning rate of {peak:.2g}"
    return settled(fill(options, {"optim.lr_scale": scale}, reason))


def settled(options: Config) -> Config:
    """Returns options of which none is open. Raises ConfigError, which names those that are."""
    unsettled = sorted(open_options(options))
    require(not unsettled, f"options that have no value yet: {', '.join(unsettled)}")
    return replace(options, name=options.run_name)
