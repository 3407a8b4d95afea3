"""Lightning's checkpoints as the files of `aiayn.runs.checkpoints`: how a run is written to disk and read back."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.plugins import CheckpointIO
from torch import Tensor

from aiayn.config.trainer import TrainerConfig
from aiayn.errors import ConfigError
from aiayn.runs import checkpoint_folder, checkpoints, sealed_files
from aiayn.runs.checkpoints import Checkpoint
from aiayn.runs.run_folder import saved_steps
from aiayn.training.callbacks.steps import due
from aiayn.training.context import RunContext
from aiayn.training.resume import NOTHING_LOGGED, ResumeState

# The keys of Lightning's checkpoint that go into step_N.optim: the library's, our module's and our callbacks'.
# MixedPrecision is the state of a gradient scaler.
LIBRARY = ("optimizer_states", "lr_schedulers", "loops", "callbacks", "MixedPrecision")
OURS = ("since_last_log", "skipped_steps", "optimizer_parameters", "rates")
STATES = (*LIBRARY, *OURS)
MODEL = "model."  # begins the names of the model's weights


class RunCheckpointIO(CheckpointIO):
    """Writes checkpoints in the background, the optimizer's state beside them; loads what `load_resume_state` found."""

    def __init__(self, run: RunContext, found: ResumeState | None):
        self.run = run
        self.found = found

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Copies the checkpoint, with the optimizer's state if it has one, and has it written. On rank 0 only."""
        names = [name for name in checkpoint["state_dict"] if name.startswith(MODEL)]
        weights = {name.removeprefix(MODEL): checkpoint["state_dict"][name] for name in names}
        states: dict[str, Any] = {}
        if "optimizer_states" in checkpoint:
            states = {key: checkpoint[key] for key in STATES if key in checkpoint}
            # Parameters outside the model, of a subclass of the module, are needed only to resume.
            others = checkpoint["state_dict"].keys() - set(names)
            states["module"] = {name: checkpoint["state_dict"][name] for name in sorted(others)}
        copies = self.run.writer.copied({"states": states, "weights": weights})
        if states := copies["states"]:
            states["loops"]["fit_loop"]["state_dict"] = {}  # data loaders have no state: the step says what comes next
            states |= {"format": sealed_files.FORMAT, "lightning": checkpoint["pytorch-lightning_version"]}
        self.run.writer.submit(self._write, Path(path), states, checkpoint["global_step"], copies["weights"])

    def _write(self, path: Path, states: dict[str, Any], step: int, weights: dict[str, Tensor]) -> None:
        """Writes step_N.optim, if there are states, and step_N.ckpt, makes the latter last.ckpt, prunes older ones."""
        self.run.check_folder()  # again before each file: writing one can take seconds
        checkpoint_folder.set_aside_average(path.parent)
        if states:
            # Before the checkpoint: training goes on from the newest checkpoint that has it.
            sealed_files.write_sealed(checkpoint_folder.optimizer_path(path), states)
            states.clear()  # frees two thirds of the copy
            self.run.check_folder()
        checkpoints.save(path, checkpoint_of(self.run, step, weights))
        self.run.check_folder()
        checkpoint_folder.update_last(path.parent, step)
        checkpoint_folder.prune(path.parent, steps_to_average(path.parent, self.run.config.trainer))

    def load_checkpoint(self, path: str | Path, map_location: Any = None, weights_only: bool | None = None) -> dict:
        assert self.found is not None
        checkpoint, states = self.found.checkpoint, self.found.optimizer
        weights = {MODEL + name: weight for name, weight in checkpoint.weights.items()}
        loaded = {
            "state_dict": weights | states.get("module", {}),
            "global_step": checkpoint.step,
            "pytorch-lightning_version": states["lightning"],
            # Written by runs that began before these existed.
            "callbacks": {},
            "since_last_log": NOTHING_LOGGED,
        }
        loaded |= {key: states[key] for key in STATES if key in states}
        loaded["loops"] = self._loops(states["loops"], checkpoint.step)
        loaded["epoch"] = checkpoint.step // self.run.epoch_steps
        # Lightning loads once; `found` must not hold these tensors until the end of the run.
        checkpoint.weights.clear()
        states.clear()
        return loaded

    def _loops(self, loops: Mapping[str, Any], step: int) -> dict[str, Any]:
        """Returns Lightning's counters as if the present number of ranks had trained up to this step and no further.

        Epochs are those of the present options. The stored counters may be from the middle of Lightning's hooks.
        """
        epoch, place = divmod(step, self.run.epoch_steps)
        per_step = self.run.plan.micro_batches // self.run.config.trainer.world_size
        begun = epoch + (place > 0)
        epochs = {"ready": begun, "started": begun, "processed": epoch, "completed": epoch}
        total, current = (dict.fromkeys(epochs, steps * per_step) for steps in (step, place))
        fit_loop = {
            **loops["fit_loop"],
            "epoch_progress": {"total": epochs, "current": dict(epochs)},
            "epoch_loop.batch_progress": {"total": total, "current": current, "is_last_batch": False},
            "epoch_loop.state_dict": {"_batches_that_stepped": step},
        }
        return {**loops, "fit_loop": fit_loop}

    def remove_checkpoint(self, path: str | Path) -> None:
        raise NotImplementedError("checkpoint_folder.prune removes checkpoints")


def refuse_unsavable_states(trainer: pl.Trainer) -> None:
    """Raises ConfigError for a state of a callback, optimizer or schedule that a checkpoint cannot hold.

    Without this a training would run for hours, and then could not be resumed.
    """
    owners: list[Any] = [*vars(trainer)["callbacks"], *trainer.optimizers]
    for owner in owners:
        if kind := _unsavable_type(owner.state_dict()):
            raise ConfigError(
                f"the state_dict of {type(owner).__name__} has a {kind}: checkpoints hold tensors and plain values "
                "only (numbers, text, lists, tables), because loading one must not run code"
            )


def _unsavable_type(value: Any) -> str | None:
    """Returns the name of the first type in a state that is neither a tensor nor a plain value; None if all are."""
    if isinstance(value, Mapping):
        return next((kind for item in (*value, *value.values()) if (kind := _unsavable_type(item))), None)
    if isinstance(value, list | tuple):
        return next((kind for item in value if (kind := _unsavable_type(item))), None)
    plain = value is None or type(value) in (bool, int, float, str) or isinstance(value, Tensor)
    return None if plain else type(value).__name__


def checkpoint_of(run: RunContext, step: int, weights: dict[str, Tensor]) -> Checkpoint:
    """Returns the checkpoint of a step of this run."""
    return Checkpoint(
        step=step,
        config=run.config,
        weights=weights,
        tokenizer=run.prepared.tokenizer.to_json(),
        corpus=run.prepared.fingerprint,
        micro_batches=run.plan.micro_batches,
        averaged=[],
    )


def steps_to_average(folder: Path, settings: TrainerConfig, end: int | None = None) -> list[int]:
    """Steps of the last regular checkpoints; those saved because of a signal would change the average.

    `end` is the last step of a run that stopped early, by default `max_steps`.
    """
    end = settings.max_steps if end is None else end
    regular = [step for step in saved_steps(folder) if due(step, settings.checkpoint_every, end)]
    return regular[-settings.average_last :]
