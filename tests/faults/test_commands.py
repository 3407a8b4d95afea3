"""The same promises with `python train.py` itself, in new interpreters: what only those can
show.
"""

import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from applications import ROOT
from faults.harness import settings, wait_until, within

from aiayn.runs.run_folder import read_jsonl, saved_steps


def command(text, *arguments):
    return [sys.executable, str(ROOT / "train.py"), *settings(text), *arguments]


@pytest.fixture
def begin(text, tmp_path):
    """Starts `python train.py` in a session of its own, of which nothing is left afterwards."""
    processes = []

    def begin(*arguments):
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
        options = {"stderr": subprocess.PIPE, "text": True, "start_new_session": True}
        processes.append(
            subprocess.Popen(command(text, *arguments), cwd=tmp_path, env=environment, **options)
        )
        return processes[-1]

    yield begin
    for process in processes:
        if process.poll() is None:  # else its number may belong to others by now
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def step_reached(folder: Path) -> int:
    return max(
        (record["step"] for record in read_jsonl(folder / "outputs/run/metrics.jsonl")), default=0
    )


def loaded(process, library):
    """True once the process has mapped a library: it is in the midst of importing."""
    return library in maps(process.pid)


@pytest.mark.quick("15")
@pytest.mark.parametrize(
    ("number", "codes"), [(signal.SIGINT, {130}), (signal.SIGTERM, {143, -signal.SIGTERM})]
)
def test_a_signal_while_libraries_are_loaded_ends_it_without_a_traceback(
    begin, tmp_path, number, codes
):
    process = begin()
    with within():
        wait_until(lambda: loaded(process, "libtorch_cpu"))
        process.send_signal(number)
        _, said = process.communicate()
    assert process.returncode in codes, said
    assert "Traceback" not in said
    assert said.count("\n") <= 1
    assert not (tmp_path / "outputs").exists()


@pytest.mark.quick("15")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_every_command_even_while_a_library_is_loaded_that_catches_it(
    tmp_path, number, code
):
    zipfile.ZipFile(tmp_path / "x.ckpt", "w").close()
    caught = (
        f"    os.kill(os.getpid(), {int(number)})\nexcept BaseException:\n    raise ImportError "
        "from None\n"
    )
    (tmp_path / "torch.py").write_text(f"import os\ntry:\n{caught}")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}"}
    command = [sys.executable, "-m", "aiayn", "export", "x.ckpt", "y", "--format", "aiayn"]
    end = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (end.returncode, end.stderr) == (code, "interrupted\n")


@pytest.mark.slow
@pytest.mark.parametrize("target", ["first", "second", "all"])
def test_a_signal_to_any_process_of_two_saves_and_says_how_to_continue(begin, tmp_path, target):
    """`all` is what a cluster does that takes the job's time to be over: it signals every
    process.
    """
    process = begin("trainer.devices=2", "trainer.max_steps=100000")
    with within():
        wait_until(lambda: step_reached(tmp_path) > 3)
        if target == "all":
            os.killpg(process.pid, signal.SIGTERM)
        else:
            os.kill(process.pid if target == "first" else children(process)[0], signal.SIGTERM)
        _, said = process.communicate()
    assert process.returncode == 143, said
    saved = saved_steps(tmp_path / "outputs/run/checkpoints")[-1]
    lines = said.rstrip("\n").split("\n")
    assert lines[-1].startswith(f"stopped  saved at step {saved}; continue with: python")
    assert lines[-1].endswith("trainer.devices=2 trainer.max_steps=100000")
    assert sum(line.startswith(("stopped", "error")) for line in lines) == 1


def maps(pid):
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except FileNotFoundError:
        return ""


def children(process):
    return [
        int(pid)
        for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    ]


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["first", "second"])
def test_a_killed_process_takes_the_other_with_it_and_is_named(begin, tmp_path, victim):
    process = begin("trainer.devices=2", "trainer.max_steps=100000", "trainer.timeout=120")
    with within():
        wait_until(lambda: step_reached(tmp_path) > 3)
        other = children(process)[0]
        os.kill(process.pid if victim == "first" else other, signal.SIGKILL)
        _, said = process.communicate()  # until both have closed it
    assert process.returncode == (-signal.SIGKILL if victim == "first" else 6), said
    errors = [line for line in said.split("\n") if line.startswith("error: ")]
    assert len(errors) == 1, said
    assert f"no answer from rank {int(victim == 'second')} of 2" in errors[0]
    assert not maps(other), "it has ended, though nobody may have taken note of it yet"
