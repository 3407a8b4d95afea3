"""The lines that a run logs when it starts: what is trained, on what, and what is unusual about
it.
"""

import logging
from pathlib import Path

import torch
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from aiayn.config.resolve import SIZE_PRESETS, RunConfig, preset_for, usual_peak, usual_steps
from aiayn.config.rules import default_values, listed, tagged
from aiayn.config.training import OptimConfig
from aiayn.errors import counted
from aiayn.hardware import has_bfloat16
from aiayn.model.flops import counted_parameters, n_parameters, training_flops
from aiayn.runs.checkpoints import Checkpoint
from aiayn.runs.continuation import is_in_use
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
    config, plan, pairs = run.config, run.plan, len(run.corpus.train)
    vocab_size = run.corpus.tokenizer.vocab_size
    start = f"continued at step {run.start_step}" if run.start_step else "new"
    log.info("run      %s, %s", folder, start)
    weights = sum(parameter.numel() for parameter in module.model.parameters())
    sizes = " and ".join(f"{size:,}" for size in (config.data.src_vocab_size, vocab_size) if size)
    log.info("model    %s, vocabulary %s", counted_parameters(weights), sizes)
    count = plan.micro_batches
    *fewer, most = [str(devices) for devices in range(1, count + 1) if count % devices == 0]
    devices = f"{', '.join(fewer)} or {most}" if fewer else most
    log.info(
        "data     %s, %d steps an epoch, %s a step (devices: %s), %.1f %% padding",
        *(counted(pairs, "pair"), run.epoch_steps, counted(count, "micro-batch"), devices),
        100 * plan.padding.mean(),
    )
    log_hardware(run)
    log_rate(config, module)
    if not config.trainer.fast_dev_run:  # which has sizes of its own
        for line in unusual_options(config, pairs, plan.steps_per_epoch, vocab_size):
            log.warning("warning  %s", line)
    if source and not run.checkpoint:
        log_source(config, source)


def log_hardware(run: RunSpec) -> None:
    """Logs device and precision; warns of a training that takes days, and of emulated bfloat16."""
    (accelerator, precision), trainer = run.hardware, run.config.trainer
    abilities = {
        "bf16-mixed": "computes in bfloat16",
        "16-mixed": "has tensor cores for float16 only",
        "32-true": "has no bfloat16 arithmetic",
    }
    reason = f" (this hardware {abilities[precision]})" if trainer.precision == "auto" else ""
    threads = f", threads: {torch.get_num_threads()}" if accelerator == "cpu" else ""
    log.info(
        "device   %d x %s%s, precision %s%s",
        *(trainer.world_size, accelerator, threads, precision, reason),
    )
    if accelerator == "gpu":
        log.info("         a step: %s", run.form)
    else:
        if run.form.is_packed:
            log.info("         a step: packed sentences")
        config, train = run.config, run.corpus.train
        src, tgt = (float(side.lengths.mean()) for side in (train.src, train.tgt))
        pair_flops = training_flops(config.model, run.corpus.tokenizer.vocab_size, src, tgt)
        step_flops = pair_flops * config.data.tokens_per_step / max(src, tgt)
        flops = step_flops * (trainer.max_steps - run.start_step)
        # A core does 70 GFLOPs a second in float32, as in the steps of base in
        # benchmarks/results/train_step.json.
        days = flops / (70e9 * torch.get_num_threads() * trainer.world_size) / 86_400
        if days > 0.5:
            log.warning(
                "warning  on these CPUs %s steps take about %s; train on a GPU, or choose a "
                "smaller model",
                *(f"{trainer.max_steps:,}", counted(round(float(f"{max(days, 1):.0e}")), "day")),
            )
    if precision.startswith("bf16") and not has_bfloat16(accelerator):
        log.warning(
            "warning  trainer.precision=%s: this hardware only emulates bfloat16, many times "
            "slower than float32; set trainer.precision=auto, for all rows of a table",
            precision,
        )


def log_rate(config: RunConfig, module: TranslationModule) -> None:
    """Logs the number of steps and the highest learning rate, which an extension may decide. Warns
    of a rate at which a model of this width rarely learns.
    """
    optim, steps, module_class = config.optim, config.trainer.max_steps, type(module)
    configure, ours = module_class.configure_optimizers, TranslationModule
    if configure is not ours.configure_optimizers or module_class.rate is not ours.rate:
        log.info("steps    %d, learning rates of an extension", steps)
        return
    peak, d_model = module.rate(optim.warmup_steps), config.model.d_model
    log.info("steps    %d, peak learning rate %.2g at step %d", steps, peak, optim.warmup_steps)
    if not LOWEST_PEAK <= peak * d_model / 512 <= HIGHEST_PEAK:
        usual = usual_peak(d_model)
        name = optim.peak_option
        log.warning(
            "warning  optim.%s=%g: the learning rate rises to %.2g; usual for d_model %d is "
            "about %.2g, optim.peak_lr=%.1g",
            *(name, getattr(optim, name), peak, d_model, usual, usual),
        )


def warn_of_unused_options(optim: OptimConfig, optimizer: Optimizer) -> None:
    """Warns of options of Adam that were changed but that the optimizer in use does not have."""
    groups = [group | {"params": None} for group in optimizer.param_groups]
    settings = {leaf for leaf in tree_leaves(groups) if isinstance(leaf, int | float)}
    for name in ("beta1", "beta2", "eps", "weight_decay"):
        value = getattr(optim, name)
        if value not in settings and value != default_values("train")[f"optim.{name}"]:
            log.warning(
                "warning  optim.%s=%s has no effect: the optimizer %s does not use it",
                *(name, value, type(optimizer).__name__),
            )


def log_source(config: RunConfig, source: Checkpoint) -> None:
    """Logs where the weights come from (`init_from`)."""
    averaged = ", averaged" if source.averaged else ""
    log.info("from     %s, step %d%s", config.init_from, source.step, averaged)
    path = Path(config.init_from or "").expanduser()
    folder = RunFolder(path)
    if config.init_from and path.is_dir() and not folder.averaged.exists():
        max_steps = source.config.trainer.max_steps
        ended = "not averaged yet" if source.step == max_steps else "not finished"
        log.warning(
            "warning  that run is %s: these are its weights after step %d of %d",
            "still running" if is_in_use(folder) else ended,
            *(source.step, max_steps),
        )
    theirs, ours = (
        f"{side.src_lang}-{side.tgt_lang}" for side in (source.config.data, config.data)
    )
    if theirs != ours:
        log.info("         that model translates %s, but this text is %s", theirs, ours)
    tags, own_tags = (
        [tagged(name)[0] for name in listed(side.train)]
        for side in (source.config.data, config.data)
    )
    if all(tags) and tags and not any(own_tags):
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
    usual_epochs = preset_for(pairs).epochs
    if (epochs := trainer.max_steps / steps_per_epoch) > 5 * usual_epochs:
        lines.append(
            f"trainer.max_steps={trainer.max_steps} is {epochs:,.0f} epochs of these {pairs:,} "
            f"pairs; {usual_epochs} epochs are usual "
            f"(trainer.max_steps={usual_steps(pairs, steps_per_epoch)})"
        )
    if config.optim.warmup_steps >= trainer.max_steps:
        lines.append(
            f"optim.warmup_steps={config.optim.warmup_steps}: the learning rate rises until the "
            f"last step (trainer.max_steps={trainer.max_steps}); a tenth of the steps is usual"
        )
    if trainer.val_every > trainer.max_steps:
        lines.append(
            f"trainer.val_every={trainer.val_every}: the run validates only at its last step "
            f"({trainer.max_steps})"
        )
    counts = {"parts_per_step": (config.data.parts_per_step, "4 is")}
    if config.data.micro_batches != config.data.parts_per_step:
        counts["micro_batches"] = (config.data.micro_batches or 0, "null is")
    for name, (count, usual) in counts.items():
        if (pairs_per_step := pairs / steps_per_epoch) < count:
            lines.append(
                f"data.{name}={count}: with about {pairs_per_step:.0f} pairs a step, many "
                f"micro-batches are empty; {usual} usual"
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
