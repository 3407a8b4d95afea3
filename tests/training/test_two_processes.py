"""Two processes on one machine, started as users start them; test_wheel starts them as new
interpreters.
"""

import signal
import subprocess
import sys

import pytest
from applications import TWELVE_STEPS, in_new_interpreter, run_application, text_in

from aiayn.runs import checkpoints
from aiayn.runs.run_folder import read_json, read_jsonl


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


OWN_OF_EACH_PROCESS = """
import os
from pathlib import Path
from pytorch_lightning import Callback

METRICS = {"process": lambda hypotheses, references: float(os.getpid())}

class Seen(Callback):
    def on_validation_end(self, trainer, module):
        Path(f"seen_by_{trainer.global_rank}").write_text(str(float(trainer.callback_metrics["val/process"])))

def callbacks(run):
    return [Seen()]
"""


@pytest.mark.slow
def test_only_the_first_process_speaks_and_both_hear_of_one_metric(
    corpus, tmp_path, monkeypatch, warm
):
    (tmp_path / "own.py").write_text(OWN_OF_EACH_PROCESS)
    few = ("trainer.limit_val_batches=3", "data.max_tokens_per_device=70", "trainer.average_last=1")
    few = (*few, "extensions=[own.py]", "trainer.best_metric=val/process")
    two = in_new_interpreter(tmp_path, *arguments(corpus, "two", "trainer.devices=2", *few))
    assert two.returncode == 0, two.stderr
    assert two.stderr.count("step 8/8  epoch") == 1
    assert "device   2 x cpu" in two.stderr
    assert "Warning" not in two.stderr
    assert two.stdout == ""
    assert (tmp_path / "seen_by_0").read_text() == (tmp_path / "seen_by_1").read_text()
    # The average of one checkpoint is validated in one process, on what the two have validated that
    # checkpoint on.
    [validated] = [
        each for each in read_jsonl(tmp_path / "outputs/two/metrics.jsonl") if "val/loss" in each
    ][-1:]
    alone = read_json(tmp_path / "outputs/two/averaged.json")["averaged"]
    assert (validated["step"], alone["val/loss"]) == (
        8,
        pytest.approx(validated["val/loss"], rel=1e-5),
    )
    # A limit is of all processes together.
    monkeypatch.chdir(tmp_path)
    assert run_application(*arguments(corpus, "one", *few)).code == 0
    by_one = [
        each for each in read_jsonl(tmp_path / "outputs/one/metrics.jsonl") if "val/loss" in each
    ][-1]
    assert validated["val/loss"] == pytest.approx(by_one["val/loss"], rel=1e-4)


@pytest.mark.slow
def test_a_run_whose_steps_were_one_pass_goes_on_with_two_devices_and_says_so(
    corpus, tmp_path, monkeypatch, warm
):
    monkeypatch.chdir(tmp_path)
    alone = (
        "data.parts_per_step=1",
        "data.micro_batches=null",
        "data.max_tokens_per_device=5000",
        "model.dropout=0",
    )
    assert run_application(*arguments(corpus, "whole", *alone)).code == 0
    assert run_application(*arguments(corpus, "moved", *alone, "trainer.max_steps=3")).code == 0
    ended = in_new_interpreter(tmp_path, *arguments(corpus, "moved", *alone, "trainer.devices=2"))
    assert ended.returncode == 0, ended.stderr
    losses = {}
    for name in ("whole", "moved"):
        records = read_jsonl(tmp_path / f"outputs/{name}/metrics.jsonl")
        losses[name] = [record["train/loss"] for record in records if "train/loss" in record]
    assert (
        "warning  2 devices cannot share 1 micro-batch per step evenly: 2 from now" in ended.stderr
    )
    assert losses["moved"] == pytest.approx(losses["whole"], rel=1e-4)
    assert len(losses["moved"]) > 3


def test_at_the_default_micro_batches_two_processes_take_the_steps_of_one_up_to_the_order_of_sums(
    corpus, tmp_path, monkeypatch, warm
):
    monkeypatch.chdir(tmp_path)
    default = ("data.micro_batches=null", "data.max_tokens_per_device=null")
    assert run_application(*arguments(corpus, "one", *default)).code == 0
    two = in_new_interpreter(tmp_path, *arguments(corpus, "two", *default, "trainer.devices=2"))
    assert two.returncode == 0, two.stderr
    mine, theirs = (
        checkpoints.load(tmp_path / f"outputs/{name}/checkpoints/last.ckpt")
        for name in ("one", "two")
    )
    assert mine.micro_batches == theirs.micro_batches == 4
    for name, weight in mine.weights.items():
        assert float((weight - theirs.weights[name]).abs().max()) < 1e-5, name
    losses = [
        {
            r["step"]: r["train/loss"]
            for r in read_jsonl(tmp_path / f"outputs/{name}/metrics.jsonl")
            if "train/loss" in r
        }
        for name in ("one", "two")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


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


@pytest.mark.slow
def test_a_rank_that_leaves_parameters_out_ends_the_run_with_their_names_and_the_strategy_that_allows_it(
    corpus, tmp_path, warm
):
    (tmp_path / "drop.py").write_text(LAYER_DROP)
    given = arguments(
        corpus, "drop", "trainer.devices=2", "trainer.max_steps=2", "extensions=[drop.py]"
    )
    ended = in_new_interpreter(tmp_path, *given)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.count("error: ") == 1
    assert (
        "step 1 left parameters out on rank 1 (model.encoder.0.self_attention.w_q.weight"
        in ended.stderr
    )
    ended = in_new_interpreter(tmp_path, *given, "trainer.strategy=ddp_find_unused_parameters_true")
    assert ended.returncode == 0, ended.stderr


COUNTER = """
import torch
from aiayn.model.layers import FeedForward, Parts

class Counting(FeedForward):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.seen += x.numel()
        return super().forward(x)

PARTS = Parts(feed_forward=lambda config, place: Counting(config.d_model, config.d_ff))
"""


@pytest.mark.slow
def test_a_counter_of_each_rank_that_no_checkpoint_could_hold_ends_the_run_at_its_first_step(
    corpus, tmp_path, warm
):
    (tmp_path / "counter.py").write_text(COUNTER)
    given = arguments(corpus, "counter", "trainer.devices=2", "extensions=[counter.py]")
    ended = in_new_interpreter(tmp_path, *given)
    assert ended.returncode == 2, ended.stderr
    assert "encoder.0.feed_forward.seen, " in ended.stderr
    assert not list(tmp_path.rglob("step_*.ckpt"))


def test_the_second_of_the_same_signals_ends_a_process_whose_main_thread_waits_in_a_library(
    tmp_path,
):
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
    assert (
        subprocess.run([sys.executable, "-c", code], timeout=120).returncode == signal.SIGTERM + 7
    )


@pytest.mark.parametrize(("seconds", "code"), [(3600, 0), (0, 7)])
def test_signals_that_come_at_once_are_one_as_of_a_parent_that_dies_thread_by_thread(seconds, code):
    row = f"""
import os, signal, threading
from aiayn import signals

signals.SAME_SIGNAL = {seconds}
with signals.handle_signals(lambda number, frame: None):
    with signals.on_second_signal(lambda number: os._exit(7)):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
for thread in threading.enumerate():
    if thread is not threading.current_thread():
        thread.join()
"""
    assert subprocess.run([sys.executable, "-c", row], timeout=120).returncode == code
