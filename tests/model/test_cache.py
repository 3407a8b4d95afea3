"""Decoding one position at a time must be decoding all of them at once, whatever beams and
sentences do meanwhile.
"""

import copy
import random
from dataclasses import replace

import pytest
import torch

from aiayn.kernels.accelerate import accelerate
from aiayn.model.transformer import Transformer
from aiayn.token_ids import BOS_ID

VOCAB, LENGTHS, BEAMS = 17, [5, 2, 4], 4


@pytest.fixture
def model(tiny_config) -> Transformer:
    return Transformer(tiny_config, VOCAB).eval()


@pytest.fixture
def source() -> tuple[torch.Tensor, torch.Tensor]:
    """Three sentences of different lengths, and their mask."""
    real = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    return torch.randint(3, VOCAB, real.shape) * real, real[:, None, None, :]


def started(model, source, with_beams=False):
    """A cache after no position, or after the first, where there is one beam, with all beams
    continuing it.
    """
    src, mask = source
    cache = model.init_cache(model.encode(src, mask), mask, BEAMS)
    if with_beams:
        model.step(torch.full((len(src), 1), BOS_ID), cache)
        cache.reorder(torch.zeros(len(src), BEAMS, dtype=torch.long))
    return cache


def recomputed(model, source, sentences, prefixes):
    """Logits after each beam's whole prefix, by full forward passes: (N, K, V)."""
    src, mask = source
    rows = [
        torch.stack([model(src[[n]], torch.tensor([prefix]), mask[[n]])[0, -1] for prefix in beams])
        for n, beams in zip(sentences, prefixes, strict=True)
    ]
    return torch.stack(rows)


@pytest.mark.quick(
    "0-no-None-sinusoidal", "0-no-6-learned", "0-to train-6-sinus", "0-to translate-None-learned"
)
@torch.no_grad()
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("window", [None, 6])
@pytest.mark.parametrize("accelerated", ["no", "to train", "to translate"])
@pytest.mark.parametrize("seed", range(2))
def test_steps_equal_full_recomputation_while_beams_reorder_and_sentences_leave(
    tiny_config, source, positions, window, accelerated, seed
):
    torch.manual_seed(seed)
    draw = random.Random(seed)
    model = Transformer(
        replace(tiny_config, positions=positions, attention_window=window), VOCAB
    ).eval()
    plain = copy.deepcopy(model)
    if accelerated != "no":
        accelerate(model, torch.device("cpu"), translates=accelerated == "to translate")
    cache = started(model, source)
    sentences, prefixes = [0, 1, 2], [[[]] for _ in range(3)]
    for t in range(11):
        beams = len(prefixes[0])
        tokens = torch.randint(1, VOCAB, (len(sentences), beams))
        prefixes = [
            [[*prefix, token] for prefix, token in zip(hypotheses, row, strict=True)]
            for hypotheses, row in zip(prefixes, tokens.tolist(), strict=True)
        ]
        logits = model.project(model.step(tokens, cache))
        assert cache.length == t + 1
        torch.testing.assert_close(
            logits, recomputed(plain, source, sentences, prefixes), rtol=0, atol=1e-5
        )
        parents = [[draw.randrange(beams) for _ in range(BEAMS)] for _ in sentences]
        cache.reorder(torch.tensor(parents))
        prefixes = [
            [hypotheses[k] for k in row] for hypotheses, row in zip(prefixes, parents, strict=True)
        ]
        if t in (2, 5):  # one sentence leaves, the others change places
            keep = draw.sample(range(len(sentences)), len(sentences) - 1)
            cache.select(torch.tensor(keep))
            sentences, prefixes = [sentences[i] for i in keep], [prefixes[i] for i in keep]
    assert len(sentences) == 1


@torch.no_grad()
@pytest.mark.parametrize("accelerated", ["no", "to train", "to translate"])
def test_the_steps_of_a_single_beam_equal_full_recomputation(model, source, accelerated):
    plain = copy.deepcopy(model)
    if accelerated != "no":
        accelerate(model, torch.device("cpu"), translates=accelerated == "to translate")
    src, mask = source
    steps = 20
    tgt_in = torch.randint(1, VOCAB, (3, steps))
    cache = model.init_cache(model.encode(src, mask), mask, 1)
    states = torch.cat([model.step(tgt_in[:, [t]], cache) for t in range(steps)], 1)
    expected = plain.decode(tgt_in, plain.encode(src, mask), mask)
    torch.testing.assert_close(states, expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_the_source_is_kept_once_per_sentence_and_not_per_beam(model, source):
    cache = started(model, source)
    for beams in (1, BEAMS):
        model.step(torch.ones(3, beams, dtype=torch.long), cache)
        cache.reorder(torch.zeros(3, BEAMS, dtype=torch.long))
    for layer in cache.layers:
        source_cache, own_cache = layer.cross_attention, layer.self_attention
        assert (source_cache.k.shape, source_cache.v.shape) == ((3, 3, 5, 5), (3, 3, 5, 7))
        assert (own_cache.k.shape, own_cache.v.shape) == (
            (3, 3, 1 + BEAMS, 5),
            (3, 3, 1 + BEAMS, 7),
        )
    before = cache.layers[0].cross_attention.k
    cache.reorder(torch.zeros(3, BEAMS, dtype=torch.long))
    assert cache.layers[0].cross_attention.k is before, (
        "reordering beams leaves the source where it is"
    )
    cache.select(torch.tensor([2, 0]))
    assert torch.equal(cache.layers[0].cross_attention.k, before[[2, 0]])
    assert cache.src_mask.tolist() == source[1][[2, 0]].tolist()
    assert cache.layers[0].self_attention.k.size(0) == 2


@torch.no_grad()
def test_beams_of_different_sentences_never_mix(model, source):
    tokens = torch.randint(3, VOCAB, (3, BEAMS))
    states = model.step(tokens, started(model, source, with_beams=True))
    for n in range(3):
        alone = started(model, (source[0][[n]], source[1][[n]]), with_beams=True)
        torch.testing.assert_close(model.step(tokens[[n]], alone), states[[n]], rtol=0, atol=1e-5)
