"""Lightning's checkpoints as the files of `aiayn.runs.checkpoints`: how a run is written to disk
and read back.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytorch_lightning.plugins import TorchCheckpointIO
from torch import Tensor

from aiayn.config.training import TrainerConfig
from aiayn.errors import ConfigError
from aiayn.runs import checkpoint_folder, checkpoints
from aiayn.runs.checkpoint_folder import BEST, PROOF, step_path
from aiayn.runs.checkpoints import Checkpoint
from aiayn.runs.run_folder import saved_steps
from aiayn.training.callbacks.steps import due
from aiayn.training.start import RunServices, RunSpec

MODEL = "model."  # begins the names of the model's weights
# Of Lightning's checkpoint, what `Checkpoint` holds or what follows from it; all else is kept in
# step_N.optim.
ELSEWHERE = (
    "state_dict",
    "epoch",
    "global_step",
    "hparams_name",
    "hyper_parameters",
    "tokenizer",
    "corpus",
)


class RunCheckpointIO(TorchCheckpointIO):
    """Writes checkpoints in the background, the optimizer's state beside them; loads what the run
    resumes from.

    What another callback saves, such as a ModelCheckpoint, is written as Lightning does.
    """

    def __init__(self, run: RunSpec, services: RunServices):
        self.run, self.services = run, services

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Copies the checkpoint and has it written in the background: step_N.optim, unless the
        options are without it, step_N.ckpt and last.ckpt; then older ones are pruned.

        On rank 0 only. Raises ConfigError for a state that a checkpoint cannot hold.
        """
        path, ours, step = Path(path), self.services.folder.checkpoints, checkpoint["global_step"]
        if path.parent != ours or path.name not in (step_path(ours, step).name, PROOF, BEST):
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        weights = {
            name: value
            for name, value in checkpoint["state_dict"].items()
            if name.startswith(MODEL)
        }
        states: dict[str, Any] = {}
        if not storage_options or storage_options["with_state"]:
            lightning = {key: value for key, value in checkpoint.items() if key not in ELSEWHERE}
            # Parameters outside the model, of a subclass of the module, are needed only to resume.
            others = {
                name: value
                for name, value in checkpoint["state_dict"].items()
                if name not in weights
            }
            states = {"lightning": lightning, "module": others}
            refuse_unsavable(lightning)
        copies = self.services.writer.copied({"states": states, "weights": weights})
        if states := copies["states"]:
            # Data loaders have no state: the step says what comes next.
            states["lightning"]["loops"]["fit_loop"]["state_dict"] = {}
        weights = {name.removeprefix(MODEL): weight for name, weight in copies["weights"].items()}

        then = self.services.writer.submit
        if path.name != BEST:
            then(checkpoint_folder.set_aside_average, ours)
        if (
            states
        ):  # before the checkpoint: training goes on from the newest checkpoint that has them
            then(checkpoints.write_tensors, checkpoint_folder.optimizer_path(path), states)
        complete = Checkpoint(
            step=step,
            config=self.run.config,
            weights=weights,
            tokenizer=self.run.corpus.tokenizer.to_json(),
            corpus=self.run.corpus.fingerprint,
            micro_batches=self.run.plan.micro_batches,
            averaged=[],
        )
        then(checkpoints.save, path, complete)
        if path.name not in (PROOF, BEST):
            then(checkpoint_folder.update_last, ours, step)
            then(
                lambda: checkpoint_folder.prune(
                    ours, steps_to_average(ours, self.run.config.trainer)
                )
            )

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = None
    ) -> dict:
        assert self.run.checkpoint is not None
        checkpoint, states = self.run.checkpoint.checkpoint, self.run.checkpoint.optimizer
        weights = {MODEL + name: weight for name, weight in checkpoint.weights.items()}
        loaded = states["lightning"] | {
            "state_dict": weights | states["module"],
            "global_step": checkpoint.step,
        }
        loaded["loops"] = self._loops(loaded["loops"], checkpoint.step)
        loaded["epoch"] = checkpoint.step // self.run.epoch_steps
        # Lightning loads once; the run must not hold these tensors until its end.
        checkpoint.weights.clear()
        states.clear()
        return loaded

    def _loops(self, loops: Mapping[str, Any], step: int) -> dict[str, Any]:
        """Returns Lightning's counters as if the present number of ranks had trained up to this
        step and no further.

        Epochs are those of the present options. The stored counters may be from the middle of
        Lightning's hooks.
        """
        epoch, step_of_epoch = divmod(step, self.run.epoch_steps)
        per_step = self.run.plan.micro_batches // self.run.config.trainer.world_size
        begun = epoch + (step_of_epoch > 0)
        epochs = {"ready": begun, "started": begun, "processed": epoch, "completed": epoch}
        total, current = (
            dict.fromkeys(epochs, steps * per_step) for steps in (step, step_of_epoch)
        )
        fit_loop = {
            **loops["fit_loop"],
            "epoch_progress": {"total": epochs, "current": dict(epochs)},
            "epoch_loop.batch_progress": {
                "total": total,
                "current": current,
                "is_last_batch": False,
            },
            "epoch_loop.state_dict": {"_batches_that_stepped": step},
        }
        return {**loops, "fit_loop": fit_loop}


def refuse_unsavable(state: Any, name: str = "") -> None:
    """Raises ConfigError for a value, in a state of a callback, optimizer or module, that a
    checkpoint cannot hold.
    """
    if isinstance(state, Mapping | list | tuple):
        pairs = state.items() if isinstance(state, Mapping) else enumerate(state)
        for key, value in pairs:
            refuse_unsavable(key, f"{name}, a key")
            refuse_unsavable(value, f"{name}/{key}")
    elif (
        state is not None
        and type(state) not in (bool, int, float, str)
        and not isinstance(state, Tensor)
    ):
        raise ConfigError(
            f"the state {name.removeprefix('/')} has a {type(state).__name__}: checkpoints hold "
            "tensors and plain values only (numbers, text, lists, tables), because loading one "
            "must not run code"
        )


def steps_to_average(folder: Path, settings: TrainerConfig, end: int | None = None) -> list[int]:
    """Steps of the last regular checkpoints; those saved because of a signal would change the
    average.

    `end` is the last step of a run that stopped early, by default `max_steps`.
    """
    end = settings.max_steps if end is None else end
    regular = [step for step in saved_steps(folder) if due(step, settings.checkpoint_every, end)]
    return regular[-settings.average_last :]
