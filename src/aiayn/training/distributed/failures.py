"""Failures between ranks and machines: refused in advance, or turned into a message with cause and
remedy.
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb

import pytorch_lightning as pl

from aiayn.errors import (
    DISK_FULL,
    ConfigError,
    ResourceError,
    UserError,
    explain_own_code,
    one_line,
    summary_of,
)
from aiayn.hardware import is_out_of_memory
from aiayn.training.callbacks.steps import ends_step
from aiayn.training.distributed.ranks import (
    LOST_RANK_GRACE,
    RUN_AGAIN,
    StopRequest,
    exit_after,
    exit_at_once,
    global_rank,
    lost_contact,
)
from aiayn.training.module import TranslationModule
from aiayn.training.start import RunSpec

SHUTDOWN = 60.0  # seconds for loggers and process group to end after an error


@dataclass(eq=False)
class ConnectRanks(pl.Callback):
    """Connects the stop requests of several ranks, before all other callbacks; refuses ranks that
    would not fit together.
    """

    run: RunSpec
    stop: StopRequest

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.world_size == 1:
            return
        self.stop.connect_ranks(self.run.config.trainer.timeout)
        group, count = self.stop.control_group, self.run.plan.micro_batches
        if group and group.max_over_ranks(count) != count:
            raise ConfigError(
                "the GPUs' memories differ, and with them the micro-batches of a step "
                f"({count} on rank {trainer.global_rank}): set data.max_tokens_per_device to "
                "what fits the smallest"
            )

    def on_after_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Ends the run where a step left parameters out: the other ranks wait for their gradients,
        inside DDP.

        Raises ConfigError on rank 0. Another rank prints it and ends, because rank 0 may be
        waiting.
        """
        waits = self.run.config.trainer.strategy != "ddp_find_unused_parameters_true"
        is_step_end = ends_step(trainer, trainer.fit_loop.epoch_loop.batch_idx)
        if trainer.world_size == 1 or not waits or not is_step_end:
            return
        unused = [
            name
            for name, weight in pl_module.named_parameters()
            if weight.requires_grad and weight.grad is None
        ]
        if not unused:
            return
        others = f" and {len(unused) - 3} more" if len(unused) > 3 else ""
        message = (
            f"step {trainer.global_step + 1} left parameters out on rank {trainer.global_rank} "
            f"({', '.join(unused[:3])}{others}), and other ranks wait for their gradients: set "
            "trainer.strategy=ddp_find_unused_parameters_true, or use all of them"
        )
        if trainer.is_global_zero:
            raise ConfigError(message)
        time.sleep(1)  # seconds in which rank 0 ends this process if it has found the same
        if group := self.stop.control_group:
            group.set_flag("failed", ConfigError.exit_code)
        exit_at_once(message, ConfigError.exit_code)


@dataclass(eq=False)
class ExplainFailures(pl.Callback):
    """Turns the loss of a rank or a worker, and out-of-memory errors, into a ResourceError that
    says what to do.

    It explains before Lightning's teardown, which could wait for a lost rank's GPU for ever; then
    this process ends without a teardown.
    """

    run: RunSpec
    stop: StopRequest
    explained: BaseException | None = None  # what to raise instead of an error

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        if isinstance(exception, Exception) and isinstance(pl_module, TranslationModule):
            self.explained = self._explain(exception, pl_module, trainer.global_step)
        if trainer.world_size == 1:
            return
        end, group = self.explained or exception, self.stop.control_group
        code, message = getattr(end, "exit_code", 1), str(end)
        if isinstance(end, SystemExit):  # another rank says why
            code, message = int(end.code or 0), ""
        elif group and isinstance(end, UserError) and not lost_contact(exception):
            with suppress(RuntimeError):  # rank 0, which holds the store, is gone
                group.set_flag("failed", code)
        exit_after(LOST_RANK_GRACE if lost_contact(exception) else SHUTDOWN, code, message)

    def _explain(
        self, error: Exception, module: TranslationModule, step: int
    ) -> BaseException | None:
        """Returns what to raise instead of an error after step `step`; None for an error that needs
        no explanation.
        """
        config = self.run.config
        is_lost = config.trainer.world_size > 1 and lost_contact(error)
        if is_lost and (lost_rank := self._lost_rank(error, step)):
            return lost_rank
        if "multiple optimizers" in str(error):  # Lightning advises manual optimization
            return ConfigError(
                f"{type(module).__name__}: configure_optimizers returns several optimizers; return "
                "one, with parameter groups"
            )
        if is_out_of_memory(error):
            remedy = "lower data.max_tokens_per_device"
            if module.batch_tokens:
                remedy += f" below {module.batch_tokens}, the size of that batch's longer side"
            if module.in_validation:
                remedy = f"split the longest lines of data.val={config.data.val}, or {remedy}"
            elif self.run.start_step or step >= config.trainer.checkpoint_every:
                # There is a checkpoint, or it is being written.
                remedy = (
                    "a run keeps its micro-batches; use more devices, or choose another name= and "
                    f"{remedy}"
                )
            phase = "in validation" if module.in_validation else f"at step {step + 1}"
            return ResourceError(f"out of memory {phase}, {module.at}: {remedy}")
        # A worker that is killed while it hands over a batch shows as a broken connection.
        broken = isinstance(error, ConnectionError | EOFError) and config.data.num_workers
        if broken or str(error).startswith("DataLoader worker"):
            reason = one_line(error).rstrip(".") or "it closed its connection"
            return ResourceError(
                f"a data loader worker died after step {step} ({reason}); if memory ran out, lower "
                f"data.num_workers (now {config.data.num_workers}); {RUN_AGAIN}"
            )
        if self.run.checkpoint and step <= self.run.start_step + 1 and _restores(error):
            return self.run.checkpoint.refusal(summary_of(error))
        if not self.run.checkpoint and step <= 1 and not isinstance(error, UserError):
            line = explain_own_code(error, ", ".join(self.run.research.file_names))
            return ConfigError(line) if line else None
        return None

    def _lost_rank(self, error: Exception, step: int) -> BaseException | None:
        """Explains an error that means that other ranks do not answer; None if they all do now."""
        settings, group = self.run.config.trainer, self.stop.control_group
        world_size, timeout = settings.world_size, f"trainer.timeout={settings.timeout} seconds"
        if not group:
            lost, fault = [0], f"rank 0 of {world_size} did not answer"
            if joined := re.search(r"(\d+)/\d+ clients joined", str(error)):
                fault = f"only {joined[1]} of {world_size} ranks joined"
            message = f"{fault} within {timeout}: a process has ended, or was never started"
        else:
            lost, code = group.missing_ranks()
            if code:
                return SystemExit(code)  # it has said why
            if not lost:
                return None
            message = (
                f"no answer from rank {', '.join(map(str, lost))} of {world_size} after step "
                f"{step}: its process has ended, or has not answered for {timeout}"
            )
        if global_rank() and 0 not in lost:
            return SystemExit(ResourceError.exit_code)  # rank 0 prints the message
        return ResourceError(f"{message}; {RUN_AGAIN}")


def _restores(error: Exception) -> bool:
    """Returns whether an error comes from restoring a state, or from the optimizer that uses it."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    modules = [frame.f_globals.get("__name__", "") for frame in frames]
    return not isinstance(error, UserError) and any(
        module.startswith("torch.optim")
        or (module.endswith("checkpoint_connector") and "restore" in frame.f_code.co_name)
        for module, frame in zip(modules, frames, strict=True)
    )


@contextmanager
def explain_disk_errors(folder: Path) -> Iterator[None]:
    """Turns an OSError of the run's folder, or of a full disk, into a ResourceError that says what
    to do.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL and not str(error.filename).startswith(str(folder)):
            raise
        path = error.filename or folder
        raise ResourceError(
            f"{path}: cannot be written ({error.strerror}); make room or make it writable, and "
            f"{RUN_AGAIN}"
        ) from error
