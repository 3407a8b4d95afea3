"""A training run from its configuration to its averaged checkpoint; the same call continues an unfinished one."""

import fcntl
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import yaml
from pytorch_lightning.plugins import CheckpointIO
from pytorch_lightning.strategies import DDPStrategy
from pytorch_lightning.utilities import rank_zero_only

from aiayn import checkpoint as memory
from aiayn.checkpoint import Checkpoint
from aiayn.config import Config, SearchConfig, TrainerConfig, flatten, is_harmless, to_plain
from aiayn.data.corpus import read_split
from aiayn.data.datamodule import TranslationData
from aiayn.data.plan import Plan
from aiayn.data.prepared import Prepared, PreparedSplit, prepare
from aiayn.errors import ConfigError, RefusedError, ResourceError
from aiayn.evaluation.plots import draw_learning_curve
from aiayn.inference.translator import Translator
from aiayn.model.transformer import Transformer
from aiayn.training.callbacks import Measure, Save, Stop, Validate
from aiayn.training.loggers import make_loggers, read_metrics
from aiayn.training.module import TranslationModule

log = logging.getLogger(__name__)


def train(config: Config, outputs: Path = Path("outputs")) -> Path:
    """Trains until `trainer.max_steps`, from the newest checkpoint if there is one. Returns the run's folder.

    Raises ConfigError for hardware that is not there or a folder in use, DataError for unusable text, RefusedError for
    options that contradict the run's beginning, DivergedError, ResourceError, and InterruptedRunError after a signal.
    """
    _quiet_libraries()
    hardware = _choose_hardware(config.trainer)
    folder = outputs / config.name
    stop = Stop()
    with stop.listening():
        _refuse_changes(folder, config)
        prepared = prepare(config.data)
        with _owned(folder):
            found = _recall(folder, prepared, config)
            if found and found.checkpoint.step >= config.trainer.max_steps:
                if not (folder / "checkpoints" / "averaged.ckpt").exists():
                    _finish(folder, config)
                log.info("already finished at step %d: %s", found.checkpoint.step, folder)
                return folder
            _fit(folder, config, prepared, found, hardware, stop)
            _finish(folder, config)
    return folder


@dataclass(frozen=True)
class Found:
    """What an earlier start of the run left: a checkpoint and the optimizer's state that goes with it."""

    checkpoint: Checkpoint
    optimizer: dict[str, Any]


def _fit(
    folder: Path, config: Config, prepared: Prepared, found: Found | None, hardware: dict[str, str], stop: Stop
) -> None:
    plan = _plan(config, prepared.train, found)
    torch.manual_seed(config.seed)
    model = Transformer(config.model, prepared.tokenizer.vocab_size)
    io = RunCheckpoints(config, prepared, plan.micro_batches, found)
    start_step = found.checkpoint.step if found else 0
    loggers = make_loggers(config, folder, start_step)
    _write_config(folder, config)
    _log_start(config, prepared, plan, model, hardware, start_step)

    sources, references = read_split(config.data, "val")
    count = config.trainer.val_bleu_sentences
    greedy = SearchConfig(**vars(config.search) | {"beam_size": 1})
    module = TranslationModule(model, config.optim, config.seed)
    save = Save(config, folder / "checkpoints", stop)
    trainer = pl.Trainer(
        **hardware,
        devices=config.trainer.devices,
        num_nodes=config.trainer.num_nodes,
        strategy=_strategy(config.trainer),
        max_steps=config.trainer.max_steps,
        accumulate_grad_batches=plan.micro_batches // config.trainer.world_size,
        callbacks=[Measure(config, plan.steps_per_epoch)],
        logger=loggers,
        plugins=[io],
        limit_val_batches=0,
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    translator = Translator(model, prepared.tokenizer, greedy, trainer.strategy.root_device)
    trainer.callbacks += [Validate(config, translator, sources[:count], references[:count], folder), save]
    data = TranslationData(
        prepared.train, plan, prepared.val, _validation_plan(config, prepared.val), config.data.workers
    )
    stop.training = True
    try:
        trainer.fit(module, data, ckpt_path=str(memory.step_path(save.folder, start_step)) if found else None)
    except torch.OutOfMemoryError as error:
        raise ResourceError(
            f"out of memory at step {save.done + 1}: lower data.max_tokens_per_device "
            f"(now {config.data.max_tokens_per_device}); the steps stay as they are"
        ) from error
    finally:
        stop.training = False
        for logger in loggers:
            logger.finalize("finished")
    stop.check(f"stopped and saved at step {save.done}; run the same command to continue")


def _finish(folder: Path, config: Config) -> None:
    """Averages the last checkpoints and draws what was measured."""
    if rank_zero_only.rank != 0:
        return
    checkpoints = folder / "checkpoints"
    chosen = memory.steps(checkpoints)[-config.trainer.average_last :]
    memory.save(
        checkpoints / "averaged.ckpt",
        memory.average([memory.load(memory.step_path(checkpoints, step)) for step in chosen]),
    )
    draw_learning_curve(read_metrics(folder / "metrics.jsonl"), folder / "learning_curve.png")
    log.info("averaged the checkpoints of steps %s", ", ".join(map(str, chosen)))
    log.info("done: %s\nscore it with: python evaluate.py run=%s", folder, folder)


# What may and what may not change between two starts.


def _refuse_changes(folder: Path, config: Config) -> None:
    """Raises RefusedError if an option that defines the training differs from the run's beginning."""
    path = folder / "config.yaml"
    if not path.exists():
        return
    before, now = flatten(yaml.safe_load(path.read_text(encoding="utf-8"))), flatten(to_plain(config))
    changed = [key for key in now if not is_harmless(key) and before.get(key) != now[key]]
    if changed:
        diff = "; ".join(f"{key}: {before.get(key)} -> {now[key]}" for key in changed)
        raise RefusedError(f"{folder} was started with other options ({diff}); give a new run another name=")


def _recall(folder: Path, prepared: Prepared, config: Config) -> Found | None:
    """What to continue from. Raises RefusedError if it belongs to another corpus or needs other devices."""
    newest = memory.newest_complete(folder / "checkpoints")
    if newest is None:
        return None
    checkpoint, optimizer = newest
    if checkpoint.corpus != prepared.fingerprint:
        raise RefusedError(
            f"{folder} was started on another text (prepared corpus {checkpoint.corpus[:16]}, now "
            f"{prepared.fingerprint[:16]}); give a new run another name="
        )
    parts, world_size = checkpoint.micro_batches, config.trainer.world_size
    if parts % world_size:
        counts = ", ".join(str(count) for count in range(1, parts + 1) if parts % count == 0)
        raise RefusedError(
            f"trainer.devices: the steps of {folder} have {parts} micro-batches, {world_size} devices cannot share "
            f"them evenly; use {counts}"
        )
    return Found(checkpoint, optimizer)


def _write_config(folder: Path, config: Config) -> None:
    if rank_zero_only.rank == 0:
        text = yaml.safe_dump(to_plain(config), sort_keys=False, allow_unicode=True)
        temporary = folder / ".config.yaml.part"
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, folder / "config.yaml")


@contextmanager
def _owned(folder: Path) -> Iterator[None]:
    """Makes the run's folder, and makes it this process' alone. Raises ConfigError if another process has it."""
    if rank_zero_only.rank != 0:  # the first rank owns it for all
        yield
        return
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            raise ConfigError(f"{folder} is in use by {lock.read().strip()}; wait, or choose another name=") from error
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {os.uname().nodename}")
        lock.flush()
        memory.sweep(folder / "checkpoints")
        try:
            yield
        finally:
            with suppress(OSError):
                (folder / ".lock").unlink()


class RunCheckpoints(CheckpointIO):
    """Lightning's checkpoints as the files of `aiayn.checkpoint`: a model, and the optimizer's state beside it."""

    def __init__(self, config: Config, prepared: Prepared, micro_batches: int, found: Found | None):
        self.config = config
        self.prepared = prepared
        self.micro_batches = micro_batches
        self.found = found

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        path = Path(path)
        weights = {name.removeprefix("model."): value.cpu() for name, value in checkpoint["state_dict"].items()}
        states = {key: checkpoint[key] for key in ("optimizer_states", "lr_schedulers", "loops")}
        # The checkpoint's own file comes last: with it in place, both are.
        version = checkpoint["pytorch-lightning_version"]
        memory.write(memory.optimizer_path(path), {"format": memory.FORMAT, "lightning": version, **states})
        memory.save(
            path,
            Checkpoint(
                step=checkpoint["global_step"],
                config=self.config,
                weights=weights,
                tokenizer=self.prepared.tokenizer.to_json(),
                corpus=self.prepared.fingerprint,
                micro_batches=self.micro_batches,
                averaged=[],
            ),
        )

    def load_checkpoint(self, path: str | Path, map_location: Any = None, weights_only: bool | None = None) -> dict:
        checkpoint, states = self.found.checkpoint, self.found.optimizer
        batches = checkpoint.step * self.micro_batches // self.config.trainer.world_size
        return {
            "state_dict": {f"model.{name}": value for name, value in checkpoint.weights.items()},
            "global_step": checkpoint.step,
            "epoch": 0,
            "pytorch-lightning_version": states["lightning"],
            "optimizer_states": states["optimizer_states"],
            "lr_schedulers": states["lr_schedulers"],
            "loops": _with_batches(states["loops"], batches),
            "callbacks": {},
        }

    def remove_checkpoint(self, path: str | Path) -> None:
        Path(path).unlink(missing_ok=True)


def _with_batches(loops: Mapping[str, Any], batches: int) -> dict[str, Any]:
    """Lightning's counters, with the number of micro-batches that this number of devices would have taken each."""
    fit = dict(loops["fit_loop"])
    progress = {
        part: dict(counts) for part, counts in fit["epoch_loop.batch_progress"].items() if part != "is_last_batch"
    }
    for counts in progress.values():
        counts.update({"ready": batches, "started": batches, "processed": batches, "completed": batches})
    fit["epoch_loop.batch_progress"] = {**progress, "is_last_batch": False}
    fit["epoch_loop.state_dict"] = {**fit["epoch_loop.state_dict"]}
    return {**loops, "fit_loop": fit}


# Hardware and batches.


def _choose_hardware(settings: TrainerConfig) -> dict[str, str]:
    """Lightning's accelerator and precision. Raises ConfigError for devices that are not there."""
    gpus = torch.cuda.device_count()
    accelerator = settings.accelerator
    if accelerator == "auto":
        accelerator = "gpu" if gpus else "cpu"
    if accelerator == "gpu" and gpus < settings.devices:
        raise ConfigError(
            f"trainer.devices={settings.devices}: this machine has {gpus} GPUs; lower trainer.devices, or set "
            "trainer.accelerator=cpu"
        )
    if settings.precision != "auto":
        return {"accelerator": accelerator, "precision": settings.precision}
    bf16 = torch.cuda.is_bf16_supported() if accelerator == "gpu" else torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return {"accelerator": accelerator, "precision": "bf16-mixed" if bf16 else "32-true"}


def _strategy(settings: TrainerConfig) -> str | DDPStrategy:
    if settings.world_size == 1 and settings.strategy == "auto":
        return "auto"
    # Every device computes its own table of sinusoids; there is nothing to broadcast.
    return DDPStrategy(broadcast_buffers=False, gradient_as_bucket_view=True)


def _plan(config: Config, split: PreparedSplit, found: Found | None) -> Plan:
    data = config.data
    return Plan(
        split.src_lengths + 1,
        split.tgt_lengths + 1,
        tokens_per_step=data.tokens_per_step,
        seed=config.seed,
        micro_batches=found.checkpoint.micro_batches if found else data.micro_batches,
        devices=config.trainer.world_size,
        max_tokens_per_device=data.max_tokens_per_device,
    )


def _validation_plan(config: Config, split: PreparedSplit) -> Plan:
    """Validation in the largest batches that a device takes; a sentence longer than that goes alone."""
    src, tgt = split.src_lengths + 1, split.tgt_lengths + 1
    limit = max(config.data.max_tokens_per_device, int(src.max()), int(tgt.max()))
    return Plan(src, tgt, tokens_per_step=limit, seed=0, max_tokens_per_device=limit)


def _log_start(
    config: Config, prepared: Prepared, plan: Plan, model: Transformer, hardware: dict[str, str], start_step: int
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
