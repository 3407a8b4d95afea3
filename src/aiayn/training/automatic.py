"""Options left to the program, null in the configuration: sizes and steps that fit the text.

They are settled when a run first starts, printed with their reason, and stored with the run, which continues with them.
"""

import logging
import math
from dataclasses import dataclass
from typing import Any

from aiayn.config.options import automatic_options, settle
from aiayn.config.schema import Config
from aiayn.model.flops import n_parameters
from aiayn.training.schedule import learning_rate, usual_peak

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fit:
    """Options that fit a text of at most so many pairs."""

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
MAX_STEPS, MAX_WARMUP, MAX_INTERVAL = 100_000, 4000, 1500  # those of base


def fit(pairs: int) -> Fit:
    """Returns the row of FITS for a number of training pairs."""
    return next(row for row in FITS if pairs <= row.pairs)


def settle_sizes(config: Config, pairs: int) -> Config:
    """Returns the configuration with vocabulary, tokens per step and model settled by the number of training pairs."""
    row = fit(pairs)
    values = {f"model.{name}": getattr(row, name) for name in ("n_layers", "d_model", "d_ff", "n_heads", "dropout")}
    # A small text cannot fill a large vocabulary.
    values["data.vocab_size"] = min(row.vocab_size, max(300, pairs // 2))
    values["data.tokens_per_step"] = max(row.tokens_per_step, config.data.max_length + 1)
    return _settle(config, values, f"{pairs:,} pairs")


def settle_steps(config: Config, pairs: int, steps_per_epoch: int) -> Config:
    """Returns the configuration with the number of steps, warm-up, learning rate and intervals settled."""
    epochs = fit(pairs).epochs
    config = _settle(config, {"trainer.max_steps": _usual_steps(pairs, steps_per_epoch)}, f"{epochs} epochs")
    steps = config.trainer.max_steps
    values = {
        "optim.warmup_steps": max(1, min(MAX_WARMUP, steps // 10)),
        "trainer.val_every": max(1, min(MAX_INTERVAL, steps // 20)),
        "trainer.checkpoint_every": max(1, min(MAX_INTERVAL, steps // 50)),
    }
    config = _settle(config, values, f"{steps:,} steps")
    # A shorter warm-up must not raise the peak.
    warmup, d_model, peak = config.optim.warmup_steps, config.model.d_model, usual_peak(config.model.d_model)
    scale = float(f"{peak / learning_rate(warmup, d_model, warmup):.3g}")
    return _settle(config, {"optim.lr_scale": scale}, f"d_model and warm-up, for a peak learning rate of {peak:.2g}")


def _settle(config: Config, values: dict[str, Any], reason: str) -> Config:
    """Sets those of the values whose options are null, and says so."""
    open_options = automatic_options(config)
    chosen = {key: value for key, value in values.items() if key in open_options}
    if not chosen:
        return config
    log.info("fitted   to %s: %s", reason, " ".join(f"{key}={value}" for key, value in chosen.items()))
    return settle(config, chosen)


def _usual_steps(pairs: int, steps_per_epoch: int) -> int:
    """Steps of the usual number of epochs, to two digits."""
    return min(MAX_STEPS, int(float(f"{fit(pairs).epochs * steps_per_epoch:.2g}")))


def misfits(config: Config, pairs: int, steps_per_epoch: int, vocab_size: int) -> list[str]:
    """Returns a line for each option that does not fit the text or the other options, with the remedy."""
    trainer, found = config.trainer, []
    epochs, usual = trainer.max_steps / steps_per_epoch, _usual_steps(pairs, steps_per_epoch)
    if epochs > 5 * fit(pairs).epochs:
        found.append(
            f"trainer.max_steps={trainer.max_steps} is {epochs:,.0f} epochs of these {pairs:,} pairs; usual are "
            f"{fit(pairs).epochs}: trainer.max_steps={usual}"
        )
    if config.optim.warmup_steps >= trainer.max_steps:
        found.append(
            f"optim.warmup_steps={config.optim.warmup_steps}: the learning rate rises to the last step "
            f"(trainer.max_steps={trainer.max_steps}); a tenth of the steps is usual"
        )
    if trainer.val_every > trainer.max_steps:
        found.append(f"trainer.val_every={trainer.val_every}: validated at the last step only ({trainer.max_steps})")
    n = n_parameters(config.model, vocab_size)
    if n > 1000 * pairs and pairs > FITS[0].pairs / 10:
        found.append(f"a model of {n / 1e6:.0f} M parameters is large for {pairs:,} pairs: model=auto chooses one")
    return found
