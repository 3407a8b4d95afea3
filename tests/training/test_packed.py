"""Packed sentences against the same sentences padded. The GPU's kernel is played by the paper's attention."""

import json
import math
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from applications import composed, slow_but
from torch import Tensor
from torch._dynamo.utils import counters

from aiayn.data.batch import Batch, PackedBatch, collate, without_padding
from aiayn.data.batch_plan import BatchPlan, MicroBatch
from aiayn.data.corpus import PreparedSplit
from aiayn.data.encode import Sentences
from aiayn.errors import ConfigError
from aiayn.hardware import Hardware
from aiayn.kernels.accelerate import accelerate
from aiayn.model.attention import attention
from aiayn.runs import checkpoints
from aiayn.runs.run_folder import RunFolder
from aiayn.token_ids import PAD_ID
from aiayn.training.log_start import log_start
from aiayn.training.module import TranslationModule, compile_layers
from aiayn.training.research import Research, why_not_packed
from aiayn.training.run import train

VOCAB = 23
BF16 = Hardware("gpu", "bf16-mixed")


@torch.library.custom_op("tests::varlen", mutates_args=())
def varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_starts: Tensor,
    k_starts: Tensor,
    q_longest: int,
    k_longest: int,
    scale: float,
    causal: bool,
) -> Tensor:
    """What the kernel computes: (T, H, d), of one width for all three, a multiple of 8."""
    assert q.size(2) == k.size(2) == v.size(2)
    assert q.size(2) % 8 == 0
    q = q * (scale * math.sqrt(q.size(2)))  # what `attention` divides by
    of_q, of_k = (torch.repeat_interleave(starts.diff()) for starts in (q_starts, k_starts))  # sentence of each token
    mask = of_q[:, None] == of_k
    assert q_starts.diff().max() <= q_longest
    assert k_starts.diff().max() <= k_longest
    heads = (each.transpose(0, 1)[None] for each in (q, k, v))
    return attention(*heads, mask.tril() if causal else mask)[0].transpose(0, 1).contiguous()


@varlen.register_fake
def _(q, k, v, *rest):
    return torch.empty_like(q)


def _backward(context, gradient):
    q, k, v, *rest = context.inputs
    with torch.enable_grad():
        leaves = [each.detach().requires_grad_() for each in (q, k, v)]
        gradients = torch.autograd.grad(varlen._init_fn(*leaves, *rest), leaves, gradient)
    return *gradients, *[None] * len(rest)


varlen.register_autograd(_backward, setup_context=lambda ctx, inputs, output: setattr(ctx, "inputs", inputs))


@pytest.fixture
def kernel(monkeypatch) -> None:
    def varlen_attn(*arguments, scale, window_size):
        assert window_size in ((-1, 0), (-1, -1))
        return varlen(*arguments, scale, window_size == (-1, 0))

    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", varlen_attn)


@pytest.fixture
def module(tiny_config) -> TranslationModule:
    model = replace(tiny_config, dropout=0.0)
    return TranslationModule(replace(composed("seed=5"), model=model), VOCAB).train()


def split_of(count: int) -> PreparedSplit:
    """Pairs of 0 to 9 source and 0 to 7 target tokens."""
    rng = np.random.default_rng(count)
    sides = ([rng.integers(4, VOCAB, rng.integers(longest)).tolist() for _ in range(count)] for longest in (10, 8))
    return PreparedSplit(Path(), "train", *map(Sentences.of, sides))


def chosen(*pairs: int, count: int = 1) -> MicroBatch:
    return MicroBatch(np.array(pairs, np.int64), 40, count)


def test_a_packed_batch_has_the_real_tokens_of_the_padded_one_in_order():
    split, pairs = split_of(6), chosen(4, 0, 5)
    plain = collate(split, pairs, 8)
    packed = without_padding(plain)
    assert isinstance(packed, PackedBatch)
    for name, starts, positions in (
        ("src", packed.src_starts, packed.src_positions),
        ("tgt_out", packed.tgt_starts, packed.tgt_positions),
    ):
        rows = [row[row != PAD_ID] for row in getattr(plain, name)]
        assert torch.equal(getattr(packed, name), torch.cat(rows)[None])
        assert starts.tolist() == np.cumsum([0, *map(len, rows)]).tolist()
        assert positions.tolist() == [[place for row in rows for place in range(len(row))]]
    assert torch.equal(packed.tgt_in, plain.tgt_in[plain.tgt_out != PAD_ID][None])
    for found, ids, real in zip(packed.few(), plain.few(), (plain.src, plain.tgt_out), strict=True):
        assert torch.equal(found, ids[:1, real[0] != PAD_ID])
    assert [int(each.max()) for each in packed.lengths] == [plain.src.size(1), plain.tgt_out.size(1)]
    assert [each.tolist() for each in packed.lengths] == [each.tolist() for each in plain.lengths]
    counts = [
        (one.number, one.n_tokens, one.n_src_tokens, one.step_tokens, one.micro_batches) for one in (plain, packed)
    ]
    assert counts[0] == counts[1]


def test_a_packed_batch_without_pairs_is_the_padded_one():
    assert type(without_padding(collate(split_of(3), chosen(), 1))) is Batch


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    ("compiled", "positions", "tied", "widths"),
    slow_but(
        [
            (False, "sinusoidal", "all", (8, 8)),
            (False, "learned", "none", (12, 8)),
            (False, "sinusoidal", "all", (4, 24)),
            (True, "learned", "all", (16, 16)),
            (True, "sinusoidal", "none", (4, 24)),
        ],
        product((False, True), ("sinusoidal", "learned"), ("all", "none"), [(8, 8), (12, 8), (4, 24), (16, 16)]),
    ),
)
def test_a_packed_step_has_the_loss_and_gradients_of_the_padded_one(module, compiled, positions, tied, widths):
    torch.compiler.reset()
    counters.clear()
    d_k, d_v = widths
    options = {"positions": positions, "max_positions": 400, "tie_embeddings": tied, "d_k": d_k, "d_v": d_v}
    model = replace(module.config.model, **options)
    packed, padded = (TranslationModule(replace(module.config, model=model), VOCAB).train() for _ in range(2))
    padded.load_state_dict(packed.state_dict())
    accelerate(packed.model, torch.device("cuda"))
    if compiled:
        compile_layers(packed.model, "eager")
    graphs = []
    for count in (5, 9, 3, 14):
        split, pairs = split_of(count), chosen(*range(count))
        found = []
        for each, make in ((packed, without_padding), (padded, lambda batch: batch)):
            each.trainer = SimpleNamespace(accumulate_grad_batches=1, world_size=1)
            each.zero_grad()
            loss = each.training_step(make(collate(split, pairs, 0)), 0)["loss"]
            loss.backward()
            found.append([loss.detach(), *(weight.grad.clone() for weight in each.parameters())])
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
        graphs.append(counters["stats"]["unique_graphs"])
    if compiled:
        assert counters["graph_break"] == {}
        assert graphs[-1] == graphs[1] <= 4, "lengths compile no more"


def test_packed_parts_are_one_micro_batch_where_a_device_takes_their_tokens():
    rng = np.random.default_rng(0)
    src, tgt = rng.integers(1, 60, 900), rng.integers(1, 50, 900)

    def plan(tokens: int, devices: int = 1, *, packed: bool = True) -> BatchPlan:
        settings = {"tokens_per_step": 2000, "parts": 4, "seed": 3, "devices": devices}
        return BatchPlan(src, tgt, **settings, max_tokens_per_device=tokens, packed=packed)

    assert [plan(tokens).micro_batches for tokens in (3000, 1200, 700, 400)] == [1, 2, 4, 8]
    assert [plan(3000, devices).micro_batches for devices in (1, 2, 3, 4, 8)] == [1, 2, 12, 4, 8]
    assert plan(3000, packed=False).micro_batches == 4
    whole, cut = plan(3000), plan(3000, packed=False)
    assert whole.padding.tolist() == [0] * len(whole.padding)
    for step in (0, 7, whole.steps_per_epoch):
        four = np.concatenate([cut.micro_batch(4 * step + place).pairs for place in range(4)])
        assert whole.micro_batch(step).pairs.tolist() == four.tolist()
        real = max(int(side[four].sum()) for side in (src, tgt))
        assert math.isclose(real, 2000, rel_tol=0.3)


@pytest.mark.parametrize(
    ("hardware", "options", "capability", "reason"),
    [
        (BF16, [], (8, 0), None),
        (BF16, ["trainer.packed=true"], (8, 0), None),
        (Hardware("gpu", "16-mixed"), [], (9, 0), None),
        (BF16, [], (7, 5), "compute capability 8.0"),
        (Hardware("cpu", "bf16-mixed"), [], (9, 0), "compute capability 8.0"),
        (Hardware("gpu", "32-true"), [], (9, 0), "precision"),
        (BF16, ["trainer.packed=false"], (8, 0), "trainer.packed"),
        (BF16, ["model.d_k=20", "model.d_v=32"], (8, 0), None),
        (BF16, ["model.d_v=264"], (8, 0), "at most 256"),
        (BF16, ["model.d_k=264"], (8, 0), "at most 256"),
        (BF16, ["model.attention_window=5"], (8, 0), "attention_window"),
        (BF16, ["model.attention_dropout=0.1"], (8, 0), "attention_dropout"),
    ],
)
def test_a_training_packs_where_the_kernel_computes_its_attention(monkeypatch, hardware, options, capability, reason):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    config = composed("model=base", *options)
    found = why_not_packed(config, hardware, Research())
    assert found is None if reason is None else reason in found
    if config.trainer.packed == "auto":
        asked = replace(config, trainer=replace(config.trainer, packed=True))
        with nullcontext() if reason is None else pytest.raises(ConfigError, match=r"trainer\.packed=true: .* set"):
            why_not_packed(asked, hardware, Research())


class Own(TranslationModule):
    pass


def test_code_of_an_extension_sees_rows_of_sentences_unless_told_otherwise(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    config, research = composed("model=base"), Research(module=Own)
    assert "extension" in (why_not_packed(config, BF16, research) or "")
    asked = replace(config, trainer=replace(config.trainer, packed=True))
    assert why_not_packed(asked, BF16, research) is None
    parts = replace(asked, model=replace(config.model, parts="own.py:123"))
    with pytest.raises(ConfigError, match="parts of an extension"):
        why_not_packed(parts, BF16, research)


@pytest.fixture
def packing(monkeypatch, kernel) -> None:
    """Trains as on a GPU, on a CPU."""
    monkeypatch.setattr("aiayn.training.prepare.why_not_packed", lambda *_: None)
    gpu = torch.device("cuda")
    monkeypatch.setattr("aiayn.training.module.accelerate", lambda model, device: accelerate(model, gpu))


@pytest.mark.usefixtures("packing")
def test_a_packed_training_takes_the_padded_one_s_steps_in_one_pass_and_resumes_to_the_bit(config, tmp_path):
    data = replace(config.data, max_tokens_per_device=20_000, micro_batches=None, num_workers=1)
    packed = replace(config, data=data, model=replace(config.model, dropout=0.0))
    whole = train(replace(packed, name="whole"), tmp_path)
    for steps in (5, 12):
        parts = train(replace(packed, name="parts", trainer=replace(packed.trainer, max_steps=steps)), tmp_path)
    assert weights(parts) == weights(whole)
    corpus = json.loads((whole / "corpus.json").read_text())
    assert (corpus["micro_batches"], corpus["padding"]) == (1, 0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aiayn.training.prepare.why_not_packed", lambda *_: "asked")
        padded = train(replace(packed, name="padded"), tmp_path)
    assert json.loads((padded / "corpus.json").read_text())["micro_batches"] == config.data.parts_per_step > 1
    assert losses(padded) == pytest.approx(losses(whole), rel=1e-4)


def weights(run: Path) -> dict[str, list[float]]:
    found = checkpoints.load(run / "checkpoints/last.ckpt").weights
    return {name: tensor.flatten().tolist() for name, tensor in found.items()}


def losses(run: Path) -> list[float]:
    return [record["train/loss"] for record in RunFolder(run).read_metrics() if "train/loss" in record]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "layers compiled, the loss in Triton; sentences packed"),
        (("trainer.compile=false",), "not compiled: trainer.compile=false; sentences packed"),
        (("trainer.packed=false", "trainer.compile=true"), "the loss in Triton; padded: trainer.packed=false"),
        (("model.d_model=256", "model.n_heads=4"), "not compiled: a narrow model"),
    ],
)
def test_the_log_says_what_a_gpu_does_and_what_not_and_why(monkeypatch, caplog, options, expected):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr("aiayn.hardware.missing_for_compiling", lambda: None)
    plan = SimpleNamespace(micro_batches=1, steps_per_epoch=9, padding=np.zeros(1))
    prepared = SimpleNamespace(train=range(99_000), tokenizer=SimpleNamespace(vocab_size=VOCAB))
    run = {"config": composed("model=base", *options), "plan": plan, "prepared": prepared, "research": Research()}
    with torch.device("meta"):
        module = TranslationModule(run["config"], VOCAB)
    with caplog.at_level("INFO"):
        log_start(SimpleNamespace(**run, folder=RunFolder(Path("run")), start_step=0, epoch_steps=9), module, BF16)
    assert any(expected in line for line in caplog.messages)
