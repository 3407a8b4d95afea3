"""Two processes on one machine, started as users start them."""

import json
import shutil
import signal
import subprocess
import sys

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


LAYER_DROP = """
import torch
from aiayn.training.module import TranslationModule

class Module(TranslationModule):
    def training_loss(self, batch):
        if batch.number % 2:  # of two ranks, the second one
            self.model.encoder, whole = self.model.encoder[:0], self.model.encoder
            try:
                return super().training_loss(batch)
            finally:
                self.model.encoder = whole
        return super().training_loss(batch)
"""


def test_a_rank_that_leaves_parameters_out_ends_the_run_with_their_names_and_the_strategy_that_allows_it(
    corpus, tmp_path
):
    (tmp_path / "drop.py").write_text(LAYER_DROP)
    given = arguments(corpus, "drop", "trainer.devices=2", "trainer.max_steps=2", "extensions=[drop.py]")
    ended = in_new_interpreter(tmp_path, *given)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.count("error: ") == 1
    assert "step 1 left parameters out on rank 1 (model.encoder.0.self_attention.w_q.weight" in ended.stderr
    ended = in_new_interpreter(tmp_path, *given, "trainer.strategy=ddp_find_unused_parameters_true")
    assert ended.returncode == 0, ended.stderr


def test_the_second_of_the_same_signals_ends_a_process_whose_main_thread_waits_in_a_library(tmp_path):
    code = """
import hashlib, os, signal, threading
from aiayn.signals import handle_signals, on_second_signal

def send():
    os.kill(os.getpid(), signal.SIGINT)
    while True:
        os.kill(os.getpid(), signal.SIGTERM)

with handle_signals(lambda number, frame: None), on_second_signal(lambda number: os._exit(number + 7)):
    threading.Thread(target=send).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == signal.SIGTERM + 7
