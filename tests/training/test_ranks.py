"""Which rank a process takes itself for before there is a Trainer, and how rank 0 notices that a rank
that it started has died.
"""

import subprocess
import sys

import pytest
import pytorch_lightning as pl
from applications import composed
from pytorch_lightning.utilities import rank_zero_only

from aiayn.errors import ConfigError
from aiayn.training.distributed import ranks
from aiayn.training.distributed.ranks import find_rank, global_rank

FILES = ("data=files", "data.train=t", "data.val=v", "data.src_lang=en", "data.tgt_lang=de")
VARIABLES = (
    "RANK",
    "LOCAL_RANK",
    "NODE_RANK",
    "GROUP_RANK",
    "WORLD_SIZE",
    "SLURM_NTASKS",
    "SLURM_PROCID",
)
TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "RANK": 4,
    "LOCAL_RANK": 1,
    "GROUP_RANK": 1,
    "WORLD_SIZE": 6,
}
SLURM = {
    "SLURM_JOB_NAME": "job",
    "SLURM_JOB_ID": 7,
    "SLURM_NODELIST": "n[1-2]",
    "SLURM_NTASKS": 6,
    "SRUN_DEBUG": 3,
}
SLURM |= {"SLURM_NTASKS_PER_NODE": 3, "SLURM_PROCID": 5, "SLURM_LOCALID": 2, "SLURM_NODEID": 1}


@pytest.fixture
def environment(monkeypatch):
    """Sets the variables of a process, and as its rank what Lightning makes of them when it is
    imported.
    """

    def set_to(variables: dict[str, object], imported: int = 0) -> None:
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))
        monkeypatch.setattr(rank_zero_only, "rank", imported)

    return set_to


def settings(devices: int, nodes: int):
    return composed(
        *FILES,
        f"trainer.devices={devices}",
        f"trainer.num_nodes={nodes}",
        "trainer.accelerator=cpu",
    ).trainer


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, 0),
        ({"LOCAL_RANK": 2}, 2),
        ({"NODE_RANK": 1}, 3),
        ({"NODE_RANK": 1, "LOCAL_RANK": 0}, 3),
        ({"NODE_RANK": 1, "LOCAL_RANK": 2}, 5),
        (TORCHRUN, 4),
        (SLURM, 5),
    ],
    ids=str,
)
def test_it_is_the_one_that_the_trainer_gives_it(environment, variables, expected):
    environment(variables, imported=variables.get("LOCAL_RANK", 0))
    find_rank(settings(devices=3, nodes=2))
    assert global_rank() == expected

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(accelerator="cpu", devices=3, num_nodes=2, strategy="ddp", **quiet)
    assert trainer.global_rank == expected


@pytest.mark.parametrize(
    ("variables", "rank", "line"),
    [
        ({"LOCAL_RANK": 1}, 1, "trainer.devices=1: the environment sets rank 1; unset LOCAL_RANK"),
        (
            {"RANK": 2, "WORLD_SIZE": 3},
            2,
            "trainer.devices=1: the environment sets rank 2; unset RANK",
        ),
        (
            {"SLURM_NTASKS": 4, "SLURM_JOB_NAME": "job"},
            0,
            r"SLURM_NTASKS=4 without SLURM_NTASKS_PER_NODE: .*unset",
        ),
    ],
)
def test_variables_of_a_cluster_that_contradict_one_device_are_refused_in_one_line(
    environment, variables, rank, line
):
    environment(variables, imported=rank)
    with pytest.raises(ConfigError, match=f"^{line}"):
        find_rank(settings(devices=1, nodes=1))


def test_a_machine_that_the_options_do_not_have_is_refused(environment):
    environment({"NODE_RANK": 2})
    with pytest.raises(
        ConfigError,
        match=r"^trainer\.num_nodes=2: NODE_RANK=2 in the environment must be from 0 to 1",
    ):
        find_rank(settings(devices=3, nodes=2))


@pytest.mark.parametrize(("code", "expected"), [(3, 6), (-15, 143), (130, 130)])
def test_a_rank_that_dies_before_anyone_watches_it_ends_the_run(monkeypatch, code, expected):
    def exits(message, code):
        raise SystemExit(code)

    monkeypatch.setattr(ranks, "LOST_RANK_GRACE", 0.0)
    monkeypatch.setattr(ranks, "exit_at_once", exits)
    dies = f"import os; os.kill(os.getpid(), {-code})" if code < 0 else f"raise SystemExit({code})"
    child = subprocess.Popen([sys.executable, "-c", dies])
    child.wait()
    monkeypatch.setattr(ranks, "STARTED", [child])
    with pytest.raises(SystemExit) as ended:
        ranks._watch_children()
    assert ended.value.code == expected
