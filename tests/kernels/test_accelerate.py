"""Every faster form against the plain one."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from search.test_beam_search import SEARCH, SENTENCES, padded, search, transformer
from torch import nn

from aiayn.errors import ConfigError
from aiayn.hardware import has_bfloat16
from aiayn.kernels.accelerate import accelerate
from aiayn.kernels.attention import (
    JoinedSelfAttention,
    JointAttention,
    cpu_attention,
    fused_attention,
    fused_causal_attention,
    softmax,
)
from aiayn.kernels.cache import GPUCache, PreallocatedCache, least_keys
from aiayn.kernels.masks import AlignedBiases, Biases
from aiayn.model.attention import MultiHeadAttention, attention
from aiayn.model.layers import Parts, multi_head_attention
from aiayn.model.masks import Masks
from aiayn.model.transformer import Transformer
from aiayn.token_ids import BOS_ID

CPU, GPU = torch.device("cpu"), torch.device("cuda")
VOCAB, BEAMS = 17, 4


@pytest.fixture
def plain(tiny_config) -> Transformer:
    model = Transformer(tiny_config, VOCAB).eval()
    with torch.no_grad():
        model.embedding.weight.mul_(3)
    return model


def example() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """src (3, 6), tgt_in (3, 7) and src_mask."""
    real = torch.arange(6) < torch.tensor([6, 2, 4])[:, None]
    return torch.randint(3, VOCAB, (3, 6)) * real, torch.randint(3, VOCAB, (3, 7)), real[:, None, None]


# The forms for a GPU are portable torch, too.
@pytest.mark.parametrize("device", [CPU, GPU], ids=str)
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("training", [False, True])
def test_an_accelerated_model_has_the_plain_models_logits_and_gradients(tiny_config, device, window, training):
    config = replace(tiny_config, attention_window=window, dropout=0.0)
    plain = Transformer(config, VOCAB).train(training)
    fast = accelerate(copy.deepcopy(plain), device)
    assert isinstance(fast.decoder[1].cross_attention, JointAttention)
    assert fast.state_dict().keys() == plain.state_dict().keys()
    inputs, results = example(), []
    for model in (plain, fast):
        logits = model(*inputs)
        gradients = torch.autograd.grad(logits.square().sum(), list(model.parameters()))
        results.append((logits, *gradients))
    for found, expected in zip(*reversed(results), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", [CPU, GPU], ids=str)
@pytest.mark.parametrize("beams", [1, SEARCH.beam_size])
def test_a_model_that_only_translates_has_the_plain_models_logits_and_beams(device, beams):
    config = replace(SEARCH, beam_size=beams)
    plain = transformer(41, seed=3)
    fast = accelerate(copy.deepcopy(plain), device, "float32")
    assert isinstance(fast.encoder[0].self_attention, JoinedSelfAttention)
    src, mask = padded(SENTENCES)
    tgt_in = torch.tensor([[BOS_ID, 7, 5, 20]] * len(SENTENCES))
    with torch.inference_mode():
        torch.testing.assert_close(fast(src, tgt_in, mask), plain(src, tgt_in, mask), rtol=0, atol=1e-5)
    for found, expected in zip(search(fast, SENTENCES, config), search(plain, SENTENCES, config), strict=True):
        assert [each.tokens for each in found] == [each.tokens for each in expected]
        assert [each.score for each in found] == pytest.approx([each.score for each in expected], abs=1e-5)


def test_int8_is_refused_on_a_gpu(plain):
    with pytest.raises(ConfigError, match="precision=int8 is for CPUs"):
        accelerate(plain, GPU, "int8")


def test_accelerating_twice_changes_nothing(plain):
    names = [(name, type(each)) for name, each in accelerate(plain, CPU).named_modules()]
    assert [(name, type(each)) for name, each in accelerate(plain, CPU).named_modules()] == names


def test_dropout_and_the_mode_of_a_model_stay_as_they_are(tiny_config):
    model = accelerate(Transformer(tiny_config, VOCAB).eval(), CPU)
    assert not any(each.training for each in model.modules())
    assert not any(isinstance(each, nn.Dropout) for each in model.modules())
    assert {each.p for each in model.modules() if hasattr(each, "p")} == {tiny_config.dropout}


class ReversedKeys(MultiHeadAttention):
    """An extension's projections."""

    def project(self, x, context, position=None):
        q, k, v = super().project(x, context, position)
        return q, -k, v


class OwnAttention(MultiHeadAttention):
    """An extension's equation (1)."""

    def __init__(self, *sizes, dropout=0.0):
        super().__init__(*sizes, dropout)
        self.attention = self.uniform

    def uniform(self, q, k, v, mask, p_drop=0.0):
        assert mask is None or mask.dtype == torch.bool
        return attention(q * 0, k, v, mask)


@pytest.mark.parametrize("own", [ReversedKeys, OwnAttention])
@pytest.mark.parametrize("precision", [None, "float32"])
def test_parts_of_an_extension_keep_their_meaning(tiny_config, own, precision):
    def made(config):
        return own(config.d_model, config.n_heads, config.d_k, config.d_v)

    plain = Transformer(tiny_config, VOCAB, Parts(self_attention=made)).eval()
    fast = accelerate(copy.deepcopy(plain), CPU, precision)
    assert type(fast.encoder[0].self_attention) is own
    with torch.inference_mode():
        expected = plain(*example_of(3))
        torch.testing.assert_close(fast(*example_of(3)), expected, rtol=0, atol=1e-5)
        usual = Transformer(tiny_config, VOCAB, Parts(self_attention=multi_head_attention)).eval()
        usual.load_state_dict(plain.state_dict())
        assert not torch.allclose(usual(*example_of(3)), expected, atol=1e-3)


def example_of(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(seed)
    return example()


def random_mask(*shape: int) -> torch.Tensor:
    mask = torch.rand(shape) < 0.6
    mask[..., 0] = True
    return mask


@pytest.mark.parametrize("form", [cpu_attention, fused_attention])
def test_attention_with_a_bias_is_equation_1_with_the_mask(form):
    q, k, v = (torch.randn(2, 3, length, d) for length, d in ((4, 6), (5, 6), (5, 7)))
    mask = random_mask(2, 1, 4, 5)
    torch.testing.assert_close(form(q, k, v, Biases().bias(mask, q)), attention(q, k, v, mask))
    torch.testing.assert_close(form(q, k, v, None), attention(q, k, v, None))


@pytest.mark.parametrize("width", [1, 6, 15, 16, 17])
def test_softmax_of_short_rows_is_that_of_equation_1_with_its_gradient(width):
    scores = torch.randn(2, 3, 5, width, requires_grad=True)
    bias = torch.zeros(5, width).masked_fill(torch.rand(5, width) < 0.4, -math.inf)
    bias[:, 0] = 0
    weights, wanted = softmax(scores + bias), (scores + bias).softmax(-1)
    torch.testing.assert_close(weights, wanted)
    upstream = torch.randn(weights.shape)
    found, expected = (torch.autograd.grad(each, scores, upstream)[0] for each in (weights, wanted))
    torch.testing.assert_close(found, expected)


def test_causal_attention_needs_no_mask():
    q, k, v = (torch.randn(2, 3, 5, d) for d in (6, 6, 7))
    causal = Masks().decoder(torch.zeros(2, 5, 12))
    torch.testing.assert_close(fused_causal_attention(q, k, v, None), attention(q, k, v, causal))
    assert AlignedBiases().decoder(torch.zeros(2, 5, 12)) is None


@pytest.mark.parametrize("size", [1, 15, 16, 37])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_bias_for_a_gpu_gives_the_same_attention_in_rows_of_whole_sixteens(size, dtype):
    q, k, v = (torch.randn(2, 3, length, 8, dtype=dtype) for length in (5, size, size))
    mask = random_mask(2, 1, 5, size)
    bias = AlignedBiases().bias(mask, q)
    assert (bias.shape, bias.dtype) == (mask.shape, dtype)
    assert all(step % 16 == 0 for step in bias.stride()[:-1])
    found = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    expected = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    torch.testing.assert_close(found, expected)


def test_a_bias_for_a_gpu_has_the_data_type_of_products_under_autocast():
    with torch.autocast("cpu", torch.bfloat16):
        assert AlignedBiases().bias(random_mask(2, 1, 4, 5), torch.zeros(2, 4, 6)).dtype == torch.bfloat16


@torch.no_grad()
def test_each_mask_is_made_once_for_all_layers(tiny_config, monkeypatch):
    made = []
    plain = Biases.bias
    monkeypatch.setattr(Biases, "bias", lambda self, mask, x: (made.append(tuple(mask.shape)), plain(self, mask, x))[1])
    model = accelerate(Transformer(replace(tiny_config, n_layers=3), VOCAB).eval(), CPU)
    src, tgt_in, mask = example()
    memory = model.encode(src, mask)
    model.decode(tgt_in, memory, mask)
    assert made == [(3, 1, 1, 6), (7, 7), (3, 1, 1, 6)]
    made.clear()
    cache = model.init_cache(memory, mask, BEAMS)
    for beams in (1, *[BEAMS] * 4):
        model.step(torch.ones(3, beams, dtype=torch.long), cache)
        cache.reorder(torch.zeros(3, BEAMS, dtype=torch.long))
    keys = least_keys(BEAMS, [(torch.empty(3, 3, 6, 5), torch.empty(3, 3, 6, 7))])
    assert keys > 6
    assert made == [(3, 1, 1, keys)], "padded, because products of fewer keys are slow"


@torch.no_grad()
def test_room_that_is_not_used_yet_is_never_attended_to(plain):
    accelerate(plain, CPU)
    src, _, mask = example()
    clean, poisoned = (plain.init_cache(plain.encode(src, mask), mask, BEAMS) for _ in range(2))
    for beams in (1, BEAMS, BEAMS):
        tokens = torch.randint(3, VOCAB, (3, beams))
        assert torch.equal(plain.step(tokens, clean), plain.step(tokens, poisoned))
        for layer in poisoned.layers:
            layer.self_k[:, :, layer.used :], layer.self_v[:, :, layer.used :] = 1e6, -1e6
        for cache in (clean, poisoned):
            cache.reorder(torch.tensor([[1, 1, 0, 3]] * 3) % beams)


@torch.no_grad()
@pytest.mark.parametrize("device", [CPU, GPU], ids=str)
def test_a_greedy_search_keeps_its_keys_when_the_cache_grows_and_sentences_leave(plain, device):
    src, _, mask = example()
    tokens = torch.randint(3, VOCAB, (3, GPUCache.growth + 20))
    whole = plain.decode(tokens, plain.encode(src, mask), mask)
    model = accelerate(copy.deepcopy(plain), device, "float32")
    cache, staying = model.init_cache(model.encode(src, mask), mask, 1), torch.arange(3)
    for position in range(tokens.size(1)):
        if position in (7, 21):  # between growths
            which = torch.tensor([0, 2] if position == 7 else [1])
            cache.select(which)
            staying = staying[which]
        newest = tokens[staying, position : position + 1]
        found = model.step(newest, cache)[:, 0]
        torch.testing.assert_close(found, whole[staying, position], rtol=1e-4, atol=1e-4)
    assert cache.layers[0].self_k.size(2) > max(GPUCache.growth, PreallocatedCache.growth)


@torch.no_grad()
def test_a_gpus_cache_grows_in_larger_steps(plain):
    src, _, mask = example()
    tokens = torch.randint(1, VOCAB, (PreallocatedCache.growth + 3, 3, BEAMS))
    states = []
    for device in (CPU, GPU):
        model = accelerate(copy.deepcopy(plain), device)
        cache = model.init_cache(model.encode(src, mask), mask, BEAMS)
        model.step(tokens[0, :, :1], cache)
        cache.reorder(torch.zeros(3, BEAMS, dtype=torch.long))
        states.append(torch.stack([model.step(newest, cache).clone() for newest in tokens[1:]]))
        on_gpu, layer = isinstance(cache, GPUCache), cache.layers[0]
        assert on_gpu == (device == GPU)
        assert layer.cross_k.is_contiguous()
        assert layer.self_k.size(2) == BEAMS * (GPUCache.growth if on_gpu else 2 * PreallocatedCache.growth)
        assert not on_gpu or cache.extend().stride(2) % 16 == 0
    torch.testing.assert_close(*states)


@torch.no_grad()
@pytest.mark.parametrize("precision", ["float32", "int8", *["bfloat16"] * has_bfloat16(CPU)])
def test_a_search_on_a_cpu_attends_in_float32_in_any_precision(plain, precision):
    """For other types oneDNN compiles and keeps a kernel for every number of keys."""
    src, _, mask = example()
    whole = plain.decode(torch.tensor([[1, 7, 9]] * 3), plain.encode(src, mask), mask)
    model = accelerate(copy.deepcopy(plain), CPU, precision)
    cache = model.init_cache(model.encode(src, mask), mask, BEAMS)
    for newest, beams in ((1, 1), (7, BEAMS), (9, BEAMS)):
        states = model.step(torch.full((3, beams), newest), cache)
        cache.reorder(torch.arange(BEAMS).expand(3, -1) % beams)
    layer = cache.layers[1]
    assert {x.dtype for x in (layer.cross_k, layer.cross_v, layer.self_k, layer.self_v)} == {torch.float32}
    tolerance = {"float32": 1e-5, "bfloat16": 0.06, "int8": 0.1}[precision]
    torch.testing.assert_close(states.float(), whole[:, -1:].expand_as(states), rtol=0, atol=tolerance)


@torch.no_grad()
def test_slots_that_no_beam_attends_to_are_dropped(plain):
    model = accelerate(plain, CPU)
    src, _, mask = example()
    cache = model.init_cache(model.encode(src, mask), mask, BEAMS)
    for beams in (1, *[BEAMS] * 5):
        model.step(torch.randint(3, VOCAB, (3, beams)), cache)
        cache.reorder(torch.zeros(3, BEAMS, dtype=torch.long))  # all beams continue the first
    assert cache.used == 1 + 5 * BEAMS
    cache.select(torch.tensor([2, 0]))
    assert cache.used == cache.layers[0].used == 6
    assert cache.layers[0].self_k.shape[:2] == (2, 3)
