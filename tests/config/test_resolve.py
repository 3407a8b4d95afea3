"""Options that `data=files` leaves to the program, inferred from the text."""

import re
import subprocess
import sys
from dataclasses import is_dataclass
from pathlib import Path

import pytest
from applications import (
    ROOT,
    TINY,
    composed,
    composed_options,
    last_of_each,
    run_application,
    write_text,
)
from applications import TEXT as TINY_OF_TEXT
from hydra._internal.hydra import Hydra

import aiayn
from aiayn.config.data import DataConfig
from aiayn.config.model import ModelConfig
from aiayn.config.resolve import fill, infer_sizes, open_options, resolve, run_config
from aiayn.config.rules import options_of
from aiayn.config.schema import Config
from aiayn.config.search import SearchConfig
from aiayn.config.stored import flatten, to_dict
from aiayn.config.training import LoggerConfig, OptimConfig, TrainerConfig
from aiayn.errors import ConfigError
from aiayn.runs.run_folder import RunFolder
from aiayn.training import run
from aiayn.training.module import learning_rate

TINY_TEXT = (*TINY_OF_TEXT, *TINY)
TEXT = ("data=files", "data.train=x", "data.val=x", "name=mine")


def test_own_text_leaves_every_option_open_that_can_be():
    every = {
        key
        for key, option in options_of(Config).items()
        if option.metadata.get("inferred_from_data")
    }
    assert open_options(composed_options(*TEXT)) == every
    assert {"model.d_model", "data.vocab_size", "optim.lr_scale", "trainer.max_steps"} < every
    assert open_options(composed_options()) == set()


@pytest.mark.parametrize(
    ("pairs", "n_layers", "d_model", "dropout", "vocab_size", "tokens_per_step"),
    [
        (700, 4, 128, 0.3, 350, 2048),
        (5_000, 4, 128, 0.3, 2000, 2048),
        (50_000, 4, 128, 0.3, 8000, 4096),
        (500_000, 6, 512, 0.3, 10_000, 8192),
        (4_500_000, 6, 512, 0.1, 37_000, 25_000),
    ],
)
def test_sizes_follow_from_the_number_of_pairs(
    pairs, n_layers, d_model, dropout, vocab_size, tokens_per_step
):
    config = infer_sizes(composed_options(*TEXT), lambda: pairs)

    assert (config.model.n_layers, config.model.d_model, config.model.dropout) == (
        n_layers,
        d_model,
        dropout,
    )
    assert (config.data.vocab_size, config.data.tokens_per_step) == (vocab_size, tokens_per_step)


@pytest.mark.quick("more0")
@pytest.mark.parametrize("more", [(), ("model=auto",)])
def test_a_size_that_fits_no_model_the_text_could_choose_is_refused_before_the_text_is_read(more):
    refused = r"^model\.d_model=512 is not divisible by model\.n_heads=7: .* \(for the largest model that data=files can choose"
    with pytest.raises(ConfigError, match=refused):
        aiayn.compose(*TEXT, "model.n_heads=7", *more)
    aiayn.compose(*TEXT, "model.n_heads=256", *more)  # fits the largest one
    for fitting in (
        ["model.d_model=14"],
        ["model.d_k=8", "model.d_v=8"],
        ["init_from=outputs/that_may_have_seven"],
    ):
        aiayn.compose(*TEXT, "model.n_heads=7", *fitting, *more)


@pytest.mark.parametrize(
    ("steps", "val_every"), [(60, 60), (600, 250), (9000, 450), (90_000, 1500)]
)
def test_a_short_run_is_not_validated_more_often_than_it_has_time_for(steps, val_every):
    config = infer_sizes(composed_options(*TEXT, f"trainer.max_steps={steps}"), lambda: 5000)

    assert resolve(config, 5000, 25).trainer.val_every == val_every


@pytest.mark.quick("100-128", "4000-512")
@pytest.mark.parametrize(("d_model", "peak"), [(512, 0.000699), (128, 0.0028)])
@pytest.mark.parametrize("warmup", [100, 1000, 4000])
def test_the_peak_of_the_learning_rate_is_the_same_whatever_the_warm_up(d_model, peak, warmup):
    config = infer_sizes(
        composed_options(*TEXT, f"optim.warmup_steps={warmup}", f"model.d_model={d_model}"),
        lambda: 5000,
    )
    config = resolve(config, 5000, 25)

    rate = learning_rate(warmup, d_model, warmup, config.optim.lr_scale)

    assert rate == pytest.approx(peak, rel=0.01)


def test_the_peak_may_be_set_itself_whatever_the_warm_up():
    for warmup in (7, 4000):
        given = composed_options(
            *TEXT, "optim.peak_lr=1.5e-4", f"optim.warmup_steps={warmup}", "optim.lr_scale=9"
        )
        config = resolve(infer_sizes(given, lambda: 5000), 5000, 10)
        peak = learning_rate(warmup, config.model.d_model, warmup, config.optim.lr_scale)
        assert peak == pytest.approx(1.5e-4, rel=1e-4)
        assert config.optim.peak_lr == 1.5e-4
    with pytest.raises(ConfigError, match=r"optim\.peak_lr=0\.0: must be above 0 and finite"):
        composed_options(*TEXT, "optim.peak_lr=0")


def test_a_resolved_configuration_has_no_null_where_options_were_open():
    config = resolve(infer_sizes(composed_options(*TEXT), lambda: 5000), 5000, 25)

    assert open_options(config) == set()
    sections = [type(section) for section in vars(config).values() if is_dataclass(section)]
    assert sections == [
        *(ModelConfig, DataConfig, OptimConfig, TrainerConfig),
        *(SearchConfig, LoggerConfig),
    ]
    assert run_config(config) == config


def test_stored_values_fill_what_is_open_and_nothing_else():
    options = composed_options(*TEXT, "model.d_ff=77")
    stored = flatten(to_dict(resolve(infer_sizes(composed_options(*TEXT), lambda: 5000), 5000, 25)))

    filled = flatten(to_dict(fill(options, stored | {"seed": 5})))

    assert filled == flatten(to_dict(options)) | {key: stored[key] for key in open_options(options)}
    assert set(filled) == set(options_of(Config))


def python(code: str, *arguments: str, at: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=at, capture_output=True, text=True, timeout=600)


@pytest.mark.quick("sizes0")
@pytest.mark.parametrize(
    "sizes", [("model=tiny", "data.vocab_size=280"), ("model.n_layers=1", "model.d_ff=8")]
)
def test_a_configuration_is_composed_once_and_resolved_once_on_its_way_to_the_first_step(
    tmp_path, monkeypatch, sizes
):
    write_text(tmp_path)
    monkeypatch.chdir(tmp_path)
    made, before_training, composed_names = [], [], []
    check, make_trainer = Config.__post_init__, run.make_trainer

    def checked(self) -> None:
        made.append(type(self).__name__)
        check(self)

    def make_trainer_and_note(*arguments, **settings):
        before_training.extend(made)
        return make_trainer(*arguments, **settings)

    compose_config = Hydra.compose_config

    def compose_and_note(self, config_name, *arguments, **settings):
        composed_names.append(config_name)
        return compose_config(self, config_name, *arguments, **settings)

    monkeypatch.setattr(Hydra, "compose_config", compose_and_note)
    monkeypatch.setattr(Config, "__post_init__", checked)
    monkeypatch.setattr(run, "make_trainer", make_trainer_and_note)
    fixed = (
        "data.tokens_per_step=520",
        "trainer.max_steps=1",
        "trainer.accelerator=cpu",
        "logger=none",
        "name=x",
    )
    ended = run_application("train.py", *TINY_OF_TEXT, *sizes, *fixed)
    assert ended.code == 0, ended.err
    assert before_training == ["Config", "SizedConfig", "RunConfig"]
    assert len(composed_names) == 1


@pytest.mark.quick("n_heads")
@pytest.mark.parametrize("option", ["model.n_heads=8", "optim.label_smoothing=0.2", "seed=3"])
def test_a_changed_option_is_refused_before_torch_is_imported(tmp_path, option):
    run = tmp_path / "outputs/run"
    run.mkdir(parents=True)
    write_text(tmp_path)
    begun = (*TINY_TEXT, "name=run")
    RunFolder(run).write_config(composed(*begun))
    code = f"""
import atexit, runpy, sys
atexit.register(lambda: print(sorted({{"torch", "pytorch_lightning", "numpy"}} & set(sys.modules))))
sys.argv = ["train.py", *sys.argv[1:]]
runpy.run_path({str(ROOT / "train.py")!r}, run_name="__main__")
"""
    ended = python(code, *last_of_each([*begun, option]), at=tmp_path)
    key, _, value = option.partition("=")
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (4, "[]\n", 1), (
        ended.stderr
    )
    assert re.search(
        rf"outputs/run was started with other options \({key}: [\d.]+ -> {value}\)", ended.stderr
    )
