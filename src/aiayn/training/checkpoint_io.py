"""Lightning's checkpoints as the files of `aiayn.runs.checkpoints`: how a run is written to disk
and read back.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType, NoneType, TracebackType
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_utilities.core.apply_func import apply_to_collection
from pytorch_lightning.plugins import TorchCheckpointIO
from torch import Tensor, nn

from aiayn.config.training import TrainerConfig
from aiayn.errors import ConfigError
from aiayn.runs import checkpoint_folder, checkpoints
from aiayn.runs.checkpoint_folder import BEST, PROOF
from aiayn.runs.checkpoints import Checkpoint
from aiayn.runs.run_folder import saved_steps
from aiayn.training.callbacks.steps import due
from aiayn.training.research import is_library
from aiayn.training.start import RunServices, RunSpec

log = logging.getLogger(__name__)

MODEL = "model."  # begins the names of the model's weights
# Of Lightning's checkpoint, what `Checkpoint` holds or what follows from it; all else is kept in
# step_N.optim.
ELSEWHERE = (
    *("state_dict", "epoch", "global_step"),
    *("hparams_name", "hyper_parameters", "tokenizer", "corpus"),
)
OF_LIGHTNING = (
    *ELSEWHERE,
    *("pytorch-lightning_version", "loops", "callbacks", "optimizer_states", "lr_schedulers"),
)
PLAIN_TYPES = (NoneType, bool, int, float, str)
# Attributes that are saved by themselves, or have no state
WITHOUT_STATE = (
    *(nn.Parameter, nn.Module, torch.optim.Optimizer, pl.Callback),
    *(type, FunctionType, ModuleType),
)


class BackgroundWriter(AbstractContextManager):
    """Runs writes one after another in a thread, none after a failed one; waits for them when its
    context ends.

    Training changes weights in place, so they must be `copied` before they are submitted. Copies
    from a GPU go to page-locked memory, which is several times as fast and is kept for the next
    copies; only the thread waits for them. `check` is called before each write, and may raise: one
    write can take seconds, in which the run's folder can be lost.
    """

    def __init__(self, check: Callable[[], None] = lambda: None) -> None:
        self._check = check
        self._buffers: dict[tuple[torch.Size, torch.dtype], list[Tensor]] = {}
        self._arrived: torch.cuda.Event | None = None  # of the last copies from a GPU
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="writer")
        self._last: Future | None = None
        self._error: Exception | None = None

    def copied(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values with all their tensors copied, to be submitted; there is one copy at a
        time.

        Waits until all is written. Raises the error of a write that failed.
        """
        self.wait()
        n_copied: Counter[tuple[torch.Size, torch.dtype]] = Counter()

        def copy(tensor: Tensor) -> Tensor:
            if not tensor.is_cuda:
                return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
            shape = tensor.shape, tensor.dtype
            buffers = self._buffers.setdefault(shape, [])
            if n_copied[shape] == len(buffers):
                buffers.append(torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True))
            n_copied[shape] += 1
            return buffers[n_copied[shape] - 1].copy_(tensor.detach(), non_blocking=True)

        copies = apply_to_collection(dict(values), Tensor, copy)
        if n_copied:  # the GPU changes a weight only after it has copied it: both are in one queue
            self._arrived = torch.cuda.Event()
            self._arrived.record()
        return copies

    def submit(self, write: Callable[..., None], *arguments: Any) -> None:
        self._last = self._thread.submit(self._run, write, *arguments)

    def raise_error(self) -> None:
        """Raises the error of a write that has failed; does not wait."""
        if self._error:
            raise self._error

    def wait(self) -> None:
        """Waits until all is written. Raises the error of a write that failed."""
        if self._last:
            wait([self._last])
        self.raise_error()

    def __exit__(
        self,
        error_class: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._thread.shutdown()
        if error_class is None:
            self.raise_error()

    def _run(self, write: Callable[..., None], *arguments: Any) -> None:
        if not self._error:
            try:
                if self._arrived:
                    self._arrived.synchronize()
                self._check()
                write(*arguments)
            except Exception as error:
                self._error = error


@dataclass(eq=False)
class RunCheckpointIO(TorchCheckpointIO):
    """Writes checkpoints in the background, the optimizer's state beside them; loads what the run
    resumes from.

    What another callback saves, such as a ModelCheckpoint, is written as Lightning does.
    """

    run: RunSpec
    services: RunServices

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Copies the checkpoint and has it written in the background: step_N.optim, if the options
        of `CheckpointSaver` ask for it, step_N.ckpt and last.ckpt; then older ones are pruned. What
        the proof of the first step reads is written uncopied, and without the optimizer's values.

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
        values: dict[str, Any] = {"states": states, "weights": weights}
        if path.name != PROOF:  # for which the training waits
            values = self.services.writer.copied(values)
        complete = Checkpoint(
            step=step,
            config=self.run.config,
            weights=values["weights"],
            tokenizer=self.run.corpus.tokenizer.to_json(),
            corpus=self.run.corpus.fingerprint,
            micro_batches=self.run.plan.micro_batches,
            averaged=[],
        )
        then, optimizer_path = self.services.writer.submit, checkpoint_folder.optimizer_path(path)
        if path.name == PROOF:
            then(lambda: checkpoints.save(path, complete, kept=False))
            then(checkpoints.write_outline, optimizer_path, states)
            return
        if path.name != BEST:
            then(checkpoint_folder.set_aside_average, folder)
        if states:  # first, because training goes on from the newest checkpoint that has them
            then(checkpoints.write_tensors, optimizer_path, values["states"])
        then(checkpoints.save, path, complete)
        if path.name != BEST:
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
            f"the state {name.removeprefix('/')} is a {type(state).__name__}: checkpoints hold "
            "tensors and plain values only (numbers, text, lists, tables), because loading one "
            "must not run code"
        )


def warn_of_unsaved(
    optimizer: torch.optim.Optimizer,
    callbacks: Sequence[pl.Callback],
    checkpoint: dict[str, Any],
    known: dict[int, dict[str, Any] | None],
) -> None:
    """Warns of attributes of an optimizer or callback of one's own that training has changed, and
    that are not in this checkpoint.

    `known`: what each held at the first call; None after a warning.
    """
    [state] = checkpoint["optimizer_states"]
    components: list[tuple[Any, Any]] = [(optimizer, state | {"state": None})]
    components += [
        (callback, checkpoint["callbacks"].get(callback.state_key)) for callback in callbacks
    ]
    others = [value for key, value in checkpoint.items() if key not in OF_LIGHTNING]
    for component, own_state in components:
        libraries = [base for base in type(component).__mro__ if is_library(base)]
        if type(component) in libraries:
            continue
        functions = [value for base in libraries for value in vars(base).values()]
        codes = [function.__code__ for function in functions if isinstance(function, FunctionType)]
        inherited = {name for code in codes for name in code.co_names}
        attributes = {
            name: value for name, value in vars(component).items() if name not in inherited
        }
        current = dict(leaves(attributes))
        first = known.setdefault(id(component), current)
        if first is None or first == current:
            continue
        saved = {value for _, value in leaves([own_state, others])}
        lost = {
            path.split("/")[1]
            for path, value in current.items()
            if value not in saved and (path not in first or first[path] != value)
        }
        if lost:
            known[id(component)] = None
            log.warning(
                "warning  %s: training changes %s, and no checkpoint holds it, so a resumed run "
                "may train differently: save it in state_dict, restore it in load_state_dict",
                *(type(component).__name__, ", ".join(sorted(lost))),
            )


def leaves(value: Any, path: str = "", within: tuple[int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yields path and value of each number and text in a value, and the norm of each array; also of
    the state of objects of one's own and of generators of random numbers.
    """
    if id(value) in within or isinstance(value, WITHOUT_STATE):
        return
    within = (*within, id(value))
    get_state = getattr(value, "get_state", None) or getattr(value, "getstate", None)
    if type(value) in PLAIN_TYPES:
        yield path, value
    elif hasattr(value, "__array__"):  # of torch or numpy
        yield path, float(torch.as_tensor(value).detach().double().norm())
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from leaves(each, f"{path}/{key}", within)
    elif isinstance(value, list | tuple | set | deque):
        for number, each in enumerate(value):
            yield from leaves(each, f"{path}/{number}", within)
    elif get_state:
        yield from leaves(get_state(), path, within)
    elif hasattr(value, "__dict__") and not is_library(type(value)):
        yield from leaves(vars(value), path, within)


def steps_to_average(folder: Path, settings: TrainerConfig, end: int | None = None) -> list[int]:
    """Returns the steps of the last regular checkpoints; those saved because of a signal would
    change the average.

    `end` is the last step of a run that stopped early, by default `max_steps`.
    """
    end = settings.max_steps if end is None else end
    regular = [step for step in saved_steps(folder) if due(step, settings.checkpoint_every, end)]
    return regular[-settings.average_last :]
