"""Which of the run's processes this one is."""

from pytorch_lightning.utilities import rank_zero_only


def global_rank() -> int:
    """Returns the rank of this process, as Lightning reads it from the environment; 0 for a single process."""
    return getattr(rank_zero_only, "rank", 0)
