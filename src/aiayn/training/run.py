"""A training run from its configuration to its averaged checkpoint; the same call continues an unfinished one."""

import logging
from collections.abc import Collection
from pathlib import Path

import torch
from pytorch_lightning.utilities import rank_zero_only

from aiayn.config.schema import Config, Options, Sized
from aiayn.config.settle import settle_sizes, settle_steps
from aiayn.data.batch_plan import BatchPlan
from aiayn.data.corpus_store import PreparedSplit
from aiayn.data.datamodule import TranslationDataModule
from aiayn.data.prepare import count_training_pairs, prepare
from aiayn.data.sources import read_split
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import DivergedError, InterruptedRunError
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
from aiayn.training.context import RunContext, TrainingClock
from aiayn.training.distributed.failures import explain_disk_errors, explain_failures
from aiayn.training.distributed.local_ranks import local_ranks
from aiayn.training.distributed.stop_request import StopRequest
from aiayn.training.early_stopping import ValidationHistory
from aiayn.training.init_from import resolve_init_from
from aiayn.training.loggers import close, make_loggers, upload
from aiayn.training.module import TranslationModule
from aiayn.training.resume import ResumeState, fill_as_stored, load_resume_state, refuse_changes, run_lock
from aiayn.training.schedule import learning_rate
from aiayn.training.trainer import configure_libraries, make_trainer

log = logging.getLogger(__name__)


def train(options: Options, outputs: Path | None = None, chosen: Collection[str] | None = None) -> Path:
    """Trains until `trainer.max_steps`, from the newest checkpoint if there is one. Returns the run's folder.

    The run's folder is made in `outputs` (None: where the configuration says). With `init_from` that run decides about
    model and vocabulary, and of the options `chosen` (None: all) one that contradicts it is refused.
    Raises ConfigError for hardware that is not there or a folder in use, DataError for unusable text, RefusedError for
    options that contradict the run's first start, DivergedError, ResourceError, and InterruptedRunError after a signal.
    Errors common to all ranks are printed by rank 0; the others exit silently.
    """
    configure_libraries()
    folder, stop = RunFolder((outputs or options.outputs_folder) / options.run_name), StopRequest()
    try:
        with handle_signals(stop.on_signal):
            _train(options, folder, chosen, stop)
    except (InterruptedRunError, DivergedError) as error:
        if rank_zero_only.rank:
            # Before the ranks are connected, the exit code is all that rank 0 hears of it.
            raise SystemExit(0 if stop.control_group else error.exit_code) from error
        raise
    return folder.path


def _train(options: Options, folder: RunFolder, chosen: Collection[str] | None, stop: StopRequest) -> None:
    hardware = choose_hardware(options.trainer)
    options, source = resolve_init_from(options, folder, chosen)
    options = fill_as_stored(folder, options)
    sized = settle_sizes(options, lambda: count_training_pairs(options.data))
    refuse_changes(folder, sized)
    check_size(sized.model, sized.data.vocab_size)
    prepared = prepare(sized.data, Tokenizer.from_json(source.tokenizer) if source else None)
    check_positions(sized, prepared)
    with run_lock(folder) as check_folder, explain_disk_errors(folder.path):
        found = load_resume_state(folder, prepared, sized)
        plan = _training_plan(sized, prepared.train, found)
        config = settle_steps(sized, len(prepared.train), plan.steps_per_epoch)
        start_step = found.checkpoint.step if found else 0
        recorded = [record for record in folder.read_metrics() if record["step"] <= start_step]
        validations = ValidationHistory(config.trainer, recorded)
        stopped_early = validations.is_out_of_patience()
        if found and (start_step >= config.trainer.max_steps or stopped_early) and folder.averaged.exists():
            log.info("already finished at step %d: %s", start_step, folder.path)
            return
        run = RunContext(
            config=config,
            folder=folder,
            prepared=prepared,
            plan=plan,
            # Read now: it may be invalid even if the prepared corpus is fine, and we must fail before writing.
            validation_text=read_split(config.data, "val") if config.trainer.val_bleu_sentences else ([], []),
            start_step=start_step,
            validations=validations,
            stop=stop,
            writer=BackgroundWriter(),
            clock=TrainingClock(),
            display=Display(config.trainer.max_steps),
            check_folder=check_folder,
        )
        if not stopped_early:
            _fit(run, hardware, found, source)
        stop.enter_phase("stopped after the last step")
        _finish(run, hardware["precision"])


def _fit(run: RunContext, hardware: dict[str, str], found: ResumeState | None, source: Checkpoint | None) -> None:
    config, prepared = run.config, run.prepared
    torch.manual_seed(config.seed)
    model = Transformer(config.model, prepared.tokenizer.vocab_size)
    loggers = make_loggers(config, run.folder, run.start_step)
    if rank_zero_only.rank == 0:
        run.folder.write_config(config)
        _log_start(run, model, hardware)
    if source:
        if not found:
            checkpoints.restore(model, source)
            _log_source(config, source)
        source.weights.clear()  # otherwise kept in memory until the end of the run

    module = TranslationModule(
        model, config.optim, config.seed, config.trainer.max_skipped_steps, config.trainer.compile
    )
    data = TranslationDataModule(
        prepared.train, run.plan, prepared.val, _validation_plan(config, prepared.val), config.data.num_workers
    )
    saver = CheckpointSaver(run)
    callbacks = [Rendezvous(run), NonFiniteGuard(run), ThroughputMonitor(run), Validate(run), RunArtifacts(run), saver]
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


def _finish(run: RunContext, precision: str) -> None:
    """Averages the last checkpoints, validates the average and draws what was measured."""
    if rank_zero_only.rank != 0:
        return
    folder, validations = run.folder, run.validations
    run.check_folder()
    newest = checkpoints.saved_steps(folder.checkpoints)[-1]
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
    compare_with_best(run, averaged, _validation_plan(run.config, run.prepared.val), precision)
    draw_learning_curve(read_jsonl(folder.metrics), folder.learning_curve)
    write_report(folder.path)
    run.check_folder()
    checkpoints.save(folder.averaged, averaged)  # last: once it exists the run is finished
    upload(run.config, folder)
    log.info(summary(folder.path))


def _training_plan(config: Sized, split: PreparedSplit, found: ResumeState | None) -> BatchPlan:
    data = config.data
    return BatchPlan(
        split.src_lengths + 1,
        split.tgt_lengths + 1,
        tokens_per_step=data.tokens_per_step,
        seed=config.seed,
        micro_batches=found.checkpoint.micro_batches if found else data.micro_batches,
        devices=config.trainer.world_size,
        max_tokens_per_device=tokens_per_device(config),
    )


def _validation_plan(config: Config, split: PreparedSplit) -> BatchPlan:
    """Validation in the largest batches that a device takes; a longer sentence is a batch of its own."""
    src, tgt = split.src_lengths + 1, split.tgt_lengths + 1
    limit = max(tokens_per_device(config), int(src.max()), int(tgt.max()))
    return BatchPlan(src, tgt, tokens_per_step=limit, seed=0, max_tokens_per_device=limit)


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
