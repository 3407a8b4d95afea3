"""Nothing is written to a folder that was lost; an average of too few checkpoints says so."""

import logging
from collections import deque
from types import SimpleNamespace

import pytest
import torch
from applications import composed
from pytorch_lightning.callbacks import Callback, EarlyStopping
from torch import nn

from aiayn.errors import RefusedError
from aiayn.runs import checkpoints
from aiayn.runs.run_folder import RunFolder
from aiayn.training.checkpoint_io import (
    BackgroundWriter,
    RunCheckpointIO,
    steps_to_average,
    warn_of_unsaved,
)
from aiayn.training.finish import average_last


@pytest.mark.parametrize("lost", range(6))
def test_no_file_is_written_once_the_folder_is_lost(tmp_path, tiny_config, lost):
    folder, writes = RunFolder(tmp_path), iter(range(lost))
    folder.checkpoints.mkdir()
    for step in (1, 2):
        (folder.checkpoints / f"step_{step}.ckpt").touch()

    def check_folder() -> None:
        if next(writes, None) is None:
            raise RefusedError("moved or removed")

    corpus = SimpleNamespace(
        tokenizer=SimpleNamespace(to_json=lambda: '{"model": {"vocab": {}}}'), fingerprint="c0ffee"
    )
    config = composed("experiment=quickstart", "trainer.average_last=1")
    writer, plan = BackgroundWriter(check_folder), SimpleNamespace(micro_batches=1)
    run = SimpleNamespace(config=config, corpus=corpus, plan=plan)
    services = SimpleNamespace(folder=folder, writer=writer)
    state = {
        "global_step": 3,
        "state_dict": {"model.w": torch.ones(2)},
        "optimizer_states": [],
        "loops": {"fit_loop": {}},
    }
    RunCheckpointIO(run, services).save_checkpoint(
        state | {"optimizer_states": []},
        folder.checkpoints / "step_3.ckpt",
        {"with_state": True},
    )
    try:
        writer.wait()
    except RefusedError:
        assert lost < 5

    there = {path.name for path in folder.checkpoints.iterdir()}
    expected = [
        name
        for writes, name in ((2, "step_3.optim"), (3, "step_3.ckpt"), (4, "last.ckpt"))
        if writes <= lost
    ]
    assert there == {*expected, "step_2.ckpt", *(["step_1.ckpt"] if lost < 5 else [])}
    if lost >= 4:
        assert checkpoints.load(folder.last).step == 3


@pytest.mark.parametrize(("wanted", "few"), [(3, False), (99, True)])
def test_an_average_of_fewer_checkpoints_than_asked_for_says_so(
    tmp_path, monkeypatch, caplog, wanted, few
):
    folder = RunFolder(tmp_path)
    folder.checkpoints.mkdir()
    for step in (5, 10, 15):
        (folder.checkpoints / f"step_{step}.ckpt").touch()
    monkeypatch.setattr(checkpoints, "load", lambda path: path)
    monkeypatch.setattr(checkpoints, "average", len)
    schedule = ("trainer.max_steps=15", "trainer.checkpoint_every=5")
    config = composed("experiment=quickstart", *schedule, f"trainer.average_last={wanted}")
    validations = SimpleNamespace(is_out_of_patience=lambda: False, best_step=None)
    services = SimpleNamespace(folder=folder, validations=validations, check_folder=lambda: None)
    with caplog.at_level(logging.INFO):
        assert average_last(SimpleNamespace(config=config), services) == 3
    assert (f"trainer.average_last={wanted}: the run has only 3" in caplog.text) == few


@pytest.mark.parametrize(
    ("average_last", "end", "steps"),
    [(1, None, [40]), (2, None, [30, 40]), (9, None, [10, 20, 30, 40]), (3, 33, [20, 30, 33])],
)
def test_what_a_signal_saved_between_regular_checkpoints_is_not_averaged(
    average_last, end, steps, tmp_path
):
    options = [f"trainer.average_last={average_last}", "trainer.checkpoint_every=10"]
    settings = composed("experiment=quickstart", "trainer.max_steps=40", *options).trainer
    for step in (7, 10, 19, 20, 30, 31, 33, *([] if end else [39, 40])):
        (tmp_path / f"step_{step}.ckpt").touch()

    assert steps_to_average(tmp_path, settings, end) == steps


class Counts:
    def __init__(self):
        self.calls = 0


class Own(Callback):
    """Changes one attribute, and saves what `saved` names."""

    saved = ()

    def __init__(self, weight):
        self.weights, self.unchanged, self.counts = [weight], [torch.ones(3)], Counts()
        self.mean, self.recent, self.generator = torch.zeros(2), deque(), torch.Generator()

    def state_dict(self):
        return {"generator": self.generator.get_state()} if self.saved else {}


class Hidden(torch.optim.SGD):
    calls = 0


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        (lambda own, optimizer: own.mean.add_(1), "Own: training changes mean,"),
        (lambda own, optimizer: own.recent.append(5), "Own: training changes recent,"),
        (lambda own, optimizer: vars(own.counts).update(calls=7), "Own: training changes counts,"),
        (lambda own, optimizer: own.generator.manual_seed(5), "Own: training changes generator,"),
        (lambda own, optimizer: vars(optimizer).update(calls=7), "Hidden: training changes calls,"),
        (lambda own, optimizer: optimizer.param_groups[0].update(calls=7), None),
        (lambda own, optimizer: own.weights[0].data.add_(1), None),
    ],
)
@pytest.mark.parametrize("saved", [False, True])
def test_what_training_changes_and_no_checkpoint_holds_is_named_once(change, lost, saved, caplog):
    weight, known = nn.Parameter(torch.ones(2)), {}
    own, optimizer = Own(weight), Hidden([weight], lr=0.1)
    own.saved = saved
    callbacks = [own, EarlyStopping("val/loss")]

    def save():
        states = {"callbacks": {own.state_key: own.state_dict()}}
        states["optimizer_states"] = [optimizer.state_dict()]
        warn_of_unsaved(optimizer, callbacks, states, known)

    save()
    change(own, optimizer)
    save()
    change(own, optimizer)
    save()
    is_restored = lost is None or (saved and "generator" in lost)
    assert [message[9:].split(" and")[0] for message in caplog.messages] == (
        [] if is_restored else [lost]
    )
