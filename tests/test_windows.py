"""Where Python lacks what only Unix has: simulated, for what Windows' Python and libraries do cannot be had here.

fcntl, resource, termios, most signals and fork are taken away before anything of this program is imported.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from applications import ROOT, TEXT, TINY, in_new_interpreter, write_text

# Libraries, and Python's own modules, have other halves for Windows: they choose when they are imported.
HIDING = """
import filelock, multiprocessing.util, os, psutil, sacrebleu, select, signal, subprocess, sys
for module in ("fcntl", "resource", "termios", "pwd", "grp"):
    sys.modules[module] = None
for name in ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGPIPE"):
    delattr(signal, name)
for name in ("fork", "getppid", "sched_getaffinity", "sysconf", "mkfifo", "getuid"):
    delattr(os, name)
del select.poll
"""


def python(code: str, *arguments: object, at: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HIDING + code, *map(str, arguments)],
        cwd=at,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Holds a trained run, outputs/mine."""
    folder = tmp_path_factory.mktemp("windows")
    write_text(folder)
    assert in_new_interpreter(folder, "train.py", *TEXT, *TINY, "name=mine").returncode == 0
    return folder


def test_a_model_is_loaded_and_translates(folder):
    done = python(
        "import aiayn; print(len(aiayn.load('outputs/mine', accelerator='cpu').translate(['one two', 'three'])))",
        at=folder,
    )

    assert (done.stdout, done.returncode) == ("2\n", 0), done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("translate", "outputs/mine", "dev.en"),
        ("score", "outputs/mine", "dev.en", "dev.de"),
        ("table", "outputs/mine"),
        ("report", "outputs/mine"),
        ("attention", "outputs/mine", "one two"),
        ("evaluate", "run=outputs/mine", "split=val"),
    ],
    ids=lambda command: command[0],
)
def test_commands_that_read_a_run_work(folder, command):
    done = python("from aiayn.cli import main; main()", *command, at=folder)

    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_training_says_in_one_line_what_it_needs(folder):
    command = python("from aiayn.cli import main; main()", "train", *TEXT, *TINY, "name=other", at=folder)

    line = "training needs Linux, macOS or WSL; translating, scoring and tables work here"
    assert (command.stderr, command.returncode) == (f"error: {line}\n", 2)
    assert line in python("import aiayn; aiayn.train('name=other')", at=folder).stderr
    assert not (folder / "outputs/other").exists()
