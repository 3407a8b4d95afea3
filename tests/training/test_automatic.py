"""Options that `data=files` leaves to the program, in a run: stored at its first start, and
kept.
"""

import logging
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from applications import SMALL, composed_options, text_in

from aiayn.config import resolve
from aiayn.config.resolve import RunConfig, infer_sizes, open_options
from aiayn.config.stored import filled
from aiayn.errors import RefusedError
from aiayn.hardware import Hardware
from aiayn.runs.run_folder import RunFolder, saved_steps
from aiayn.training import log_start
from aiayn.training.callbacks import monitors
from aiayn.training.log_start import unusual_options
from aiayn.training.module import TranslationModule
from aiayn.training.resume import first_options
from aiayn.training.run import train
from aiayn.training.start import StepForm

OPEN = ("data=files", "data.train=x", "data.val=x", "name=mine")


def test_options_that_do_not_fit_are_named_with_what_is_usual():
    options = (
        "trainer.max_steps=100000",
        "optim.warmup_steps=4000",
        "trainer.val_every=1500",
        "model=base",
    )
    config = resolve.resolve(infer_sizes(composed_options(*OPEN, *options), lambda: 9283), 9283, 30)

    epochs, size = unusual_options(config, 9283, 30, 4000)

    assert epochs == (
        "trainer.max_steps=100000 is 3,333 epochs of these 9,283 pairs; 100 epochs are "
        "usual (trainer.max_steps=3000)"
    )
    assert "46 M parameters is large for 9,283 pairs: model=auto" in size
    short = replace(config, trainer=replace(config.trainer, max_steps=40))
    [few] = [line for line in unusual_options(short, 4_999, 30, 4000) if "init_from=" in line]
    assert few.startswith("4,999 training pairs are few")
    assert not any(
        "are few" in line
        for line in unusual_options(replace(short, init_from="x"), 4_999, 30, 4000)
    )
    assert [line.partition(":")[0] for line in unusual_options(short, 200_000, 30, 4000)] == [
        "optim.warmup_steps=4000",
        "trainer.val_every=1500",
    ]


@pytest.mark.parametrize(("parts", "is_said"), [(309, False), (310, True)])
def test_more_parts_than_a_step_has_pairs_are_said(parts, is_said):
    options = infer_sizes(composed_options(*OPEN, f"data.parts_per_step={parts}"), lambda: 9283)
    config = resolve.resolve(options, 9283, 30)

    lines = [line for line in unusual_options(config, 9283, 30, 4000) if "parts_per_step" in line]

    assert len(lines) == is_said  # 9283 / 30 = 309.4 pairs a step


@pytest.mark.parametrize(("count", "is_said"), [(308, False), (312, True)])
def test_more_micro_batches_than_a_step_has_pairs_are_said(count, is_said):
    options = infer_sizes(composed_options(*OPEN, f"data.micro_batches={count}"), lambda: 9283)
    config = resolve.resolve(options, 9283, 30)

    lines = [line for line in unusual_options(config, 9283, 30, 4000) if "empty" in line]

    assert [line.partition(":")[0] for line in lines] == [f"data.micro_batches={count}"] * is_said


@pytest.fixture
def small(tmp_path, write_pairs, monkeypatch):
    """A configuration whose steps and dropout are left to the program, on text of 60 pairs, a step
    an epoch.
    """
    monkeypatch.setattr(resolve, "SIZE_PRESETS", (replace(resolve.SIZE_PRESETS[0], epochs=3),))
    for seed, (split, count) in enumerate({"train": 60, "val": 5, "test": 5}.items()):
        write_pairs(tmp_path / split, count, seed)
    steps = (
        "optim=auto",
        "trainer=auto",
        "model.dropout=null",
        "trainer.val_bleu_sentences=0",
        "name=run",
    )
    options = [option for option in SMALL if option not in ("optim=adam", "trainer=default")]
    return composed_options(
        *text_in(tmp_path, "xx"), *options, "model=auto", *steps, "data.tokens_per_step=20000"
    )


def test_settled_options_are_stored_and_a_run_continues_with_them(small, tmp_path):
    folder = RunFolder(train(small, tmp_path))
    stored = yaml.safe_load(folder.config.read_text())
    assert (stored["model"]["dropout"], stored["trainer"]["max_steps"]) == (0.3, 3)
    assert saved_steps(folder.checkpoints)[-1] == 3

    # As a run has them that began under other rules, or before there were any.
    stored["model"]["dropout"], stored["trainer"]["max_steps"] = 0.2, 70
    folder.config.write_text(yaml.safe_dump(stored))
    settled = filled(small, first_options(folder))
    assert (settled.model.dropout, settled.trainer.max_steps) == (0.2, 70)

    folder.config.unlink()  # its checkpoints hold them, too
    settled = filled(small, first_options(folder))
    assert (settled.model.dropout, settled.trainer.max_steps) == (0.3, 3)
    assert open_options(settled) == set()


@pytest.mark.slow
def test_a_run_whose_peak_rate_is_set_over_a_scale_continues_with_this_peak_only(config, tmp_path):
    def to(step, peak):
        optim, trainer = (
            replace(config.optim, peak_lr=peak),
            replace(config.trainer, max_steps=step),
        )
        return train(replace(config, optim=optim, trainer=trainer), tmp_path)

    assert config.optim.lr_scale == 1.0
    to(3, 0.003)
    assert saved_steps(RunFolder(to(6, 0.003)).checkpoints)[-1] == 6
    with pytest.raises(RefusedError, match=r"optim\.peak_lr: 0\.003 -> 0\.004"):
        to(9, 0.004)


@pytest.mark.slow
@pytest.mark.parametrize(("level", "named"), [(0.1, 1), (100.0, 0)])
def test_a_loss_that_stays_at_the_unigram_loss_is_named_once_after_the_warm_up(
    small, tmp_path, caplog, monkeypatch, level, named
):
    monkeypatch.setattr(monitors, "unigram_loss", lambda *_: level)
    monkeypatch.setattr(monitors.ThroughputMonitor, "EARLIEST", 5)
    caplog.set_level(logging.INFO, "aiayn")
    trainer = replace(small.trainer, max_steps=12, log_every=2)

    train(
        replace(small, trainer=trainer, optim=replace(small.optim, warmup_steps=3, lr_scale=0.1)),
        tmp_path,
    )

    lines = [record.getMessage() for record in caplog.records]
    stuck = [line for line in lines if "still the unigram loss" in line]
    assert len(stuck) == named
    assert all(line.startswith("step 6: ") and "optim.warmup_steps" in line for line in stuck)
    assert any(line.startswith("steps    12, peak learning rate 0.014 at step 3") for line in lines)


def of_base(*options: str) -> RunConfig:
    """Base on a large corpus, with these options."""
    chosen = composed_options(*OPEN, "model=base", *options)
    return resolve.resolve(infer_sizes(chosen, lambda: 4_500_000), 4_500_000, 3_000)


def warnings_at_start(
    config: RunConfig, precision: str, caplog: pytest.LogCaptureFixture
) -> list[str]:
    """What is said of a training on two CPU cores, of sentences of 24 and 26 subwords."""
    src, tgt = (SimpleNamespace(lengths=np.array([length])) for length in (24, 26))
    corpus = SimpleNamespace(
        train=SimpleNamespace(src=src, tgt=tgt), tokenizer=SimpleNamespace(vocab_size=37_000)
    )
    log_start.log_hardware(
        SimpleNamespace(
            hardware=Hardware("cpu", precision),
            form=StepForm("padded", None, None),
            config=config,
            corpus=corpus,
            start_step=0,
        )
    )
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.parametrize(
    ("steps", "days"), [(100_000, ["about 80 days"]), (1_000, ["about 1 day;"]), (500, [])]
)
def test_a_training_that_takes_days_on_cpus_is_warned_of(steps, days, caplog, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    said = warnings_at_start(of_base(f"trainer.max_steps={steps}"), "32-true", caplog)
    assert len(said) == len(days)
    assert all(time in line for time, line in zip(days, said, strict=True)), said


@pytest.mark.parametrize(
    ("precision", "in_hardware", "warned"),
    [("bf16-mixed", False, True), ("bf16-mixed", True, False), ("32-true", False, False)],
)
def test_bfloat16_that_is_only_emulated_is_warned_of(
    caplog, monkeypatch, precision, in_hardware, warned
):
    monkeypatch.setattr(log_start, "has_bfloat16", lambda accelerator: in_hardware)
    config = of_base("trainer.max_steps=9", f"trainer.precision={precision}")
    said = warnings_at_start(config, precision, caplog)
    assert len(said) == warned
    assert all(line.startswith(f"warning  trainer.precision={precision}: ") for line in said)
    assert all("trainer.precision=auto" in line for line in said)


@pytest.mark.parametrize(
    ("rate", "warned"), [("9e-6", True), ("1.1e-5", False), ("4.9e-3", False), ("5.1e-3", True)]
)
def test_a_learning_rate_at_which_models_of_this_width_rarely_learn_is_warned_of(
    rate, warned, caplog
):
    config = of_base(f"optim.peak_lr={rate}", "model.n_layers=1")
    log_start.log_rate(config, TranslationModule(config, 300))
    said = [line for line in caplog.messages if line.startswith("warning  optim.peak_lr=")]
    assert len(said) == warned
    assert all("optim.peak_lr=0.0007" in line for line in said)
