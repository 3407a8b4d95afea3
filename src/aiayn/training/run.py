"""A training run from its configuration to its averaged checkpoint; the same call continues an
unfinished one.
"""

import logging
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytorch_lightning as pl
import torch

from aiayn.config.extensions import own_code_explained
from aiayn.config.schema import Config
from aiayn.config.stored import filled
from aiayn.data.datamodule import TranslationDataModule
from aiayn.data.preparation import infer_from_text
from aiayn.errors import DivergedError, InterruptedRunError, counted
from aiayn.hardware import choose_hardware, training_threads
from aiayn.runs import checkpoints
from aiayn.runs.checkpoint_folder import step_path
from aiayn.runs.checkpoints import Checkpoint
from aiayn.runs.continuation import check_unchanged, store_end, to_continue
from aiayn.runs.run_folder import RunFolder, saved_steps
from aiayn.signals import handle_signals
from aiayn.training.callbacks.checkpoint_saver import CheckpointSaver
from aiayn.training.callbacks.display import Display
from aiayn.training.callbacks.monitors import NonFiniteGuard, ThroughputMonitor
from aiayn.training.callbacks.validate import Validate, ValidationScores
from aiayn.training.checkpoint_io import BackgroundWriter
from aiayn.training.distributed.failures import ConnectRanks, ExplainFailures, explain_disk_errors
from aiayn.training.distributed.ranks import StopRequest, find_rank, global_rank, local_ranks
from aiayn.training.finish import finish
from aiayn.training.log_start import log_start
from aiayn.training.loggers import RunArtifacts, close, make_loggers
from aiayn.training.module import TranslationModule
from aiayn.training.proof import check_shapes
from aiayn.training.research import (
    Research,
    keep_description,
    refuse_manual_optimization,
    research_of,
)
from aiayn.training.resume import first_options, load_resume_state, run_lock, store_test
from aiayn.training.start import (
    RunServices,
    RunSpec,
    TrainingClock,
    begin,
    check_size,
    make_data,
    step_form,
)
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

    The run folder is created in `outputs` (None: the configured folder). With `init_from`, that run
    determines model and vocabulary; an option that the arguments `chosen` set (None: any option)
    and that contradicts it is refused. `module`, `datamodule` and `callbacks` are added to those of
    `extensions`. Raises ConfigError for missing hardware or a folder in use, DataError for unusable
    text, RefusedError for options that contradict the run's first start, DivergedError,
    ResourceError, and InterruptedRunError after a signal. Errors common to all ranks are printed by
    rank 0; the others exit silently.
    """
    find_rank(options.trainer)
    configure_libraries()
    n_tried = int(options.trainer.fast_dev_run)
    if n_tried:
        options = of_few_steps(options, n_tried)
    with own_code_explained(options.extensions):
        options, research = research_of(options, module, datamodule, callbacks)
    stop = StopRequest()
    with (
        TemporaryDirectory() if n_tried else nullcontext(outputs or options.outputs_folder)
    ) as root:
        folder = RunFolder(Path(root) / options.run_name)
        try:
            with handle_signals(stop.on_signal):
                _train(options, research, folder, chosen, stop)
        except (InterruptedRunError, DivergedError) as error:
            if global_rank():
                # Before the ranks are connected, rank 0 learns only the exit code.
                raise SystemExit(0 if stop.control_group else error.exit_code) from error
            raise
        finally:
            classes = filter(None, (module, datamodule))
            for cls, description in zip(classes, options.given, strict=False):
                keep_description(cls, description)
    if n_tried:
        log.info(
            "trainer.fast_dev_run: %s trained, validated and saved; nothing is kept",
            counted(n_tried, "step"),
        )
    return folder.path


def of_few_steps(options: Config, n_steps: int) -> Config:
    """Returns the options of a training of `n_steps` that validates, saves and logs, but sends
    nothing.
    """
    intervals = ("max_steps", "val_every", "checkpoint_every", "limit_val_batches")
    trainer = replace(
        options.trainer,
        **dict.fromkeys(intervals, n_steps),
        log_every=1,
        val_bleu_sentences=min(options.trainer.val_bleu_sentences, 2),
    )
    return replace(options, trainer=trainer, logger=replace(options.logger, kind="none"))


def _train(
    options: Config,
    research: Research,
    folder: RunFolder,
    chosen: Collection[str] | None,
    stop: StopRequest,
) -> None:
    """Trains one run: data, module, callbacks, Trainer, fit, average."""
    hardware = choose_hardware(options.trainer)
    source = None
    if options.init_from is not None:
        from aiayn.training.init_from import resolve_init_from

        options, source = resolve_init_from(options, options.init_from, folder, chosen)
    if stored := first_options(folder):
        options = filled(options, stored)
        check_unchanged(folder, options, stored)
    sized = infer_from_text(options)
    check_size(sized.model, sized.data.vocab_size, hardware.accelerator, sized.data.src_vocab_size)
    form = step_form(sized, hardware, research)
    own_code = research.file_names
    with own_code_explained(own_code):
        datamodule = make_data(sized, source, research, hardware, packed=form.is_packed)
    with run_lock(folder) as check_folder, explain_disk_errors(folder.path):
        checkpoint = load_resume_state(folder, datamodule.corpus, sized)
        with own_code_explained(own_code):
            run, validations = begin(
                sized, research, hardware, form, datamodule, checkpoint, folder
            )
        trainer = run.config.trainer
        services = RunServices(
            folder=folder,
            check_folder=check_folder,
            writer=BackgroundWriter(check_folder),
            stop=stop,
            validations=validations,
            clock=TrainingClock(),
            display=Display(trainer.max_steps, trainer.enable_progress_bar),
        )
        with training_threads(run.config.model.d_model, hardware):
            if stored and run.is_finished:
                reason = run.end_reason or ""
                log.info(
                    "already finished at step %d (%s), in %s; %s",
                    *(run.start_step, reason, folder.path, to_continue(reason, trainer)),
                )
                store_test(folder, stored, run.config)
            else:
                _fit(run, services, datamodule, source)
            stop.enter_phase("after the last step")
            finish(run, services, datamodule)


def _fit(
    run: RunSpec,
    services: RunServices,
    datamodule: TranslationDataModule,
    source: Checkpoint | None,
) -> None:
    """Trains until the last step. Watches the ranks meanwhile, and explains failures."""
    folder, stop = services.folder, services.stop
    with own_code_explained(run.research.file_names):
        module = make_module(run, source)
        if global_rank() == 0:
            log_start(run, folder.path, module, source)
        own_callbacks = run.research.callbacks_of(run)
    scores = ValidationScores(run, services)
    validate = Validate(run, services, scores)
    failures = ExplainFailures(run, stop)
    callbacks = [  # in the order in which they see a step; savers are always last
        ConnectRanks(run, stop),
        NonFiniteGuard(run, services),
        ThroughputMonitor(run, services),
        scores,
        *own_callbacks,
        validate,
        failures,
        CheckpointSaver(run, services, validate),
        RunArtifacts(run, services),
    ]
    # After callbacks have been checked: a refused run leaves nothing behind, not even at W&B
    loggers = make_loggers(run.config, folder, run.start_step)
    trainer = make_trainer(run, services, loggers, callbacks)
    newest = str(step_path(folder.checkpoints, run.start_step)) if run.checkpoint else None
    stop.message = None
    try:
        with services.writer, local_ranks(trainer):
            trainer.fit(module, datamodule, ckpt_path=newest)
    except Exception as error:
        if isinstance(error, DivergedError) and global_rank() == 0:
            step = max(saved_steps(folder.checkpoints), default=0)
            store_end(folder, run.config.trainer, step, "divergence")
        if failures.explained is None:
            raise
        raise failures.explained from error
    finally:
        stop.message = f"after step {trainer.global_step}"
        close(loggers)
    stop.enter_phase(f"saved at step {trainer.global_step}")


def make_module(run: RunSpec, source: Checkpoint | None) -> TranslationModule:
    """Returns the module with weights drawn from the seed, or, in a new run, with those of
    `source`.
    """
    torch.manual_seed(run.config.seed)
    module_class = run.research.module
    if not run.form.why_not_graphed:
        from aiayn.training.graphed import GraphedModule

        module_class = GraphedModule
    module = module_class(run.config, run.corpus.tokenizer.vocab_size)
    refuse_manual_optimization(module)
    module.compiles = run.form.why_not_compiled is None
    if run.config.model.parts and not run.checkpoint:
        check_shapes(module)
    if source:
        if not run.checkpoint:
            weights = module.initial_weights(source.weights)
            checkpoints.restore(module.model, replace(source, weights=weights))
        source.weights.clear()  # otherwise kept in memory until the end of the run
    return module
