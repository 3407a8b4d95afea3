"""Which of the run's processes this one is."""

from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.plugins.environments.lsf import LSFEnvironment
from lightning_fabric.plugins.environments.mpi import MPIEnvironment
from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from pytorch_lightning.utilities import rank_zero_only

from aiayn.config.trainer import TrainerOptions
from aiayn.errors import ConfigError

STARTERS = (TorchElasticEnvironment, SLURMEnvironment, LSFEnvironment, MPIEnvironment)  # as the Trainer looks for them


def global_rank() -> int:
    """Returns the rank of this process, as Lightning reads it from the environment; 0 for a single process."""
    return getattr(rank_zero_only, "rank", 0)


def find_rank(settings: TrainerOptions) -> None:
    """Sets what `global_rank` returns to what it will be once there is a Trainer.

    Lightning itself, when it is imported, looks at no NODE_RANK: on every machine it would be 0 until then.
    Raises ConfigError for a NODE_RANK that is not below `trainer.num_nodes`.
    """
    if settings.world_size == 1:
        return
    environment: ClusterEnvironment = next((kind() for kind in STARTERS if kind.detect()), LightningEnvironment())
    node = environment.node_rank()
    if isinstance(environment, LightningEnvironment):
        if not 0 <= node < settings.num_nodes:
            raise ConfigError(
                f"trainer.num_nodes={settings.num_nodes}: NODE_RANK={node} in the environment is none of these "
                "machines, which are counted from 0; set trainer.num_nodes, or another NODE_RANK"
            )
        environment.set_global_rank(node * settings.devices + environment.local_rank())
    vars(rank_zero_only)["rank"] = environment.global_rank()
