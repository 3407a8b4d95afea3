"""Lightning's own Trainer with our module and data module: the table of docs/lightning.md, what
works and what not.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from applications import composed, composed_options, text_in, write_pairs
from pytorch_lightning.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint

import aiayn
from aiayn.config.extensions import load_extension
from aiayn.config.schema import Config
from aiayn.config.stored import to_dict
from aiayn.data.datamodule import TranslationDataModule
from aiayn.errors import ConfigError, RefusedError
from aiayn.runs import checkpoints
from aiayn.token_ids import PAD_ID
from aiayn.training.module import TranslationModule
from aiayn.training.trainer import configure_libraries

VOCAB = 280
SIZES = (
    "model.n_layers=1",
    "model.d_model=16",
    "model.d_ff=24",
    "model.n_heads=2",
    "model.dropout=0.2",
)
DATA = (f"data.vocab_size={VOCAB}", "data.max_length=40", "data.tokens_per_step=520")


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Config:
    """Three steps an epoch."""
    configure_libraries()
    folder = tmp_path_factory.mktemp("text")
    for seed, (split, count) in enumerate({"train": 90, "val": 13, "test": 7}.items()):
        write_pairs(folder / split, count, seed)
    options = (
        "optim.warmup_steps=20",
        "search.max_extra_tokens=3",
        "trainer.max_steps=6",
        "seed=3",
    )
    return composed(*text_in(folder), *SIZES, *DATA, *options)


@pytest.fixture
def make(
    config, tmp_path
) -> Callable[..., tuple[pl.Trainer, TranslationModule, TranslationDataModule]]:
    def make(
        settings: Config = config, **options: Any
    ) -> tuple[pl.Trainer, TranslationModule, TranslationDataModule]:
        torch.manual_seed(0)
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        if not any(
            isinstance(callback, ModelCheckpoint) for callback in options.get("callbacks", [])
        ):
            quiet["enable_checkpointing"] = False
        trainer = pl.Trainer(
            **{"accelerator": "cpu", "default_root_dir": tmp_path, "max_steps": 6} | quiet | options
        )
        data = TranslationDataModule(settings.data, seed=settings.seed)
        return trainer, TranslationModule(settings, VOCAB), data

    return make


def weights_after(make, **options) -> dict[str, torch.Tensor]:
    trainer, module, data = make(**options)
    trainer.fit(module, data)
    return module.state_dict()


def assert_equal(mine: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert mine.keys() == theirs.keys()
    assert [name for name in mine if not torch.equal(mine[name], theirs[name])] == []


def test_accumulate_grad_batches_computes_the_same_steps_in_more_parts(make, config):
    still = replace(config, model=replace(config.model, dropout=0.0))
    norms: dict[int, list[float]] = {}

    class Norms(pl.Callback):
        def on_train_batch_end(self, trainer, module, *arguments) -> None:
            norms.setdefault(trainer.accumulate_grad_batches, []).append(
                float(module.gradient_norm)
            )

    for parts in (1, 4):
        trainer, module, data = make(still, accumulate_grad_batches=parts, callbacks=[Norms()])
        trainer.fit(module, data)
        assert trainer.global_step == 6
    assert norms[4][3::4] == pytest.approx(norms[1], rel=1e-4)


def test_fewer_parts_than_fit_into_the_memory_that_is_allowed_are_refused(make, config):
    small = replace(config, data=replace(config.data, max_tokens_per_device=150))
    trainer, module, data = make(small, accumulate_grad_batches=2)
    with pytest.raises(
        ConfigError,
        match=r"cuts a step into 2 micro-batches, but .*; set accumulate_grad_batches=[48]$",
    ):
        trainer.fit(module, data)


@pytest.mark.quick("2-within", "1-at its end")
@pytest.mark.parametrize("stop", [2, 3, 4], ids=["within an epoch", "at its end", "after it"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_ckpt_path_resumes_to_the_same_weights(make, tmp_path, stop, accumulate):
    whole = weights_after(make, accumulate_grad_batches=accumulate)
    trainer, module, data = make(max_steps=stop, accumulate_grad_batches=accumulate)
    trainer.fit(module, data)
    trainer.save_checkpoint(tmp_path / "stopped.ckpt")
    trainer, module, data = make(accumulate_grad_batches=accumulate)
    trainer.fit(module, data, ckpt_path=tmp_path / "stopped.ckpt", weights_only=True)
    assert trainer.global_step == 6
    assert_equal(module.state_dict(), whole)


@pytest.mark.quick("2")
@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_checkpoint_that_is_saved_on_the_way_resumes_to_the_same_weights(make, tmp_path, every):
    saver = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=every, save_top_k=-1)
    whole = weights_after(make, callbacks=[saver])
    trainer, module, data = make()
    trainer.fit(module, data, ckpt_path=tmp_path / f"step={every}.ckpt", weights_only=True)
    assert_equal(module.state_dict(), whole)


def test_early_stopping_model_checkpoint_and_learning_rate_monitor_work(make, tmp_path):
    stopping = EarlyStopping("val/loss", patience=1, stopping_threshold=100.0)  # met at once
    best = ModelCheckpoint(tmp_path / "best", "{step}", monitor="val/loss")
    logger = pl.loggers.CSVLogger(tmp_path, "log", "")
    trainer, module, data = make(
        callbacks=[stopping, best, LearningRateMonitor()], logger=logger, log_every_n_steps=1
    )
    trainer.fit(module, data)
    assert trainer.global_step == 3, "one epoch"
    assert Path(best.best_model_path).name == "step=3.ckpt"
    logged = (tmp_path / "log" / "metrics.csv").read_text()
    assert "lr-Adam" in logged
    assert "val/accuracy" in logged


def test_validate_and_test_measure_loss_perplexity_and_accuracy_of_all_tokens(make):
    trainer, module, data = make()
    for run, split in ((trainer.validate, "val"), (trainer.test, "test")):
        [found] = run(module, data, verbose=False)
        sums = torch.zeros(3, dtype=torch.float64)
        for batch in getattr(data, f"{split}_dataloader")():
            with torch.no_grad():
                log_probs = module.eval()(batch.src, batch.tgt_in).log_softmax(-1)
            real = batch.tgt_out != PAD_ID
            right = log_probs.gather(-1, batch.tgt_out[..., None])[..., 0]
            sums += torch.stack(
                [
                    -right[real].sum(),
                    (log_probs.argmax(-1) == batch.tgt_out)[real].sum(),
                    real.sum(),
                ]
            )
        assert found[f"{split}/ppl"] == pytest.approx(float((sums[0] / sums[2]).exp()), rel=1e-5)
        assert found[f"{split}/accuracy"] == pytest.approx(float(sums[1] / sums[2]))
        assert found.keys() == {f"{split}/loss", f"{split}/ppl", f"{split}/accuracy"}


def test_limit_val_batches_validates_so_many_batches(make, config):
    small = replace(config, data=replace(config.data, max_tokens_per_device=41, micro_batches=20))
    seen = []

    class Count(pl.Callback):
        def on_validation_batch_end(self, *arguments) -> None:
            seen.append(arguments)

    options = {
        "accumulate_grad_batches": 20,
        "limit_val_batches": 2,
        "callbacks": [Count()],
        "num_sanity_val_steps": 0,
    }
    trainer, module, data = make(small, **options, max_steps=3)
    trainer.fit(module, data)
    assert data.plan.steps_per_epoch == 3
    assert len(data.val_dataloader()) > 2
    assert len(seen) == 2, "one validation, after the one epoch"


def test_predict_translates_the_sources_of_the_test_set(make, config):
    trainer, module, data = make()
    found = dict(pair for batch in trainer.predict(module, data) for pair in batch)
    lines = Path(f"{config.data.test}.en").read_text(encoding="utf-8").split("\n")[:-1]
    assert sorted(found) == list(range(len(lines)))
    from aiayn.search.translator import Translator

    expected = Translator(module.model, data.tokenizer, config.search, "cpu").translate(lines)
    assert data.tokenizer.decode([found[line][0].tokens for line in range(len(lines))]) == expected


def test_predict_obeys_the_constraint_of_an_extension_that_was_named(make, config, tmp_path):
    file = tmp_path / "silent.py"
    file.write_text(
        "import torch\n"
        "from aiayn.token_ids import EOS_ID\n"
        "def constraint(tokenizer):\n"
        "    assert tokenizer.vocab_size\n"
        "    def ends(src, prefixes, log_probs):\n"
        "        only = torch.full_like(log_probs, -torch.inf)\n"
        "        only[..., EOS_ID] = log_probs[..., EOS_ID]\n"
        "        return only\n"
        "    return ends\n"
    )
    trainer, module, data = make(replace(config, extensions=[str(file)]))
    assert any(best.tokens for batch in trainer.predict(module, data) for _, [best, *_] in batch)
    load_extension(str(file))
    found = [best.tokens for batch in trainer.predict(module, data) for _, [best, *_] in batch]
    assert found == [[]] * 7

    with pytest.raises(ConfigError, match=r"silent\.py.*: a constraint needs the tokenizer; give"):
        make()[0].predict(module, data.predict_dataloader())


def test_overfit_batches_trains_on_the_same_steps_again_and_again(make):
    seen = []

    class Seen(pl.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, *arguments) -> None:
            seen.append(batch.number)

    trainer, module, data = make(overfit_batches=2, callbacks=[Seen()])
    trainer.fit(module, data)
    assert seen == [0, 1, 0, 1, 0, 1]


SCRIPT = """
import json
from pathlib import Path

import pytorch_lightning as pl

from aiayn.config.schema import Config
from aiayn.config.stored import from_dict
from aiayn.data.datamodule import TranslationDataModule
from aiayn.training.module import TranslationModule


class Seen(pl.Callback):
    numbers = []

    def on_train_batch_end(self, trainer, module, outputs, batch, *arguments):
        self.numbers.append(batch.number)

    def on_train_end(self, trainer, module):
        Path(f"rank_{trainer.global_rank}.json").write_text(json.dumps(self.numbers))


options = from_dict(Config, json.loads(Path("options.json").read_text()))
trainer = pl.Trainer(
    accelerator="cpu",
    devices=2,
    strategy="ddp",
    accumulate_grad_batches=2,
    overfit_batches=4,
    max_steps=4,
    callbacks=[Seen()],
    logger=False,
    enable_checkpointing=False,
)
data = TranslationDataModule(options.data, seed=3)
trainer.fit(TranslationModule(options, 280), data)
"""


@pytest.mark.slow
def test_two_devices_take_the_micro_batches_of_the_same_steps_in_turn(config, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "options.json").write_text(json.dumps(to_dict(config)))
    command = [sys.executable, "script.py"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    for rank in (0, 1):
        numbers = json.loads((tmp_path / f"rank_{rank}.json").read_text())
        # Two steps of four micro-batches, twice
        assert numbers == [*range(rank, 8, 2)] * 2


def test_limit_train_batches_takes_the_first_steps_of_each_epoch_and_resumes(make, tmp_path):
    whole = weights_after(make, limit_train_batches=2)
    trainer, module, data = make(limit_train_batches=2, max_steps=3)
    trainer.fit(module, data)
    trainer.save_checkpoint(tmp_path / "stopped.ckpt")
    trainer, module, data = make(limit_train_batches=2)
    trainer.fit(module, data, ckpt_path=tmp_path / "stopped.ckpt", weights_only=True)
    assert_equal(module.state_dict(), whole)


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true", "64-true"])
def test_other_precisions_train_validate_and_translate(make, precision):
    trainer, module, data = make(precision=precision)
    trainer.fit(module, data)
    assert all(weight.isfinite().all() for weight in module.parameters())
    assert trainer.callback_metrics["val/loss"] < 7
    assert trainer.predict(module, data)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize(("algorithm", "limit"), [("norm", 0.01), ("value", 0.001)])
def test_gradients_are_clipped(make, precision, algorithm, limit):
    largest = []

    class Clipped(pl.Callback):
        def on_before_zero_grad(self, trainer, module, optimizer) -> None:
            gradients = [weight.grad for weight in module.parameters() if weight.grad is not None]
            if gradients:
                norm = 2.0 if algorithm == "norm" else torch.inf
                largest.append(float(torch.nn.utils.get_total_norm(gradients, norm)))

    clip = {"gradient_clip_val": limit, "gradient_clip_algorithm": algorithm}
    trainer, module, data = make(**clip, precision=precision, max_steps=3, callbacks=[Clipped()])
    trainer.fit(module, data)
    assert largest
    assert max(largest) <= limit * 1.001


def test_load_from_checkpoint_gives_the_module_back(make, tmp_path):
    trainer, module, data = make(max_steps=2)
    trainer.fit(module, data)
    trainer.save_checkpoint(tmp_path / "plain.ckpt")
    again = TranslationModule.load_from_checkpoint(tmp_path / "plain.ckpt", weights_only=True)
    assert again.config == module.config
    assert_equal(again.state_dict(), module.state_dict())


def test_its_checkpoints_are_read_by_load(make, tmp_path):
    trainer, module, data = make(
        max_steps=2, callbacks=[ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=2)]
    )
    trainer.fit(module, data)
    translator = aiayn.load(tmp_path / "step=2.ckpt", accelerator="cpu")
    assert_equal(checkpoints.load(tmp_path / "step=2.ckpt").weights, module.model.state_dict())
    assert len(translator.translate(["one two", "three"])) == 2


def test_a_checkpoint_of_other_data_is_refused_with_the_remedy(make, tmp_path):
    trainer, module, data = make(max_steps=1, accumulate_grad_batches=4)  # the parts of a step
    data.setup("fit")
    trainer.fit(module, data.train_dataloader())
    trainer.save_checkpoint(tmp_path / "plain.ckpt")
    with pytest.raises(RefusedError, match="TranslationDataModule"):
        aiayn.load(tmp_path / "plain.ckpt", accelerator="cpu")


def test_a_schedule_of_accumulation_is_refused_because_a_step_is_cut_once(make):
    schedule = pl.callbacks.GradientAccumulationScheduler({0: 1, 1: 2})
    trainer, module, data = make(callbacks=[schedule])
    with pytest.raises(ConfigError, match="set the Trainer's accumulate_grad_batches once"):
        trainer.fit(module, data)


def test_options_that_only_a_run_settles_are_asked_for():
    options = (
        "data=files",
        "data.train=x",
        "data.val=x",
        "data.src_lang=en",
        "data.tgt_lang=de",
        "name=x",
    )
    with pytest.raises(ConfigError, match=r"model\.d_model"):
        TranslationModule(composed_options(*options), VOCAB)
