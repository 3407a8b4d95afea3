"""Options of one's own, declared by a file outside the program: composed, typed, ruled and refused
like its own.
"""

import os
import sys
from pathlib import Path

import pytest
import yaml
from applications import TEXT, TINY, run_application, write_text

import aiayn
from aiayn.config.extensions import load_extension
from aiayn.config.stored import changed_options, stored_config

ROTARY = """
from dataclasses import dataclass


@dataclass
class Options:
    base: float = 10_000.0
    interleaved: bool = True
    fraction: float = 1.0

    def __post_init__(self):
        if not 0 < self.fraction <= 1:
            raise ValueError(f"fraction={self.fraction}: must be above 0 and at most 1")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A working directory with text and the extension my/rotary.py."""
    (tmp_path / "my").mkdir()
    (tmp_path / "my/rotary.py").write_text(ROTARY)
    write_text(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_options_of_an_extension_have_its_defaults_and_the_values_that_are_typed(folder):
    options = aiayn.compose("extensions=[my/rotary.py]", "extension.rotary.base=500")

    assert options.extension == {"rotary": {"base": 500, "interleaved": True, "fraction": 1.0}}
    assert isinstance(options.extension["rotary"]["base"], float), (
        "as with 500.0: both are one row of a table"
    )
    assert aiayn.compose().extension == {}


@pytest.mark.slow
def test_an_experiment_of_ones_own_may_name_extensions_and_their_options(folder):
    (folder / "conf/experiment").mkdir(parents=True)
    (folder / "conf/experiment/mine.yaml").write_text(
        "# @package _global_\nextensions: [my/rotary.py]\nextension: {rotary: {fraction: 0.5}}\n"
    )
    shown = run_application("train.py", "--config-dir", "conf", "experiment=mine", "--cfg", "job")

    assert (shown.code, yaml.safe_load(shown.out)["extension"]) == (
        0,
        {"rotary": {"fraction": 0.5}},
    )


@pytest.mark.quick("arguments0-", "arguments4-", "arguments10-")
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["extension.rotary.bse=5"],
            "extension.rotary.bse: no such option; choose one of base, interleaved, fraction",
        ),
        (
            ["extension.rotary.q=5"],
            "extension.rotary.q: no such option; choose one of base, interleaved, fraction",
        ),
        (["extension.rotary.base=high"], "extension.rotary.base=high: must be of type float"),
        (
            ["extension.rotary.interleaved=3"],
            "extension.rotary.interleaved=3: must be of type bool",
        ),
        (
            ["extension.rotary.fraction=2"],
            "extension.rotary: fraction=2.0: must be above 0 and at most 1",
        ),
        (["extension.rotary=5"], "extension.rotary: write extension.rotary.OPTION=value"),
        (
            ["extension.rotarry.base=5"],
            "extension.rotarry: no such extension; name its file as well",
        ),
        (
            ["extensions=[my/rotary.py,my/nothing.py]"],
            "extensions: my/nothing.py: cannot be read (No such file",
        ),
        (
            ["extensions=[my/rotary]"],
            "extensions: my/rotary: name a Python file, such as my_file.py",
        ),
        (
            ["extensions=[my/rotary.py,my/rotary.py]"],
            "extensions: two files are called rotary.py; rename one",
        ),
        (
            ["extensions=[my/broken.py]"],
            "extensions: my/broken.py, line 1, in <module>: ZeroDivisionError: ",
        ),
    ],
)
@pytest.mark.parametrize(
    "several", [(), pytest.param(("-m", "seed=1,2"), marks=pytest.mark.slow)], ids=["one", "sweep"]
)
def test_mistakes_in_an_extensions_options_are_one_line_and_nothing_is_written(
    folder, arguments, line, several
):
    (folder / "my/broken.py").write_text("1 / 0\n")
    before = sorted(folder.rglob("*"))

    outcome = run_application("train.py", *several, "extensions=[my/rotary.py]", *arguments)

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"error: {line}"), outcome.err
    assert outcome.err.count("\n") == 1
    assert sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts) == before


@pytest.mark.slow
def test_a_run_stores_them_and_reading_them_again_imports_nothing(folder):
    trained = run_application("train.py", *TEXT, *TINY, "name=mine", "extensions=[my/rotary.py]")
    assert trained.code == 0, trained.err
    (folder / "my/rotary.py").unlink()
    sys.modules.pop("aiayn_extension_rotary")

    stored = yaml.safe_load((folder / "outputs/mine/config.yaml").read_text())
    config = stored_config(stored)

    assert (
        stored["extension"]
        == config.extension
        == {"rotary": {"base": 10000.0, "interleaved": True, "fraction": 1.0}}
    )
    assert "aiayn_extension_rotary" not in sys.modules
    assert run_application("evaluate.py", "run=outputs/mine", "accelerator=cpu").code == 0


def test_an_option_of_an_extension_that_changes_is_a_change_of_the_training(folder):
    before = aiayn.compose("extensions=[my/rotary.py]")

    now = aiayn.compose("extensions=[my/rotary.py]", "extension.rotary.base=500")

    assert changed_options(before, now) == {"extension.rotary.base": "10000.0 -> 500.0"}
    assert "extension.rotary.base" in changed_options(before, aiayn.compose())


def test_the_bytes_that_are_hashed_are_those_that_run(folder):
    file = folder / "my/rotary.py"
    planted = folder / "planted.py"
    planted.write_text(
        ROTARY.replace("500", "1").replace("base: float = 10_000.0", "base: float = 666.0")
    )
    stat = file.stat()
    import importlib.util
    import py_compile

    # A cache as Python would take it: of the same time and size.
    cached = Path(importlib.util.cache_from_source(str(file)))
    cached.parent.mkdir()
    planted.write_text(planted.read_text().ljust(stat.st_size)[: stat.st_size])
    os.utime(planted, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    py_compile.compile(str(planted), str(cached), dfile=str(file))

    assert load_extension("my/rotary.py").module.Options().base == 10_000
