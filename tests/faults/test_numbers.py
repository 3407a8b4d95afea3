"""A NaN or infinite loss or gradient reaches neither weights nor moments nor the disk, and is
counted.
"""

import json
import math
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import pytest
import torch
from applications import slow_but
from faults.harness import acts_at, configured, dies_at, differences, measured, train

from aiayn.data.batch import Batch
from aiayn.errors import DivergedError
from aiayn.runs import checkpoint_folder, checkpoints
from aiayn.runs.run_folder import saved_steps
from aiayn.token_ids import PAD_ID
from aiayn.training.callbacks.monitors import NonFiniteGuard
from aiayn.training.module import TranslationModule


def spoils(*numbers, value=math.nan, gradient=False):
    """A prelude: the losses (or the gradients alone) of these micro-batches become `value`."""

    def prelude() -> None:
        plain = TranslationModule.training_loss

        def spoiled(self, batch: Batch):
            loss = plain(self, batch)
            if batch.number not in numbers:
                return loss
            if gradient:
                loss.register_hook(lambda grad: grad * value)
                return loss
            return loss + value

        TranslationModule.training_loss = spoiled

    return prelude


def saved(folder):
    for path in (folder / "checkpoints").glob("[!.]*"):
        yield path, checkpoints.read_tensors(path)


def assert_finite(value) -> None:
    if isinstance(value, torch.Tensor):
        assert value.isfinite().all()
    elif isinstance(value, dict):
        for inner in value.values():
            assert_finite(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            assert_finite(inner)


@pytest.mark.quick("nan")
@pytest.mark.parametrize(
    ("value", "gradient", "log_every"),
    slow_but(
        [(math.nan, False, 1), (math.inf, True, 100)],
        product((math.nan, math.inf), (False, True), (1, 100)),
    ),
)
def test_one_of_them_ends_the_run_and_names_the_step_and_its_sentences(
    text, unbroken, tmp_path, value, gradient, log_every
):
    config = configured(text, f"trainer.log_every={log_every}")
    end = train(config, tmp_path, spoils(9, value=value, gradient=gradient))
    assert end.code == 5, end.said
    last = end.said.rstrip("\n").split("\n")[-1]
    assert last.startswith(
        "error: the loss or its gradient is NaN or infinite at step 5; this step was not saved"
    )
    assert "trainer.max_skipped_steps=1" in last
    assert saved_steps(tmp_path / "run" / "checkpoints") == [3]
    ended = json.loads((tmp_path / "run" / "end.json").read_text())
    assert ended == {"step": 3, "reason": "divergence", "limits": {}}
    for _, payload in saved(tmp_path / "run"):
        assert_finite(payload)

    sentences = (
        (tmp_path / "run" / "not_finite_at_step_5.tsv").read_text(encoding="utf-8").split("\n")[:-1]
    )
    sources = (text / "train.en").read_text(encoding="utf-8").split("\n")
    targets = (text / "train.de").read_text(encoding="utf-8").split("\n")
    assert len(sentences) > 5
    rows = [line.split("\t") for line in sentences]
    assert {(source, target) for _, source, target in rows} <= set(
        zip(sources, targets, strict=True)
    )
    assert len({number for number, _, _ in rows}) == len(rows)

    # Without the fault the same command goes on as if nothing had been.
    assert train(config, tmp_path).code == 0
    if log_every == 1:
        (tmp_path / "run" / "not_finite_at_step_5.tsv").unlink()
        assert differences(tmp_path / "run", unbroken) == []


def test_a_skipped_step_leaves_weights_and_moments_as_they_were_and_is_reported(text, tmp_path):
    config = configured(
        text, "trainer.max_skipped_steps=1", "trainer.checkpoint_every=1", "trainer.average_last=12"
    )
    end = train(config, tmp_path, spoils(8))
    assert end.code == 0, end.said
    place = tmp_path / "run" / "checkpoints"
    four, five, six = (
        checkpoints.load(checkpoint_folder.step_path(place, step)).weights for step in (4, 5, 6)
    )
    assert all(torch.equal(four[name], five[name]) for name in four)
    assert not all(torch.equal(five[name], six[name]) for name in four)
    state = checkpoints.read_tensors(
        checkpoint_folder.optimizer_path(checkpoint_folder.step_path(place, 12))
    )
    moments = state["lightning"]["optimizer_states"][0]["state"]
    assert {int(state["step"]) for state in moments.values()} == {11}
    assert [r for r in measured(tmp_path / "run") if "train/skipped_steps" in r] == [
        {"step": 5, "train/skipped_steps": 1}
    ]
    assert "steps skipped so far, because loss or gradient was NaN or infinite: 1" in end.said
    for _, payload in saved(tmp_path / "run"):
        assert_finite(payload)
    for line in (tmp_path / "run" / "metrics.jsonl").read_text().split("\n")[:-1]:
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@pytest.mark.slow
def test_the_count_of_skipped_steps_outlives_a_kill(text, tmp_path):
    config = configured(text, "trainer.max_skipped_steps=2")
    faults = spoils(3, 8, 20)  # in steps 2, 5, 11

    def faulty_and_killed() -> None:
        faults()
        dies_at(TranslationModule, "training_step", 15)()

    assert train(config, tmp_path, faulty_and_killed).code == -9
    end = train(config, tmp_path, faults)
    assert end.code == 5
    assert "at step 11 (3 such steps, trainer.max_skipped_steps=2)" in end.said
    assert saved_steps(tmp_path / "run" / "checkpoints")[-1] == 9

    enough = configured(text, "trainer.max_skipped_steps=3")
    assert train(enough, tmp_path, faults).code == 0
    assert train(enough, tmp_path / "whole", faults).code == 0
    (tmp_path / "run" / "not_finite_at_step_11.tsv").unlink()
    assert differences(tmp_path / "run", tmp_path / "whole" / "run") == []


@pytest.mark.slow
def test_a_gradient_whose_square_is_not_finite_counts_as_not_finite(text, tmp_path):
    end = train(configured(text), tmp_path, spoils(8, value=1e30, gradient=True))
    assert end.code == 5, end.said
    assert "at step 5" in end.said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lr_scale", "log_every"), slow_but([(100, 1)], product((100, 1000), (1, 100)))
)
def test_a_finite_explosion_ends_the_run_as_diverged_and_again_at_the_next_start(
    text, tmp_path, lr_scale, log_every
):
    options = [
        f"optim.lr_scale={lr_scale}",
        f"trainer.log_every={log_every}",
        "optim.warmup_steps=1",
    ]
    config = configured(text, *options)
    for _ in range(2):
        end = train(config, tmp_path)
        assert end.code == 5, end.said
        last = end.said.rstrip("\n").split("\n")[-1]
        assert last.startswith("error: the training loss up to step ")
        assert "a uniform guess over the vocabulary would have 5.63: lower optim.lr_scale" in last
    assert not (tmp_path / "run" / "checkpoints" / "averaged.ckpt").exists()


@pytest.mark.parametrize(("above", "code"), [(-0.01, 0), (0.01, 5)])
def test_a_loss_above_twice_that_of_a_uniform_guess_and_ten_nats_ends_the_run(
    text, tmp_path, above, code
):
    config = configured(text, "trainer.max_steps=1", "trainer.val_every=1")

    def prelude() -> None:
        level = 2 * math.log(280) + 10 + above
        plain = TranslationModule.training_loss
        TranslationModule.training_loss = lambda self, batch: (
            0 * plain(self, batch) + level * int((batch.tgt_out != PAD_ID).sum())
        )

    end = train(config, tmp_path, prelude)
    assert end.code == code, end.said
    assert ("is 21.28 per token, and a uniform guess" in end.said) == (code == 5)


@pytest.mark.parametrize("key", ["lr_scale", "peak_lr"])
def test_a_weight_that_is_not_finite_advises_the_rate_that_is_in_force(config, key):
    config = replace(config, optim=replace(config.optim, **{key: 0.5}))
    module = torch.nn.Linear(2, 3)
    module.weight.data.fill_(torch.nan)
    module.skipped = module.fatal_step = torch.tensor(0)
    guard = NonFiniteGuard(SimpleNamespace(config=config, start_step=0), SimpleNamespace())
    with pytest.raises(DivergedError, match=rf"saved: lower optim\.{key} or raise"):
        guard.check(SimpleNamespace(global_step=4), module)


def test_finding_them_makes_the_host_wait_for_the_device_in_no_step(config, monkeypatch):
    """The hook reads no value on the host: it runs on meta tensors, which have none."""
    module = TranslationModule(config, 300).to("meta")
    for weight in module.parameters():
        weight.grad = torch.empty_like(weight)
    trainer = SimpleNamespace(global_step=6, scaler=None, accumulate_grad_batches=4)
    monkeypatch.setattr(TranslationModule, "trainer", trainer)
    optimizer = torch.optim.SGD([{"params": list(module.parameters()), "fused": True}])
    module.configure_gradient_clipping(optimizer)
    assert optimizer.found_inf.device.type == "meta"


@pytest.mark.quick("3-lower data.max_tokens_per_device below -CUDA")
@pytest.mark.parametrize(
    "message",
    [
        "CUDA out of memory. Tried to allocate 2.00 GiB",
        "DefaultCPUAllocator: can't allocate memory",
    ],
)
@pytest.mark.parametrize(
    ("call", "remedy"), [(3, "lower data.max_tokens_per_device below "), (9, "name=")]
)
def test_an_out_of_memory_step_is_named_with_its_shape_and_its_cure(
    config, tmp_path, message, call, remedy
):
    def fails() -> None:
        raise (torch.OutOfMemoryError if "CUDA" in message else RuntimeError)(message)

    end = train(config, tmp_path, acts_at(TranslationModule, "training_loss", fails, call))
    assert end.code == 6, end.said
    last = end.said.rstrip("\n").split("\n")[-1]
    assert last.startswith(f"error: out of memory at step {(call + 1) // 2}, in a batch of (")
    assert remedy in last


def test_an_out_of_memory_validation_is_not_blamed_on_a_training_batch(text, tmp_path):
    config = configured(text, "data.max_tokens_per_device=null")

    def prelude() -> None:
        def fails(self, batch, batch_idx):
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

        TranslationModule.validation_step = fails

    end = train(config, tmp_path, prelude)
    assert end.code == 6, end.said
    last = end.said.rstrip("\n").split("\n")[-1]
    assert last.startswith("error: out of memory in validation, in a batch of (")
    assert "split the longest lines of data.val=" in last
    assert "or lower data.max_tokens_per_device below " in last
