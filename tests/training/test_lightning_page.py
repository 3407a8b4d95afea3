"""The code of docs/lightning.md and docs/ideas.md runs."""

import re
import shlex
from typing import Any

import pytest
import torch
from applications import ROOT, TWELVE_STEPS, run_application, text_in, write_pairs

import aiayn
from aiayn.runs import checkpoints
from aiayn.runs.run_folder import RunFolder

PAGE = (ROOT / "docs/lightning.md").read_text(encoding="utf-8")


def recipe(heading: str) -> str:
    """The Python code under a heading."""
    return re.search(rf"^#+ {heading}\n.*?```python\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)[1]


@pytest.fixture
def options(tmp_path):
    for seed, (split, count) in enumerate({"train": 60, "val": 5, "test": 5}.items()):
        write_pairs(tmp_path / split, count, seed)
    lasting = [option for option in TWELVE_STEPS if not option.startswith("trainer.max_steps=")]
    return [*lasting, *text_in(tmp_path), "trainer.max_steps=2", f"outputs={tmp_path}"]


def written(tmp_path, code: str) -> str:
    path = tmp_path / "recipe.py"
    path.write_text(code, encoding="utf-8")
    return f"extensions=[{path}]"


@pytest.mark.slow
def test_the_recipe_of_a_loss_changes_it(options, tmp_path):
    losses = []
    for name, more in (("plain", []), ("own", [written(tmp_path, recipe("Change the loss"))])):
        folder = aiayn.train(aiayn.compose(*options, *more, f"name={name}"))
        losses.append(
            [
                record["train/loss"]
                for record in RunFolder(folder).read_metrics()
                if "train/loss" in record
            ]
        )
    assert losses[0] != losses[1]


def test_the_recipe_of_a_callback_logs_its_series(options, tmp_path):
    code = recipe("Write a callback")
    folder = aiayn.train(aiayn.compose(*options, written(tmp_path, code), "name=run"))
    assert [r["step"] for r in RunFolder(folder).read_metrics() if "train/weight_norm" in r] == [
        1,
        2,
    ]


def test_the_notebook_the_trainer_and_the_search_of_the_page_run(options, tmp_path, monkeypatch):
    """On a text of the test, with a vocabulary that it supports."""
    text = [
        option
        for option in options
        if option.startswith("data")
        and "micro_batches" not in option
        and "max_tokens" not in option
    ]
    plain = aiayn.compose(*text, "model=tiny", "optim=adam", "trainer=default")
    monkeypatch.setattr(aiayn, "compose", lambda *arguments: plain)
    names: dict[str, Any] = {}

    def run(heading: str) -> None:
        exec(
            recipe(heading)
            .replace("vocab_size=2000)", "vocab_size=280)")
            .replace("steps=10", "steps=2"),
            names,
        )

    run("Use the data module")
    assert names["batch"].src.size(0) > 1
    run("Your own Trainer")
    assert names["trainer"].global_step == 2
    names |= {
        "module": names["trainer"].lightning_module,
        "src": torch.tensor([[5, 6, 2], [7, 2, 0]]),
    }
    run("Search with your own module")
    assert len(names["found"]) == 2


def test_the_position_encoding_of_the_page_on_ideas_learns_scores_and_translates(
    options, tmp_path, monkeypatch
):
    page = (ROOT / "docs/ideas.md").read_text(encoding="utf-8")
    section = page.split("## Add a position encoding\n")[1].split("\n## ")[0]
    [code] = re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    [shell] = re.findall(r"^```sh\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    train, evaluate, translate = map(shlex.split, shell.splitlines())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wavelengths.py").write_text(code, encoding="utf-8")
    (tmp_path / "outputs").symlink_to(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")

    evaluate = [word for word in evaluate[1:] if word != "baseline=outputs/quickstart"]
    for words in ([*train[1:], *options], [*evaluate, "accelerator=cpu"], translate):
        outcome = run_application(*words)
        assert outcome.code == 0, outcome.err

    assert outcome.out.count("\n") == 5
    names: dict[str, Any] = {}
    exec(code, names)
    start = names["LearnedWavelengths"](16)
    learned = checkpoints.load(RunFolder(tmp_path / "wavelengths").last).weights
    for side in ("src", "tgt"):
        trained = learned[f"{side}_positions.log_frequencies"]
        assert trained.shape == start.log_frequencies.shape
        assert not torch.equal(trained, start.log_frequencies)
