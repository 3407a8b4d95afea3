"""The same promises with `python train.py` itself, in new interpreters: what only those can show."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from applications import ROOT
from faults.harness import settings, wait_until, within


def command(text, *arguments):
    return [sys.executable, str(ROOT / "train.py"), *settings(text), *arguments]


@pytest.fixture
def begin(text, tmp_path):
    """Starts `python train.py` in a session of its own, of which nothing is left afterwards."""
    processes = []

    def begin(*arguments):
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
        options = {"stderr": subprocess.PIPE, "text": True, "start_new_session": True}
        processes.append(subprocess.Popen(command(text, *arguments), cwd=tmp_path, env=environment, **options))
        return processes[-1]

    yield begin
    for process in processes:
        if process.poll() is None:  # else its number may belong to others by now
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def loaded(process, library):
    """True once the process has mapped a library: it is in the midst of importing."""
    return library in maps(process.pid)


@pytest.mark.parametrize(("number", "codes"), [(signal.SIGINT, {130}), (signal.SIGTERM, {143, -signal.SIGTERM})])
def test_a_signal_while_libraries_are_loaded_ends_it_without_a_traceback(begin, tmp_path, number, codes):
    process = begin()
    with within():
        wait_until(lambda: loaded(process, "libtorch_cpu"))
        process.send_signal(number)
        _, said = process.communicate()
    assert process.returncode in codes, said
    assert "Traceback" not in said
    assert said.count("\n") <= 1
    assert not (tmp_path / "outputs").exists()


def maps(pid):
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except FileNotFoundError:
        return ""
