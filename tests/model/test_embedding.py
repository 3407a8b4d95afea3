"""Sections 3.4 and 3.5."""

import math
from dataclasses import replace

import pytest
import torch

from aiayn.model.embedding import (
    LearnedPositions,
    SharedEmbedding,
    SinusoidalPositions,
    TiedOutput,
    sinusoids,
)
from aiayn.model.transformer import Transformer


@pytest.mark.parametrize(
    ("d_model", "positions"), [(2, range(50)), (6, range(7)), (512, (0, 1, 255, 5000, 20_000))]
)
def test_sinusoids_are_the_closed_form_at_any_length(d_model, positions):
    table = sinusoids(max(positions) + 1, d_model)
    assert table.shape == (max(positions) + 1, d_model)
    for position in positions:
        expected = []
        for i in range(d_model // 2):
            angle = position / 10000 ** (2 * i / d_model)
            expected += [math.sin(angle), math.cos(angle)]  # even and odd columns
        torch.testing.assert_close(
            table[position].double(), torch.tensor(expected).double(), rtol=0, atol=1e-7
        )


@pytest.mark.parametrize(
    ("start", "length"), [(0, 1024), (0, 1025), (1024, 1), (1100, 5), (10_000, 3)]
)
def test_sinusoidal_positions_grow_with_the_longest_sentence_and_keep_their_values(start, length):
    positions = SinusoidalPositions(6)
    before = positions(0, 20).clone()
    assert torch.equal(positions(start, length), sinusoids(start + length, 6)[start:])
    assert torch.equal(positions(0, 20), before)
    assert positions.state_dict() == {}, "they are computed, not stored"


def test_a_table_that_grew_during_inference_still_serves_training():
    positions = SinusoidalPositions(6)
    with torch.inference_mode():
        positions(0, 600)
    x = torch.ones(600, 6, requires_grad=True)
    (x + positions(0, 600)).square().sum().backward()
    torch.testing.assert_close(x.grad, 2 * (1 + sinusoids(600, 6)))


def test_learned_positions_end_with_their_table():
    positions = LearnedPositions(9, 6)
    torch.nn.init.normal_(positions.table)
    assert torch.equal(positions(2, 7), positions.table[2:9])
    for start, length in ((0, 10), (9, 1), (5, 5)):
        with pytest.raises(
            ValueError, match=r"position 10 is beyond the 9 learned ones \(model.max_positions\)"
        ):
            positions(start, length)


def test_embeddings_are_scaled_by_the_root_of_d_model_and_outputs_are_not():
    embedding = SharedEmbedding(11, 6)
    torch.nn.init.normal_(embedding.weight)
    ids = torch.tensor([[3, 10, 0], [7, 3, 5]])
    torch.testing.assert_close(embedding(ids), embedding.weight[ids] * math.sqrt(6))
    states = torch.randn(2, 3, 6)
    expected = torch.stack([states @ row for row in embedding.weight], dim=-1)
    torch.testing.assert_close(TiedOutput(embedding)(states), expected)


def test_source_target_and_output_share_one_matrix(tiny_config):
    model = Transformer(tiny_config, vocab_size=17).eval()
    with_vocabulary_rows = [
        name for name, p in model.state_dict(keep_vars=True).items() if 17 in p.shape
    ]
    assert with_vocabulary_rows == ["embedding.weight"]
    # Ids 5, 6 and 7 appear as a source, as a target, and nowhere: each of the three uses gives a
    # gradient.
    logits = model(
        torch.tensor([[5, 2]]), torch.tensor([[1, 6]]), torch.ones(1, 1, 1, 2, dtype=torch.bool)
    )
    gradient_of_output, *_ = torch.autograd.grad(
        logits[..., 7].sum(), model.embedding.weight, retain_graph=True
    )
    assert all(gradient_of_output[token].abs().sum() > 0 for token in (5, 6, 7))
    assert gradient_of_output[8].abs().sum() == 0


@pytest.mark.parametrize("side", ["src_positions", "tgt_positions"])
def test_each_side_has_learned_positions_of_its_own_which_reach_the_output(side, tiny_config):
    model = Transformer(replace(tiny_config, positions="learned", dropout=0.0), vocab_size=17)
    src, tgt_in = torch.tensor([[5, 4, 2]]), torch.tensor([[1, 6]])
    mask = torch.ones(1, 1, 1, 3, dtype=torch.bool)
    table = getattr(model, side).table
    assert table.shape == (64, 12)
    before = model(src, tgt_in, mask)
    with torch.no_grad():
        table[1] += torch.randn(12)
    assert not torch.allclose(model(src, tgt_in, mask), before)


def test_a_model_whose_kind_of_positions_is_unknown_is_not_built_with_another_kind(tiny_config):
    config = replace(tiny_config)
    object.__setattr__(config, "positions", "rotary")  # past the checks of the options
    with pytest.raises(KeyError, match="rotary"):
        Transformer(config, vocab_size=17)
