"""A stranger's first hour: a fresh clone, an empty environment, and commands as they are
printed.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from applications import ROOT, write_pairs

BASE_PYTHON = Path(getattr(sys, "_base_executable", sys.executable)).resolve().parent


def type_in(folder: Path, commands: str) -> subprocess.CompletedProcess[str]:
    """Types commands into a new shell in which nothing is set, as after `env -i`; the first failure
    ends it.
    """
    home = folder / "home"
    home.mkdir(exist_ok=True)
    network = {
        name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))
    }
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", commands],
        cwd=folder,
        env=network
        | {
            "PATH": f"{BASE_PYTHON}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(home),
            "LANG": "C.UTF-8",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A fresh clone with text in `my/`; nothing is installed."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    folder = tmp_path_factory.mktemp("first") / "aiayn"
    subprocess.run(["git", "clone", "-q", ROOT, folder], check=True)
    for number, name in enumerate(("train", "dev", "test", "other")):
        write_pairs(folder / "my" / name, 300 if name == "train" else 20, seed=number)
    return folder


@pytest.fixture(scope="module")
def installed(clone) -> Path:
    """The clone as `make install` leaves it, with the packages of the tests in place of a
    download.
    """
    subprocess.run(
        [BASE_PYTHON / "python3", "-m", "venv", "--without-pip", clone / ".venv"], check=True
    )
    [site] = (clone / ".venv/lib").glob("python*/site-packages")
    packages = [path for path in sys.path if path.endswith("site-packages")]
    (site / "tests.pth").write_text("\n".join([str(clone / "src"), *packages]) + "\n")
    command = clone / ".venv/bin/aiayn"
    command.write_text(f"#!{clone}/.venv/bin/python\nfrom aiayn.cli import main\nmain()\n")
    command.chmod(0o755)
    return clone


@pytest.mark.parametrize("script", ["train.py", "evaluate.py"])
def test_outside_the_environment_a_script_says_in_one_line_what_to_type(clone, script):
    answer = type_in(clone, f"python3 {script} run=outputs/quickstart")

    assert (answer.returncode, answer.stdout, answer.stderr.count("\n")) == (2, "", 1)
    assert "make install" in answer.stderr
    assert answer.stderr.endswith("type: source .venv/bin/activate\n")


def test_a_printed_command_works_in_the_shell_in_which_it_is_read(installed):
    split = "aiayn split my/train --src-lang en --tgt-lang de --val 20 --test 20 --out {}"
    inactive = type_in(installed, f".venv/bin/{split.format('one')}")
    active = type_in(installed, f"source .venv/bin/activate; {split.format('two')}")

    typed = {
        answer.stdout: answer.stdout.partition("next ")[2].strip() for answer in (inactive, active)
    }
    assert typed[inactive.stdout].startswith(".venv/bin/aiayn train "), inactive.stderr
    assert typed[active.stdout].startswith("aiayn train "), active.stderr
    shown = type_in(installed, f"{typed[inactive.stdout]} --cfg job")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "train: one/train" in shown.stdout.replace("'", "")


def test_make_names_the_activation_wherever_it_ends(installed):
    for target in ("install", "quickstart"):
        lines = subprocess.run(
            ["make", "-n", "-o", ".venv/.installed", target],
            cwd=installed,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert "source .venv/bin/activate" in lines.partition("next:")[2]


@pytest.mark.skipif(sys.platform != "linux", reason="there is one build of torch")
def test_where_torch_for_cpus_is_missing_make_stops_before_it_takes_the_build_for_cuda(
    clone, tmp_path
):
    """pip is a stand-in that finds no build of torch for CPUs, as where only PyPI is reached."""
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/log\ncase "$*" in *+cpu) exit 1;; esac\n'
    )
    python.chmod(0o755)

    def install(build: str) -> tuple[subprocess.CompletedProcess[str], int]:
        answer = subprocess.run(
            ["make", "install", f"TORCH={build}", f"BIN={tmp_path}", "UV="],
            cwd=clone,
            capture_output=True,
            text=True,
            check=False,
        )
        return answer, (tmp_path / "log").read_text().count(" install ")

    stopped, n_installed = install("cpu")
    assert (stopped.returncode != 0, n_installed) == (True, 1)
    assert "error: no build of torch for CPUs" in stopped.stderr
    assert "make install TORCH=cuda" in stopped.stderr
    assert install("cuda")[1] == 3  # torch, and the other packages


@pytest.mark.slow
@pytest.mark.timeout(7200)  # a download, an installation and the quickstart, on a slow machine
def test_the_commands_of_the_readme_run_in_order_in_an_empty_environment(tmp_path):
    """Only the repository's address is replaced. Data sets and weeks of training are not on every
    machine.
    """
    for number, name in enumerate(("train", "dev", "test", "other")):
        write_pairs(tmp_path / "my" / name, 300 if name == "train" else 20, seed=number)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [first] = re.findall(r"```bash\n(.*?)```", readme.split("\n## ")[0], re.DOTALL)
    own, evaluate = (
        re.findall(r"```bash\n(.*?)```", readme.partition(f"## {heading}\n")[2], re.DOTALL)[0]
        for heading in ("Train on your own text", "Evaluate, translate, view attention")
    )
    first = first.replace("ADDRESS", shlex.quote(str(ROOT)))
    assert first.startswith("git clone ")

    shutil.rmtree(tmp_path / "home", ignore_errors=True)
    said = type_in(tmp_path, f"{first}\nmv ../my my\n{own}\n{evaluate}")

    assert said.returncode == 0, said.stdout + said.stderr
    assert (tmp_path / "aiayn/outputs/quickstart/evaluation/test/evaluation.json").exists()
    assert (tmp_path / "aiayn/outputs/mine/evaluation/other/evaluation.json").exists()
