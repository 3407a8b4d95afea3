"""Batches without padding against padded ones."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from applications import TWELVE_STEPS, composed, spare_the_pictures, text_in, write_pairs
from torch._dynamo.utils import counters
from torch.nn.attention import varlen

from aiayn.data.batch import Batch, shift_right
from aiayn.errors import ConfigError
from aiayn.hardware import Hardware
from aiayn.kernels.accelerate import accelerate
from aiayn.kernels.packed_attention import ALL, CAUSAL, plain_attention, varlen_attention
from aiayn.model.attention import attention
from aiayn.runs.run_folder import read_jsonl
from aiayn.token_ids import BOS_ID, EOS_ID, PAD_ID
from aiayn.training import run
from aiayn.training.module import TranslationModule
from aiayn.training.packed_batch import pack

VOCAB = 23
CPU, GPU = torch.device("cpu"), torch.device("cuda")
LENGTHS = [(3, 5), (7, 1), (1, 6), (7, 4)]  # of sources and targets, end marks included


def example(lengths: list[tuple[int, int]]) -> Batch:
    sides = []
    for side in zip(*lengths, strict=True):
        ids = torch.randint(4, VOCAB, (len(side), max(side)))
        for row, length in zip(ids, side, strict=True):
            row[length - 1], row[length:] = EOS_ID, PAD_ID
        sides.append(ids)
    src, tgt = sides
    counts = tuple(np.array(side) for side in zip(*lengths, strict=True))
    return Batch(0, src, shift_right(tgt), tgt, counts, step_tokens=40)


def made(config, **options) -> TranslationModule:
    torch.manual_seed(0)
    module = TranslationModule(replace(composed(), model=replace(config, dropout=0.0, **options)), VOCAB)
    with torch.no_grad():
        module.model.embedding.weight.mul_(3)
    return module.train()


def test_a_packed_batch_holds_every_real_token_once_and_in_order_and_no_padding():
    batch = example(LENGTHS)
    packed = pack(batch)
    for name, side, layout in (("src", 0, packed.src_layout), ("tgt_in", 1, packed.tgt_layout)):
        rows = [row[: lengths[side]] for row, lengths in zip(getattr(batch, name), LENGTHS, strict=True)]
        assert getattr(packed, name).tolist() == [torch.cat(rows).tolist()]
        assert layout.positions.tolist() == [at for lengths in LENGTHS for at in range(lengths[side])]
        assert layout.longest == max(lengths[side] for lengths in LENGTHS)
        assert layout.ends.dtype == torch.int32
    assert packed.src_layout.ends.tolist() == [0, 3, 10, 11, 18]
    assert packed.tgt_layout.ends.tolist() == [0, 5, 6, 12, 16]
    assert packed.tgt_out.tolist() == [batch.tgt_out[batch.tgt_out != PAD_ID].tolist()]
    assert (packed.tgt_in[0, packed.tgt_layout.ends[:-1].long()] == BOS_ID).all()
    assert (packed.n_tokens, packed.n_src_tokens, packed.step_tokens) == (batch.n_tokens, batch.n_src_tokens, 40)


@pytest.mark.parametrize("device", [CPU, GPU], ids=str)  # for whose padded batches the model is accelerated
@pytest.mark.parametrize(
    "options",
    [{}, {"attention_window": 4}, {"positions": "learned", "max_positions": 310}, {"d_k": 3, "d_v": 7}],
    ids=["paper", "window", "learned", "heads"],
)
def test_loss_scores_and_gradients_are_those_of_the_padded_batch(tiny_config, options, device):
    batch, results = example(LENGTHS), []
    for form in (batch, pack(batch)):
        module = made(tiny_config, **options)
        accelerate(module.model, device, packed=True)
        loss = module.training_loss(form)
        loss.backward()
        results.append([loss, module.evaluation_sums(form), *(weight.grad for weight in module.parameters())])
    for found, expected in zip(*reversed(results), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-5)


def test_no_sentence_sees_another(tiny_config):
    module, batch = made(tiny_config), example(LENGTHS)
    states = module.states(pack(batch))
    batch.src[1, :6] = batch.src[1, :6].flip(0)
    same = (module.states(pack(batch)) == states).all(-1)[0]
    assert same.tolist() == [True] * 5 + [False] + [True] * 10


def test_a_batch_without_pairs_weighs_nothing_and_has_gradients_for_all_ranks(tiny_config):
    row = [torch.tensor([[token]]) for token in (EOS_ID, BOS_ID, PAD_ID)]
    module = made(tiny_config)
    loss = module.training_loss(pack(Batch(0, *row, (np.empty(0), np.empty(0)), 40)))
    loss.backward()
    assert loss == 0
    assert all(weight.grad is not None and not weight.grad.any() for weight in module.parameters())


def test_a_training_without_padding_has_the_losses_and_translations_of_one_with_it(tmp_path, monkeypatch):
    """Through the data module, the Trainer, accumulation, validation and its searches; a CPU is refused elsewhere."""
    monkeypatch.setattr(run, "choose_hardware", lambda settings: Hardware("cpu", "32-true"))
    spare_the_pictures(monkeypatch)
    for seed, split in enumerate(("train", "val", "test")):
        write_pairs(tmp_path / split, 40 - 9 * seed, seed)
    curves = []
    for packed in ("false", "true"):
        options = [*TWELVE_STEPS, *text_in(tmp_path), f"trainer.packed_attention={packed}", f"name={packed}"]
        folder = run.train(composed(*options, "model.dropout=0", "trainer.precision=auto"), tmp_path)
        names = ("train/loss", "val/loss", "val/ppl", "val/accuracy", "val/bleu", "perf/padding")
        records = read_jsonl(folder / "metrics.jsonl")
        curves.append({name: {each["step"]: each[name] for each in records if name in each} for name in names})
    padding = [list(curve.pop("perf/padding").values()) for curve in curves]
    assert min(padding[0]) > 0
    assert padding[1] == [0] * 12
    assert curves[1] == {name: pytest.approx(values, rel=1e-4) for name, values in curves[0].items()}


def by_sentence(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, scale, window_size):
    """What torch's page says of `varlen_attn`, and what its kernel asks for."""
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    assert query.size(-1) == key.size(-1) == value.size(-1) <= 256
    assert query.size(-1) % 8 == 0
    assert all(x.stride(-1) == 1 for x in (query, key, value))
    assert max_q == cu_seq_q.diff().max()
    assert max_k == cu_seq_k.diff().max()
    left, right = (10**6 if reach < 0 else reach for reach in window_size)
    rows = []
    for i in range(len(cu_seq_q) - 1):
        (a, b), (c, d) = cu_seq_q[i : i + 2].tolist(), cu_seq_k[i : i + 2].tolist()
        q, k, v = (x.transpose(0, 1) for x in (query[a:b], key[c:d], value[c:d]))
        distance = torch.arange(d - c) - torch.arange(b - a)[:, None]
        q = q * (scale * q.size(-1) ** 0.5)
        rows.append(attention(q, k, v, (distance >= -left) & (distance <= right)).transpose(0, 1))
    return torch.cat(rows)


def heads_of(packed, d_k: int, d_v: int, same: bool, **kind) -> tuple:
    queries, keys = packed.tgt_layout, packed.tgt_layout if same else packed.src_layout
    total = len(keys.positions)
    q, k, v = ((len(queries.positions), d_k), (total, d_k), (total, d_v))
    # As `MultiHeadAttention` splits them: heads beside each other.
    return *(torch.randn(1, n, 3, d, **kind).transpose(1, 2) for n, d in (q, k, v)), queries, keys


@pytest.mark.parametrize(("d_k", "d_v"), [(8, 8), (5, 9), (64, 16)])
@pytest.mark.parametrize(("same", "window"), [(True, CAUSAL), (True, (2, 0)), (True, (2, 2)), (False, ALL)])
def test_the_kernels_arguments_describe_the_same_attention(monkeypatch, d_k, d_v, same, window):
    monkeypatch.setattr(varlen, "varlen_attn", by_sentence)
    inputs = heads_of(pack(example(LENGTHS)), d_k, d_v, same)
    torch.testing.assert_close(varlen_attention(*inputs, window), plain_attention(*inputs, window))


def test_torchs_operator_takes_these_arguments_and_has_gradients():
    """On tensors without contents: types and shapes are checked, nothing is computed."""
    packed, kind = pack(example(LENGTHS)), {"device": "meta", "dtype": torch.bfloat16, "requires_grad": True}
    *inputs, queries, keys = heads_of(packed, 5, 9, False, **kind)
    queries, keys = (replace(each, ends=each.ends.to("meta")) for each in (queries, keys))
    heads = varlen_attention(*inputs, queries, keys, ALL)
    assert (heads.shape, heads.dtype) == ((1, 3, 16, 9), torch.bfloat16)
    gradients = torch.autograd.grad(heads, inputs, torch.empty_like(heads))
    assert [x.shape for x in gradients] == [x.shape for x in inputs]


def test_compiled_layers_give_the_same_and_share_a_graph_for_all_lengths(tiny_config, monkeypatch):
    plain = made(tiny_config)
    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **options: compile_(function, backend="eager", **options))
    torch._dynamo.reset()
    counters.clear()
    config = replace(plain.config, trainer=replace(plain.config.trainer, compile=True))
    compiled = TranslationModule(config, VOCAB).train()
    compiled.load_state_dict(plain.state_dict())
    for module in (plain, compiled):
        accelerate(module.model, GPU, packed=True)
    for lengths in (LENGTHS, [(2, 3), (9, 8)], [(4, 4), (5, 2), (3, 9)]):
        batch = pack(example(lengths))
        losses = [module.training_loss(batch) for module in (plain, compiled)]
        torch.testing.assert_close(losses[1], losses[0])
    # A layer of each stack, and the loss.
    assert counters["stats"]["unique_graphs"] == 3
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention_dropout": 0.1}, "has no model.attention_dropout=0.1; set that to 0, or set trainer.packed"),
        ({"d_k": 257}, "heads are at most 256 wide, not model.d_k=257, model.d_v=5; set trainer.packed"),
        ({"parts": "x.py:12"}, "parts of an extension may need padded sentences; set trainer.packed"),
    ],
)
def test_a_model_that_cannot_be_packed_is_refused_in_one_line(tiny_config, options, message):
    model = made(tiny_config).model
    model.config = replace(tiny_config, d_v=5, **options)
    with pytest.raises(ConfigError) as error:
        accelerate(model, CPU, packed=True)
    assert f"trainer.packed_attention=true: {message}" in str(error.value)
