"""Decoding one position at a time must be decoding all of them at once, whatever beams and sentences do meanwhile."""

import random
from dataclasses import replace

import pytest
import torch

from aiayn.kernels.accelerate import accelerate
from aiayn.model.transformer import Transformer

VOCAB, LENGTHS, BEAMS = 17, [5, 2, 4], 4


@pytest.fixture
def model(tiny_config) -> Transformer:
    return Transformer(tiny_config, VOCAB).eval()


@pytest.fixture
def source() -> tuple[torch.Tensor, torch.Tensor]:
    """Three sentences of different lengths, and their mask."""
    real = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    return torch.randint(3, VOCAB, real.shape) * real, real[:, None, None, :]


def started(model, source):
    src, mask = source
    return model.init_cache(model.encode(src, mask), mask, BEAMS)


def recomputed(model, source, sentences, prefixes):
    """Logits after each beam's whole prefix, by full forward passes: (N, K, V)."""
    src, mask = source
    rows = [
        torch.stack([model(src[[n]], torch.tensor([prefix]), mask[[n]])[0, -1] for prefix in beams])
        for n, beams in zip(sentences, prefixes, strict=True)
    ]
    return torch.stack(rows)


@torch.no_grad()
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("window", [None, 6])
@pytest.mark.parametrize("accelerated", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_steps_equal_full_recomputation_while_beams_reorder_and_sentences_leave(
    tiny_config, source, positions, window, accelerated, seed
):
    torch.manual_seed(seed)
    draw = random.Random(seed)
    model = Transformer(replace(tiny_config, positions=positions, attention_window=window), VOCAB).eval()
    if accelerated:
        accelerate(model, torch.device("cpu"))
    cache = started(model, source)
    sentences, prefixes = [0, 1, 2], [[[] for _ in range(BEAMS)] for _ in range(3)]
    for t in range(11):
        tokens = torch.randint(1, VOCAB, (len(sentences), BEAMS))
        prefixes = [
            [[*prefix, token] for prefix, token in zip(beams, row, strict=True)]
            for beams, row in zip(prefixes, tokens.tolist(), strict=True)
        ]
        logits = model.project(model.step(tokens, cache))
        assert cache.length == t + 1
        torch.testing.assert_close(logits, recomputed(model, source, sentences, prefixes), rtol=0, atol=1e-5)
        parents = [[draw.randrange(BEAMS) for _ in range(BEAMS)] for _ in sentences]
        cache.reorder(torch.tensor(parents))
        prefixes = [[beams[k] for k in row] for beams, row in zip(prefixes, parents, strict=True)]
        if t in (2, 5):  # one sentence leaves, the others change places
            keep = draw.sample(range(len(sentences)), len(sentences) - 1)
            cache.select(torch.tensor(keep))
            sentences, prefixes = [sentences[i] for i in keep], [prefixes[i] for i in keep]
    assert len(sentences) == 1


@torch.no_grad()
def test_the_source_is_kept_once_per_sentence_and_not_per_beam(model, source):
    cache = started(model, source)
    for _ in range(2):
        model.step(torch.ones(3, BEAMS, dtype=torch.long), cache)
    for layer in cache.layers:
        assert (layer.cross_k.shape, layer.cross_v.shape) == ((3, 3, 5, 5), (3, 3, 5, 7))
        assert (layer.self_k.shape, layer.self_v.shape) == ((3, 3, 2 * BEAMS, 5), (3, 3, 2 * BEAMS, 7))
    before = cache.layers[0].cross_k
    cache.reorder(torch.zeros(3, BEAMS, dtype=torch.long))
    assert cache.layers[0].cross_k is before, "reordering beams leaves the source where it is"
    cache.select(torch.tensor([2, 0]))
    assert torch.equal(cache.layers[0].cross_k, before[[2, 0]])
    assert cache.src_mask.tolist() == source[1][[2, 0]].tolist()
    assert cache.layers[0].self_k.size(0) == 2


@torch.no_grad()
def test_beams_of_different_sentences_never_mix(model, source):
    tokens = torch.randint(3, VOCAB, (3, BEAMS))
    together = started(model, source)
    states = model.step(tokens, together)
    for n in range(3):
        alone = model.init_cache(model.encode(source[0][[n]], source[1][[n]]), source[1][[n]], BEAMS)
        torch.testing.assert_close(model.step(tokens[[n]], alone), states[[n]], rtol=0, atol=1e-5)
