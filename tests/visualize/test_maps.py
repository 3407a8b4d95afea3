"""The weights that are drawn are the ones the model used."""

import warnings
from collections.abc import Callable

import pytest
import torch
from matplotlib.image import imread

from aiayn.config.model import ModelConfig
from aiayn.config.search import SearchConfig
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import ConfigError
from aiayn.model.attention import MultiHeadAttention
from aiayn.model.transformer import Transformer
from aiayn.search.ensemble import Ensemble
from aiayn.search.translations import Translation
from aiayn.search.translator import Translator
from aiayn.token_ids import BOS_ID, EOS_ID
from aiayn.visualize.figures import draw_cross_attention
from aiayn.visualize.maps import AttentionMaps, attention_maps

SENTENCE = "the old house of the man"


@pytest.fixture
def translator() -> Translator:
    tokenizer = Tokenizer.train(
        [["the old house of the man sees two cats", "das alte Haus des Mannes sieht"]], 280
    )
    config = ModelConfig(
        n_layers=2,
        d_model=18,
        d_ff=20,
        n_heads=3,
        d_k=4,
        d_v=5,
        dropout=0.4,
        positions="sinusoidal",
        max_positions=64,
        attention_window=None,
        attention_dropout=0.0,
    )
    search = SearchConfig(
        beam_size=2, length_penalty=0.6, penalty="gnmt", max_extra_tokens=3, batch_tokens=500
    )
    torch.manual_seed(4)
    model = Transformer(config, tokenizer.vocab_size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.6)  # attention that is far from even
    return Translator(model, tokenizer, search, "cpu")


def weights_by_hand(
    attention, x: torch.Tensor, memory: torch.Tensor, allowed: torch.Tensor
) -> torch.Tensor:
    """softmax(q k / sqrt(d_k)) of each head, by loops: (H, T, S)."""
    heads = []
    d_k = attention.w_q.out_features // attention.n_heads
    for head in range(attention.n_heads):
        rows = slice(head * d_k, (head + 1) * d_k)
        scores = (
            (x[0] @ attention.w_q.weight[rows].T)
            @ (memory[0] @ attention.w_k.weight[rows].T).T
            / d_k**0.5
        )
        raised = scores.exp() * allowed
        heads.append(raised / raised.sum(1, keepdim=True))
    return torch.stack(heads)


def constant(output: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """A sub-layer that was computed before."""
    return lambda x: output


@torch.no_grad()
def walk_by_hand(
    model: Transformer, src: torch.Tensor, tgt_in: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """The three kinds of maps, and the decoder's states, sub-layer by sub-layer."""
    n_src, n_tgt = src.size(1), tgt_in.size(1)
    everything = torch.ones(1, n_src)
    past = torch.tensor([[float(key <= query) for key in range(n_tgt)] for query in range(n_tgt)])
    encoder_self, decoder_self, cross = [], [], []
    x = model.embedding(src) + model.src_positions(0, n_src)
    for layer in model.encoder:
        encoder_self.append(weights_by_hand(layer.self_attention, x, x, everything))
        x = layer(x, everything.bool()[None, None])
    y = model.embedding(tgt_in) + model.tgt_positions(0, n_tgt)
    for layer in model.decoder:
        decoder_self.append(weights_by_hand(layer.self_attention, y, y, past))
        y = layer.norm_1(y, constant(layer.self_attention(y, y, past.bool())))
        cross.append(weights_by_hand(layer.cross_attention, y, x, everything))
        y = layer.norm_2(y, constant(layer.cross_attention(y, x, everything.bool()[None, None])))
        y = layer.norm_3(y, layer.feed_forward)
    return torch.stack(encoder_self), torch.stack(decoder_self), torch.stack(cross), y


@pytest.mark.parametrize("training", [True, False])
def test_maps_are_those_of_a_walk_by_hand_that_ends_in_the_models_own_states(translator, training):
    translator.model.train(training)
    maps = attention_maps(translator, SENTENCE)
    assert all(part.training == training for part in translator.model.modules())
    model = translator.model.eval()
    [[best]] = translator.n_best([SENTENCE], 1)
    src = torch.tensor([[*translator.tokenizer.encode([SENTENCE])[0], EOS_ID]])
    tgt_in = torch.tensor([[BOS_ID, *best.tokens]])
    encoder_self, decoder_self, cross, states = walk_by_hand(model, src, tgt_in)
    mask = torch.ones(1, 1, 1, src.size(1), dtype=torch.bool)
    torch.testing.assert_close(
        model.decode(tgt_in, model.encode(src, mask), mask), states, atol=1e-5, rtol=0
    )
    torch.testing.assert_close(maps.encoder_self, encoder_self, atol=1e-5, rtol=0)
    torch.testing.assert_close(maps.decoder_self, decoder_self, atol=1e-5, rtol=0)
    torch.testing.assert_close(maps.cross, cross, atol=1e-5, rtol=0)
    assert maps.cross.max() > 2 / src.size(1)  # not even, or nothing was tested


def test_every_row_sums_to_one_and_no_position_looks_ahead(translator):
    maps = attention_maps(translator, SENTENCE)
    n_src, n_tgt = len(maps.src), len(maps.tgt_in)
    assert n_src != n_tgt
    assert maps.encoder_self.shape == (2, 3, n_src, n_src)
    assert maps.decoder_self.shape == (2, 3, n_tgt, n_tgt)
    assert maps.cross.shape == (2, 3, n_tgt, n_src)
    for weights in (maps.encoder_self, maps.decoder_self, maps.cross):
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    assert maps.decoder_self.triu(1).abs().max() == 0


def test_tokens_of_any_kind_are_drawn_as_they_are_without_a_word_of_warning(tmp_path):
    awkward = ["$x$", "$\\frac{$", "猫", "\x01", "\t\n", "▁", "_^", "", "x" * 90]
    n = len(awkward)
    even = torch.full((1, 5, n, n), 1 / n)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw_cross_attention(
            AttentionMaps(
                awkward, awkward, awkward, even, even, even, "", Translation("", 0.0, 0.0, [])
            ),
            tmp_path / "attention.png",
        )
    assert imread(tmp_path / "attention.png").shape[1] < 1500


def test_a_heat_map_replaces_a_symbolic_link_instead_of_following_it(maps, tmp_path):
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "attention.png").symlink_to("precious")
    draw_cross_attention(maps, tmp_path / "attention.png")
    assert (tmp_path / "precious").read_text() == "kept"
    assert imread(tmp_path / "attention.png").ndim == 3


def test_an_ensemble_is_refused_instead_of_drawing_one_of_its_models(translator):
    pair = Ensemble([translator.model, translator.model])
    several = Translator(pair, translator.tokenizer, translator.search, translator.device)

    with pytest.raises(
        ConfigError,
        match="ensemble of 2 models has no attention maps; load a single run",
    ):
        attention_maps(several, SENTENCE)


def test_tokens_name_the_sentence_and_the_models_own_translation(translator):
    maps = attention_maps(translator, f" {SENTENCE}\u2028")
    [[best]] = translator.n_best([SENTENCE], 1)
    assert "".join(maps.src) == "▁the▁old▁house▁of▁the▁man</s>"
    assert maps.tgt_in == ["<s>", *translator.tokenizer.tokens(best.tokens)]
    assert maps.tgt_out == [*maps.tgt_in[1:], "</s>"]
    assert (maps.sentence, maps.translation) == (f" {SENTENCE}\u2028", best)


class Grouped(MultiHeadAttention):
    """Heads share keys and values, 3 of them or 1."""

    groups = 1

    def keys_values(self, context):
        keys, values = super().keys_values(context)
        return keys[:, : self.groups], values[:, : self.groups]


class Sharp(MultiHeadAttention):
    def heads(self, q, k, v, mask):
        return super().heads(3 * q, k, v, mask)


class DeclaredSharp(Sharp):
    def weights(self, q, k, mask):
        return super().weights(3 * q, k, mask)


@torch.inference_mode()
@pytest.mark.parametrize("kind", [Grouped, DeclaredSharp, Sharp])
def test_weights_of_another_attention_are_those_that_it_attends_with_or_there_is_no_picture(
    translator, kind
):
    for layer in translator.model.decoder:
        layer.cross_attention.__class__ = kind
    if kind is Sharp:
        with pytest.raises(
            ConfigError,
            match=r"Sharp\.weights gives weights that differ from those it attends with; override it",
        ):
            attention_maps(translator, SENTENCE)
        return
    attention = translator.model.decoder[1].cross_attention
    inputs = []
    attention.register_forward_hook(lambda module, given, output: inputs.append((given[1], output)))
    weights = attention_maps(translator, SENTENCE).cross[1]
    memory, output = inputs[-1]
    values = attention.keys_values(memory)[1]
    torch.testing.assert_close(attention.w_o((weights @ values).transpose(1, 2).flatten(2)), output)


def test_a_layer_without_attention_of_its_own_has_no_picture(translator):
    translator.model.encoder[0].forward = lambda x, mask: x
    with pytest.raises(ConfigError, match="does not call one of its MultiHeadAttention modules"):
        attention_maps(translator, SENTENCE)
