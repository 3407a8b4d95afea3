"""What trains is what is saved: counters, any optimizer's state, keys of a module's own; proved at
the first step.
"""

import os
import signal
from dataclasses import replace

import pytest
import torch
from applications import stopped_in
from pytorch_lightning.callbacks import Callback, ModelCheckpoint
from torch import nn
from torch.nn import functional as F

from aiayn.errors import ConfigError, InterruptedRunError
from aiayn.runs import checkpoints
from aiayn.runs.run_folder import RunFolder, saved_steps
from aiayn.training.module import TranslationModule
from aiayn.training.run import train


class Lion(torch.optim.Optimizer):
    def __init__(self, weights):
        super().__init__(weights, {"lr": 1.0, "betas": (0.9, 0.99)})

    @torch.no_grad()
    def step(self, closure=None):
        with torch.enable_grad():
            loss = closure()
        for group in self.param_groups:
            for weight in (weight for weight in group["params"] if weight.grad is not None):
                mean = self.state[weight].setdefault("mean", torch.zeros_like(weight))
                weight.sub_(0.03 * group["lr"] * (0.9 * mean + 0.1 * weight.grad).sign())
                mean.lerp_(weight.grad, 0.01)
        return loss


class Counting(nn.Module):
    """Counts the passes of training in a buffer, and is not linear."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64))
        self.register_buffer("seen", torch.zeros(3, dtype=torch.bool))

    def forward(self, x):
        self.passes += self.training
        return self.w_2(F.gelu(self.w_1(x)))


class Whole(TranslationModule):
    optimizer = Lion

    def __init__(self, config, vocab_size):
        super().__init__(config, vocab_size)
        self.tokens = 0

    @classmethod
    def build_model(cls, config, vocab_size):
        model = super().build_model(config, vocab_size)
        model.encoder[0].feed_forward = Counting(config.model.d_model, config.model.d_ff)
        return model

    def training_loss(self, batch):
        self.tokens += batch.n_tokens
        return super().training_loss(batch) * (1 + self.step_number / 100)

    def configure_optimizers(self):
        optimizer = self.optimizer(self.parameters())
        return {"optimizer": optimizer, "lr_scheduler": self.schedule(optimizer)}

    def on_save_checkpoint(self, checkpoint):
        super().on_save_checkpoint(checkpoint)
        checkpoint["tokens"] = {"counted": self.tokens}

    def on_load_checkpoint(self, checkpoint):
        super().on_load_checkpoint(checkpoint)
        self.tokens = checkpoint["tokens"]["counted"]

    def on_fit_end(self):
        Whole.ended_with = self.tokens


class WithAdamax(Whole):
    optimizer = torch.optim.Adamax


class Steps(Callback):
    steps = 0

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        self.steps += 1


@pytest.mark.quick("[Whole]")
@pytest.mark.parametrize("module", [Whole, WithAdamax])
def test_counters_own_keys_the_step_and_the_state_of_any_optimizer_survive_a_stop(
    module, config, tmp_path, caplog
):
    more = {"module": module, "callbacks": [Steps()]}
    whole = train(config, tmp_path / "whole", **more)
    tokens = Whole.ended_with
    with stopped_in(7):
        train(config, tmp_path / "stopped", **more)
    stopped = train(config, tmp_path / "stopped", **more)
    assert Whole.ended_with == tokens > 0
    mine, theirs = (checkpoints.load(RunFolder(run).last).weights for run in (stopped, whole))
    assert [name for name in theirs if not torch.equal(mine[name], theirs[name])] == []
    assert theirs["encoder.0.feed_forward.passes"] == 24, "two micro-batches a step"
    average = checkpoints.load(RunFolder(whole).averaged).weights
    assert average["encoder.0.feed_forward.passes"] == 24
    assert average["encoder.0.feed_forward.seen"].dtype == torch.bool
    assert f"warning  {module.__name__}" not in caplog.text
    said = [message for message in caplog.messages if "and no checkpoint holds it" in message]
    assert [message.partition(",")[0] for message in said] == 3 * [
        "warning  Steps: training changes steps"
    ], "once a start"


class ChangedLater(TranslationModule):
    def __init__(self, config, vocab_size):
        super().__init__(config, vocab_size)
        self.model.encoder[0].norm_1.norm = nn.LayerNorm(config.model.d_model, eps=0.5)


class Adds(TranslationModule):
    def __init__(self, config, vocab_size):
        super().__init__(config, vocab_size)
        self.model.encoder[0].extra = nn.Linear(2, 3)


class Forgets(Lion):
    def load_state_dict(self, state_dict):
        super().load_state_dict({"state": {}, "param_groups": state_dict["param_groups"]})


class Forgetful(Whole):
    optimizer = Forgets


class LoadsNothing(Lion):
    def load_state_dict(self, state_dict):
        pass


class Deaf(Whole):
    optimizer = LoadsNothing


class CountsFromInfinity(Lion):
    def step(self, closure=None):
        loss = super().step(closure)
        for weight in self.state:
            self.state[weight].setdefault("least", torch.full_like(weight, torch.inf))
        return loss


class Infinite(Whole):
    optimizer = CountsFromInfinity


class Keeps(TranslationModule):
    def on_save_checkpoint(self, checkpoint):
        super().on_save_checkpoint(checkpoint)
        checkpoint["seen"] = {1, 2}


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            ChangedLater,
            "ChangedLater: the reloaded model gives different outputs",
        ),
        (Adds, r"the checkpoint of the first step cannot be read back: .*encoder\.0\.extra"),
        (Forgetful, "Forgets: its load_state_dict does not restore the saved state"),
        (Deaf, "LoadsNothing: its load_state_dict does not restore the saved state"),
        (Infinite, "CountsFromInfinity: no run resumes from its state: least of weight 0 is not"),
        (Keeps, "the state seen is a set"),
    ],
)
def test_what_could_not_be_used_or_resumed_is_refused_at_the_first_step(
    module, message, config, tmp_path
):
    with pytest.raises(ConfigError, match=message):
        train(config, tmp_path, module=module)
    assert saved_steps(tmp_path / "run/checkpoints") == []
    assert not list((tmp_path / "run/checkpoints").glob("*first*"))


class Plateau(TranslationModule):
    signal_at = None  # the step in whose validation a signal comes

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
            optimizer, factor=0.5, patience=0, threshold=10
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": plateau, "monitor": "val/loss"},
        }

    def validation_step(self, batch, batch_idx):
        if self.trainer.global_step == Plateau.signal_at:
            Plateau.signal_at = None
            os.kill(os.getpid(), signal.SIGTERM)
        super().validation_step(batch, batch_idx)


@pytest.mark.slow
def test_a_plateau_is_seen_after_every_validation_wherever_a_run_was_stopped(config, tmp_path):
    config = replace(config, trainer=replace(config.trainer, val_every=2, max_steps=8))
    whole = train(config, tmp_path / "whole", module=Plateau)
    rates = [
        record["train/lr"] for record in RunFolder(whole).read_metrics() if "train/lr" in record
    ]
    assert rates == pytest.approx([0.01, 0.01, 0.005, 0.005, 0.0025, 0.0025, 0.00125, 0.00125])
    expected = checkpoints.load(RunFolder(whole).last).weights
    for place, name in (
        (stopped_in(5), "step"),
        (pytest.raises(InterruptedRunError), "validation"),
    ):
        Plateau.signal_at = 4 if name == "validation" else None
        with place:
            train(config, tmp_path / name, module=Plateau)
        run = train(config, tmp_path / name, module=Plateau)
        found = checkpoints.load(RunFolder(run).last).weights
        assert [key for key in expected if not torch.equal(found[key], expected[key])] == [], name


@pytest.mark.slow
def test_a_model_checkpoint_that_names_no_folder_writes_into_the_runs_own(
    config, tmp_path, monkeypatch
):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    run = train(
        config,
        tmp_path / "outputs",
        callbacks=[ModelCheckpoint(filename="mine", monitor="val/loss")],
    )
    assert list((tmp_path / "elsewhere").iterdir()) == []
    [saved] = run.rglob("mine.ckpt")
    assert checkpoints.load(saved).step in (6, 12)
