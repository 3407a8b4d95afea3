"""What the paper says about the model. docs/misconceptions.md and docs/results/paper-checked.md name
these tests.
"""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from aiayn.model.attention import MultiHeadAttention, attention_weights
from aiayn.model.embedding import sinusoids
from aiayn.model.masks import within_window
from aiayn.model.transformer import Transformer
from aiayn.token_ids import BOS_ID

VOCAB = 19


@pytest.fixture
def model(tiny_config) -> Transformer:
    model = Transformer(replace(tiny_config, dropout=0.0), VOCAB).eval()
    with torch.no_grad():
        model.embedding.weight.mul_(3)
    return model


@pytest.mark.parametrize("shift", [1, 7, 40])
def test_the_encoding_of_a_later_position_is_a_rotation_of_this_one(shift):
    """Section 3.5: "for any fixed offset k, PE(pos+k) can be represented as a linear function of
    PE(pos)".
    """
    d_model, length = 24, 60
    table = sinusoids(length + shift, d_model).double()
    frequencies = 10_000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angle = shift * frequencies
    rotation = torch.block_diag(
        *(
            torch.tensor([[c, s], [-s, c]])
            for c, s in zip(angle.cos().tolist(), angle.sin().tolist(), strict=True)
        )
    )

    assert torch.allclose(table[:length] @ rotation.double().T, table[shift:], atol=1e-6)
    # The same matrix is found without knowing the formula, by least squares: it does not depend on
    # the position.
    found = torch.linalg.lstsq(table[:length], table[shift:]).solution
    assert torch.allclose(table[:length] @ found, table[shift:], atol=1e-6)
    # So the product of two encodings depends on their distance only.
    products = (table[:length] * table[shift:]).sum(1)
    assert torch.allclose(products, products[:1].expand(length), atol=1e-5)


@pytest.mark.parametrize("d_k", [4, 64, 300])
def test_products_of_queries_and_keys_have_the_variance_d_k_and_the_factor_makes_it_one(d_k):
    """Footnote 4: components with mean 0 and variance 1 give a product with mean 0 and variance
    d_k.
    """
    torch.manual_seed(d_k)
    q, k = torch.randn(2, 20_000, d_k)
    products = (q * k).sum(1)

    assert float(products.mean()) == pytest.approx(0, abs=4 * math.sqrt(d_k / 20_000))
    assert float(products.var()) == pytest.approx(d_k, rel=0.06)
    assert float((products / math.sqrt(d_k)).var()) == pytest.approx(1, rel=0.06)


def test_without_the_factor_the_gradients_of_the_softmax_all_but_vanish():
    """Section 3.2.1: large products push the softmax into regions of extremely small gradients."""
    torch.manual_seed(3)
    d_k, n_keys = 512, 20
    q, k = torch.randn(200, 1, d_k), torch.randn(200, n_keys, d_k)
    scores = (q @ k.mT)[:, 0]

    def slope(x: torch.Tensor) -> float:
        p = x.softmax(-1)
        jacobian = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
        return float(jacobian.flatten(1).norm(dim=1).median())

    assert slope(scores) < slope(scores / math.sqrt(d_k)) / 100


def _reach(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Which outputs depend on which inputs, (n, n) bool."""
    x = x.requires_grad_()
    output = layer(x)
    rows = [
        torch.autograd.grad(output[0, t].sum(), x, retain_graph=True)[0][0].abs().sum(1)
        for t in range(x.size(1))
    ]
    return torch.stack(rows) > 0


def _layers_to_connect_all(reach: torch.Tensor) -> int:
    reached, layers = reach.clone(), 1
    while not reached.all():
        reached, layers = (reached.float() @ reach.float()) > 0, layers + 1
        assert layers < 100
    return layers


@pytest.mark.parametrize(("window", "layers"), [(None, 1), (4, 6), (6, 4)])
def test_path_lengths_of_table_1_attention(window, layers):
    """One layer connects all positions; with a neighbourhood of r, r // 2 to each side, it takes
    about n / (r / 2).
    """
    n, attention = 13, MultiHeadAttention(8, 2, 4, 4)
    real = torch.ones(1, 1, 1, n, dtype=torch.bool)

    reach = _reach(lambda x: attention(x, x, within_window(real, n, window)), torch.randn(1, n, 8))

    assert (
        _layers_to_connect_all(reach)
        == layers
        == (1 if window is None else math.ceil((n - 1) / (window // 2)))
    )


def test_path_lengths_of_table_1_convolution():
    n, kernel = 13, 5
    convolution = nn.Conv1d(8, 8, kernel, padding=kernel // 2)

    reach = _reach(lambda x: convolution(x.mT).mT, torch.randn(1, n, 8))

    assert _layers_to_connect_all(reach) == math.ceil((n - 1) / (kernel // 2)) == 6


def test_a_recurrent_layer_needs_as_many_steps_as_positions_one_after_the_other():
    """Table 1: O(n) sequential operations; the layer equals n calls of its cell, each of which
    needs the one before.
    """
    torch.manual_seed(5)
    n, layer, cell = 13, nn.LSTM(8, 8, batch_first=True), nn.LSTMCell(8, 8)
    cell.load_state_dict(
        {name.removesuffix("_l0"): weight for name, weight in layer.state_dict().items()}
    )
    x, state = torch.randn(1, n, 8), (torch.zeros(1, 8), torch.zeros(1, 8))
    outputs = []
    for t in range(n):
        state = cell(x[:, t], state)
        outputs.append(state[0])

    assert torch.allclose(torch.stack(outputs, 1), layer(x)[0], atol=1e-6)


def test_embeddings_are_learned_with_the_model_and_are_one_matrix(model):
    """Not word2vec, not GloVe, not frozen: section 3.4 learns them, and shares them with the
    output.
    """
    src, tgt = torch.tensor([[5, 6, 7]]), torch.tensor([[BOS_ID, 8]])
    loss = model(src, tgt, torch.ones(1, 1, 1, 3, dtype=torch.bool)).log_softmax(-1)[0, :, 9].sum()
    loss.backward()

    tables = [weight for weight in model.parameters() if VOCAB in weight.shape]
    assert len(tables) == 1
    gradient = tables[0].grad
    assert gradient is not None
    # A source token, a target token and the one that is predicted
    assert (gradient[[5, 8, 9]].abs().sum(1) > 0).all()


@torch.no_grad()
def test_every_decoder_layer_makes_keys_and_values_of_the_encoders_output_itself(model):
    """Section 3.2.3: the encoder gives every layer the same output, and each projects it."""
    tgt, mask = torch.tensor([[BOS_ID, 5, 6]]), torch.ones(1, 1, 1, 2, dtype=torch.bool)
    memory = model.encode(torch.tensor([[4, 8]]), mask)
    keys = [layer.cross_attention.keys_values(memory)[0] for layer in model.decoder]
    before = model.decode(tgt, memory, mask)
    model.decoder[-1].cross_attention.w_v.weight.zero_()

    assert len(keys) > 1
    assert not torch.allclose(keys[0], keys[1], atol=1e-2)
    assert not torch.allclose(model.decode(tgt, memory, mask), before, atol=1e-2)


@torch.no_grad()
def test_the_mask_hides_later_positions_and_not_earlier_ones(model):
    """Row t of the decoder sees columns 0 ... t: a lower triangle of True in "True = may
    attend".
    """
    tgt, changed = torch.tensor([[BOS_ID, 5, 6, 7]]), torch.tensor([[BOS_ID, 5, 9, 7]])
    src, mask = torch.tensor([[4, 8]]), torch.ones(1, 1, 1, 2, dtype=torch.bool)
    before, after = model(src, tgt, mask)[0], model(src, changed, mask)[0]
    differs = (before != after).any(-1)

    assert differs.tolist() == [False, False, True, True]


@torch.no_grad()
def test_training_computes_all_positions_at_once_and_only_generation_is_sequential(model):
    """One pass gives what as many passes as tokens give, each over one token more."""
    src, mask = torch.tensor([[4, 8, 5]]), torch.ones(1, 1, 1, 3, dtype=torch.bool)
    tgt = torch.tensor([[BOS_ID, 5, 6, 7, 9]])
    together = model(src, tgt, mask)[0]
    one_by_one = torch.stack([model(src, tgt[:, : t + 1], mask)[0, -1] for t in range(tgt.size(1))])

    assert torch.allclose(together, one_by_one, atol=1e-5)


@torch.no_grad()
def test_attention_itself_does_not_know_the_order_of_words(model):
    """Without positions, the outputs of permuted words are the permuted outputs."""
    order = torch.tensor([3, 0, 4, 1, 2])
    x, mask = torch.randn(1, 5, model.config.d_model), torch.ones(1, 1, 1, 5, dtype=torch.bool)
    layer = model.encoder[0]

    assert torch.allclose(layer(x[:, order], mask), layer(x, mask)[:, order], atol=1e-5)
    src = torch.tensor([[4, 8, 5, 6, 7]])
    assert not torch.allclose(
        model.encode(src[:, order], mask), model.encode(src, mask)[:, order], atol=1e-2
    )


def test_positions_are_added_and_not_concatenated(model):
    src, mask = torch.tensor([[4, 8, 5]]), torch.ones(1, 1, 1, 3, dtype=torch.bool)
    seen: list[torch.Tensor] = []
    model.encoder[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))

    model.encode(src, mask)

    d_model = model.config.d_model
    expected = model.embedding.weight[src] * math.sqrt(d_model) + sinusoids(3, d_model)
    assert torch.allclose(seen[0], expected, atol=1e-5)


def test_more_heads_of_full_width_cost_no_more_weights():
    """Section 3.2.2: the cost is similar to that of one head of full dimensionality."""
    counts = {
        sum(w.numel() for w in MultiHeadAttention(48, h, 48 // h, 48 // h).parameters())
        for h in (1, 2, 6, 16)
    }

    assert len(counts) == 1


@torch.no_grad()
def test_normalisation_comes_after_the_residual_sum(model):
    """Post-norm: what a layer gives out has mean 0 and variance 1, as long as LayerNorm's scale is
    still 1.
    """
    src, mask = torch.tensor([[4, 8, 5]]), torch.ones(1, 1, 1, 3, dtype=torch.bool)
    states = model.encode(src, mask)

    assert torch.allclose(states.mean(-1), torch.zeros(1, 3), atol=1e-5)
    assert torch.allclose(states.var(-1, correction=0), torch.ones(1, 3), atol=1e-2)


def test_weights_of_attention_are_no_choice_but_a_mean():
    weights = attention_weights(torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4), None)

    assert torch.allclose(weights.sum(-1), torch.ones(1, 2, 3))
    assert (weights > 0).all()
