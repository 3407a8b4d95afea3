"""`import aiayn`: what notebooks and other programs call, and where runs go."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from applications import (
    ROOT,
    TEXT,
    TINY,
    composed_options,
    run_application,
    write_run,
    write_text,
)

import aiayn
from aiayn.errors import ConfigError


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    write_text(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AIAYN_OUTPUTS", raising=False)
    return tmp_path


def test_a_run_is_composed_trained_scored_and_loaded_from_python(folder):
    config = aiayn.compose(*TEXT, *TINY, "name=mine", "outputs=runs")

    run = aiayn.train(config)
    scores = aiayn.evaluate(f"run={run}", "split=val", "accelerator=cpu")
    translator = aiayn.load(run, accelerator="cpu", beam_size=2)

    assert run == Path("runs/mine")
    assert scores == json.loads((folder / "runs/mine/evaluation/val/evaluation.json").read_text())
    assert (type(translator).__name__, translator.search.beam_size) == ("FastTranslator", 2)
    exact = aiayn.load(run, accelerator="cpu", beam_size=2, engine="torch", patience=2.0)
    assert exact.translate(["one two", "three"]) == translator.translate(["one two", "three"])
    with pytest.raises(ConfigError, match="engine=ctranslate2: an exact search"):
        aiayn.load(run, accelerator="cpu", beam_size=2, engine="ctranslate2", patience=0)
    assert len(translator.translate(["one two", ""])) == 2
    # finished: nothing is trained again
    assert aiayn.train(*TEXT, *TINY, "name=mine", "outputs=runs") == run


@pytest.mark.parametrize(
    ("engine", "options", "installed"),
    [
        ("CTranslate2", [], True),
        ("torch", ["model.attention_window=2"], True),
        ("torch", [], False),
    ],
    ids=["expressible", "not expressible", "not installed"],
)
def test_a_run_is_loaded_with_the_engine_that_the_command_line_takes_at_the_defaults(
    tmp_path, monkeypatch, engine, options, installed
):
    ctranslate2 = pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 0)
    if not installed:
        monkeypatch.setitem(sys.modules, "ctranslate2", None)
    run = write_run(tmp_path / "run", others=options)
    lines = ["the old house", "", "the man sees two cats"]
    (tmp_path / "text").write_text("\n".join(lines) + "\n")

    command = run_application("aiayn", "translate", str(run), str(tmp_path / "text"))
    translator = aiayn.load(run)

    assert command.err.startswith(f"engine   {engine}, "), command.err
    kind = {"CTranslate2": "FastTranslator", "torch": "Translator"}[engine]
    assert type(translator).__name__ == kind
    assert translator.translate(lines) == command.out.splitlines()
    assert type(aiayn.load(run, engine="torch")).__name__ == "Translator"


def test_a_mode_that_wandb_does_not_know_is_refused_before_anything_starts(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "nonsense")
    with pytest.raises(ConfigError, match=r"^WANDB_MODE=nonsense: choose one of online, offline"):
        aiayn.compose("logger=wandb")
    assert aiayn.compose("logger=none")


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("model.n_head=4", "model.n_head: no such option; did you mean model.n_heads?"),
        ("+trainer.min_epochs=3", "did you mean trainer.max_epochs?"),
    ],
)
def test_an_impossible_option_is_a_config_error_in_python(option, line):
    with pytest.raises(ConfigError, match=line.replace("?", r"\?")):
        aiayn.compose(option)


def test_of_options_with_one_name_the_last_wins_in_python_so_that_a_list_can_be_varied():
    options = ("data=phrasebook", "model=tiny", "logger=none", "model.dropout=0.1")
    assert aiayn.compose(*options, "model.dropout=0.2").model.dropout == 0.2


def test_a_notebook_is_told_that_it_cannot_start_other_ranks(monkeypatch, tmp_path):
    from aiayn.config import program

    script = tmp_path / "train.py"
    script.touch()
    monkeypatch.setattr(sys, "argv", [str(script)])
    kernelapp = pytest.importorskip("ipykernel.kernelapp")
    assert program.same_again() == [sys.executable, str(script)], (
        "an import of ipykernel makes no notebook"
    )
    monkeypatch.setattr(kernelapp.IPKernelApp, "_instance", kernelapp.IPKernelApp())

    with pytest.raises(ConfigError, match="a notebook trains on one device"):
        program.same_again()


def test_importing_the_package_is_quick_and_help_names_what_is_public():
    code = (
        "import sys, aiayn; print(len(sys.modules)); print({'torch', 'hydra', 'yaml'} & "
        "set(sys.modules)); help(aiayn)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True
    ).stdout

    assert shown.split("\n")[1] == "set()"
    for name in (
        "load(run",
        "compose(*options",
        "train(*options",
        "evaluate(*options",
        "Translator",
        "UserError",
    ):
        assert name in shown


# outputs=


def test_runs_go_to_the_folder_of_the_option_else_of_the_environment_else_to_outputs(
    folder, monkeypatch
):
    assert composed_options("name=x").outputs_folder == Path("outputs")
    monkeypatch.setenv("AIAYN_OUTPUTS", "/data/runs")
    assert composed_options("name=x").outputs_folder == Path("/data/runs")
    assert composed_options("name=x", "outputs=here").outputs_folder == Path("here")
    assert composed_options("name=x", "outputs='~/here'").outputs_folder == Path.home() / "here"
    assert composed_options("name=x").outputs is None  # what the environment says is not stored


@pytest.mark.quick("a b")
@pytest.mark.parametrize("given", ["a b", "'a=b'", "'a;b'"])
def test_a_root_that_would_need_quotes_is_refused_before_anything_starts(
    folder, monkeypatch, given
):
    before = sorted(folder.iterdir())
    refused = run_application("train.py", *TEXT, *TINY, f"outputs={given}")
    monkeypatch.setenv("AIAYN_OUTPUTS", given.strip("'"))
    unset = run_application("train.py", "-m", *TEXT, *TINY, "seed=1,2")

    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert refused.err.startswith(f"error: outputs={given.strip(chr(39))}: use letters, digits")
    assert (unset.code, unset.err.count("\n")) == (2, 1)
    assert unset.err.startswith("error: AIAYN_OUTPUTS=")
    assert sorted(folder.iterdir()) == before


@pytest.mark.slow
def test_every_printed_command_names_the_root_and_the_program_that_was_started(folder):
    script = run_application("train.py", *TEXT, *TINY, "name=small", "outputs=my/runs")
    command = run_application(
        "aiayn", "train", *TEXT, *TINY, "name=small", "outputs=my/runs", "trainer.max_steps=3"
    )

    assert (script.code, command.code) == (0, 0), script.err + command.err
    assert "run      my/runs/small, new" in script.err
    assert "run      my/runs/small, continued at step 2" in command.err
    assert (
        f"next     python {ROOT}/evaluate.py run=my/runs/small\n         aiayn translate "
        "my/runs/small\n" in script.err
    )
    assert "next     aiayn evaluate run=my/runs/small" in command.err
    assert not (folder / "outputs").exists()
