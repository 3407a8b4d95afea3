"""The wheel, built and installed as users install it, and started from an empty folder."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest
from applications import ROOT, TEXT, TINY, write_text

SOURCES = ("src", "conf", "pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")


class Installed(NamedTuple):
    wheel: Path
    folder: Path  # as site-packages

    def run(self, at: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A command of the wheel, or a Python program beside it; what this checkout holds cannot be
        imported.
        """
        start = [str(self.folder / "bin/aiayn")] if command[0] == "aiayn" else [command[0]]
        return subprocess.run(
            [sys.executable, *start, *command[1:]],
            cwd=at,
            env=os.environ | {"PYTHONPATH": str(self.folder), "OMP_NUM_THREADS": "1"} | environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Installed:
    """The wheel of this checkout, in a folder of its own; its dependencies are those of the
    tests.
    """
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"
    tree.mkdir()
    for name in SOURCES:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(
                path, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
            )
        else:
            shutil.copy(path, tree)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "-w", folder, tree],
        check=True,
        timeout=600,
    )
    [wheel] = folder.glob("*.whl")
    subprocess.run(
        [*pip, "install", "--no-deps", "--no-index", "--target", folder / "installed", wheel],
        check=True,
        timeout=600,
    )
    shutil.rmtree(tree)
    return Installed(wheel, folder / "installed")


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_src_and_conf(installed):
    inside = set(zipfile.ZipFile(installed.wheel).namelist())
    files = [
        path
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    source = {
        path.relative_to(ROOT / "src").as_posix() for path in files if ".egg-info" not in str(path)
    }
    conf = {
        f"aiayn/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "conf").rglob("*.yaml")
    }

    assert source | conf == {name for name in inside if ".dist-info/" not in name}


@pytest.mark.slow
def test_the_wheel_trains_scores_and_sweeps_on_two_devices_in_an_empty_folder(installed, tmp_path):
    write_text(tmp_path)

    row = ("-m", "trainer.devices=2", "sweep=s", "seed=1", *TEXT, *TINY)
    swept = installed.run(tmp_path, "aiayn", "train", *row, AIAYN_OUTPUTS="runs")
    assert swept.returncode == 0, swept.stderr
    assert "\nnext     aiayn table runs/sweeps/s\n" in swept.stderr
    assert (tmp_path / "runs/sweeps/s/base/evaluation/val/evaluation.json").exists()
    log = (tmp_path / "runs/sweeps/s/base.log").read_text()
    assert "device   2 x cpu" in log
    assert "Warning" not in swept.stderr + log
    assert "\nnext     aiayn evaluate run=runs/sweeps/s/base\n" in log
    assert "sacrebleu" in log.partition("\nnext ")[2]  # what `aiayn evaluate` prints
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["data", "runs"]


APP = """
import hydra
@hydra.main(version_base="1.3", config_path="conf", config_name="other")
def main(config):
    print("value", config.value)
main()
"""


@pytest.mark.slow
def test_another_hydra_application_of_the_environment_starts_as_before(installed, tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/other.yaml").write_text("value: 1\n")
    (tmp_path / "train.py").write_text(APP)

    single = installed.run(tmp_path, "train.py", "value=7", "hydra.run.dir=here")
    several = installed.run(tmp_path, "train.py", "-m", "value=8,9")

    assert (single.returncode, single.stdout, single.stderr) == (0, "value 7\n", "")
    assert (several.returncode, several.stderr) == (0, "")
    assert [line for line in several.stdout.split("\n") if line.startswith("value")] == [
        "value 8",
        "value 9",
    ]
    assert (tmp_path / "here").is_dir()
    assert (tmp_path / "multirun").is_dir()
