"""The folder `checkpoints` of a run, and which of its files are kept.

`step_N.ckpt` is a model, see runs/checkpoints.py. `step_N.optim` beside some of them holds the
optimizer state, which only training needs; the newest two are kept. `last.ckpt` is the newest step,
`best.ckpt` that of the best validation, `averaged.ckpt` the mean of the last few (section 6.1).
"""

import contextlib
import logging
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from aiayn.errors import RefusedError
from aiayn.files import atomic_write, fsync_folder
from aiayn.runs.checkpoints import (
    Checkpoint,
    fault_of_optimizer,
    load,
    read_tensors,
    writing_checkpoint,
)
from aiayn.runs.run_folder import saved_steps

log = logging.getLogger(__name__)

PROOF = ".first.ckpt"  # what the first step writes to read it back
BEST = "best.ckpt"


def step_path(folder: Path, step: int) -> Path:
    return folder / f"step_{step}.ckpt"


def optimizer_path(checkpoint: Path) -> Path:
    """Returns where the optimizer state of a checkpoint is."""
    return checkpoint.with_suffix(".optim")


class ResumeState(NamedTuple):
    """A checkpoint to continue from, and the optimizer's state that belongs to it."""

    checkpoint: Checkpoint
    optimizer: dict[str, Any]

    def refusal(self, reason: str) -> RefusedError:
        """Returns the error for an optimizer's state that does not fit this training."""
        return RefusedError(
            f"step_{self.checkpoint.step}.optim does not hold the state of this training "
            f"({reason}); remove it to continue from an older checkpoint"
        )


def load_newest(folder: Path) -> ResumeState | None:
    """Returns the newest undamaged checkpoint that has an optimizer state; warns of damaged ones.

    Returns None if there is no checkpoint at all. Raises RefusedError if all are damaged or without
    that state.
    """
    steps = saved_steps(folder)
    if not steps:
        return None
    complete = _with_optimizer(folder, steps)
    for step in reversed(complete):
        path = step_path(folder, step)
        try:
            checkpoint = load(path)
            if checkpoint.step != step:
                raise RefusedError(f"{path}: holds step {checkpoint.step}, not that of its name")
            return ResumeState(checkpoint, load_states(optimizer_path(path)))
        except RefusedError as error:
            log.warning("warning: %s; trying the previous checkpoint", error)
    if complete:
        raise RefusedError(
            f"{folder}: all checkpoints are damaged; remove the folder or choose another name="
        )
    raise RefusedError(
        f"{folder}: no checkpoint has its optimizer state, such as "
        f"step_{steps[-1]}.optim; restore it, or start another run from the weights with "
        "init_from= and name="
    )


def load_states(path: Path) -> dict[str, Any]:
    """Reads the optimizer state of a checkpoint. Raises RefusedError if it is missing or damaged,
    or holds something else.
    """
    states = read_tensors(path)
    lightning = states.get("lightning")
    tables = [states.get("module"), lightning]
    if isinstance(lightning, dict):
        tables += [lightning.get("loops"), *(lightning.get("optimizer_states") or [None])]
    if not all(isinstance(table, dict) for table in tables):
        raise RefusedError(f"{path}: not the state of an optimizer")
    for state in states["lightning"]["optimizer_states"]:
        if fault := fault_of_optimizer(state):
            raise RefusedError(f"{path}: not the state of an optimizer ({fault})")
    return states


def _with_optimizer(folder: Path, steps: list[int]) -> list[int]:
    return [step for step in steps if optimizer_path(step_path(folder, step)).exists()]


def update_last(folder: Path, step: int) -> None:
    """Makes `last.ckpt` the checkpoint of `step`, atomically. Raises ResourceError if the disk is
    full.
    """
    link_step(folder, step, "last.ckpt")


def link_step(folder: Path, step: int, name: str) -> None:
    """Makes the file of this name the checkpoint of `step`, as `update_last` does."""
    temporary = folder / f".{name}.{os.getpid()}.part"
    temporary.unlink(missing_ok=True)
    try:
        os.link(step_path(folder, step), temporary)
    except OSError:  # a file system without hard links
        content = step_path(folder, step).read_bytes()
        with writing_checkpoint(folder / name, len(content)):
            atomic_write(folder / name, content)
        return
    os.replace(temporary, folder / name)
    temporary.unlink(missing_ok=True)  # a rename between two names of one file does nothing
    fsync_folder(folder)


def set_aside_average(folder: Path) -> None:
    """Renames the average of a finished run that is trained further to `averaged_N.ckpt`, N its
    step.

    As `averaged.ckpt` it would be taken for the average of the longer training.
    """
    path = folder / "averaged.ckpt"
    if path.exists():
        with contextlib.suppress(RefusedError):
            os.replace(path, folder / f"averaged_{load(path).step}.ckpt")
        path.unlink(missing_ok=True)  # a damaged one
        fsync_folder(folder)


def prune(folder: Path, keep: Collection[int]) -> None:
    """Removes checkpoints except the steps to keep, the newest two, and the newest two with an
    optimizer state.

    All other optimizer states are removed, too.
    """
    steps = saved_steps(folder)
    resumable = _with_optimizer(folder, steps)[-2:]
    for step in steps:
        if step not in resumable:
            optimizer_path(step_path(folder, step)).unlink(missing_ok=True)
            if step not in keep and step not in steps[-2:]:
                step_path(folder, step).unlink(missing_ok=True)


def remove_after(folder: Path, step: int) -> None:
    """Removes the checkpoints after `step`, from which training goes on: it computes them anew.

    Otherwise one of them, with weights that were rounded by other hardware, could get an optimizer
    state of this start.
    """
    later = [other for other in saved_steps(folder) if other > step]
    if later and step_path(folder, step).exists():
        update_last(folder, step)
        for other in later:
            step_path(folder, other).unlink(missing_ok=True)
            optimizer_path(step_path(folder, other)).unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Removes what interrupted writes left behind. Only the process that holds the run's lock may
    call it.
    """
    states = folder.glob("step_*.optim")
    orphans = [state for state in states if not state.with_suffix(".ckpt").exists()]
    for orphan in [*orphans, *folder.glob(".*.part"), *folder.glob(f"{Path(PROOF).stem}.*")]:
        orphan.unlink(missing_ok=True)
