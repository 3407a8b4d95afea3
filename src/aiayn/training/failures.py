"""Errors of a training step that say neither what to blame nor what to do, in words that do."""

import errno

import torch
from pytorch_lightning.utilities import rank_zero_only

from aiayn import checkpoint as memory
from aiayn.config import Config
from aiayn.errors import ResourceError
from aiayn.training.callbacks.save import Save
from aiayn.training.devices import GRACE, exit_after, lost_contact
from aiayn.training.module import TranslationModule
from aiayn.training.stop import Stop

AGAIN = "run the same command to continue from the last checkpoint"


def explained(error: Exception, config: Config, module: TranslationModule, save: Save, stop: Stop) -> BaseException:
    """The ResourceError that a lost device, or a lack of memory or disk, comes down to; any other error as it is."""
    if stop.peers and lost_contact(error) and (lost := stop.peers.missing()):
        return _lost(lost, config, save.done)
    if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
        remedy = f"lower data.max_tokens_per_device (now {config.data.max_tokens_per_device})"
        if memory.steps(save.folder):
            remedy = f"use more devices, or {remedy} and choose another name=: a run's steps stay cut as they were"
        return ResourceError(f"out of memory at step {save.done + 1}, in {module.shape}: {remedy}")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        where = error.filename or save.folder
        return ResourceError(f"{where}: cannot be written ({error.strerror}); make room and {AGAIN}")
    return error


def _lost(devices: list[int], config: Config, step: int) -> BaseException:
    exit_after(GRACE)
    if rank_zero_only.rank and 0 not in devices:
        return SystemExit(ResourceError.exit_code)  # the first process says it
    names = ", ".join(map(str, devices))
    return ResourceError(
        f"no answer from device {names} of 0 to {config.trainer.world_size - 1} after step {step}: its process has "
        f"ended, or stands still for more than trainer.timeout={config.trainer.timeout} seconds; {AGAIN}"
    )
