"""Section 4's restricted self-attention: a window around every position, with ordinary masks and with block masks."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from aiayn.kernels import windowed_attention
from aiayn.kernels.accelerate import accelerate
from aiayn.kernels.masks import GPUMasks
from aiayn.kernels.windowed_attention import block_attention, fused_block_attention, window_mask
from aiayn.model.attention import attention_weights
from aiayn.model.masks import Masks
from aiayn.model.transformer import Transformer

VOCAB = 17


@pytest.fixture(params=["plain", "whole", "blocks"])
def form(request, monkeypatch) -> str:
    """Plain masks, whole ones for a GPU, or always blocks, of at least 2 positions, at the lengths of a test."""
    monkeypatch.setattr(windowed_attention, "MIN_BLOCK_SIZE", 2)
    monkeypatch.setattr(windowed_attention, "MIN_BLOCKS", 0 if request.param == "blocks" else 10**9)
    return request.param


def allowed(length: int, window: int, causal: bool, real: Tensor | None) -> Tensor:
    """The definition, one pair of positions at a time: (B, 1, T, T)."""
    batch = 1 if real is None else len(real)
    mask = torch.zeros(batch, 1, length, length, dtype=torch.bool)
    for b in range(batch):
        for i in range(length):
            for j in range(length):
                near = -(window // 2) <= j - i <= (0 if causal else window // 2)
                mask[b, 0, i, j] = (near and (real is None or bool(real[b, j]))) or i == j
    return mask


def states(length: int) -> Tensor:
    """What masks are made for."""
    return torch.zeros(1, length, 4)


def real_positions(*lengths: int) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


@pytest.mark.parametrize("window", [1, 2, 3, 5, 8, 40])
def test_a_window_reaches_half_its_size_to_each_side_or_back_only_and_never_to_padding(window):
    real = real_positions(9, 4, 1)
    masks = Masks(window)
    assert torch.equal(masks.encoder(real[:, None, None], states(9)), allowed(9, window, False, real))
    assert torch.equal(masks.decoder(states(9)), allowed(9, window, True, None)[0, 0])


@given(st.integers(1, 23), st.integers(1, 12), st.booleans(), st.integers(1, 5), st.integers(0, 2**31))
def test_attention_in_blocks_equals_attention_with_the_whole_mask(length, window, causal, block, seed):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, length + 1, (3,), generator=generator).tolist()
    real = None if causal else real_positions(*lengths, length)[:3]
    leaves = [torch.randn(3, 2, length, d, generator=generator, requires_grad=True) for d in (5, 5, 7)]
    sample = torch.randn(3, 2, length, 7, generator=generator)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windowed_attention, "MIN_BLOCK_SIZE", block)
        mask = window_mask(length, window // 2, causal=causal, real=real)
    assert mask.dim() == 5
    whole = allowed(length, window, causal, real)
    outputs = [
        attention_weights(*leaves[:2], whole) @ leaves[2],
        block_attention(*leaves, mask),
        fused_block_attention(*leaves, GPUMasks().bias(mask, leaves[0])),
    ]
    expected, *results = [(output, *torch.autograd.grad((output * sample).sum(), leaves)) for output in outputs]
    for found in results:
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_the_mask_of_a_long_sequence_grows_with_the_sequence_and_not_with_its_square():
    sizes = [window_mask(length, 32, causal=True).numel() for length in (1024, 4096)]
    assert sizes[1] == 4 * sizes[0] < 4096 * 100


def trained_with(window: int | None, config, form: str) -> Transformer:
    torch.manual_seed(5)
    model = Transformer(replace(config, attention_window=window), VOCAB).eval()
    with torch.no_grad():
        model.embedding.weight.mul_(3)
    return model if form == "plain" else accelerate(model, torch.device("cuda" if form == "whole" else "cpu"))


def example() -> tuple[Tensor, Tensor, Tensor]:
    """src (3, 9), tgt_in (3, 11) and src_mask."""
    real = real_positions(9, 2, 6)
    return torch.randint(3, VOCAB, (3, 9)) * real, torch.randint(3, VOCAB, (3, 11)), real[:, None, None]


@torch.no_grad()
def test_what_lies_beyond_the_reach_of_all_layers_changes_nothing(tiny_config, form):
    src, tgt_in, mask = example()
    model = trained_with(4, tiny_config, form)  # two layers reach four positions to each side
    changed = src.clone()
    changed[0, 0] = 3 + (changed[0, 0] - 2) % (VOCAB - 3)
    memory, other = model.encode(src, mask), model.encode(changed, mask)
    differs = (memory != other).any(-1)
    assert differs[0].tolist() == [True] * 5 + [False] * 4
    assert not differs[1:].any()
    changed = tgt_in.clone()
    changed[:, 2] = 3 + (changed[:, 2] - 2) % (VOCAB - 3)
    differs = (model.decode(tgt_in, memory, mask) != model.decode(changed, memory, mask)).any(-1)
    assert differs.tolist() == [[False] * 2 + [True] * 5 + [False] * 4] * 3


@torch.no_grad()
@pytest.mark.parametrize("window", [1, 4, 7])
def test_the_amount_of_padding_matters_to_no_real_position_and_no_padded_one_becomes_nan(tiny_config, form, window):
    src, tgt_in, mask = example()
    model = trained_with(window, tiny_config, form)
    logits = model(src, tgt_in, mask)
    wider = model(*(torch.nn.functional.pad(x, (0, 13)) for x in (src, tgt_in, mask)))
    assert wider.isfinite().all()
    torch.testing.assert_close(wider[:, :11], logits, rtol=0, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("window", [1, 4, 7, 30])
def test_cached_steps_equal_decoding_all_positions_at_once(tiny_config, form, window):
    src, tgt_in, mask = example()
    model = trained_with(window, tiny_config, form)
    logits = model(src, tgt_in, mask)
    cache = model.init_cache(model.encode(src, mask), mask, 1)
    for t in range(11):
        found = model.project(model.step(tgt_in[:, [t]], cache))[:, 0]
        torch.testing.assert_close(found, logits[:, t], rtol=0, atol=1e-5)
