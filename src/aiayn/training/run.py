"""A training run from its configuration to its averaged checkpoint; the same call continues an unfinished one."""

import logging
import sys
import warnings
from collections.abc import Collection
from pathlib import Path

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import rank_zero_only

from aiayn import checkpoints
from aiayn.config import Config, SearchConfig, TrainerConfig
from aiayn.data.batch_plan import BatchPlan
from aiayn.data.corpus_store import PreparedCorpus, PreparedSplit
from aiayn.data.datamodule import TranslationDataModule
from aiayn.data.prepare import prepare
from aiayn.data.sources import read_split
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import DivergedError, InterruptedRunError
from aiayn.hardware import choose_hardware
from aiayn.inference.translator import Translator
from aiayn.model.transformer import Transformer
from aiayn.report.plots import draw_learning_curve
from aiayn.report.report import summary, write_report
from aiayn.run_folder import read_jsonl
from aiayn.training.callbacks.checkpoint_saver import CheckpointSaver, to_average
from aiayn.training.callbacks.display import Display
from aiayn.training.callbacks.non_finite_guard import NonFiniteGuard
from aiayn.training.callbacks.rendezvous import Rendezvous
from aiayn.training.callbacks.run_artifacts import RunArtifacts
from aiayn.training.callbacks.steps import TrainingClock
from aiayn.training.callbacks.throughput_monitor import ThroughputMonitor
from aiayn.training.callbacks.validate import Validate
from aiayn.training.distributed.failures import explain_disk_errors, explain_failure
from aiayn.training.distributed.stop_request import StopRequest
from aiayn.training.distributed.strategy import WatchedDDPStrategy
from aiayn.training.init_from import resolve_init_from
from aiayn.training.loggers import close, make_loggers, upload
from aiayn.training.module import TranslationModule
from aiayn.training.resume import (
    ResumeState,
    RunCheckpointIO,
    load_resume_state,
    refuse_changes,
    run_lock,
    write_config,
)

log = logging.getLogger(__name__)


def train(config: Config, outputs: Path = Path("outputs"), chosen: Collection[str] | None = None) -> Path:
    """Trains until `trainer.max_steps`, from the newest checkpoint if there is one. Returns the run's folder.

    With `init_from` that run decides about model and vocabulary, and of the options `chosen` (None: all) one that
    contradicts it is refused.
    Raises ConfigError for hardware that is not there or a folder in use, DataError for unusable text, RefusedError for
    options that contradict the run's beginning, DivergedError, ResourceError, and InterruptedRunError after a signal.
    What all devices' processes find alike the first one says, and the others end without a word.
    """
    _quiet_libraries()
    stop = StopRequest()
    try:
        return _train(config, outputs, chosen, stop)
    except (InterruptedRunError, DivergedError) as error:
        if rank_zero_only.rank:
            # Before the processes have met, this code is all that another one hears of it.
            raise SystemExit(0 if stop.peers else error.exit_code) from error
        raise


def _train(config: Config, outputs: Path, chosen: Collection[str] | None, stop: StopRequest) -> Path:
    hardware = choose_hardware(config.trainer)
    folder = outputs / config.name
    with stop.listening():
        config, source = resolve_init_from(config, folder, chosen)
        refuse_changes(folder, config)
        prepared = prepare(config.data, Tokenizer.from_json(source.tokenizer) if source else None)
        with run_lock(folder), explain_disk_errors(folder):
            found = load_resume_state(folder, prepared, config)
            averaged = (folder / "checkpoints" / "averaged.ckpt").exists()
            if found and found.checkpoint.step >= config.trainer.max_steps and averaged:
                log.info("already finished at step %d: %s", found.checkpoint.step, folder)
                return folder
            # As it stands it can be unusable where the prepared text is not: before anything of the run is written.
            text = read_split(config.data, "val") if config.trainer.val_bleu_sentences else ([], [])
            _fit(folder, config, prepared, text, found, source, hardware, stop)
            stop.after("stopped after the last step")
            _finish(folder, config)
    return folder


def _fit(
    folder: Path,
    config: Config,
    prepared: PreparedCorpus,
    text: tuple[list[str], list[str]],  # of the validation
    found: ResumeState | None,
    source: checkpoints.Checkpoint | None,
    hardware: dict[str, str],
    stop: StopRequest,
) -> None:
    plan = _plan(config, prepared.train, found)
    torch.manual_seed(config.seed)
    model = Transformer(config.model, prepared.tokenizer.vocab_size)
    io = RunCheckpointIO(config, prepared, plan.micro_batches, found)
    start_step = found.checkpoint.step if found else 0
    loggers = make_loggers(config, folder, start_step)
    write_config(folder, config)
    _log_start(config, prepared, plan, model, hardware, start_step)
    if source and not found:
        checkpoints.restore(model, source)
        _log_source(config, source)
    if source:
        source.weights.clear()  # else held to the end of the run

    greedy = SearchConfig(**vars(config.search) | {"beam_size": 1})
    settings = config.trainer
    module = TranslationModule(model, config.optim, config.seed, settings.max_skipped_steps, settings.compile)
    time, display = TrainingClock(), Display(config.trainer.max_steps)
    finite = NonFiniteGuard(config, plan, prepared, folder)
    save = CheckpointSaver(config, folder / "checkpoints", stop, finite, time)
    save.done = start_step
    trainer = pl.Trainer(
        **hardware,
        devices=config.trainer.devices,
        num_nodes=config.trainer.num_nodes,
        strategy=_strategy(config.trainer),
        max_steps=config.trainer.max_steps,
        accumulate_grad_batches=plan.micro_batches // config.trainer.world_size,
        callbacks=[
            Rendezvous(config.trainer, stop),
            finite,
            ThroughputMonitor(config, plan.steps_per_epoch, time, display),
        ],
        logger=loggers,
        plugins=[io],
        limit_val_batches=0,
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    # Lightning's own handlers save nothing, and talk to other processes in the midst of anything.
    trainer._signal_connector.register_signal_handlers = lambda: None
    translator = Translator(model, prepared.tokenizer, greedy, trainer.strategy.root_device)
    first = (side[: settings.val_bleu_sentences] for side in text)
    validate = Validate(config, translator, *first, folder, start_step, time, display, stop)
    trainer.callbacks += [validate, RunArtifacts(config, prepared, plan, translator, text[0], folder, time), save]
    data = TranslationDataModule(
        prepared.train, plan, prepared.val, _validation_plan(config, prepared.val), config.data.num_workers
    )
    stop.training = True
    try:
        trainer.fit(module, data, ckpt_path=str(checkpoints.step_path(save.folder, start_step)) if found else None)
    except Exception as error:
        cause = explain_failure(error, config, module, save, stop)
        if isinstance(trainer.strategy, WatchedDDPStrategy):
            trainer.strategy.end_others()
        if cause is error:
            raise
        raise cause from error
    finally:
        stop.state, stop.training = f"stopped after step {save.done}", False
        close(loggers)
    stop.after(f"stopped and saved at step {save.done}")


def _finish(folder: Path, config: Config) -> None:
    """Averages the last checkpoints and draws what was measured."""
    if rank_zero_only.rank != 0:
        return
    checkpoint_folder = folder / "checkpoints"
    chosen = to_average(checkpoint_folder, config.trainer)
    # A kill can have come between the last save and these two.
    checkpoints.update_last(checkpoint_folder, checkpoints.saved_steps(checkpoint_folder)[-1])
    checkpoints.prune(checkpoint_folder, chosen)
    averaged = checkpoints.average(
        [checkpoints.load(checkpoints.step_path(checkpoint_folder, step)) for step in chosen]
    )
    draw_learning_curve(read_jsonl(folder / "metrics.jsonl"), folder / "learning_curve.png")
    write_report(folder)
    checkpoints.save(checkpoint_folder / "averaged.ckpt", averaged)  # last: with it in place the run is finished
    upload(config, folder)
    log.info("averaged the checkpoints of steps %s", ", ".join(map(str, chosen)))
    log.info(summary(folder))


# Hardware and batches.


def _strategy(settings: TrainerConfig) -> str | WatchedDDPStrategy:
    return "auto" if settings.world_size == 1 and settings.strategy == "auto" else WatchedDDPStrategy(settings.timeout)


def _plan(config: Config, split: PreparedSplit, found: ResumeState | None) -> BatchPlan:
    data = config.data
    return BatchPlan(
        split.src_lengths + 1,
        split.tgt_lengths + 1,
        tokens_per_step=data.tokens_per_step,
        seed=config.seed,
        micro_batches=found.checkpoint.micro_batches if found else data.micro_batches,
        devices=config.trainer.world_size,
        max_tokens_per_device=data.max_tokens_per_device,
    )


def _validation_plan(config: Config, split: PreparedSplit) -> BatchPlan:
    """Validation in the largest batches that a device takes; a sentence longer than that goes alone."""
    src, tgt = split.src_lengths + 1, split.tgt_lengths + 1
    limit = max(config.data.max_tokens_per_device, int(src.max()), int(tgt.max()))
    return BatchPlan(src, tgt, tokens_per_step=limit, seed=0, max_tokens_per_device=limit)


def _log_start(
    config: Config,
    prepared: PreparedCorpus,
    plan: BatchPlan,
    model: Transformer,
    hardware: dict[str, str],
    start_step: int,
) -> None:
    if rank_zero_only.rank != 0:
        return
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    world_size = config.trainer.world_size
    log.info("run      outputs/%s, %s", config.name, f"continued at step {start_step}" if start_step else "new")
    log.info("model    %.1f M parameters, vocabulary %d", n_parameters / 1e6, prepared.tokenizer.vocab_size)
    log.info(
        "data     %d pairs, %d steps an epoch, %d micro-batches a step, %.1f %% padding",
        len(prepared.train),
        plan.steps_per_epoch,
        plan.micro_batches,
        100 * plan.padding,
    )
    reason = (
        ""
        if config.trainer.precision != "auto"
        else (
            " (this hardware computes in bfloat16)"
            if hardware["precision"] == "bf16-mixed"
            else " (this hardware has no bfloat16 arithmetic)"
        )
    )
    log.info("device   %d x %s, precision %s%s", world_size, hardware["accelerator"], hardware["precision"], reason)


def _log_source(config: Config, source: checkpoints.Checkpoint) -> None:
    log.info("from     %s, step %d%s", config.init_from, source.step, ", averaged" if source.averaged else "")
    before, now = (f"{data.src_lang}-{data.tgt_lang}" for data in (source.config.data, config.data))
    if before != now:
        log.info("         it translates %s, this text is %s", before, now)


def _quiet_libraries() -> None:
    """Our own lines on stderr, from the first rank; Lightning's advice and internal deprecations are not for users."""
    logger = logging.getLogger("aiayn")
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
    logger.setLevel(logging.INFO if rank_zero_only.rank == 0 else logging.ERROR)
    for name in ("pytorch_lightning", "lightning_fabric", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"(pytorch_lightning|lightning_fabric|torch\.utils\._pytree).*")
    warnings.filterwarnings("ignore", message=".*LeafSpec.*")
