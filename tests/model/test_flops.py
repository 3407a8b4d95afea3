"""Closed forms against models that are built and against torch's own counter of multiplications."""

import pytest
import torch
from applications import composed, small_model
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from aiayn.config.model import ModelConfig
from aiayn.model.flops import counted_parameters, forward_flops, n_parameters, training_flops
from aiayn.model.transformer import Transformer


def built(config: ModelConfig, vocab_size: int) -> Transformer:
    """A model without memory: sizes alone."""
    with torch.device("meta"):
        return Transformer(config, vocab_size)


@pytest.mark.parametrize(
    "changes",
    [
        *(
            {},
            {"d_k": None, "d_v": None},
            {"d_k": None},
            {"positions": "learned", "max_positions": 11},
            {"n_layers": 5},
        ),
        *(
            {"n_decoder_layers": 1},
            {"tie_embeddings": "decoder"},
            {"tie_embeddings": "none", "n_decoder_layers": 4},
        ),
    ],
)
def test_parameters_are_those_of_the_built_model(changes):
    config = small_model(**changes)
    for sources in (None, 53):
        model = Transformer(config, 41, src_vocab_size=sources)
        assert n_parameters(config, 41, sources) == sum(
            parameter.numel() for parameter in model.parameters()
        )


def test_the_base_model_has_the_papers_65_million_parameters_at_vocabulary_size_40960_only():
    base, big = composed().model, composed("model=big").model
    assert [n_parameters(base, size) for size in (37_000, 40_960)] == [63_045_632, 65_073_152]
    assert n_parameters(big, 37_000) == 214_171_648
    assert n_parameters(base, 37_000) == sum(
        parameter.numel() for parameter in built(base, 37_000).parameters()
    )


@given(
    sizes=st.fixed_dictionaries(
        {
            name: st.integers(1, 6)
            for name in ("n_layers", "n_decoder_layers", "d_ff", "n_heads", "d_k", "d_v")
        }
        | {"d_model": st.integers(1, 4).map(lambda half: 2 * half)}
    ),
    src_length=st.integers(1, 9),
    tgt_length=st.integers(1, 9),
    vocab_size=st.integers(2, 30),
)
@settings(max_examples=15)
def test_flops_are_those_that_torch_counts(sizes, src_length, tgt_length, vocab_size):
    config = small_model(**sizes)
    model = Transformer(config, vocab_size).eval()
    src = torch.zeros(1, src_length, dtype=torch.long)
    tgt_in = torch.zeros(1, tgt_length, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        model(src, tgt_in, torch.ones(1, 1, 1, src_length, dtype=torch.bool))
    assert forward_flops(config, vocab_size, src_length, tgt_length) == counter.get_total_flops()


def test_a_backward_pass_costs_twice_the_forward_pass():
    config = small_model()
    model = Transformer(config, 41)
    src, tgt_in = torch.zeros(3, 8, dtype=torch.long), torch.zeros(3, 5, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        model(src, tgt_in, torch.ones(3, 1, 1, 8, dtype=torch.bool)).sum().backward()
    assert 3 * training_flops(config, 41, 8, 5) == counter.get_total_flops()


def test_lengths_may_be_tensors_of_many_pairs():
    config = small_model()
    src, tgt = torch.tensor([3, 9, 1]), torch.tensor([4, 2, 8])
    each = [
        training_flops(config, 41, s, t) for s, t in zip(src.tolist(), tgt.tolist(), strict=True)
    ]
    assert training_flops(config, 41, src, tgt).tolist() == each


def test_the_papers_models_cost_what_was_worked_out_by_hand():
    """Base: six layers of 6 d^2 + 2 d d_ff for a token of either side, d V more for a target
    token.
    """
    base, big = composed().model, composed("model=big").model
    per_layer = 6 * 512**2 + 2 * 512 * 2048
    by_hand = 6 * (2 * 6 * per_layer + 512 * 37_000)
    assert training_flops(base, 37_000, 27, 27) / 27 == pytest.approx(by_hand, rel=0.01)
    assert training_flops(base, 37_000, 27, 27) / 27 > 1.005 * by_hand
    assert training_flops(big, 37_000, 27, 27) / 27 == pytest.approx(1.289e9, rel=0.005)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (12_345, "12,345 parameters"),
        (999_999, "999,999 parameters"),
        (1_640_000, "1.6 M parameters"),
    ],
)
def test_a_small_model_is_not_said_to_have_no_parameters(count, text):
    assert counted_parameters(count) == text
