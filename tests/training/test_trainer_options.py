"""Lightning's Trainer options, under their own names, in a run of ours."""

import os
import signal
from dataclasses import replace

import pytest
import pytorch_lightning as pl
import torch
from applications import slow_but, stopped_in
from pytorch_lightning.callbacks import Timer
from pytorch_lightning.plugins import MixedPrecision

from aiayn.config.stored import changed_options
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import ConfigError, DivergedError, InterruptedRunError
from aiayn.runs import checkpoints
from aiayn.runs.run_folder import RunFolder, read_json, read_jsonl
from aiayn.token_ids import EOS_ID, PAD_ID
from aiayn.training.callbacks.monitors import ThroughputMonitor
from aiayn.training.module import TranslationModule
from aiayn.training.run import train


def changed(config, **options):
    return replace(config, trainer=replace(config.trainer, **{"val_bleu_sentences": 0} | options))


def last(folder):
    return checkpoints.load(RunFolder(folder).last)


@pytest.fixture
def seen(monkeypatch):
    """The numbers of the micro-batches that were trained on."""
    numbers = []
    plain = ThroughputMonitor.on_micro_batch_end

    def on_micro_batch_end(self, outputs, batch):
        numbers.append(batch.number)
        plain(self, outputs, batch)

    monkeypatch.setattr(ThroughputMonitor, "on_micro_batch_end", on_micro_batch_end)
    return numbers


DEFINING = [
    {"precision": "bf16-true"},
    {"precision": "64-true"},
    {"gradient_clip_val": 0.1},
    {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value", "precision": "bf16-mixed"},
    {"limit_train_steps": 4},
    {"overfit_steps": 2},
]


@pytest.fixture(scope="module")
def plain(config, tmp_path_factory) -> dict[str, torch.Tensor]:
    """The weights of a training with none of them."""
    return last(train(changed(config, max_steps=9), tmp_path_factory.mktemp("plain"))).weights


def test_one_step_of_an_epoch_and_all_of_them_are_different_options(config):
    for name in ("limit_train_steps", "overfit_steps"):
        whole, one = (changed(config, **{name: value}) for value in (1.0, 1))
        assert changed_options(whole, one) == {f"trainer.{name}": "1.0 -> 1"}
        assert changed_options(one, whole) == {f"trainer.{name}": "1 -> 1.0"}
    assert changed_options(config, changed(config, overfit_steps=0)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("options", slow_but(DEFINING[:1], DEFINING), ids=str)
def test_what_defines_the_training_changes_it_and_resumes_to_the_bit(
    config, plain, tmp_path, options
):
    settings = changed(config, **options, max_steps=9)
    whole = train(settings, tmp_path / "whole")
    with stopped_in(5):
        train(settings, tmp_path / "stopped")
    again = train(settings, tmp_path / "stopped")
    mine, theirs = last(again).weights, last(whole).weights
    assert [name for name in theirs if not torch.equal(mine[name], theirs[name])] == []
    assert not all(torch.equal(plain[name], theirs[name]) for name in plain)


@pytest.mark.slow
def test_limited_and_overfitted_epochs_have_the_steps_that_are_said(config, tmp_path, seen):
    train(changed(config, limit_train_steps=2, max_steps=4), tmp_path / "limited")
    steps = RunFolder(tmp_path / "limited/run")
    epoch = 2 * read_json(steps.corpus)["steps_per_epoch"]  # micro-batches, two a step
    assert seen == [0, 1, 2, 3, epoch, epoch + 1, epoch + 2, epoch + 3]
    seen.clear()
    train(changed(config, overfit_steps=1, max_steps=3), tmp_path / "overfitted")
    assert seen == [0, 1] * 3


@pytest.mark.quick("overfit")
@pytest.mark.parametrize("option", ["limit_train_steps", "overfit_steps"])
def test_the_sentences_of_a_step_that_is_not_finite_are_its_own_in_shortened_epochs_too(
    config, tmp_path, monkeypatch, option
):
    plain, trained_on = TranslationModule.training_loss, []

    def spoiled(self, batch):
        if self.trainer.global_step != 3:
            return plain(self, batch)
        trained_on.extend(tuple(ids) for ids in batch.src.tolist())
        return plain(self, batch) * torch.nan

    monkeypatch.setattr(TranslationModule, "training_loss", spoiled)
    with pytest.raises(DivergedError, match="step 4"):
        train(changed(config, **{option: 2}), tmp_path)
    folder = RunFolder(tmp_path / "run")
    tokenizer = Tokenizer.from_json(last(folder.path).tokenizer)
    rows = folder.non_finite_pairs(4).read_text(encoding="utf-8").split("\n")[:-1]
    texts = tokenizer.decode(
        [[each for each in ids if each not in (PAD_ID, EOS_ID)] for ids in trained_on]
    )
    assert sorted(row.split("\t")[1] for row in rows) == sorted(texts)


def test_the_logged_epoch_is_the_one_that_max_epochs_counts_in_limited_epochs_too(
    config, tmp_path, caplog
):
    folder = train(changed(config, limit_train_steps=2, max_epochs=2), tmp_path)
    assert "300 pairs, 2 steps an epoch" in caplog.text
    [*_, end] = [
        record for record in read_jsonl(RunFolder(folder).metrics) if "train/epoch" in record
    ]
    assert (end["step"], end["train/epoch"]) == (4, 2.0)


def test_max_epochs_ends_the_training_after_so_many_epochs(config, tmp_path):
    folder = train(changed(config, max_epochs=1), tmp_path)
    [*_, end] = [
        record for record in read_jsonl(RunFolder(folder).metrics) if "train/epoch" in record
    ]
    assert end["train/epoch"] == 1.0
    assert last(folder).step == end["step"] < config.trainer.max_steps
    assert RunFolder(folder).averaged.exists()


@pytest.mark.slow
def test_steps_that_followed_from_max_epochs_follow_from_another_one(config, tmp_path):
    epoch = last(train(changed(config, max_steps=None, max_epochs=1), tmp_path)).step
    assert last(train(changed(config, max_steps=None, max_epochs=2), tmp_path)).step == 2 * epoch


def test_max_time_and_callbacks_that_stop_a_training_end_it_saved_and_averaged(
    config, tmp_path, caplog
):
    class Stop(pl.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, index) -> None:
            trainer.should_stop = batch.number == 6  # the first of step 4, whose end it waits for

    settings = changed(config, checkpoint_every=100)
    folder = train(settings, tmp_path / "stopped", callbacks=[Stop()])
    assert last(folder).step == 4
    ended = RunFolder(folder)
    assert "stopped at step 4 by a callback; to continue, raise trainer.max_steps" in caplog.text
    assert "done     " in caplog.messages[-1]
    assert "step 4\n" in caplog.messages[-1]
    validated = [record["step"] for record in ended.read_metrics() if "val/loss" in record]
    assert validated == [4], "as the last step is, though no validation was due"
    assert checkpoints.load(ended.best).step == 4
    assert read_json(ended.validated)["best"]["step"] == 4

    before, caplog_before = ended.averaged.stat().st_mtime_ns, len(caplog.messages)
    train(settings, tmp_path / "stopped", callbacks=[Stop()])
    assert "already finished at step 4 (a callback)" in "\n".join(caplog.messages[caplog_before:])
    assert ended.averaged.stat().st_mtime_ns == before
    more = changed(settings, max_steps=13)
    assert last(train(more, tmp_path / "stopped", callbacks=[Stop()])).step == 13


@pytest.mark.slow
def test_a_run_that_dies_while_it_saves_its_early_end_does_not_train_beyond_it(
    config, tmp_path, monkeypatch, caplog
):
    class Stop(pl.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, index) -> None:
            trainer.should_stop = batch.number == 6  # which a start that goes on does not see

    def die(folder, step):
        raise RuntimeError("killed after the step was saved, and nothing else")

    settings = changed(config, checkpoint_every=100)
    with monkeypatch.context() as patch:
        patch.setattr("aiayn.runs.checkpoint_folder.update_last", die)
        with pytest.raises(RuntimeError, match="killed"):
            train(settings, tmp_path, callbacks=[Stop()])
    ended = RunFolder(tmp_path / settings.run_name)
    assert not ended.averaged.exists()
    train(settings, tmp_path, callbacks=[Stop()])
    assert "stopped at step 4 by a callback" in caplog.text
    assert [checkpoints.load(path).step for path in (ended.last, ended.best)] == [4, 4]
    assert read_json(ended.validated)["best"]["step"] == 4


def test_an_end_between_two_steps_or_at_a_start_is_saved_validated_and_stored(
    config, tmp_path, caplog
):
    class Stop(pl.Callback):
        def on_train_epoch_end(self, trainer, module) -> None:
            trainer.should_stop = trainer.current_epoch == 0

    settings = changed(config, checkpoint_every=100)
    ended = RunFolder(train(settings, tmp_path, callbacks=[Stop()]))
    step = read_json(ended.corpus)["steps_per_epoch"]
    assert [checkpoints.load(path).step for path in (ended.last, ended.best)] == [step, step]
    assert read_json(ended.end)["reason"] == "a callback"
    over = changed(settings, max_time="00:00:00:00")
    for _ in range(2):
        train(over, tmp_path, callbacks=[Stop()])
    assert f"already finished at step {step} (trainer.max_time=00:00:00:00)" in caplog.text
    validated = [record["step"] for record in ended.read_metrics() if "val/loss" in record]
    assert validated == [step]


@pytest.mark.slow
def test_a_signal_in_the_validation_of_an_early_end_does_not_let_the_run_go_on(
    config, tmp_path, monkeypatch, caplog
):
    class Stop(pl.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, index) -> None:
            trainer.should_stop = batch.number == 6

    def signalled(self, batch, index):
        os.kill(os.getpid(), signal.SIGTERM)

    settings = changed(config, checkpoint_every=100)
    with monkeypatch.context() as patch:
        patch.setattr(TranslationModule, "validation_step", signalled)
        with pytest.raises(InterruptedRunError):
            train(settings, tmp_path, callbacks=[Stop()])
    ended = RunFolder(train(settings, tmp_path, callbacks=[Stop()]))
    assert "stopped at step 4 by a callback" in caplog.text
    assert [checkpoints.load(path).step for path in (ended.last, ended.best)] == [4, 4]


@pytest.mark.slow
def test_max_time_ends_a_training_as_its_last_step_would(config, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(
        Timer, "time_remaining", lambda self, stage="train": 0.0 if self.done == 5 else 9.0
    )
    monkeypatch.setattr(Timer, "done", 0, raising=False)

    def check(self, trainer):
        self.done = trainer.global_step
        trainer.should_stop = self.done == 5

    monkeypatch.setattr(Timer, "_check_time_remaining", check)
    settings = changed(config, max_time="00:00:10:00")
    ended = RunFolder(train(settings, tmp_path))
    assert read_json(ended.end)["reason"] == "trainer.max_time=00:00:10:00"
    assert [record["step"] for record in ended.read_metrics() if "val/loss" in record] == [5]
    before = ended.averaged.stat().st_mtime_ns
    train(settings, tmp_path)
    assert "already finished at step 5 (trainer.max_time=00:00:10:00)" in caplog.text
    assert ended.averaged.stat().st_mtime_ns == before
    monkeypatch.setattr(Timer, "_check_time_remaining", lambda self, trainer: None)
    assert (
        last(train(changed(config, max_time="00:00:20:00"), tmp_path)).step
        == config.trainer.max_steps
    )


def test_no_time_at_all_is_refused(config, tmp_path):
    with pytest.raises(
        ConfigError, match=r"trainer\.max_time=00:00:00:00: ran out before the first step"
    ):
        train(changed(config, max_time="00:00:00:00"), tmp_path / "none")


def test_fast_dev_run_runs_all_and_keeps_nothing(config, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    folder = train(
        replace(
            changed(config, fast_dev_run=True, val_bleu_sentences=3, average_last=9),
            outputs=str(tmp_path / "outputs"),
        )
    )
    assert not folder.exists()
    assert not (tmp_path / "outputs").exists()
    assert "1 step trained, validated and saved; nothing is kept" in caplog.text
    assert "val/bleu" in caplog.text
    for misleading in ("next     ", "optim.warmup_steps=", "trainer.average_last="):
        assert misleading not in caplog.text


@pytest.mark.slow
def test_a_validation_may_be_limited_or_left_out(config, tmp_path):
    for limit, steps in ((1, [6, 12]), (0, [])):
        folder = train(changed(config, limit_val_batches=limit), tmp_path / str(limit))
        assert [
            r["step"] for r in read_jsonl(RunFolder(folder).metrics) if "val/loss" in r
        ] == steps


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 0.5])
def test_the_average_is_validated_on_the_batches_of_the_validations_that_it_is_compared_with(
    config, tmp_path, limit
):
    config = replace(config, data=replace(config.data, max_tokens_per_device=50))
    once = {"max_steps": 6, "val_every": 6, "checkpoint_every": 6, "average_last": 1}
    losses = []
    for share in (limit, 1.0):
        folder = RunFolder(
            train(changed(config, limit_val_batches=share, **once), tmp_path / str(share))
        )
        found = read_json(folder.validated)
        losses.append(found["best"]["val/loss"])
        assert found["averaged"]["val/loss"] == pytest.approx(losses[-1], rel=1e-5)
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)


@pytest.mark.slow
def test_the_profiler_writes_into_the_runs_folder_and_the_rest_changes_nothing(config, tmp_path):
    watched = {
        "profiler": "simple",
        "detect_anomaly": True,
        "num_sanity_val_steps": 1,
        "enable_progress_bar": False,
    }
    is_deterministic = []

    class Look(pl.Callback):
        def on_train_start(self, trainer, module) -> None:
            is_deterministic.append(torch.are_deterministic_algorithms_enabled())

    try:
        again = changed(config, max_steps=3, deterministic=True, **watched)
        folder = train(again, tmp_path / "watched", callbacks=[Look()])
    finally:
        torch.use_deterministic_algorithms(False)  # which the Trainer leaves on for the process
    assert is_deterministic == [True]
    assert "run_training_batch" in (folder / "fit-profile.txt").read_text(encoding="utf-8")
    plain = last(train(changed(config, max_steps=3), tmp_path / "plain")).weights
    assert all(torch.equal(plain[name], weight) for name, weight in last(folder).weights.items())


def float16(monkeypatch, scale: float) -> None:
    """From now on bf16-mixed is what 16-mixed is on a GPU: torch's autocast and gradient scaler,
    here on the CPU.
    """
    plain = MixedPrecision.__init__

    def init(self, precision, device, scaler=None):
        plain(
            self,
            "16-mixed",
            device,
            torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=3),
        )

    monkeypatch.setattr(MixedPrecision, "__init__", init)


@pytest.mark.slow
def test_float16_passes_over_the_overflows_of_its_scaler_clips_and_resumes_to_the_bit(
    config, tmp_path, monkeypatch
):
    float16(monkeypatch, scale=2.0**22)
    settings = changed(
        config, precision="bf16-mixed", gradient_clip_val=0.1, max_steps=9, log_every=1
    )
    whole = train(settings, tmp_path / "whole")
    with stopped_in(5):
        train(settings, tmp_path / "stopped")
    again = train(settings, tmp_path / "stopped")
    mine, theirs = last(again).weights, last(whole).weights
    assert [name for name in theirs if not torch.equal(mine[name], theirs[name])] == []
    states = [checkpoints.read_tensors(path) for path in whole.glob("checkpoints/*.optim")]
    scales = [state["lightning"]["MixedPrecision"]["scale"] for state in states]
    assert 0 < max(scales) < 2.0**22, "it was halved, and what it is now is resumed"
    assert not any(
        "train/skipped_steps" in record for record in read_jsonl(RunFolder(whole).metrics)
    )
    norms = {
        r["step"]: r["train/grad_norm"]
        for r in read_jsonl(RunFolder(whole).metrics)
        if "train/grad_norm" in r
    }
    assert 1 < min(norms) < max(norms) == 9, "overflows come first, and have no norm"
    assert norms[9] < 100, "the scale is divided out"


def test_a_loss_that_is_nan_in_float16_is_no_overflow_once_the_scale_is_one(
    config, tmp_path, monkeypatch
):
    float16(monkeypatch, scale=2.0)
    plain = TranslationModule.training_loss
    monkeypatch.setattr(
        TranslationModule,
        "training_loss",
        lambda self, batch: plain(self, batch) * (torch.nan if batch.number >= 4 else 1),
    )
    with pytest.raises(DivergedError, match=r"NaN or infinite at step 4;"):
        train(changed(config, precision="bf16-mixed", log_every=1), tmp_path)


@pytest.mark.slow
def test_several_loggers_get_the_same(config, tmp_path):
    logger = replace(config.logger, kind=["csv", "tensorboard"])
    folder = train(replace(changed(config, max_steps=3), logger=logger), tmp_path)
    assert list(folder.glob("csv/*/metrics.csv"))
    assert list(folder.glob("tensorboard/events*"))
