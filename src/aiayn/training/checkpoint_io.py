"""Lightning's checkpoints as the files of `aiayn.runs.checkpoints`: how a run is written to disk
and read back.
"""

from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any

from pytorch_lightning.plugins import TorchCheckpointIO
from torch import Tensor

from aiayn.config.training import TrainerConfig
from aiayn.errors import ConfigError
from aiayn.runs import checkpoint_folder, checkpoints
from aiayn.runs.checkpoint_folder import BEST, PROOF
from aiayn.runs.checkpoints import Checkpoint
from aiayn.runs.run_folder import saved_steps
from aiayn.training.callbacks.steps import due
from aiayn.training.start import RunServices, RunSpec

MODEL = "model."  # begins the names of the model's weights
# Of Lightning's checkpoint, what `Checkpoint` holds or what follows from it; all else is kept in
# step_N.optim.
ELSEWHERE = (
    *("state_dict", "epoch", "global_step"),
    *("hparams_name", "hyper_parameters", "tokenizer", "corpus"),
)
PLAIN_TYPES = (NoneType, bool, int, float, str)


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
        """Copies the checkpoint and has it written in the background: step_N.optim, if the options
        of `CheckpointSaver` ask for it, step_N.ckpt and last.ckpt; then older ones are pruned.

        On rank 0 only. Raises ConfigError for a state that a checkpoint cannot hold.
        """
        if storage_options is None:
            super().save_checkpoint(checkpoint, path)
            return
        path, folder, step = Path(path), self.services.folder.checkpoints, checkpoint["global_step"]
        tensors = checkpoint["state_dict"]
        names = [name for name in tensors if name.startswith(MODEL)]
        weights = {name.removeprefix(MODEL): tensors[name] for name in names}
        # Outside the model, of a subclass of the module
        others = {name: tensors[name] for name in tensors if name not in names}
        states: dict[str, Any] = {}
        if storage_options["with_state"]:
            lightning = {key: value for key, value in checkpoint.items() if key not in ELSEWHERE}
            refuse_unsavable(lightning)
            # Data loaders have no state: the step says what comes next.
            lightning["loops"]["fit_loop"]["state_dict"] = {}
            states = {"lightning": lightning, "module": others}
        copies = self.services.writer.copied({"states": states, "weights": weights})
        complete = Checkpoint(
            step=step,
            config=self.run.config,
            weights=copies["weights"],
            tokenizer=self.run.corpus.tokenizer.to_json(),
            corpus=self.run.corpus.fingerprint,
            micro_batches=self.run.plan.micro_batches,
            averaged=[],
        )
        then = self.services.writer.submit
        if path.name != BEST:
            then(checkpoint_folder.set_aside_average, folder)
        if states:  # first, because training goes on from the newest checkpoint that has them
            optimizer_path = checkpoint_folder.optimizer_path(path)
            then(checkpoints.write_tensors, optimizer_path, copies["states"])
        then(checkpoints.save, path, complete)
        if path.name not in (PROOF, BEST):
            trainer = self.run.config.trainer
            then(checkpoint_folder.update_last, folder, step)
            then(lambda: checkpoint_folder.prune(folder, steps_to_average(folder, trainer)))

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
        batches = {
            "total": dict.fromkeys(epochs, step * per_step),
            "current": dict.fromkeys(epochs, step_of_epoch * per_step),
            "is_last_batch": False,
        }
        fit_loop = {
            **loops["fit_loop"],
            "epoch_progress": {"total": epochs, "current": dict(epochs)},
            "epoch_loop.batch_progress": batches,
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
    elif not isinstance(state, Tensor) and type(state) not in PLAIN_TYPES:
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
