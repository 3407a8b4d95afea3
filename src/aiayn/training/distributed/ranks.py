"""The processes of a run: which rank this one is, how those of this machine start, and how each
notices that another one has died.
"""

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.plugins.environments.lsf import LSFEnvironment
from lightning_fabric.plugins.environments.mpi import MPIEnvironment
from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from pytorch_lightning.utilities import rank_zero_only

from aiayn.config import program
from aiayn.config.training import TrainerOptions
from aiayn.errors import ConfigError, ResourceError
from aiayn.signals import TERMINATION_SIGNALS, exit_signal, on_second_signal
from aiayn.training.distributed.control_group import (
    LOST_RANK_GRACE,
    RUN_AGAIN,
    STARTED,
    exit_at_once,
)

# As the Trainer looks for them
STARTERS = (
    TorchElasticEnvironment,
    SLURMEnvironment,
    LSFEnvironment,
    MPIEnvironment,
)

# As Lightning reads them
RANK_VARIABLES = (
    "RANK",
    "LOCAL_RANK",
    "SLURM_PROCID",
    "JSM_NAMESPACE_RANK",
)


def global_rank() -> int:
    """Returns the rank of this process, as Lightning reads it from the environment; 0 for a single
    process.
    """
    return getattr(rank_zero_only, "rank", 0)


def find_rank(settings: TrainerOptions) -> None:
    """Sets what `global_rank` returns to what it will be once there is a Trainer.

    Lightning itself, when it is imported, looks at no NODE_RANK: on every machine it would be 0
    until then.
    Raises ConfigError where the environment contradicts `trainer.devices` and `trainer.num_nodes`.
    """
    if settings.world_size == 1 and (rank := global_rank()):
        stray = [name for name in RANK_VARIABLES if name in os.environ]
        raise ConfigError(
            f"one device, but the environment says rank {rank}: unset {' '.join(stray)}"
        )
    try:
        environment: ClusterEnvironment = next(
            (starter() for starter in STARTERS if starter.detect()), LightningEnvironment()
        )
    except RuntimeError as error:
        raise ConfigError(
            f"SLURM_NTASKS={os.environ.get('SLURM_NTASKS')} without SLURM_NTASKS_PER_NODE: start "
            "the job with --ntasks-per-node, or unset SLURM_NTASKS to train in this process alone"
        ) from error
    if settings.world_size == 1:
        return
    node = environment.node_rank()
    if isinstance(environment, LightningEnvironment):
        if not 0 <= node < settings.num_nodes:
            raise ConfigError(
                f"trainer.num_nodes={settings.num_nodes}: NODE_RANK={node} in the environment "
                f"must be from 0 to {settings.num_nodes - 1}; set trainer.num_nodes, or another "
                "NODE_RANK"
            )
        environment.set_global_rank(node * settings.devices + environment.local_rank())
    vars(rank_zero_only)["rank"] = environment.global_rank()


@contextmanager
def local_ranks(trainer: pl.Trainer) -> Iterator[None]:
    """Starts the other ranks of this machine, unless SLURM, torchrun or the like does, and watches
    them.

    An error inside the context kills the ranks that it started. Raises ConfigError where the
    cluster's environment contradicts the options.
    """
    environment = getattr(trainer.strategy, "cluster_environment", None)  # none for a single device
    if environment is None:
        yield
        return
    try:
        environment.validate_settings(trainer.num_devices, trainer.num_nodes)
    except ValueError as error:
        raise ConfigError(
            f"trainer.devices, trainer.num_nodes: {' '.join(str(error).split())}"
        ) from error
    # Otherwise Lightning would change the number of threads, on which the rounding of sums depends.
    os.environ.setdefault("OMP_NUM_THREADS", str(torch.get_num_threads()))
    starts_here = not environment.creates_processes_externally
    if starts_here:
        os.environ.update(
            MASTER_ADDR=environment.main_address,
            MASTER_PORT=str(environment.main_port),
            NODE_RANK=str(environment.node_rank()),
            LOCAL_RANK="0",  # tells Lightning that the ranks are started
        )
        STARTED[:] = [
            subprocess.Popen(program.same_again(), env=os.environ | {"LOCAL_RANK": str(rank)})
            for rank in range(1, trainer.num_devices)
        ]
        threading.Thread(target=_watch_children, daemon=True).start()
    elif environment.local_rank() and "TORCHELASTIC_RUN_ID" not in os.environ:
        threading.Thread(target=_watch_parent, args=(os.getppid(),), daemon=True).start()
    say = f"ended at once by the second signal; {RUN_AGAIN}"
    try:
        with on_second_signal(lambda number: exit_at_once(say, 128 + exit_signal(number))):
            yield
    except (Exception, SystemExit, KeyboardInterrupt):
        for child in STARTED:
            child.kill()
        raise
    finally:
        STARTED.clear()
        if starts_here:
            del os.environ["LOCAL_RANK"]


def _watch_children() -> None:
    running, children = True, list(STARTED)
    while running:
        # Before the codes: one may end in between
        running = any(child.poll() is None for child in children)
        for rank, child in enumerate(children, 1):
            if child.poll():
                # Usually the main thread notices too, and its message says more
                time.sleep(LOST_RANK_GRACE)
                if child.returncode == ConfigError.exit_code:  # it has said why
                    exit_at_once("", ConfigError.exit_code)
                if stopped := _termination_signal(child.returncode):
                    exit_at_once(
                        f"stopped before training; continue with: {program.typed_again()}",
                        128 + stopped,
                    )
                _exit(f"local rank {rank} (process {child.pid}) ended with code {child.returncode}")
        time.sleep(0.5)


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    time.sleep(LOST_RANK_GRACE)
    _exit(f"local rank 0 (process {parent}) has ended")


def _termination_signal(code: int) -> int | None:
    """Returns the signal that ended a process before training, by its exit code; later the code of
    such a rank is 0.
    """
    return next(
        (exit_signal(number) for number in TERMINATION_SIGNALS if code in (-number, 128 + number)),
        None,
    )


def _exit(message: str) -> None:
    exit_at_once(f"{message}; {RUN_AGAIN}", ResourceError.exit_code)
