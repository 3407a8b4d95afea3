"""Early stopping and the best checkpoint: both follow from the recorded validations, whatever
happened in between.
"""

import shutil
import signal
from dataclasses import replace

import pytest
import torch
from applications import slow_but, translator_of
from faults.harness import (
    acts_at,
    configured,
    dies_at,
    differences,
    measured,
    start_ranks,
    train,
    within,
)

from aiayn.runs import checkpoints
from aiayn.runs.continuation import ValidationHistory, end_reason
from aiayn.runs.run_folder import RunFolder, find_checkpoint, read_json
from aiayn.training.callbacks.validate import Validate
from aiayn.training.finish import is_worse
from aiayn.training.module import TranslationModule

# Validated after every second step: best after step 4, then nothing better.
LOSSES = {2: 5.0, 4: 3.0, 6: 4.0, 8: 3.0, 10: 1.0, 12: 0.5}
OPTIONS = (
    "trainer.val_every=2",
    "trainer.patience=2",
    "trainer.val_bleu_sentences=0",
    "trainer.checkpoint_every=3",
)


def scripted() -> None:
    """A prelude: validations find LOSSES, which depend on the step alone."""
    validate, means, steps = Validate._validate, TranslationModule._means, []

    def scripted_validate(self, trainer, module, step):
        steps.append(step)  # of the run: the Trainer's is 0 where a start repeats a validation
        try:
            validate(self, trainer, module, step)
        finally:
            steps.clear()

    def scripted_means(self, split):
        measured_means = means(self, split)
        for step in steps:  # none in the validation of the average
            measured_means["val/loss"] = LOSSES[step]
        return measured_means

    Validate._validate, TranslationModule._means = scripted_validate, scripted_means


def both(*preludes):
    return lambda: [prelude() for prelude in preludes]


@pytest.fixture(scope="module")
def stopping(text):
    return configured(text, *OPTIONS)


@pytest.fixture(scope="module")
def stopped(stopping, tmp_path_factory):
    """A run that stopped early, undisturbed."""
    outputs = tmp_path_factory.mktemp("stopped")
    end = train(stopping, outputs, scripted)
    assert end.code == 0, end.said
    assert (
        "stopped at step 8 by trainer.patience=2; to continue, raise trainer.patience" in end.said
    )
    return outputs / "run"


def steps_of(run) -> dict[str, int]:
    return {
        name: checkpoints.load(run / "checkpoints" / f"{name}.ckpt").step
        for name in ("best", "last", "averaged")
    }


def test_a_run_stops_after_patience_validations_without_a_better_one_and_keeps_the_best(stopped):
    assert steps_of(stopped) == {"best": 4, "last": 8, "averaged": 8}
    assert [record["step"] for record in measured(stopped) if "val/loss" in record] == [2, 4, 6, 8]
    assert checkpoints.load(stopped / "checkpoints/averaged.ckpt").averaged == [3, 6, 8]
    assert not (stopped / "checkpoints/step_4.ckpt").exists()


def test_the_end_by_patience_is_stored_and_more_patience_lets_the_run_go_on(stopping, stopped):
    folder, trainer = RunFolder(stopped), stopping.trainer
    stored = {"reason": "trainer.patience=2", "limits": {"patience": 2, "best_metric": "val/loss"}}
    assert read_json(folder.end) == {"step": 8} | stored

    def ended_by(patience, without_validations):
        changed = replace(trainer, patience=patience)
        records = [] if without_validations else folder.read_metrics()
        return end_reason(folder, changed, 8, ValidationHistory(changed, records))

    assert ended_by(2, False) == ended_by(2, True) == "trainer.patience=2"
    assert ended_by(3, False) is ended_by(3, True) is ended_by(None, True) is None


def test_the_best_checkpoint_holds_the_weights_of_its_step_and_is_kept_when_others_are_removed(
    text, stopped, tmp_path
):
    short = configured(
        text, "trainer.val_every=2", "trainer.val_bleu_sentences=0", "trainer.max_steps=4"
    )
    assert train(short, tmp_path, scripted).code == 0
    mine, theirs = (
        checkpoints.load(run / "checkpoints/best.ckpt").weights
        for run in (stopped, tmp_path / "run")
    )
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert find_checkpoint(stopped, "best") == stopped / "checkpoints/best.ckpt"


MOMENTS = {
    "in a step": dies_at(TranslationModule, "training_step", 11),
    "in the validation of the best step": dies_at(TranslationModule, "validation_step", 3),
    "after the best validation, before its checkpoint": dies_at(checkpoints, "save", 4),
    "in the last validation": dies_at(TranslationModule, "validation_step", 8),
    "after the last validation, before its checkpoint": dies_at(checkpoints, "write_tensors", 9),
    "after the last checkpoint": dies_at(checkpoints, "average", 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("moment", slow_but([*MOMENTS][:1], MOMENTS))
def test_a_killed_run_stops_at_the_same_step_with_the_same_best_one(
    stopping, stopped, tmp_path, moment
):
    assert train(stopping, tmp_path, both(scripted, MOMENTS[moment])).code == -signal.SIGKILL
    end = train(stopping, tmp_path, scripted)
    assert end.code == 0, end.said
    assert differences(tmp_path / "run", stopped) == []
    assert steps_of(tmp_path / "run") == steps_of(stopped)
    again = train(stopping, tmp_path, scripted)
    assert (again.code, "already finished at step 8, by trainer.patience=2" in again.said) == (
        0,
        True,
    )


@pytest.mark.slow
def test_a_signal_in_the_last_validation_stops_the_run_there_all_the_same(
    stopping, stopped, tmp_path
):
    def interrupt() -> None:
        signal.raise_signal(signal.SIGTERM)

    prelude = both(scripted, acts_at(TranslationModule, "validation_step", interrupt, 7))
    assert train(stopping, tmp_path, prelude).code == 143
    assert checkpoints.load(tmp_path / "run/checkpoints/last.ckpt").step == 8
    assert len([record for record in measured(tmp_path / "run") if "val/loss" in record]) == 3
    end = train(stopping, tmp_path, scripted)
    assert end.code == 0, end.said
    assert differences(tmp_path / "run", stopped) == []


@pytest.mark.slow
def test_two_processes_stop_where_one_does_killed_or_not(text, stopped, tmp_path):
    pair = configured(text, *OPTIONS, "trainer.devices=2", "trainer.timeout=120")

    def codes(outputs, prelude):
        with within():
            return [
                child.wait().code for child in start_ranks(pair, outputs, {0: prelude, 1: prelude})
            ]

    assert codes(tmp_path / "whole", scripted) == [0, 0]
    whole = tmp_path / "whole" / "run"
    assert steps_of(whole) == steps_of(stopped)
    dies = both(scripted, dies_at(TranslationModule, "training_step", 6))
    assert codes(tmp_path / "killed", dies) == [-signal.SIGKILL] * 2
    assert codes(tmp_path / "killed", scripted) == [0, 0]
    assert differences(tmp_path / "killed" / "run", whole) == []
    assert steps_of(tmp_path / "killed" / "run") == steps_of(whole)


@pytest.mark.slow
def test_with_more_patience_a_stopped_run_goes_on_as_if_it_had_not_stopped(text, stopped, tmp_path):
    shutil.copytree(stopped, tmp_path / "run")
    patient = configured(text, *OPTIONS, "trainer.patience=3")
    assert train(patient, tmp_path, scripted).code == 0
    assert train(patient, tmp_path / "whole", scripted).code == 0
    assert steps_of(tmp_path / "run") == {"best": 12, "last": 12, "averaged": 12}
    assert measured(tmp_path / "run") == measured(tmp_path / "whole" / "run")


def test_best_and_patience_follow_from_the_recorded_values(stopping):
    settings = stopping.trainer

    def history(values, **changes):
        return ValidationHistory(
            type(settings)(**vars(settings) | changes),
            [{"step": step, "val/loss": v} for step, v in values.items()],
        )

    assert history({}).best_step is None
    assert not history({}).is_out_of_patience()
    assert history({2: 3.0, 4: 3.0}).best_step == 2  # the first of equals
    assert not history({2: 3.0, 4: 3.0}).is_out_of_patience()
    assert history({2: 3.0, 4: 3.0, 6: 3.5}).is_out_of_patience()
    assert not history({2: 3.0, 4: 3.5, 6: 2.0, 8: 2.5}).is_out_of_patience()
    assert not history({2: 3.0, 4: 3.5, 6: 3.1}, patience=None).is_out_of_patience()
    assert history({2: 3.0, 4: float("nan"), 6: 3.1}).is_out_of_patience() is False
    bleu = ValidationHistory(
        type(settings)(**vars(settings) | {"best_metric": "val/bleu", "val_bleu_sentences": 1})
    )
    for step, value in {2: 10.0, 4: 12.0, 6: 11.0}.items():
        bleu.add(step, {"val/loss": 1.0, "val/bleu": value})
    assert bleu.best_step == 4


def test_without_patience_a_run_trains_to_the_end_and_has_a_best_checkpoint_too(unbroken):
    values = {r["step"]: r["val/loss"] for r in measured(unbroken) if "val/loss" in r}
    assert set(values) == {6, 12}
    assert steps_of(unbroken) == {"best": min(values, key=values.get), "last": 12, "averaged": 12}
    assert translator_of(unbroken, "best").translate(["one two"])


@pytest.mark.slow
def test_where_the_average_validates_worse_than_the_best_checkpoint_that_is_the_default(
    text, tmp_path
):
    # The learning rate rises without end: after a few steps all only gets worse.
    ruined = (
        "optim.lr_scale=12",
        "optim.warmup_steps=12",
        "trainer.val_every=1",
        "trainer.val_bleu_sentences=0",
    )
    end = train(configured(text, *ruined), tmp_path)
    run = RunFolder(tmp_path / "run")
    losses = {
        record["step"]: record["val/loss"] for record in measured(run.path) if "val/loss" in record
    }
    best = min(losses, key=losses.get)
    assert end.code == 0, end.said
    assert best < 12
    assert "the average is worse than best.ckpt" in end.said
    assert find_checkpoint(run.path, None) == run.best
    assert find_checkpoint(run.path, "averaged") == run.averaged
    run.best.unlink()
    assert find_checkpoint(run.path, None) == run.averaged


def test_an_average_is_worse_by_the_metric_of_the_run_if_no_other_speaks_for_it(stopping):
    def worse(averaged, best, metric="val/loss", falls=False):
        names = ("val/loss", "val/bleu", "val/mine")
        named = [dict(zip(names, values, strict=False)) for values in (averaged, best)]
        settings = replace(stopping.trainer, best_metric=metric, val_bleu_sentences=3)
        return is_worse(*named, ValidationHistory(settings, lower_is_better=falls))

    assert worse([3.1], [3.0])
    assert not worse([3.0], [3.0])
    assert not worse([3.1, 20.2], [3.0, 20.1])  # the loss rises while translations get better
    assert worse([3.1, 20.1], [3.0, 20.1])
    assert worse([9.0, 0.0], [3.0, 0.0])
    assert worse([float("nan")], [3.0])
    unsure, sure = {"val/loss": 1.24, "val/ppl": 1.13}, {"val/loss": 1.25, "val/ppl": 1.07}
    assert not is_worse(sure, unsure, ValidationHistory(stopping.trainer, lower_is_better=True))
    for mine, falls in ((1.0, True), (-1.0, False)):  # a metric of an extension
        assert worse([3.0, 20.0, 5.0 + mine], [3.0, 20.0, 5.0], "val/mine", falls)
        assert not worse([3.0, 20.0, 5.0 - mine], [3.0, 20.0, 5.0], "val/mine", falls)
        assert not worse([3.0, 20.1, 5.0 + mine], [3.0, 20.0, 5.0], "val/mine", falls)
