"""The lines that a run logs when it starts: what is trained, on what, and what is unusual about
it.
"""

import logging

import torch

from aiayn.config.resolve import SIZE_PRESETS, preset_for, usual_peak, usual_steps
from aiayn.config.rules import listed, tagged
from aiayn.config.schema import Config
from aiayn.hardware import Hardware, days_on_cpus, has_bfloat16
from aiayn.model.flops import n_parameters, training_flops
from aiayn.runs.checkpoints import Checkpoint
from aiayn.training.context import RunContext
from aiayn.training.module import TranslationModule
from aiayn.training.step_form import StepForm

log = logging.getLogger(__name__)

FEW_PAIRS = 5000
LOWEST_PEAK, HIGHEST_PEAK = 1e-5, 5e-3  # at d_model 512, in proportion to 1 / d_model


def log_start(
    run: RunContext, module: TranslationModule, hardware: Hardware, form: StepForm
) -> None:
    """Logs run, model, data, device and steps, and a warning for each option that rarely works."""
    config, plan, accelerator, precision = (
        run.config,
        run.plan,
        hardware.accelerator,
        hardware.precision,
    )
    weights = sum(parameter.numel() for parameter in module.model.parameters())
    start = f"continued at step {run.start_step}" if run.start_step else "new"
    *others, last = (
        str(count) for count in range(1, plan.micro_batches + 1) if plan.micro_batches % count == 0
    )
    counts = f"{', '.join(others)} or {last}" if others else last
    steps = (
        f"{run.epoch_steps} steps an epoch, micro-batches a step: {plan.micro_batches} (devices: "
        f"{counts})"
    )
    reason = ""
    if config.trainer.precision == "auto":
        kinds = {
            "bf16-mixed": "computes in bfloat16",
            "16-mixed": "has tensor cores for float16 only",
        }
        reason = f" (this hardware {kinds.get(precision, 'has no bfloat16 arithmetic')})"
    log.info("run      %s, %s", run.folder.path, start)
    sizes = [
        str(size)
        for size in (config.data.src_vocab_size, run.prepared.tokenizer.vocab_size)
        if size
    ]
    log.info("model    %.1f M parameters, vocabulary %s", weights / 1e6, " and ".join(sizes))
    log.info(
        "data     %d pairs, %s, %.1f %% padding",
        len(run.prepared.train),
        steps,
        100 * plan.padding.mean(),
    )
    threads = f", threads: {torch.get_num_threads()}" if accelerator == "cpu" else ""
    log.info(
        "device   %d x %s%s, precision %s%s",
        config.trainer.world_size,
        accelerator,
        threads,
        precision,
        reason,
    )
    if accelerator == "cpu":
        src, tgt = (
            float(side.lengths.mean()) for side in (run.prepared.train.src, run.prepared.train.tgt)
        )
        pair = training_flops(config.model, run.prepared.tokenizer.vocab_size, src, tgt)
        flops = (
            pair
            * config.data.tokens_per_step
            / max(src, tgt)
            * (config.trainer.max_steps - run.start_step)
        )
        days = days_on_cpus(flops, torch.get_num_threads() * config.trainer.world_size)
        if days > 0.5:
            log.warning(
                "warning  on these CPUs %s steps take about %.0f days; train on a GPU, or choose "
                "a smaller model",
                *(f"{config.trainer.max_steps:,}", float(f"{days:.0e}")),
            )
    if accelerator == "gpu":
        log.info("         a step: %s", form)
    if precision.startswith("bf16") and not has_bfloat16(accelerator):
        log.warning(
            "warning  trainer.precision=%s: this hardware only emulates bfloat16, many times "
            "slower than float32; set trainer.precision=auto, for all rows of a table",
            precision,
        )
    warmup, own = config.optim.warmup_steps, type(module)
    if (
        own.rate is not TranslationModule.rate
        or own.configure_optimizers is not TranslationModule.configure_optimizers
    ):
        log.info("steps    %d, learning rates of an extension", config.trainer.max_steps)
    else:
        peak = module.rate(warmup)
        log.info(
            "steps    %d, peak learning rate %.2g at step %d",
            config.trainer.max_steps,
            peak,
            warmup,
        )
        warn_of_unusual_rate(config, peak)
    for line in unusual_options(
        config, len(run.prepared.train), plan.steps_per_epoch, run.prepared.tokenizer.vocab_size
    ):
        log.warning("warning  %s", line)


def warn_of_unusual_rate(config: Config, peak: float) -> None:
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


def log_source(config: Config, source: Checkpoint) -> None:
    """Logs where the weights come from (`init_from`)."""
    log.info(
        "from     %s, step %d%s",
        config.init_from,
        source.step,
        ", averaged" if source.averaged else "",
    )
    before, now = (f"{data.src_lang}-{data.tgt_lang}" for data in (source.config.data, config.data))
    if before != now:
        log.info("         it translates %s, this text is %s", before, now)
    tags = [tagged(name)[0] for name in listed(source.config.data.train)]
    if tags and all(tags) and not any(tagged(name)[0] for name in listed(config.data.train)):
        log.warning(
            "warning  its sources began with %s; write a tag before the names of data.train",
            ", ".join(tags),
        )


def unusual_options(config: Config, pairs: int, steps_per_epoch: int, vocab_size: int) -> list[str]:
    """Returns a line for each option that does not fit the text or the other options, with the
    remedy.
    """
    trainer, found = config.trainer, []
    epochs, usual = trainer.max_steps / steps_per_epoch, usual_steps(pairs, steps_per_epoch)
    if epochs > 5 * preset_for(pairs).epochs:
        found.append(
            f"trainer.max_steps={trainer.max_steps} is {epochs:,.0f} epochs of these {pairs:,} "
            f"pairs; usual are {preset_for(pairs).epochs}: trainer.max_steps={usual}"
        )
    if config.optim.warmup_steps >= trainer.max_steps:
        found.append(
            f"optim.warmup_steps={config.optim.warmup_steps}: the learning rate rises to the last "
            f"step (trainer.max_steps={trainer.max_steps}); a tenth of the steps is usual"
        )
    if trainer.val_every > trainer.max_steps:
        found.append(
            f"trainer.val_every={trainer.val_every}: validated at the last step only "
            f"({trainer.max_steps})"
        )
    if pairs < FEW_PAIRS and config.init_from is None and config.data.task == "translation":
        found.append(
            f"{pairs:,} training pairs are few (with {FEW_PAIRS:,} expect about 15 BLEU): train "
            "on a general corpus first, and then on these with init_from=outputs/GENERAL "
            "(docs/your-own-text.md)"
        )
    n = n_parameters(config.model, vocab_size, config.data.src_vocab_size)
    if n > 1000 * pairs and pairs > SIZE_PRESETS[0].pairs / 10:
        found.append(
            f"a model of {n / 1e6:.0f} M parameters is large for {pairs:,} pairs: model=auto "
            "chooses one"
        )
    return found
