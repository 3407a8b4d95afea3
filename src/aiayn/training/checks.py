"""Fail-fast checks: what would otherwise end a training late, or with a traceback."""

from aiayn.config.model import ModelConfig
from aiayn.config.schema import Config
from aiayn.config.settle import FITS, fit, usual_steps
from aiayn.data.corpus import PreparedCorpus
from aiayn.data.sources import text_of
from aiayn.errors import ConfigError, DataError
from aiayn.hardware import gpu_memory, machine_memory
from aiayn.model.flops import n_parameters

FEW_PAIRS = 5000


def check_size(model: ModelConfig, vocab_size: int, accelerator: str = "cpu") -> None:
    """Raises ConfigError for a model whose weights exceed this machine's memory: building it would fail, or hang.

    On a GPU, weights, gradients and Adam's two moments must fit its memory.
    """
    n, memory, what = n_parameters(model, vocab_size), machine_memory(), ", and this machine has"
    copies = 1
    if accelerator == "gpu" and 4 * n <= memory:
        copies, memory, what = 4, gpu_memory(), " with gradients and Adam's moments, and this GPU has"
    if 4 * copies * n > memory:
        names = ["n_layers", "n_decoder_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v"]
        if model.positions == "learned":
            names.append("max_positions")
        sizes = [f"model.{name}={getattr(model, name)}" for name in names if getattr(model, name) is not None]
        raise ConfigError(
            f"model: its {n / 1e9:,.1f} billion parameters take {4 * copies * n / 1e9:,.0f} GB{what} "
            f"{memory / 1e9:,.0f}; lower the largest of {', '.join(sizes)}, data.vocab_size={vocab_size}"
        )


def check_positions(config: Config, prepared: PreparedCorpus) -> None:
    """Raises DataError, naming the line, for a validation sentence longer than the model's learned positions.

    Training text is no longer than `data.max_length`, for which `Config` requires enough of them.
    """
    if config.model.positions != "learned":
        return
    most, extra = config.model.max_positions, config.search.max_extra_tokens
    longest = int(max(side.lengths.max() for side in (prepared.val.src, prepared.val.tgt))) - 1
    if longest + 1 + extra <= most:
        return
    sides = config.data.src_lang, config.data.tgt_lang
    for number, pair in enumerate(zip(*text_of(config.data, "val").read(), strict=True), 1):
        # The end mark takes a position; a translation may have max_extra_tokens more than its source.
        translated = number <= config.trainer.val_bleu_sentences
        limits = most - 1 - extra * translated, most - 1
        ids = prepared.tokenizer.encode([prepared.tokenizer.normalise(line) for line in pair])
        for side, length, limit in zip(sides, map(len, ids), limits, strict=True):
            if length > limit:
                raise DataError(
                    f"data.val={config.data.val}: line {number} ({side}) has {length} subwords, model.max_positions="
                    f"{most} learned positions allow {limit} (search.max_extra_tokens={extra}); raise "
                    "model.max_positions, or split or remove the line on both sides"
                )


def unusual_options(config: Config, pairs: int, steps_per_epoch: int, vocab_size: int) -> list[str]:
    """Returns a line for each option that does not fit the text or the other options, with the remedy."""
    trainer, found = config.trainer, []
    epochs, usual = trainer.max_steps / steps_per_epoch, usual_steps(pairs, steps_per_epoch)
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
    if pairs < FEW_PAIRS and config.init_from is None and config.data.task == "translation":
        found.append(
            f"{pairs:,} training pairs are few (with {FEW_PAIRS:,} expect about 15 BLEU): train on a general corpus "
            "first, and then on these with init_from=outputs/GENERAL (docs/your-own-text.md)"
        )
    n = n_parameters(config.model, vocab_size)
    if n > 1000 * pairs and pairs > FITS[0].pairs / 10:
        found.append(f"a model of {n / 1e6:.0f} M parameters is large for {pairs:,} pairs: model=auto chooses one")
    return found
