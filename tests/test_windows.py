"""Where Python lacks what only Unix has: simulated, for what Windows' Python and libraries do
cannot be had here.

fcntl, resource, termios, most signals and fork are taken away before anything of this program is
imported.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from applications import ROOT, TEXT, TINY, run_application, write_text

# Libraries, and Python's own modules, have other halves for Windows: they choose when they are
# imported.
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
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run_application("train.py", *TEXT, *TINY, "name=mine").code == 0
    return folder


COMMANDS = [
    ("translate", "outputs/mine", "dev.en"),
    ("score", "outputs/mine", "dev.en", "dev.de"),
    ("table", "outputs/mine"),
    ("report", "outputs/mine"),
    ("attention", "outputs/mine", "one two"),
    ("evaluate", "run=outputs/mine", "split=val"),
]
ALL_COMMANDS = f"""
import aiayn
print(len(aiayn.load("outputs/mine", accelerator="cpu").translate(["one two", "three"])))
from aiayn.cli import main
for command in {COMMANDS}:
    sys.argv[1:] = command
    print("#", command[0], flush=True)
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, command
"""


@pytest.mark.slow
def test_a_model_is_loaded_and_translates_and_commands_that_read_a_run_work(folder):
    done = python(ALL_COMMANDS, at=folder)

    assert done.returncode == 0, done.stderr
    loaded, *printed = done.stdout.split("\n# ")
    assert loaded == "2"
    assert [text.partition("\n")[0] for text in printed] == [name for name, *_ in COMMANDS]
    assert all(text.partition("\n")[2].strip() for text in printed)


def test_training_says_in_one_line_what_it_needs(folder):
    command = python(
        "from aiayn.cli import main; main()", "train", *TEXT, *TINY, "name=other", at=folder
    )

    line = "training needs Linux, macOS or WSL; translating, scoring and tables work here"
    assert (command.stderr, command.returncode) == (f"error: {line}\n", 2)
    assert line in python("import aiayn; aiayn.train('name=other')", at=folder).stderr
    assert not (folder / "outputs/other").exists()
