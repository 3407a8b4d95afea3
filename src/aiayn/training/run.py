"""A training run from its configuration to its averaged checkpoint; the same call continues an
unfinished one.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytorch_lightning as pl
import torch

from aiayn.config.schema import Config
from aiayn.data.datamodule import TranslationDataModule
from aiayn.errors import DivergedError, InterruptedRunError
from aiayn.hardware import Hardware, choose_hardware, training_threads
from aiayn.runs import checkpoint_folder, checkpoints
from aiayn.runs.checkpoints import Checkpoint
from aiayn.runs.run_folder import RunFolder
from aiayn.signals import handle_signals
from aiayn.training.callbacks.checkpoint_saver import CheckpointSaver
from aiayn.training.context import RunContext
from aiayn.training.distributed.control_group import StopRequest
from aiayn.training.distributed.failures import ExplainFailures, explain_disk_errors
from aiayn.training.distributed.local_ranks import local_ranks
from aiayn.training.distributed.rank import find_rank, global_rank
from aiayn.training.finish import finish
from aiayn.training.graphed import GraphedModule
from aiayn.training.log_start import log_source, log_start
from aiayn.training.loggers import close, make_loggers
from aiayn.training.module import TranslationModule
from aiayn.training.prepare import begin, prepare, sized_options
from aiayn.training.research import Research, refuse_other_optimization, research_of
from aiayn.training.resume import ResumeState, load_resume_state, run_lock, store_test
from aiayn.training.step_form import StepForm, step_form
from aiayn.training.trainer import configure_libraries, make_trainer

log = logging.getLogger(__name__)


def train(
    options: Config,
    outputs: Path | None = None,
    chosen: Collection[str] | None = None,
    module: type[TranslationModule] | None = None,
    callbacks: Sequence[pl.Callback] = (),
    datamodule: type[TranslationDataModule] | None = None,
) -> Path:
    """Trains until `trainer.max_steps`, from the newest checkpoint if there is one. Returns the
    run's folder.

    The run's folder is made in `outputs` (None: where the configuration says). With `init_from`
    that run decides about model and vocabulary, and of the options `chosen` (None: all) one that
    contradicts it is refused. `module`, `datamodule` and `callbacks` are added to those of
    `extensions`.
    Raises ConfigError for hardware that is not there or a folder in use, DataError for unusable
    text, RefusedError for options that contradict the run's first start, DivergedError,
    ResourceError, and InterruptedRunError after a signal. Errors common to all ranks are printed by
    rank 0; the others exit silently.
    """
    find_rank(options.trainer)
    configure_libraries()
    if options.trainer.fast_dev_run:
        with TemporaryDirectory() as place:
            trial = train(_few_steps(options), Path(place), chosen, module, callbacks, datamodule)
        steps = int(options.trainer.fast_dev_run)
        log.info(
            "trainer.fast_dev_run: %d steps were trained, validated and saved; nothing of it is "
            "kept",
            steps,
        )
        return trial
    options, research = research_of(options, module, datamodule, callbacks)
    folder, stop = RunFolder((outputs or options.outputs_folder) / options.run_name), StopRequest()
    try:
        with handle_signals(stop.on_signal):
            _train(options, research, folder, chosen, stop)
    except (InterruptedRunError, DivergedError) as error:
        if global_rank():
            # Before the ranks are connected, the exit code is all that rank 0 hears of it.
            raise SystemExit(0 if stop.control_group else error.exit_code) from error
        raise
    return folder.path


def _few_steps(options: Config) -> Config:
    """Returns the options of a run of `trainer.fast_dev_run` steps, which validates, saves, logs
    and sends nothing.
    """
    steps = int(options.trainer.fast_dev_run)
    few = dict.fromkeys(
        ("max_steps", "val_every", "checkpoint_every", "limit_val_batches"), steps
    ) | {"log_every": 1}
    sentences = min(options.trainer.val_bleu_sentences, 2)
    trainer = replace(options.trainer, **few, val_bleu_sentences=sentences, fast_dev_run=False)
    return replace(options, trainer=trainer, logger=replace(options.logger, kind="none"))


def _train(
    options: Config,
    research: Research,
    folder: RunFolder,
    chosen: Collection[str] | None,
    stop: StopRequest,
) -> None:
    """Prepares, fits and finishes."""
    hardware = choose_hardware(options.trainer)
    sized, source = sized_options(options, folder, chosen, hardware.accelerator)
    form = step_form(sized, hardware, research)
    data = prepare(sized, source, research, packed=form.why_padded is None)
    with run_lock(folder) as check_folder, explain_disk_errors(folder.path):
        found = load_resume_state(folder, data.corpus, sized)
        run = begin(sized, research, folder, data, found, stop, check_folder)
        if run.is_finished:
            log.info(
                "already finished at step %d, by %s: %s",
                run.start_step,
                run.end_reason,
                folder.path,
            )
            store_test(folder, run.config)
        with training_threads(sized.model.d_model, hardware):
            # At the last step, too: a signal may have cut its validation off.
            if not run.is_finished and (
                run.end_reason is None or run.start_step == run.config.trainer.max_steps
            ):
                _fit(run, data, hardware, form, found, source)
            stop.enter_phase("stopped after the last step")
            finish(run, data, hardware)


def _fit(
    run: RunContext,
    data: TranslationDataModule,
    hardware: Hardware,
    form: StepForm,
    found: ResumeState | None,
    source: Checkpoint | None,
) -> None:
    """Makes module, loggers and Trainer, and fits; watches the ranks, explains failures and closes
    the loggers.
    """
    torch.manual_seed(run.config.seed)
    module_class = run.research.module if form.why_not_graphed else GraphedModule
    module = module_class(run.config, run.prepared.tokenizer.vocab_size)
    refuse_other_optimization(module)
    module.compiles = form.why_not_compiled is None
    loggers = make_loggers(run.config, run.folder, run.start_step)
    if global_rank() == 0:
        log_start(run, module, hardware, form)
    if source:
        if not found:
            weights = module.initial_weights(source.weights)
            checkpoints.restore(module.model, replace(source, weights=weights))
            log_source(run.config, source)
        source.weights.clear()  # otherwise kept in memory until the end of the run

    saver, failures = CheckpointSaver(run), ExplainFailures(run)
    trainer = make_trainer(
        run, hardware, loggers, [failures, saver], found, graphed=form.why_not_graphed is None
    )
    resume_from = (
        str(checkpoint_folder.step_path(run.folder.checkpoints, run.start_step)) if found else None
    )
    run.stop.begin_training()
    try:
        with run.writer, local_ranks(trainer), failures.raised():
            trainer.fit(module, data, ckpt_path=resume_from)
    finally:
        run.stop.end_training(f"stopped after step {saver.done}")
        close(loggers)
    run.stop.enter_phase(f"stopped and saved at step {saver.done}")
