"""`train.py -m hydra/launcher=slurm`, with SLURM's commands replaced by small scripts, and with
submitit on its own.
"""

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest
import submitit
from applications import ROOT, TEXT, TINY, composed_jobs, run_application, write_text

from aiayn.sweep import slurm
from aiayn.sweep.slurm import SlurmRow

# What each command does, in a folder where `next` holds the next job's number, `queue` what squeue
# prints.
COMMANDS = {
    "sbatch": 'cp "$1" script.$(cat next); echo "Submitted batch job $(cat next)"; echo $(($(cat next) '
    "+ 1)) >next",
    "srun": "exit 1",
    "squeue": 'echo "$@" >>asked; cat queue',
    "scontrol": 'echo "$@" >>asked',
}
SLURM = ("-m", *TEXT, *TINY, "hydra/launcher=slurm", "sweep=s")


@pytest.fixture
def cluster(tmp_path, monkeypatch) -> Path:
    """A working directory with a little text, on a machine with SLURM's commands."""
    write_text(tmp_path)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, does in COMMANDS.items():
        (programs / name).write_text(f"#!/bin/bash\ncd {tmp_path}\n{does}\n")
        (programs / name).chmod(0o755)
    (tmp_path / "next").write_text("4711\n")
    (tmp_path / "queue").touch()
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def options(folder: Path, number: int) -> dict[str, str]:
    """The options of the batch script that was submitted as a job of this number."""
    lines = re.findall(
        r"^#SBATCH --([a-z-]+)(?:=(.*))?$", (folder / f"script.{number}").read_text(), re.MULTILINE
    )
    return dict(lines)


def test_every_row_becomes_a_job_with_the_options_given_and_one_task_for_each_device(cluster):
    outcome = run_application(
        "train.py", *SLURM, "trainer.devices=1,2", "trainer.num_nodes=3", "trainer.accelerator=auto",
        "hydra.launcher.partition=long", "hydra.launcher.time=90", "hydra.launcher.cpus=5", "hydra.launcher.memory=6.5",
        "+hydra.launcher.sbatch.account=mine", "+hydra.launcher.sbatch.time-min=30",
    )  # fmt: skip

    assert outcome.code == 0, outcome.err
    for number, devices in ((4711, "1"), (4712, "2")):
        asked = options(cluster, number)
        assert asked["job-name"] == f"sweeps/s/devices-{devices}"
        assert (asked["partition"], asked["time"], asked["cpus-per-task"], asked["mem"]) == (
            "long",
            "90",
            "5",
            "6656MB",
        )
        assert (asked["nodes"], asked["ntasks-per-node"], asked["gpus-per-node"]) == (
            "3",
            devices,
            devices,
        )
        assert (asked["account"], asked["time-min"], asked["signal"], asked["requeue"]) == (
            "mine",
            "30",
            "TERM@120",
            "",
        )
        assert " --wait=0 --kill-on-bad-exit=0 " in (cluster / f"script.{number}").read_text()
        assert f"devices-{devices}: SLURM job {number} submitted" in outcome.err
    assert not (cluster / "outputs/sweeps/s/devices-1").exists()


def test_a_sweep_on_cpus_asks_for_no_gpus_and_one_that_must_not_be_requeued_says_so(cluster):
    assert run_application("train.py", *SLURM, "seed=1", "hydra.launcher.requeue=false").code == 0

    asked = options(cluster, 4711)
    assert {"gpus-per-node", "partition", "mem", "requeue"} & set(asked) == set()
    assert (asked["time"], asked["no-requeue"]) == ("1440", "")


@pytest.mark.slow
def test_the_same_command_leaves_jobs_in_the_queue_alone_and_submits_what_is_missing(cluster):
    assert run_application("train.py", *SLURM, "seed=1,2").code == 0
    (cluster / "queue").write_text("17\n4712\n")  # seed=1 was cancelled

    again = run_application("train.py", *SLURM, "seed=1,2,3")
    assert again.code == 0, again.err

    assert re.findall(r"(seed-\d): SLURM job (\d+) (\w+)", again.err) == [
        ("seed-1", "4713", "submitted"),
        ("seed-2", "4712", "already"),
        ("seed-3", "4714", "submitted"),
    ]


def test_without_submitit_or_sbatch_one_line_says_what_is_missing(cluster, monkeypatch):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slurm, "find_spec", lambda name: None)
        no_library = run_application("train.py", *SLURM, "seed=1")
    (cluster / "bin/sbatch").unlink()
    monkeypatch.setenv("PATH", str(cluster / "bin"))
    no_command = run_application("train.py", *SLURM, "seed=1")

    assert (
        no_library.err
        == "error: hydra/launcher=slurm: needs submitit: pip install 'aiayn[cluster]'\n"
    )
    assert no_command.err.startswith(
        "error: hydra/launcher=slurm: sbatch not found; use a login node"
    )
    assert (no_library.code, no_command.code, no_command.err.count("\n")) == (2, 2, 1)


def test_what_sbatch_says_against_a_job_is_the_error(cluster):
    (cluster / "bin/sbatch").write_text(
        "#!/bin/bash\necho 'sbatch: error: invalid partition specified: x' >&2; exit 1\n"
    )

    outcome = run_application("train.py", *SLURM, "seed=1")

    assert outcome.code == 2
    assert outcome.err.endswith(
        "base was rejected: sbatch: error: invalid partition specified: x\n"
    )


# Inside a job.

STOPPED = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.kill(os.getppid(), signal.SIGTERM)
signal.sigwait([signal.SIGTERM])
sys.exit(143)
"""


@pytest.fixture
def in_job(cluster, monkeypatch) -> Path:
    """As in the first task of job 4711."""
    for name, value in {
        "SUBMITIT_EXECUTOR": "slurm",
        "SLURM_JOB_ID": "4711",
        "SLURM_PROCID": "0",
    }.items():
        monkeypatch.setenv(name, value)
    return cluster


def row(program: str, requeue: bool = True) -> SlurmRow:
    [job] = composed_jobs([*TEXT, *TINY, "sweep=s", "seed=1"])
    return SlurmRow(job, [sys.executable, "-c", program], [sys.executable, "-c", ""], requeue)


@pytest.mark.parametrize(
    ("state", "requeue", "asked"),
    [("RUNNING", True, ["requeue 4711"]), ("COMPLETING", True, []), ("RUNNING", False, [])],
    ids=["at_its_time_limit", "cancelled", "not_wanted"],
)
def test_a_stopped_row_goes_back_into_the_queue_unless_it_was_cancelled(
    in_job, state, requeue, asked
):
    (in_job / "queue").write_text(f"{state}\n")

    with pytest.raises(SystemExit) as ended:
        row(STOPPED, requeue)()

    assert ended.value.code == 128 + signal.SIGTERM
    said = (in_job / "asked").read_text() if requeue else ""
    assert [line for line in said.split("\n") if line.startswith("requeue")] == asked


def test_a_row_that_fails_ends_with_the_exit_code_of_what_failed_and_stays_out_of_the_queue(
    in_job, capsys
):
    with pytest.raises(SystemExit) as ended:
        row("import sys; print('error: the loss is nan'); sys.exit(5)")()

    assert ended.value.code == 5
    assert "the loss is nan" in (in_job / "outputs/sweeps/s/base.log").read_text()
    assert not (in_job / "asked").exists()


def test_the_other_tasks_of_a_job_become_the_other_ranks(in_job, monkeypatch):
    monkeypatch.setenv("SLURM_PROCID", "3")
    started = []
    monkeypatch.setattr(slurm.os, "execv", lambda *command: started.append(command) or sys.exit(0))
    each = row("train")

    with pytest.raises(SystemExit):
        each()

    assert started == [(sys.executable, each.job.train_command(each.train))]


@pytest.mark.slow
def test_a_job_trains_and_scores_its_row_which_is_then_passed_over(cluster, warm_program):
    [job] = composed_jobs([*TEXT, *TINY, "sweep=s", "seed=1"])
    train, evaluate = ([warm_program, str(ROOT / script)] for script in ("train.py", "evaluate.py"))
    executor = submitit.AutoExecutor(cluster / "submitit", cluster="local")
    executor.update_parameters(timeout_min=10)

    submitted = executor.submit(SlurmRow(job, train, evaluate, requeue=True))
    submitted.wait()

    assert submitted.exception() is None
    result = json.loads((job.folder / "evaluation/val/evaluation.json").read_text())
    assert (result["checkpoint"], result["step"], result["lines"]) == ("last.ckpt", 2, 5)
    again = run_application("train.py", *SLURM, "seed=1")
    assert (
        again.code,
        "1 jobs, 1 finished before" in again.err,
        "sacrebleu (val)" in again.err,
    ) == (0, True, True)
    assert not (cluster / "script.4711").exists()


@pytest.mark.quick("dropout=2")
@pytest.mark.parametrize(
    ("argument", "line"),
    [
        ("hydra.launcher.time=0", "error: hydra.launcher.time=0: must be at least 1"),
        ("hydra.launcher.gpus=-1", "error: hydra.launcher.gpus=-1: must be at least 0"),
        ("hydra.launcher.jobs=2", "error: hydra.launcher.jobs: no such option"),
        ("model.dropout=2", "error: model.dropout=2"),
    ],
)
def test_an_option_that_is_wrong_is_refused_before_anything_is_submitted(cluster, argument, line):
    before = sorted(cluster.iterdir())
    outcome = run_application("train.py", *SLURM, "seed=1,2", argument)

    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert outcome.err.startswith(line)
    assert sorted(cluster.iterdir()) == before
