"""The batch script of docs/slurm.md, with SLURM's commands replaced: when is a job put back into
the queue?
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from applications import ROOT
from faults.harness import settings, wait_until, within

from aiayn.runs import checkpoints
from aiayn.runs.run_folder import saved_steps

PAGE = (ROOT / "docs/slurm.md").read_text(encoding="utf-8")


def script() -> str:
    [found] = [
        text
        for text in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)
        if "scontrol requeue" in text
    ]
    return found


@pytest.fixture
def cluster(tmp_path, monkeypatch) -> Path:
    """`srun` runs a task and leaves its process number, `scontrol` writes down what it is asked
    for.
    """
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {
        "srun": f'"$@" & echo $! >{tmp_path}/task; wait $!',
        "scontrol": f'echo "$@" >>{tmp_path}/asked',
    }.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    return tmp_path


def asked(cluster) -> str:
    path = cluster / "asked"
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("code", [0, 2, 3, 4, 5, 6, 130, 137, 143])
def test_a_job_goes_back_into_the_queue_if_it_was_asked_to_stop_and_saved_and_else_never(
    cluster, code
):
    (cluster / "bin/python").write_text(f"#!/bin/bash\nexit {code}\n")
    (cluster / "bin/python").chmod(0o755)
    assert subprocess.run(["bash", "-c", script()], cwd=cluster).returncode == code
    assert asked(cluster) == ("requeue 4711\n" if code == 143 else "")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_job_that_slurm_signals_goes_back_into_the_queue_and_then_finishes(cluster, text, number):
    command = shlex.join([sys.executable, str(ROOT / "train.py"), *settings(text)])
    job, count = re.subn(r"python train\.py .*", lambda found: command, script())
    assert count == 1
    longer = job.replace("trainer.max_steps=12", "trainer.max_steps=100000")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    place = cluster / "outputs/run/checkpoints"
    with within():
        process = subprocess.Popen(
            ["bash", "-c", longer], cwd=cluster, env=environment, stderr=subprocess.PIPE
        )
        wait_until(lambda: saved_steps(place))
        os.kill(int((cluster / "task").read_text()), number)
        _, said = process.communicate()
        assert process.returncode == 143, said
        assert asked(cluster) == "requeue 4711\n"
        last = checkpoints.load(place / "last.ckpt").step
        further = job.replace("trainer.max_steps=12", f"trainer.max_steps={last + 5}")
        assert subprocess.run(["bash", "-c", further], cwd=cluster, env=environment).returncode == 0
        assert asked(cluster) == "requeue 4711\n"
    assert checkpoints.load(place / "averaged.ckpt").step == last + 5
