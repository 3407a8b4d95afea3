"""The lines that a run logs when it starts: what is trained, on what, and what is unusual about
it.
"""

import logging
from pathlib import Path

import torch

from aiayn.config.resolve import SIZE_PRESETS, RunConfig, preset_for, usual_peak, usual_steps
from aiayn.config.rules import default_values, listed, tagged
from aiayn.errors import counted
from aiayn.hardware import days_on_cpus, has_bfloat16
from aiayn.model.flops import n_parameters, training_flops
from aiayn.runs.checkpoints import Checkpoint
from aiayn.runs.run_folder import RunFolder
from aiayn.training.module import TranslationModule
from aiayn.training.start import RunSpec

log = logging.getLogger(__name__)

FEW_PAIRS = 5000
LOWEST_PEAK, HIGHEST_PEAK = 1e-5, 5e-3  # at d_model 512, in proportion to 1 / d_model


def log_start(
    run: RunSpec, folder: Path, module: TranslationModule, source: Checkpoint | None
) -> None:
    """Logs run, model, data, device, steps and the source of the weights, and a warning for each
    option that rarely works.
    """
    config, pairs = run.config, len(run.corpus.train)
    vocab_size = run.corpus.tokenizer.vocab_size
    start = f"continued at step {run.start_step}" if run.start_step else "new"
    log.info("run      %s, %s", folder, start)
    weights = sum(parameter.numel() for parameter in module.model.parameters())
    sizes = " and ".join(str(size) for size in (config.data.src_vocab_size, vocab_size) if size)
    log.info("model    %.1f M parameters, vocabulary %s", weights / 1e6, sizes)
    padding = 100 * run.plan.padding.mean()
    log.info("data     %s, %s, %.1f %% padding", counted(pairs, "pair"), steps_text(run), padding)
    log_hardware(run)
    log_rate(config, module)
    for line in unusual_options(config, pairs, run.plan.steps_per_epoch, vocab_size):
        log.warning("warning  %s", line)
    if source and not run.checkpoint:
        log_source(config, source)


def steps_text(run: RunSpec) -> str:
    """Returns how an epoch is divided, and on how many devices it can be trained."""
    count = run.plan.micro_batches
    devices = [str(n_devices) for n_devices in range(1, count + 1) if count % n_devices == 0]
    counts = " or ".join(filter(None, [", ".join(devices[:-1]), devices[-1]]))
    return f"{run.epoch_steps} steps an epoch, micro-batches a step: {count} (devices: {counts})"


def log_hardware(run: RunSpec) -> None:
    """Logs device and precision; warns of a training that takes days, and of emulated bfloat16."""
    (accelerator, precision), trainer = run.hardware, run.config.trainer
    reason = ""
    if trainer.precision == "auto":
        abilities = {
            "bf16-mixed": "computes in bfloat16",
            "16-mixed": "has tensor cores for float16 only",
        }
        reason = f" (this hardware {abilities.get(precision, 'has no bfloat16 arithmetic')})"
    threads = f", threads: {torch.get_num_threads()}" if accelerator == "cpu" else ""
    log.info(
        "device   %d x %s%s, precision %s%s",
        *(trainer.world_size, accelerator, threads, precision, reason),
    )
    if accelerator == "gpu":
        log.info("         a step: %s", run.form)
    elif (days := estimated_days(run)) > 0.5:
        log.warning(
            "warning  on these CPUs %s steps take about %s; train on a GPU, or choose a smaller "
            "model",
            *(f"{trainer.max_steps:,}", counted(round(float(f"{max(days, 1):.0e}")), "day")),
        )
    if precision.startswith("bf16") and not has_bfloat16(accelerator):
        log.warning(
            "warning  trainer.precision=%s: this hardware only emulates bfloat16, many times "
            "slower than float32; set trainer.precision=auto, for all rows of a table",
            precision,
        )


def estimated_days(run: RunSpec) -> float:
    """Returns about how many days the remaining steps take on CPUs."""
    config, train = run.config, run.corpus.train
    src, tgt = (float(side.lengths.mean()) for side in (train.src, train.tgt))
    pair_flops = training_flops(config.model, run.corpus.tokenizer.vocab_size, src, tgt)
    step_flops = pair_flops * config.data.tokens_per_step / max(src, tgt)
    steps = config.trainer.max_steps - run.start_step
    return days_on_cpus(step_flops * steps, torch.get_num_threads() * config.trainer.world_size)


def log_rate(config: RunConfig, module: TranslationModule) -> None:
    """Logs the number of steps and the highest learning rate, which an extension may decide."""
    own_schedule = any(
        getattr(type(module), name) is not getattr(TranslationModule, name)
        for name in ("rate", "configure_optimizers")
    )
    for line in options_without_effect(config, module):
        log.warning("warning  %s", line)
    if own_schedule:
        log.info("steps    %d, learning rates of an extension", config.trainer.max_steps)
        return
    peak = module.rate(config.optim.warmup_steps)
    log.info(
        "steps    %d, peak learning rate %.2g at step %d",
        *(config.trainer.max_steps, peak, config.optim.warmup_steps),
    )
    warn_of_unusual_rate(config, peak)


def options_without_effect(config: RunConfig, module: TranslationModule) -> list[str]:
    """Returns a line for each option of Adam that was changed and that an extension's optimizer
    does not read.
    """
    configure = type(module).configure_optimizers
    code = getattr(configure, "__code__", None)
    if configure is TranslationModule.configure_optimizers or code is None:
        return []
    names, usual = {*code.co_names, *code.co_freevars}, default_values("train")
    if "super" in names or "configure_optimizers" in names:  # it builds on Adam
        return []
    changed = {
        f"optim.{name}": getattr(config.optim, name)
        for name in ("beta1", "beta2", "eps", "weight_decay")
        if not {"optim", name} <= names
    }
    return [
        f"{key}={value} has no effect: {type(module).__name__}.configure_optimizers, of an "
        "extension, does not read it"
        for key, value in changed.items()
        if value != usual[key]
    ]


def warn_of_unusual_rate(config: RunConfig, peak: float) -> None:
    """Logs a warning for a peak learning rate at which a model of this width rarely learns."""
    d_model, usual = config.model.d_model, usual_peak(config.model.d_model)
    lowest, highest = (limit * 512 / d_model for limit in (LOWEST_PEAK, HIGHEST_PEAK))
    if not lowest <= peak <= highest:
        option = "peak_lr" if config.optim.peak_lr is not None else "lr_scale"
        log.warning(
            "warning  optim.%s=%g: the learning rate rises to %.2g; usual for d_model %d is "
            "about %.2g, optim.peak_lr=%.1g",
            *(option, getattr(config.optim, option), peak, d_model, usual, usual),
        )


def log_source(config: RunConfig, source: Checkpoint) -> None:
    """Logs where the weights come from (`init_from`)."""
    log.info(
        "from     %s, step %d%s",
        config.init_from,
        source.step,
        ", averaged" if source.averaged else "",
    )
    path = Path(config.init_from or "").expanduser()
    if config.init_from and path.is_dir() and not RunFolder(path).averaged.exists():
        log.warning(
            "warning  that run is not finished: these are its weights after step %d of %d",
            *(source.step, source.config.trainer.max_steps),
        )
    theirs, ours = (
        f"{side.src_lang}-{side.tgt_lang}" for side in (source.config.data, config.data)
    )
    if theirs != ours:
        log.info("         that model translates %s, this text is %s", theirs, ours)
    tags = [tagged(name)[0] for name in listed(source.config.data.train)]
    if tags and all(tags) and not any(tagged(name)[0] for name in listed(config.data.train)):
        log.warning(
            "warning  its source sentences began with %s; write a tag before the file "
            "names of data.train",
            ", ".join(tags),
        )


def unusual_options(
    config: RunConfig, pairs: int, steps_per_epoch: int, vocab_size: int
) -> list[str]:
    """Returns a line for each option that does not fit the text or the other options, with the
    remedy.
    """
    trainer, lines = config.trainer, []
    epochs, usual = trainer.max_steps / steps_per_epoch, usual_steps(pairs, steps_per_epoch)
    if epochs > 5 * preset_for(pairs).epochs:
        lines.append(
            f"trainer.max_steps={trainer.max_steps} is {epochs:,.0f} epochs of these {pairs:,} "
            f"pairs; {preset_for(pairs).epochs} epochs are usual (trainer.max_steps={usual})"
        )
    if config.optim.warmup_steps >= trainer.max_steps:
        lines.append(
            f"optim.warmup_steps={config.optim.warmup_steps}: the learning rate rises to the last "
            f"step (trainer.max_steps={trainer.max_steps}); a tenth of the steps is usual"
        )
    if trainer.val_every > trainer.max_steps:
        lines.append(
            f"trainer.val_every={trainer.val_every}: the run validates only at its last step "
            f"({trainer.max_steps})"
        )
    parts, pairs_per_step = config.data.parts_per_step, pairs / steps_per_epoch
    if pairs_per_step < parts:
        lines.append(
            f"data.parts_per_step={parts}: a step has about {pairs_per_step:.0f} pairs, so most "
            "micro-batches are empty; 4 is usual"
        )
    if pairs < FEW_PAIRS and config.init_from is None and config.data.task == "translation":
        lines.append(
            f"{pairs:,} training pairs are few (expect about 15 BLEU from {FEW_PAIRS:,}): train on "
            "a general corpus first, then on these with init_from=outputs/GENERAL "
            "(docs/your-own-text.md)"
        )
    n = n_parameters(config.model, vocab_size, config.data.src_vocab_size)
    if n > 1000 * pairs and pairs > SIZE_PRESETS[0].pairs / 10:
        lines.append(
            f"a model of {n / 1e6:.0f} M parameters is large for {pairs:,} pairs: model=auto "
            "chooses a size that fits"
        )
    return lines
