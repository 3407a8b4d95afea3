"""Errors of a training that say neither what to blame nor what to do, in words that do."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from pytorch_lightning.utilities import rank_zero_only

from aiayn import checkpoints
from aiayn.config import Config
from aiayn.errors import ResourceError
from aiayn.training.callbacks.checkpoint_saver import CheckpointSaver
from aiayn.training.distributed.control_group import GRACE, exit_after, lost_contact
from aiayn.training.distributed.stop_request import StopRequest
from aiayn.training.distributed.strategy import AGAIN
from aiayn.training.module import TranslationModule

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def explain_failure(
    error: Exception, config: Config, module: TranslationModule, save: CheckpointSaver, stop: StopRequest
) -> BaseException:
    """The ResourceError that a lost process or a lack of memory comes down to; any other error as it is."""
    if config.trainer.world_size > 1 and lost_contact(error):
        if not stop.peers:
            return _never_met(error, config)
        if lost := stop.peers.missing():
            return _lost(lost, config, save.done)
    if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
        remedy = f"lower data.max_tokens_per_device (now {config.data.max_tokens_per_device})"
        if checkpoints.saved_steps(save.folder):
            remedy = f"use more devices, or {remedy} and choose another name=: a run's steps stay cut as they were"
        return ResourceError(f"out of memory at step {save.done + 1}, {module.at}: {remedy}")
    # A loader process that was killed while it handed over a batch shows as a broken connection.
    if str(error).startswith("DataLoader worker") or (
        config.data.num_workers and isinstance(error, ConnectionError | EOFError)
    ):
        said = " ".join(str(error).split()).rstrip(".") or "nothing came from it"
        return ResourceError(
            f"a loader process has ended after step {save.done} ({said}); if memory ran out, lower "
            f"data.num_workers (now {config.data.num_workers}); {AGAIN}"
        )
    return error


@contextmanager
def explain_disk_errors(folder: Path) -> Iterator[None]:
    """Turns an OSError of the run's folder, or of a full disk, into a ResourceError that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL and not str(error.filename).startswith(str(folder)):
            raise
        where = error.filename or folder
        raise ResourceError(
            f"{where}: cannot be written ({error.strerror}); make room or make it writable, and {AGAIN}"
        ) from error


def _never_met(error: Exception, config: Config) -> BaseException:
    exit_after(GRACE)
    world_size = config.trainer.world_size
    come = re.search(r"(\d+)/\d+ clients joined", str(error))
    who = f"only {come[1]} of {world_size} devices came" if come else f"device 0 of 0 to {world_size - 1} did not come"
    return ResourceError(
        f"{who} together within trainer.timeout={config.trainer.timeout} seconds: a process has ended, or was never "
        f"started; {AGAIN}"
    )


def _lost(devices: list[int], config: Config, step: int) -> BaseException:
    exit_after(GRACE)
    if rank_zero_only.rank and 0 not in devices:
        return SystemExit(ResourceError.exit_code)  # the first process says it
    names = ", ".join(map(str, devices))
    return ResourceError(
        f"no answer from device {names} of 0 to {config.trainer.world_size - 1} after step {step}: its process has "
        f"ended, or stands still for more than trainer.timeout={config.trainer.timeout} seconds; {AGAIN}"
    )
