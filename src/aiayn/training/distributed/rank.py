"""Which of the run's processes this one is."""

import os

from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.plugins.environments.lsf import LSFEnvironment
from lightning_fabric.plugins.environments.mpi import MPIEnvironment
from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from pytorch_lightning.utilities import rank_zero_only

from aiayn.config.trainer import TrainerOptions
from aiayn.errors import ConfigError

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
                f"trainer.num_nodes={settings.num_nodes}: NODE_RANK={node} in the environment is "
                "none of these machines, which are counted from 0; set trainer.num_nodes, or "
                "another NODE_RANK"
            )
        environment.set_global_rank(node * settings.devices + environment.local_rank())
    vars(rank_zero_only)["rank"] = environment.global_rank()
