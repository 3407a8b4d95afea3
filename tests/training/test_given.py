"""What `aiayn.train` gets in Python is part of a run's configuration."""

import importlib
import logging
import os
import random
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial

import pytest
from pytorch_lightning.callbacks import Callback, EarlyStopping, EMAWeightAveraging
from torch import nn
from torch.nn import functional as F

from aiayn.data.datamodule import TranslationDataModule
from aiayn.errors import RefusedError
from aiayn.reports.groups import training_options
from aiayn.reports.runs import read_run
from aiayn.runs import checkpoints
from aiayn.runs.run_folder import UNKNOWN, RunFolder
from aiayn.training.module import TranslationModule
from aiayn.training.research import LONGEST, description
from aiayn.training.run import train

log = logging.getLogger(__name__)


class Own(Callback):
    def __init__(self, value, **more):
        self.value = value
        vars(self).update(more)


def scaled(factor):
    class Scaled(Own):
        def on_train_start(self, trainer, pl_module):
            self.value *= factor

    return Scaled


def inheriting(factor):
    class Inheriting(scaled(factor)):
        pass

    return Inheriting


def with_pair(factor):
    return type("WithPair", (Own,), {"betas": (0.9, factor)})


def with_static_method(factor):
    return type("WithStaticMethod", (Own,), {"doubled": staticmethod(lambda: 2 * factor)})


def with_property(factor):
    return type("WithProperty", (Own,), {"halved": property(lambda self: factor / 2)})


class Assigned(TranslationModule):
    factor = None


def assigned(factor):
    Assigned.factor = factor  # as a notebook does between two trainings
    return Assigned


def with_activation(activation):
    return type("WithActivation", (TranslationModule,), {"activation": staticmethod(activation)})


def with_text(factor):
    class WithText(TranslationDataModule):
        def setup(self, stage):
            super().setup(stage)
            self.factor = factor

    return WithText


def named_default(factor):
    def multiply(x, *, by=factor):
        return x * by

    return multiply


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (*(lambda: EMAWeightAveraging(decay=0.5),) * 2, lambda: EMAWeightAveraging(decay=0.6)),
        (
            *(lambda: EarlyStopping("val/loss", patience=3),) * 2,
            lambda: EarlyStopping("val/loss", patience=4),
        ),
        (lambda: Own({1, 2}), lambda: Own({2, 1}), lambda: Own({1, 2, 3})),
        (*(lambda: Own(lambda x: x + 1),) * 2, lambda: Own(lambda x: x + 2)),
        # 0 and 8 meet in a set's table, so that it is read in the order in which it was written.
        # Compiled one by one: within a module, Python makes one constant of equal ones.
        (
            lambda: Own(eval("lambda x: x in {0, 8}")),
            lambda: Own(eval("lambda x: x in {8, 0}")),
            lambda: Own(eval("lambda x: x in {0, 9}")),
        ),
        (lambda: scaled(2)(1), lambda: scaled(2)(1), lambda: scaled(3)(1)),
        (lambda: scaled(2), lambda: scaled(2), lambda: scaled(3)),
        (lambda: inheriting(2), lambda: inheriting(2), lambda: inheriting(3)),
        (lambda: with_pair(2), lambda: with_pair(2), lambda: with_pair(3)),
        (*(lambda: with_static_method(2),) * 2, lambda: with_static_method(3)),
        (lambda: with_property(2), lambda: with_property(2), lambda: with_property(3)),
        (lambda: assigned(2), lambda: assigned(2), lambda: assigned(3)),
        (
            *(lambda: assigned(nn.CrossEntropyLoss()),) * 2,
            lambda: assigned(nn.CrossEntropyLoss(label_smoothing=0.1)),
        ),
        (*(lambda: assigned(Own(2)),) * 2, lambda: assigned(Own(3))),
        (*(lambda: assigned(partial(F.elu, alpha=2)),) * 2, lambda: assigned(partial(F.elu))),
        (*(lambda: with_activation(F.gelu),) * 2, lambda: with_activation(F.silu)),
        (*(lambda: with_activation(lambda x: x),) * 2, lambda: with_activation(lambda x: -x)),
        (lambda: with_text(2), lambda: with_text(2), lambda: with_text(3)),
        (*(lambda: Own(named_default(2)),) * 2, lambda: Own(named_default(3))),
        (*(lambda: Own([threading, log]),) * 2, lambda: Own([threading])),
        (lambda: Own("x" * LONGEST), lambda: Own("x" * LONGEST), lambda: Own("x" * LONGEST + "y")),
        (lambda: Own(1, api_key="a"), lambda: Own(1, api_key="a"), lambda: Own(1, api_key="b")),
    ],
)
def test_equal_arguments_have_one_description_and_others_another(one, same, other):
    assert description(one()) == description(same()) != description(other())
    assert UNKNOWN not in description(one())


def test_secrets_are_stored_as_hashes_and_what_has_no_text_as_unknown():
    text = description(Own(threading.Lock(), wandb_token="s3cret", itself=[Own]))
    assert "s3cret" not in text
    assert f"value={UNKNOWN}" in text
    assert len(description(Own(["x" * LONGEST, threading.Lock()]))) < 200
    assert UNKNOWN in description(Own(["x" * LONGEST, threading.Lock()]))


def test_what_is_not_among_the_attributes_of_an_object_is_unknown():
    assert UNKNOWN in description(Own(random.Random(3)))


@pytest.mark.slow
def test_a_function_has_one_description_in_all_processes():
    code = (
        "from aiayn.training.research import description; import pytorch_lightning.callbacks as c;"
        "print(description(c.LambdaCallback(setup=lambda *args: args in {'alpha', 'beta', 'c'})))"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in "123"
    ]
    assert len(set(outputs)) == 1


def test_a_callback_that_is_given_again_keeps_the_description_of_its_first_run():
    callback = Own(1)
    before = description(callback)
    callback.value = 2
    for _ in range(60):  # as endless as the Trainer that a training attaches
        callback.value = [callback.value, callback.value]
    assert description(callback) == before


def write_modules(folder, factor):
    """A callback in a package, which imports a file beside it and one of the root, and an object of
    a third file.
    """
    (folder / "of_mine").mkdir(exist_ok=True)
    for name, source in {
        "of_mine/__init__.py": "",
        "of_mine/numbers.py": f"FACTOR = {factor}\n",
        "of_mine/scaling.py": (
            "from pytorch_lightning import Callback\nfrom .numbers import FACTOR\n"
            "import of_root\nclass Scaling(Callback):\n"
            "    def __init__(self, slope): self.slope = slope\n"
        ),
        "of_root.py": "ONE = 1\n",
        "slopes_of_mine.py": f"class Slope:\n    def __call__(self): return {factor}\n",
    }.items():
        (folder / name).write_text(source)
    for name in ("of_mine", "of_mine.numbers", "of_mine.scaling", "of_root", "slopes_of_mine"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


def test_files_that_a_callback_from_python_imports_are_hashed_and_kept(
    config, tmp_path, monkeypatch
):
    own = tmp_path / "own"
    own.mkdir()
    write_modules(own, 1)
    monkeypatch.syspath_prepend(own)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    scaling = importlib.import_module("of_mine.scaling")
    config = replace(config, trainer=replace(config.trainer, max_steps=1))
    run = train(config, tmp_path, callbacks=[scaling.Scaling(1)])
    copies = RunFolder(run).extensions
    assert {path.relative_to(copies): path.read_bytes() for path in copies.rglob("*.py")} == {
        path.relative_to(own): path.read_bytes()
        for path in own.rglob("*.py")
        if path.name != "slopes_of_mine.py"
    }
    more = replace(config, trainer=replace(config.trainer, max_steps=2))
    write_modules(own, 22)
    scaling = importlib.import_module("of_mine.scaling")
    with pytest.raises(RefusedError, match=r"extensions_sha256: .*of_mine/numbers\.py:"):
        train(more, tmp_path, callbacks=[scaling.Scaling(1)])
    write_modules(own, 1)
    scaling = importlib.import_module("of_mine.scaling")
    train(more, tmp_path, callbacks=[scaling.Scaling(1)])


def test_code_of_an_attribute_is_part_of_its_description(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def described(factor):
        write_modules(tmp_path, factor)
        return description(Own(importlib.import_module("slopes_of_mine").Slope()))

    assert described(1) == described(1) != described(22)


def test_a_run_goes_on_only_with_what_it_was_given(config, tmp_path):
    config = replace(config, trainer=replace(config.trainer, max_steps=1))
    run = train(config, tmp_path, callbacks=[EMAWeightAveraging(use_buffers=False, decay=0.5)])
    [given] = checkpoints.load(RunFolder(run).last).config.given
    assert "decay=0.5" in given
    more = replace(config, trainer=replace(config.trainer, max_steps=2))
    for other, change in (
        ([], r'given: \["pytorch_lightning\S*EMAWeightAveraging\(.{,80}\.\.\. -> \[\]\)'),
        (
            [EMAWeightAveraging(use_buffers=False, decay=0.6)],
            r"given: \.\.\..{,80}\(decay=0\.5.{,80}\.\.\. -> .{,80}\(decay=0\.6.{,80}\.\.\.\)",
        ),
    ):
        with pytest.raises(RefusedError, match=change):
            train(more, tmp_path, callbacks=other)
    train(more, tmp_path, callbacks=[EMAWeightAveraging(use_buffers=False, decay=0.5)])
    assert checkpoints.load(RunFolder(run).last).step == 2


def test_runs_of_unknown_arguments_are_no_seeds_of_each_other(config, tmp_path):
    def options(name, given):
        folder = RunFolder(tmp_path / name)
        folder.path.mkdir(exist_ok=True)
        folder.write_config(replace(config, given=given))
        return training_options(read_run(folder))

    assert options("a", [f"Own(value={UNKNOWN})"]) != options("b", [f"Own(value={UNKNOWN})"])
    assert options("a", ["Own(value=1)"]) == options("b", ["Own(value=1)"]) != options("b", [])
