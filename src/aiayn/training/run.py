"""A training run from its configuration to its averaged checkpoint; the same call continues an unfinished one."""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import rank_zero_only

from aiayn.config.schema import Config, Options, Sized
from aiayn.config.settle import settle_sizes, settle_steps
from aiayn.data.batch_plan import BatchPlan
from aiayn.data.datamodule import TranslationDataModule
from aiayn.data.prepare import count_training_pairs
from aiayn.data.sources import read_split
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import ConfigError, DivergedError, InterruptedRunError
from aiayn.hardware import choose_hardware, tokens_per_device
from aiayn.model.transformer import Transformer
from aiayn.reports.plots import draw_learning_curve
from aiayn.reports.report import summary, write_report
from aiayn.runs import checkpoints
from aiayn.runs.checkpoints import Checkpoint
from aiayn.runs.run_folder import RunFolder, read_jsonl
from aiayn.signals import handle_signals
from aiayn.training.average import compare_with_best
from aiayn.training.background_writer import BackgroundWriter
from aiayn.training.callbacks.checkpoint_saver import CheckpointSaver
from aiayn.training.callbacks.display import Display
from aiayn.training.callbacks.non_finite_guard import NonFiniteGuard
from aiayn.training.callbacks.rendezvous import Rendezvous
from aiayn.training.callbacks.run_artifacts import RunArtifacts
from aiayn.training.callbacks.throughput_monitor import ThroughputMonitor
from aiayn.training.callbacks.validate import Validate
from aiayn.training.checkpoint_io import RunCheckpointIO, steps_to_average
from aiayn.training.checks import check_positions, check_size, unusual_options
from aiayn.training.context import RunContext, TrainingClock, epoch_steps
from aiayn.training.distributed.failures import explain_disk_errors, explain_failures
from aiayn.training.distributed.local_ranks import local_ranks
from aiayn.training.distributed.stop_request import StopRequest
from aiayn.training.early_stopping import ValidationHistory
from aiayn.training.init_from import resolve_init_from
from aiayn.training.loggers import close, make_loggers, upload
from aiayn.training.module import TranslationModule
from aiayn.training.research import Research, refuse_other_parts, research_of
from aiayn.training.resume import ResumeState, fill_as_stored, load_resume_state, refuse_changes, run_lock
from aiayn.training.schedule import learning_rate
from aiayn.training.trainer import configure_libraries, make_trainer

log = logging.getLogger(__name__)


def train(
    options: Options,
    outputs: Path | None = None,
    chosen: Collection[str] | None = None,
    module: type[TranslationModule] | None = None,
    callbacks: Sequence[pl.Callback] = (),
) -> Path:
    """Trains until `trainer.max_steps`, from the newest checkpoint if there is one. Returns the run's folder.

    The run's folder is made in `outputs` (None: where the configuration says). With `init_from` that run decides about
    model and vocabulary, and of the options `chosen` (None: all) one that contradicts it is refused. `module` and
    `callbacks` are of one's own, as those that `extensions` bring.
    Raises ConfigError for hardware that is not there or a folder in use, DataError for unusable text, RefusedError for
    options that contradict the run's first start, DivergedError, ResourceError, and InterruptedRunError after a signal.
    Errors common to all ranks are printed by rank 0; the others exit silently.
    """
    configure_libraries()
    if options.trainer.fast_dev_run:
        return _trial(options, chosen, module, callbacks)
    options, research = research_of(options, module, callbacks)
    folder, stop = RunFolder((outputs or options.outputs_folder) / options.run_name), StopRequest()
    try:
        with handle_signals(stop.on_signal):
            _train(options, research, folder, chosen, stop)
    except (InterruptedRunError, DivergedError) as error:
        if rank_zero_only.rank:
            # Before the ranks are connected, the exit code is all that rank 0 hears of it.
            raise SystemExit(0 if stop.control_group else error.exit_code) from error
        raise
    return folder.path


def _trial(
    options: Options,
    chosen: Collection[str] | None,
    module: type[TranslationModule] | None,
    callbacks: Sequence[pl.Callback],
) -> Path:
    """`fast_dev_run`: all that a run does, for a few steps, in a folder that is gone afterwards."""
    steps = int(options.trainer.fast_dev_run)
    few = dict.fromkeys(("max_steps", "val_every", "checkpoint_every", "limit_val_batches"), steps) | {"log_every": 1}
    sentences = min(options.trainer.val_bleu_sentences, 2)
    trainer = replace(options.trainer, **few, val_bleu_sentences=sentences, fast_dev_run=False)
    options = replace(options, trainer=trainer, logger=replace(options.logger, kind="none"))
    with TemporaryDirectory() as outputs:
        folder = train(options, Path(outputs), chosen, module, callbacks)
        log.info("trainer.fast_dev_run: %d steps were trained, validated and saved; nothing of it is kept", steps)
    return folder


def _train(
    options: Options, research: Research, folder: RunFolder, chosen: Collection[str] | None, stop: StopRequest
) -> None:
    hardware = choose_hardware(options.trainer)
    options, source = resolve_init_from(options, folder, chosen)
    refuse_other_parts(options, research)
    options = fill_as_stored(folder, options)
    sized = settle_sizes(options, lambda: count_training_pairs(options.data))
    refuse_changes(folder, sized)
    check_size(sized.model, sized.data.vocab_size, hardware["accelerator"])
    data = _prepare(sized, source)
    check_positions(sized, data.corpus)
    with run_lock(folder) as check_folder, explain_disk_errors(folder.path):
        found = load_resume_state(folder, data.corpus, sized)
        if found:  # a run keeps its micro-batches
            data.config = replace(data.config, micro_batches=found.checkpoint.micro_batches)
        data.setup("fit")
        config = settle_steps(_ended_by_epochs(sized, data.plan), len(data.corpus.train), data.plan.steps_per_epoch)
        run = _begin(config, research, folder, data, found, stop, check_folder)
        stopped_early = run.validations.is_out_of_patience()
        if found and (run.start_step >= config.trainer.max_steps or stopped_early) and folder.averaged.exists():
            log.info("already finished at step %d: %s", run.start_step, folder.path)
            return
        if not stopped_early:
            _fit(run, data, hardware, found, source)
        stop.enter_phase("stopped after the last step")
        _finish(run, data, hardware["precision"])


def _ended_by_epochs(config: Sized, plan: BatchPlan) -> Sized:
    """The configuration with `trainer.max_steps` lowered to the end of the last of `trainer.max_epochs`."""
    settings = config.trainer
    if settings.max_epochs is None:
        return config
    steps = settings.max_epochs * epoch_steps(settings, plan)
    return replace(config, trainer=replace(settings, max_steps=min(settings.max_steps or steps, steps)))


def _prepare(config: Sized, source: Checkpoint | None) -> TranslationDataModule:
    """The data module, with the corpus on disk; a source of the weights decides about the vocabulary, too."""
    data = TranslationDataModule(
        replace(config.data, max_tokens_per_device=tokens_per_device(config)),
        seed=config.seed,
        devices=config.trainer.world_size,
        tokenizer=Tokenizer.from_json(source.tokenizer) if source else None,
    )
    data.prepare_data()
    return data


def _begin(
    config: Config,
    research: Research,
    folder: RunFolder,
    data: TranslationDataModule,
    found: ResumeState | None,
    stop: StopRequest,
    check_folder: Callable[[], None],
) -> RunContext:
    """What this start of the run goes by. Nothing has been written yet."""
    start_step = found.checkpoint.step if found else 0
    recorded = [record for record in folder.read_metrics() if record["step"] <= start_step]
    return RunContext(
        config=config,
        research=research,
        folder=folder,
        prepared=data.corpus,
        plan=data.plan,
        # Read now: it may be invalid even if the prepared corpus is fine, and we must fail before writing.
        validation_text=read_split(config.data, "val") if config.trainer.val_bleu_sentences else ([], []),
        start_step=start_step,
        validations=ValidationHistory(config.trainer, recorded),
        stop=stop,
        writer=BackgroundWriter(),
        clock=TrainingClock(),
        display=Display(config.trainer.max_steps, config.trainer.enable_progress_bar),
        check_folder=check_folder,
    )


def _fit(
    run: RunContext,
    data: TranslationDataModule,
    hardware: dict[str, str],
    found: ResumeState | None,
    source: Checkpoint | None,
) -> None:
    """Module, Trainer, fit; ranks, loggers and errors are looked after around it."""
    config = run.config
    torch.manual_seed(config.seed)
    module = run.research.module(config, run.prepared.tokenizer.vocab_size)
    loggers = make_loggers(config, run.folder, run.start_step)
    if rank_zero_only.rank == 0:
        run.folder.write_config(config)
        _log_start(run, module.model, hardware)
    if source:
        if not found:
            checkpoints.restore(module.model, source)
            _log_source(config, source)
        source.weights.clear()  # otherwise kept in memory until the end of the run

    saver = CheckpointSaver(run)
    callbacks = [Rendezvous(run), NonFiniteGuard(run), ThroughputMonitor(run), Validate(run), RunArtifacts(run)]
    callbacks += [*run.research.callbacks_of(run), saver]
    trainer = make_trainer(run, hardware, callbacks, loggers, RunCheckpointIO(run, found))
    resume_from = str(checkpoints.step_path(run.folder.checkpoints, run.start_step)) if found else None
    run.stop.begin_training()
    try:
        with run.writer, local_ranks(trainer), explain_failures(run, module, saver):
            trainer.fit(module, data, ckpt_path=resume_from)
    finally:
        run.stop.end_training(f"stopped after step {saver.done}")
        close(loggers)
    run.stop.enter_phase(f"stopped and saved at step {saver.done}")


def _finish(run: RunContext, data: TranslationDataModule, precision: str) -> None:
    """Averages the last checkpoints, validates the average and draws what was measured."""
    if rank_zero_only.rank != 0:
        return
    folder, validations = run.folder, run.validations
    run.check_folder()
    saved = checkpoints.saved_steps(folder.checkpoints)
    if not saved:
        raise ConfigError(f"trainer.max_time={run.config.trainer.max_time}: was over before the first step; raise it")
    newest = saved[-1]
    if validations.is_out_of_patience():
        log.info("stopped early at step %d: trainer.patience=%d", newest, validations.patience)
    steps = steps_to_average(folder.checkpoints, run.config.trainer, newest)
    # A kill may have come between the last save and these two.
    checkpoints.update_last(folder.checkpoints, newest)
    checkpoints.prune(folder.checkpoints, steps)
    averaged = checkpoints.average(
        [checkpoints.load(checkpoints.step_path(folder.checkpoints, step)) for step in steps]
    )
    log.info("average  of the checkpoints of steps %s", ", ".join(map(str, steps)))
    compare_with_best(run, averaged, data, precision)
    draw_learning_curve(read_jsonl(folder.metrics), folder.learning_curve)
    write_report(folder.path)
    run.check_folder()
    checkpoints.save(folder.averaged, averaged)  # last: once it exists the run is finished
    upload(run.config, folder)
    log.info(summary(folder.path))


def _log_start(run: RunContext, model: Transformer, hardware: dict[str, str]) -> None:
    config, plan, accelerator, precision = run.config, run.plan, hardware["accelerator"], hardware["precision"]
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    start = f"continued at step {run.start_step}" if run.start_step else "new"
    steps = f"{plan.steps_per_epoch} steps an epoch, {plan.micro_batches} micro-batches a step"
    reason = ""
    if config.trainer.precision == "auto":
        bfloat16 = "computes in bfloat16" if precision == "bf16-mixed" else "has no bfloat16 arithmetic"
        reason = f" (this hardware {bfloat16})"
    log.info("run      %s, %s", run.folder.path, start)
    log.info("model    %.1f M parameters, vocabulary %d", n_parameters / 1e6, run.prepared.tokenizer.vocab_size)
    log.info("data     %d pairs, %s, %.1f %% padding", len(run.prepared.train), steps, 100 * plan.padding)
    log.info("device   %d x %s, precision %s%s", config.trainer.world_size, accelerator, precision, reason)
    warmup, scale = config.optim.warmup_steps, config.optim.lr_scale
    peak = learning_rate(warmup, config.model.d_model, warmup, scale)
    log.info("steps    %d, peak learning rate %.2g at step %d", config.trainer.max_steps, peak, warmup)
    for line in unusual_options(
        config, len(run.prepared.train), plan.steps_per_epoch, run.prepared.tokenizer.vocab_size
    ):
        log.warning("warning  %s", line)


def _log_source(config: Config, source: Checkpoint) -> None:
    log.info("from     %s, step %d%s", config.init_from, source.step, ", averaged" if source.averaged else "")
    before, now = (f"{data.src_lang}-{data.tgt_lang}" for data in (source.config.data, config.data))
    if before != now:
        log.info("         it translates %s, this text is %s", before, now)
