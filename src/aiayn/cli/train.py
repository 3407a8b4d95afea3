"""`aiayn train` and `aiayn evaluate`: the same as `python train.py` and `python evaluate.py`, from
any folder.
"""

import sys


def train() -> None:
    """Trains a model, or continues a run (options: key=value)."""
    from aiayn.cli import hydra_commands

    del sys.argv[1]  # Hydra reads the rest
    hydra_commands.train()


def evaluate() -> None:
    """Scores a run on a test set (options: key=value)."""
    from aiayn.cli import hydra_commands

    del sys.argv[1]
    hydra_commands.evaluate()
