"""A training run from its configuration to its averaged checkpoint; the same call continues an
unfinished one.
"""

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import Logger

from aiayn.config.schema import Config
from aiayn.data.datamodule import TranslationDataModule
from aiayn.errors import DivergedError, InterruptedRunError, counted
from aiayn.hardware import choose_hardware, training_threads
from aiayn.runs import checkpoints
from aiayn.runs.checkpoint_folder import step_path
from aiayn.runs.checkpoints import Checkpoint
from aiayn.runs.run_folder import RunFolder
from aiayn.signals import handle_signals
from aiayn.training.callbacks.checkpoint_saver import CheckpointSaver
from aiayn.training.callbacks.non_finite_guard import NonFiniteGuard
from aiayn.training.callbacks.run_artifacts import RunArtifacts
from aiayn.training.callbacks.throughput_monitor import ThroughputMonitor
from aiayn.training.callbacks.validate import Validate, ValidationScores
from aiayn.training.distributed.control_group import StopRequest
from aiayn.training.distributed.failures import ConnectRanks, ExplainFailures, explain_disk_errors
from aiayn.training.distributed.ranks import find_rank, global_rank, local_ranks
from aiayn.training.finish import finish
from aiayn.training.graphed import GraphedModule
from aiayn.training.log_start import log_start
from aiayn.training.loggers import close, make_loggers
from aiayn.training.module import TranslationModule
from aiayn.training.research import (
    Research,
    own_errors_explained,
    refuse_other_optimization,
    research_of,
)
from aiayn.training.resume import load_resume_state, run_lock, store_test
from aiayn.training.start import (
    RunServices,
    RunSpec,
    begin,
    make_data,
    make_services,
    sized_options,
)
from aiayn.training.step_form import step_form
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
    added = (module, datamodule, callbacks)
    if options.trainer.fast_dev_run:
        return _try_steps(options, chosen, *added)
    return _train_in(outputs or options.outputs_folder, options, chosen, *added)


def _train_in(
    outputs: Path, options: Config, chosen: Collection[str] | None, *added: Any, kept: bool = True
) -> Path:
    """Trains in a folder of `outputs`; unless it is `kept`, without a summary at the end."""
    options, research = research_of(options, *added)
    folder, stop = RunFolder(outputs / options.run_name), StopRequest()
    try:
        with handle_signals(stop.on_signal), own_errors_explained():
            _train_run(options, research, folder, chosen, stop, kept)
    except (InterruptedRunError, DivergedError) as error:
        if global_rank():
            # Before the ranks are connected, the exit code is all that rank 0 hears of it.
            raise SystemExit(0 if stop.control_group else error.exit_code) from error
        raise
    return folder.path


def _train_run(
    options: Config,
    research: Research,
    folder: RunFolder,
    chosen: Collection[str] | None,
    stop: StopRequest,
    kept: bool,
) -> None:
    """Trains one run: data, module, callbacks, Trainer, fit, average."""
    hardware = choose_hardware(options.trainer)
    sized, source = sized_options(options, folder, chosen, hardware.accelerator)
    form = step_form(sized, hardware, research)
    datamodule = make_data(sized, source, research, packed=form.why_padded is None)
    with run_lock(folder) as check_folder, explain_disk_errors(folder.path):
        checkpoint = load_resume_state(folder, datamodule.corpus, sized)
        run, validations = begin(sized, research, hardware, form, datamodule, checkpoint, folder)
        services = make_services(run, folder, check_folder, stop, validations)
        with training_threads(run.config.model.d_model, hardware):
            if run.is_finished:
                log.info(
                    "already finished at step %d, by %s: %s",
                    *(run.start_step, run.end_reason, folder.path),
                )
                store_test(folder, run.config)
            elif not run.is_trained:
                module = make_module(run, source)
                loggers = make_loggers(run.config, folder, run.start_step)
                if global_rank() == 0:
                    log_start(run, folder.path, module, source)
                failures, saver = ExplainFailures(run, stop), CheckpointSaver(run, services)
                callbacks = make_callbacks(run, services, failures, saver)
                trainer = make_trainer(run, services, loggers, callbacks)
                resume_path = str(step_path(folder.checkpoints, run.start_step))
                with supervised(trainer, services, loggers, failures, saver):
                    trainer.fit(module, datamodule, ckpt_path=resume_path if checkpoint else None)
            stop.enter_phase("stopped after the last step")
            finish(run, services, datamodule, summarizes=kept)


def make_module(run: RunSpec, source: Checkpoint | None) -> TranslationModule:
    """Returns the module with weights drawn from the seed, or in a new run those of `source`."""
    torch.manual_seed(run.config.seed)
    module_class = run.research.module if run.form.why_not_graphed else GraphedModule
    module = module_class(run.config, run.corpus.tokenizer.vocab_size)
    refuse_other_optimization(module)
    module.compiles = run.form.why_not_compiled is None
    if source:
        if not run.checkpoint:
            weights = module.initial_weights(source.weights)
            checkpoints.restore(module.model, replace(source, weights=weights))
        source.weights.clear()  # otherwise kept in memory until the end of the run
    return module


def make_callbacks(
    run: RunSpec, services: RunServices, failures: ExplainFailures, saver: CheckpointSaver
) -> list[pl.Callback]:
    """Returns the callbacks in the order in which they see a step; savers are always last."""
    scores = ValidationScores(run, services)
    return [
        ConnectRanks(run, services.stop),
        NonFiniteGuard(run, services),
        ThroughputMonitor(run, services),
        scores,
        *run.research.callbacks_of(run),
        Validate(run, services, scores),
        failures,
        saver,
        RunArtifacts(run, services),
    ]


@contextmanager
def supervised(
    trainer: pl.Trainer,
    services: RunServices,
    loggers: list[Logger],
    failures: ExplainFailures,
    saver: CheckpointSaver,
) -> Iterator[None]:
    """Watches the ranks while the Trainer fits, explains failures, and closes what was opened."""
    services.stop.begin_training()
    try:
        with services.writer, local_ranks(trainer), failures.raised():
            yield
    finally:
        services.stop.end_training(f"stopped after step {saver.done}")
        close(loggers)
    services.stop.enter_phase(f"stopped and saved at step {saver.done}")


def _try_steps(options: Config, chosen: Collection[str] | None, *added: Any) -> Path:
    """Trains `trainer.fast_dev_run` steps, which validate, save, log and send nothing, in a folder
    that is removed.
    """
    steps = int(options.trainer.fast_dev_run)
    options_in_steps = ("max_steps", "val_every", "checkpoint_every", "limit_val_batches")
    trainer = replace(
        options.trainer,
        **dict.fromkeys(options_in_steps, steps),
        log_every=1,
        val_bleu_sentences=min(options.trainer.val_bleu_sentences, 2),
        fast_dev_run=False,
    )
    options = replace(options, trainer=trainer, logger=replace(options.logger, kind="none"))
    with TemporaryDirectory() as outputs:
        folder = _train_in(Path(outputs), options, chosen, *added, kept=False)
    log.info(
        "trainer.fast_dev_run: %s trained, validated and saved; nothing is kept",
        counted(steps, "step"),
    )
    return folder
