"""Two processes on one machine, started as users start them."""

import json
import shutil

import pytest
from applications import TWELVE_STEPS, in_new_interpreter, run_application, text_in

from aiayn.runs import checkpoints


def arguments(corpus, name, *more):
    settings = (*TWELVE_STEPS, *text_in(corpus, "xx"), "data.max_length=60", "data.vocab_size=290")
    return [
        "train.py",
        *settings,
        "trainer.max_steps=8",
        "trainer.val_every=5",
        "trainer.checkpoint_every=5",
        *more,
        f"name={name}",
    ]


def metrics(folder, name):
    lines = (folder / "outputs" / name / "metrics.jsonl").read_text().split("\n")[:-1]
    records = [json.loads(line) for line in lines]
    train = [record["train/loss"] for record in records if "train/loss" in record]
    return train, [(record["val/loss"], record["val/bleu"]) for record in records if "val/loss" in record]


@pytest.fixture(scope="module")
def runs(corpus, tmp_path_factory):
    """Eight steps on one device, on two, and on two up to the checkpoint of step 5 and then on one."""
    folder = tmp_path_factory.mktemp("runs")
    two = in_new_interpreter(folder, *arguments(corpus, "two", "trainer.devices=2"))
    assert two.returncode == 0, two.stderr
    shutil.copytree(folder / "outputs/two", folder / "outputs/both")
    for path in (folder / "outputs/both/checkpoints").glob("step_8*"):
        path.unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("one", "both"):
            ended = run_application(*arguments(corpus, name))
            assert ended.code == 0, ended.err
    assert "step 6/8" in ended.err
    assert "step 5/8" not in ended.err
    return folder, two


def test_two_devices_train_with_the_losses_of_one(runs):
    folder, _ = runs
    assert metrics(folder, "two")[0] == pytest.approx(metrics(folder, "one")[0], abs=1e-6)
    assert len(metrics(folder, "one")[0]) == 8


def test_two_devices_validate_with_the_scores_of_one(runs):
    folder, _ = runs
    for one, two in zip(metrics(folder, "one")[1], metrics(folder, "two")[1], strict=True):
        assert two == pytest.approx(one, abs=1e-5)


def test_a_run_begun_on_two_devices_continues_on_one(runs):
    folder, _ = runs
    assert metrics(folder, "both")[0] == pytest.approx(metrics(folder, "one")[0], abs=1e-6)
    both, one = (checkpoints.load(folder / f"outputs/{name}/checkpoints/last.ckpt") for name in ("both", "one"))
    for name, tensor in one.weights.items():
        assert (both.weights[name] - tensor).abs().max() < 1e-5


def test_only_the_first_process_speaks(runs):
    _, two = runs
    assert two.stderr.count("step 8/8  epoch") == 1
    assert "device   2 x cpu" in two.stderr
    assert "Warning" not in two.stderr
    assert two.stdout == ""
