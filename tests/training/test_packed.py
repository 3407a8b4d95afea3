"""Packed sentences against the same sentences padded, and a step as two graphs, on a CPU called
plainly.
"""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import range_attention_on_cpu  # noqa: F401 - computes packed sentences here
import torch
from applications import composed, slow_but
from torch._dynamo.utils import counters

from aiayn.config.model import ModelConfig
from aiayn.config.schema import Config
from aiayn.data.batch import collate, pack
from aiayn.data.batch_plan import BatchPlan, MicroBatch
from aiayn.data.corpus import PreparedSplit
from aiayn.data.encode import Sentences
from aiayn.errors import ConfigError, DivergedError
from aiayn.hardware import Hardware
from aiayn.kernels.accelerate import accelerate
from aiayn.runs import checkpoints
from aiayn.runs.run_folder import RunFolder
from aiayn.token_ids import BOS_ID, EOS_ID, PAD_ID
from aiayn.training import graphed
from aiayn.training.module import TranslationModule, compile_layers
from aiayn.training.research import Research, research_of
from aiayn.training.run import train
from aiayn.training.start import StepForm, step_form

VOCAB, SLOTS, MAX_LENGTH = 23, 128, 12
BF16, CPU = Hardware("gpu", "bf16-mixed"), Hardware("cpu", "bf16-mixed")


@pytest.fixture
def module(tiny_config) -> TranslationModule:
    model = replace(tiny_config, dropout=0.0)
    return TranslationModule(replace(composed("seed=5"), model=model), VOCAB).train()


def split_of(count: int) -> PreparedSplit:
    """Pairs of 0 to 9 source and 0 to 7 target tokens."""
    rng = np.random.default_rng(count)
    sides = (
        [rng.integers(4, VOCAB, rng.integers(longest)).tolist() for _ in range(count)]
        for longest in (10, 8)
    )
    return PreparedSplit(Path(), "train", *map(Sentences.of, sides))


def chosen(*pairs: int, count: int = 1) -> MicroBatch:
    return MicroBatch(np.array(pairs, np.int64), 40, count)


def test_a_packed_batch_has_the_real_tokens_of_the_padded_one_in_order_and_says_where_they_belong():
    split, pairs = split_of(6), chosen(4, 0, 5)
    padded, packed = collate(split, pairs, 8), pack(split, pairs, 8, SLOTS, MAX_LENGTH)
    for padded_ids, packed_ids in ((padded.src, packed.src), (padded.tgt_out, packed.tgt_out)):
        words = padded_ids[padded_ids != PAD_ID]
        assert packed_ids[0].tolist() == words.tolist() + [PAD_ID] * (SLOTS - len(words))
    real = padded.tgt_in[padded.tgt_out != PAD_ID]
    assert packed.tgt_in[0, : len(real)].tolist() == real.tolist()
    rows = packed.rows
    for positions, restarts in (
        (rows.src_position, rows.src.roll(1) == EOS_ID),
        (rows.tgt_position, rows.tgt_in == BOS_ID),
    ):
        assert all(int(position) == 0 for position in positions[restarts])
    assert rows.src_position.max() == padded.src.size(1) - 1
    counts = [
        (batch.number, batch.n_tokens, batch.n_src_tokens, batch.step_tokens, batch.micro_batches)
        for batch in (padded, packed)
    ]
    assert counts[0] == counts[1]


def test_a_batch_of_more_tokens_than_slots_gets_more_and_one_without_pairs_has_none():
    split = split_of(40)
    assert pack(split, chosen(*range(40)), 0, SLOTS, MAX_LENGTH).slots.shape == (15, 256)
    empty = pack(split, chosen(), 0, SLOTS, MAX_LENGTH)
    assert (empty.n_tokens, empty.slots.shape) == (0, (15, SLOTS))
    assert torch.all(empty.tgt_out == PAD_ID)


def losses_and_gradients(module, batch):
    module.trainer = SimpleNamespace(accumulate_grad_batches=1, world_size=1, global_step=0)
    module.zero_grad()
    loss = module.training_step(batch, 0)["loss"]
    loss.backward()
    return [loss.detach(), *(weight.grad.clone() for weight in module.parameters())]


@pytest.mark.parametrize(
    ("compiled", "positions", "tied", "window"),
    slow_but(
        [
            (False, "sinusoidal", "all", None),
            (False, "learned", "none", 3),
        ],
        product((False, True), ("sinusoidal", "learned"), ("all", "none"), (None, 3, 4)),
    ),
)
def test_a_packed_step_has_the_loss_and_gradients_of_the_padded_one_in_one_graph_for_all_batches(
    module, compiled, positions, tied, window
):
    torch.compiler.reset()
    counters.clear()
    options = {
        "positions": positions,
        "max_positions": 400,
        "tie_embeddings": tied,
        "attention_window": window,
    }
    model = replace(module.config.model, d_k=4, d_v=24, **options)
    packed, padded = two_modules(module, model)
    accelerate(packed.model, torch.device("cuda"))
    if compiled:
        compile_layers(packed.model, "aot_eager")
    for count in (5, 9, 3, 14, 6, 11):
        split, pairs = split_of(count), chosen(*range(count))
        of_packed = losses_and_gradients(packed, pack(split, pairs, 0, SLOTS, MAX_LENGTH))
        of_padded = losses_and_gradients(padded, collate(split, pairs, 0))
        for ours, expected in zip(of_packed, of_padded, strict=True):
            torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-11)
    if compiled:
        assert counters["graph_break"] == {}
        assert counters["stats"]["unique_graphs"] == 2, "one for the layers of each stack"


def two_modules(module: TranslationModule, model: ModelConfig) -> list[TranslationModule]:
    """Two with the same weights, in float64."""
    config = replace(module.config, model=model)
    modules = [TranslationModule(config, VOCAB).double().train() for _ in range(2)]
    modules[1].load_state_dict(modules[0].state_dict())
    return modules


@pytest.mark.parametrize("window", [None, 1, 3, 4])
@pytest.mark.parametrize("n_slots", [None, SLOTS])
def test_a_step_packed_on_a_cpu_has_the_loss_and_gradients_of_the_padded_one(
    module, window, n_slots
):
    model = replace(module.config.model, d_k=4, d_v=24, attention_window=window)
    packed, padded = two_modules(module, model)
    accelerate(packed.model, torch.device("cpu"))
    for pairs in (range(5), range(14), (0,), (9, 2)):
        split = split_of(14)
        batch = pack(split, chosen(*pairs), 0, n_slots, MAX_LENGTH)
        of_packed = losses_and_gradients(packed, batch)
        of_padded = losses_and_gradients(padded, collate(split, chosen(*pairs), 0))
        for ours, expected in zip(of_packed, of_padded, strict=True):
            torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-11)
        sides = (batch.src, batch.tgt_out)
        assert n_slots or [side.numel() for side in sides] == [batch.n_src_tokens, batch.n_tokens]
    nothing = losses_and_gradients(packed, pack(split_of(14), chosen(), 0, n_slots, MAX_LENGTH))
    assert all(not value.any() for value in nothing), "and every weight has a gradient"


def test_the_pairs_of_a_packed_step_are_dealt_to_micro_batches_of_about_one_size():
    rng = np.random.default_rng(0)
    src, tgt = rng.integers(1, 60, 9000), rng.integers(1, 50, 9000)

    def plan(tokens: int, devices: int = 1, *, packed: bool = True) -> BatchPlan:
        settings = {"tokens_per_step": 8000, "parts": 4, "seed": 3, "devices": devices}
        return BatchPlan(src, tgt, **settings, max_tokens_per_device=tokens, packed=packed)

    assert [plan(tokens).micro_batches for tokens in (9000, 4500, 3000)] == [1, 2, 3]
    assert [plan(9000, devices).micro_batches for devices in (1, 2, 3, 8)] == [1, 2, 3, 8]
    dealt, cut = plan(9000, devices=8), plan(9000, packed=False)
    assert dealt.padding.tolist() == [0] * len(dealt.padding)
    for step in (0, 7, dealt.steps_per_epoch):
        pieces = [dealt.micro_batch(8 * step + place).pairs for place in range(8)]
        parts = [cut.micro_batch(4 * step + place).pairs for place in range(4)]
        assert sorted(np.concatenate(pieces)) == sorted(np.concatenate(parts)), "the same step"
        sizes = [max(src[pairs].sum(), tgt[pairs].sum()) for pairs in pieces]
        assert max(sizes) < 1.15 * np.mean(sizes)
        assert max(sizes) <= dealt.n_slots < 1.4 * np.mean(sizes)


@pytest.mark.quick("options0-", "options4-", "options5-", "options6-", "options9-")
@pytest.mark.parametrize(
    ("hardware", "options", "missing", "expected"),
    [
        (BF16, [], None, (None, None, None)),
        (BF16, ["trainer.packed=true"], None, (None, None, None)),
        (BF16, ["model.d_v=264", "model.attention_window=5"], None, (None, None, None)),
        (Hardware("gpu", "32-true"), [], None, (None, None, None)),
        (Hardware("gpu", "16-mixed"), [], None, (None, None, "scaler")),
        (BF16, [], "Triton", ("no Triton", "many shapes", "many shapes")),
        (CPU, [], None, (None, "many shapes", "many shapes")),
        (CPU, ["model.d_model=128", "model.n_heads=4"], None, ("d_model=129", "many", "many")),
        (Hardware("cpu", "32-true"), [], None, ("gains little", "many shapes", "many shapes")),
        (Hardware("cpu", "64-true"), ["trainer.packed=true"], None, (None, "many", "many")),
        (
            BF16,
            ["trainer.packed=false"],
            None,
            ("trainer.packed=false", "many shapes", "many shapes"),
        ),
        (
            BF16,
            ["model.attention_dropout=0.1"],
            None,
            ("attention_dropout", "many shapes", "many shapes"),
        ),
        (BF16, ["model.d_model=256", "model.n_heads=4"], None, (None, "narrow", None)),
        (
            BF16,
            ["trainer.compile=false", "trainer.graphs=false"],
            None,
            (None, "compile=false", "graphs=false"),
        ),
        (BF16, ["trainer.strategy=ddp_find_unused_parameters_true"], None, (None, None, "unused")),
    ],
)
def test_a_step_has_the_fastest_form_that_is_possible_and_says_what_is_not(
    monkeypatch, hardware, options, missing, expected
):
    monkeypatch.setattr("aiayn.training.start.missing_for_compiling", lambda: missing)
    form = step_form(composed("model=base", *options), hardware, Research())
    for reason, words in zip(form, expected, strict=True):
        assert reason is None if words is None else words in reason


@pytest.mark.parametrize("name", ["packed", "compile", "graphs"])
def test_a_form_that_is_asked_for_and_impossible_is_refused(name):
    # What hinders packing hinders the other two.
    config = composed("model=base", "model.attention_dropout=0.1", f"trainer.{name}=true")
    with pytest.raises(ConfigError, match=rf"trainer\.{name}=true: .*; set trainer\.{name}=auto"):
        step_form(config, CPU, Research())


class Own(TranslationModule):
    pass


def test_code_of_an_extension_sees_rows_of_sentences_unless_told_otherwise(monkeypatch):
    monkeypatch.setattr("aiayn.training.start.missing_for_compiling", lambda: None)
    config, research = research_of(composed("model=base"), Own, None, [])
    assert "extension" in (step_form(config, BF16, research).why_padded or "")
    asked = replace(config, trainer=replace(config.trainer, packed=True))
    form = step_form(asked, BF16, research)
    assert form.why_padded is None
    assert "extension" in (form.why_not_graphed or "")
    parts = replace(asked, model=replace(config.model, parts="own.py:123"))
    with pytest.raises(ConfigError, match="parts of an extension"):
        step_form(parts, BF16, research)


FORMS = {
    "packed": StepForm(None, "asked", "asked"),
    "graphed": StepForm(None, "asked", None),
    "padded": StepForm("asked", "asked", "asked"),
}


@pytest.fixture
def train_as(monkeypatch, config, tmp_path):
    """train_as(form, name, **trainer's options): trains on a CPU as on a GPU; returns the run's
    folder.
    """
    gpu = torch.device("cuda")
    monkeypatch.setattr(
        "aiayn.training.module.accelerate", lambda model, device: accelerate(model, gpu)
    )
    data = replace(config.data, max_tokens_per_device=20_000, micro_batches=None, num_workers=1)

    def train_as(form: str, name: str, options: Config = config, **trainer) -> Path:
        monkeypatch.setattr("aiayn.training.run.step_form", lambda *_: FORMS[form])
        changed = replace(
            options, data=data, name=name, trainer=replace(options.trainer, **trainer)
        )
        return train(changed, tmp_path)

    return train_as


@pytest.mark.slow
@pytest.mark.parametrize("form", ["packed", "graphed"])
def test_a_packed_training_takes_the_padded_one_s_steps_in_one_pass_and_resumes_to_the_bit(
    train_as, config, form
):
    whole = train_as(form, "whole")
    for steps in (5, 12):
        parts = train_as(form, "parts", max_steps=steps)
    assert weights(parts) == weights(whole)
    corpus = json.loads((whole / "corpus.json").read_text())
    assert (corpus["micro_batches"], corpus["padding"]) == (1, 0)

    undropped = replace(config, model=replace(config.model, dropout=0.0))
    packed, padded = train_as(form, "undropped", undropped), train_as("padded", "padded", undropped)
    assert (
        json.loads((padded / "corpus.json").read_text())["micro_batches"]
        == config.data.parts_per_step
        > 1
    )
    assert logged(padded, "train/loss") == pytest.approx(logged(packed, "train/loss"), rel=1e-4)
    assert logged(padded, "train/grad_norm") == pytest.approx(
        logged(packed, "train/grad_norm"), rel=1e-3
    )


@pytest.mark.slow
def test_a_graphed_training_has_the_losses_of_the_packed_one_also_where_gradients_are_clipped(
    train_as,
):
    for clipping in (
        {},
        {"gradient_clip_val": 0.05},
        {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"},
    ):
        name = "-".join(map(str, clipping.values()))
        packed, replayed = (
            train_as(form, form + name, **clipping) for form in ("packed", "graphed")
        )
        for metric in ("train/loss", "train/grad_norm", "train/lr"):
            assert logged(replayed, metric) == pytest.approx(logged(packed, metric), rel=1e-5)


@pytest.mark.slow
def test_a_graphed_step_of_nan_changes_nothing_and_too_many_end_the_run_naming_the_step(
    train_as, monkeypatch
):
    loss = TranslationModule.training_loss
    steps = []

    def spoilt(self, batch):
        steps.append(batch)
        return loss(self, batch) * (torch.nan if len(steps) == 7 else 1.0)

    monkeypatch.setattr(TranslationModule, "training_loss", spoilt)
    skipped = train_as("graphed", "skipped", max_skipped_steps=1, log_every=1)
    assert all(weight == weight for values in weights(skipped).values() for weight in values)
    assert [record["step"] for record in metrics(skipped) if "train/skipped_steps" in record] == [7]
    steps.clear()
    with pytest.raises(DivergedError, match="at step 7"):
        train_as("graphed", "ended", log_every=1)


@pytest.mark.slow
def test_gradients_stay_where_they_are_and_a_batch_with_more_slots_is_computed_plainly(
    train_as, config, monkeypatch
):
    addresses, shapes = set(), set()
    differentiate = graphed.GraphedModule._differentiate

    def watched(self, batch):
        differentiate(self, batch)
        addresses.add(tuple(weight.grad.data_ptr() for weight in self.parameters()))
        shapes.add(batch.slots.size(1))

    monkeypatch.setattr(graphed.GraphedModule, "_differentiate", watched)
    # Masks have the shape of the slots
    undropped = replace(config, model=replace(config.model, dropout=0.0))
    usual = train_as("graphed", "usual", undropped)
    assert (len(addresses), len(shapes)) == (1, 1)
    monkeypatch.setattr(BatchPlan, "n_slots", 1)
    scarce = train_as("graphed", "scarce", undropped)
    assert len(shapes) > 1
    assert logged(scarce, "train/loss") == pytest.approx(logged(usual, "train/loss"), rel=1e-5)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((1.0, 1.0), (1.0, 1.0), None),
        ((1.0, 1.0009), (1.0, 1.0009), None),
        ((1.0, 1.0), (1.0, 1.0000001), "two replays"),
        ((1.00001, 1.0), (1.00001, 1.0), "loss"),
        ((1.0, 1.0011), (1.0, 1.0011), "gradients"),
    ],
)
def test_replaying_is_given_up_where_it_changes_a_loss_a_gradient_or_itself(
    first, second, expected
):
    plain, *replays = (
        (torch.tensor(loss), torch.full((3,), value)) for loss, value in ((1.0, 1.0), first, second)
    )
    reason = graphed.why_not_replayed(plain, *replays)
    assert reason is None if expected is None else expected in reason


def test_the_rates_of_a_captured_update_are_tensors_only_while_it_is_captured():
    weight = torch.nn.Parameter(torch.ones(3))
    adam = torch.optim.Adam([weight], lr=0.5, fused=True)
    rate = torch.tensor(0.25)
    with graphed.rates_read_from([rate], adam):
        assert adam.param_groups[0]["lr"] is rate
        assert adam.param_groups[0]["capturable"]
    assert (adam.param_groups[0]["lr"], adam.param_groups[0]["capturable"]) == (0.5, False)


def weights(run: Path) -> dict[str, list[float]]:
    stored = checkpoints.load(run / "checkpoints/last.ckpt").weights
    return {name: tensor.flatten().tolist() for name, tensor in stored.items()}


def metrics(run: Path) -> list[dict[str, float]]:
    return list(RunFolder(run).read_metrics())


def logged(run: Path, metric: str) -> list[float]:
    return [record[metric] for record in metrics(run) if metric in record]
