"""Section 3.2 against loops that are written out, one query, head and key at a time."""

import math

import pytest
import torch
from torch.nn import functional as F

from aiayn.model.attention import MultiHeadAttention, attention, attention_weights
from aiayn.model.masks import Ranges, causal_mask, within_window


def attention_in_loops(q, k, v, mask):
    """Equation (1) for lists: q (T, d_k), k (S, d_k), v (S, d_v), mask (T, S)."""
    rows = []
    for query, allowed in zip(q.tolist(), mask.tolist(), strict=True):
        exponentials = [
            math.exp(sum(a * b for a, b in zip(query, key, strict=True)) / math.sqrt(len(query)))
            if may
            else 0.0
            for key, may in zip(k.tolist(), allowed, strict=True)
        ]
        shares = [value / sum(exponentials) for value in exponentials]
        rows.append(
            [sum(s * x for s, x in zip(shares, column, strict=True)) for column in v.T.tolist()]
        )
    return torch.tensor(rows, dtype=torch.float64)


def random_mask(*shape):
    """True with probability a half, and everywhere at the first key: every query may attend to
    something.
    """
    mask = torch.rand(shape) < 0.5
    mask[..., 0] = True
    return mask


@pytest.mark.parametrize("seed", range(3))
def test_attention_is_equation_1_written_out_as_a_loop(seed):
    torch.manual_seed(seed)
    b, h, t, s, d_k, d_v = 2, 3, 4, 5, 6, 7
    q, k, v = torch.randn(b, h, t, d_k), torch.randn(b, h, s, d_k), torch.randn(b, h, s, d_v)
    mask = random_mask(b, h, t, s)
    output = attention(q, k, v, mask)
    for i in range(b):
        for j in range(h):
            expected = attention_in_loops(q[i, j], k[i, j], v[i, j], mask[i, j])
            torch.testing.assert_close(output[i, j].double(), expected, rtol=0, atol=1e-6)


def test_without_a_mask_everything_may_be_attended_to():
    q, k, v = torch.randn(2, 3, 4, 6), torch.randn(2, 3, 5, 6), torch.randn(2, 3, 5, 7)
    assert torch.equal(
        attention(q, k, v, None), attention(q, k, v, torch.ones(1, 1, 1, 5, dtype=torch.bool))
    )


@pytest.mark.parametrize("shape", [(2, 1, 1, 5), (4, 5), (2, 3, 4, 5)])
def test_masks_broadcast_and_hidden_keys_get_exactly_no_weight(shape):
    mask = random_mask(*shape)
    weights = attention_weights(torch.randn(2, 3, 4, 6) * 30, torch.randn(2, 3, 5, 6), mask)
    assert weights.shape == (2, 3, 4, 5)
    assert torch.all(weights[~mask.expand(2, 3, 4, 5)] == 0)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 4))


def test_the_readable_form_and_torchs_fused_kernel_agree_in_values_and_gradients():
    leaves = [torch.randn(2, 3, n, d, requires_grad=True) for n, d in ((4, 6), (5, 6), (5, 7))]
    mask, weight = random_mask(2, 1, 4, 5), torch.randn(2, 3, 4, 7)
    results = []
    for function in (attention, F.scaled_dot_product_attention):
        output = function(*leaves, mask)
        results.append((output, *torch.autograd.grad((output * weight).sum(), leaves)))
    for ours, fused in zip(*results, strict=True):
        torch.testing.assert_close(ours, fused, rtol=0, atol=1e-5)


def test_heads_attend_through_projections_of_their_own_and_are_concatenated():
    b, t, s, d_model, h, d_k, d_v = 2, 4, 5, 12, 3, 6, 7
    module = MultiHeadAttention(d_model, h, d_k, d_v).double()
    x, memory = torch.randn(b, t, d_model).double(), torch.randn(b, s, d_model).double()
    mask = random_mask(b, 1, t, s)
    output = module(x, memory, mask)
    for i in range(b):
        heads = []
        for head in range(h):
            of_k, of_v = slice(head * d_k, (head + 1) * d_k), slice(head * d_v, (head + 1) * d_v)
            q, k = x[i] @ module.w_q.weight[of_k].T, memory[i] @ module.w_k.weight[of_k].T
            heads.append(
                attention_in_loops(q, k, memory[i] @ module.w_v.weight[of_v].T, mask[i, 0])
            )
        expected = torch.cat(heads, dim=1) @ module.w_o.weight.T
        torch.testing.assert_close(output[i], expected, rtol=0, atol=1e-12)


def test_projections_have_no_bias_and_sizes_that_d_k_and_d_v_set_apart():
    shapes = {
        name: tuple(p.shape) for name, p in MultiHeadAttention(12, 3, 5, 7).named_parameters()
    }
    assert shapes == {
        "w_q.weight": (15, 12),
        "w_k.weight": (15, 12),
        "w_v.weight": (21, 12),
        "w_o.weight": (12, 21),
    }


def test_the_causal_mask_allows_a_position_itself_and_what_came_before():
    mask = causal_mask(4, torch.device("cpu"))
    assert mask.tolist() == [[column <= row for column in range(4)] for row in range(4)]


def packed_ranges(src_lengths, tgt_lengths, causal=False) -> Ranges:
    """Each target attends to its source; with `causal`, the sides being the same, up to itself."""
    src_starts, tgt_starts = (
        torch.tensor([0, *lengths]).cumsum(0) for lengths in (src_lengths, tgt_lengths)
    )
    of_src, of_tgt = (
        torch.arange(len(n)).repeat_interleave(torch.tensor(n)) for n in (src_lengths, tgt_lengths)
    )
    queries, keys = torch.arange(len(of_tgt)), torch.arange(len(of_src))
    key_end = queries + 1 if causal else src_starts[of_tgt + 1]
    query_start = keys if causal else tgt_starts[of_src]
    bounds = src_starts[of_tgt], key_end, query_start, tgt_starts[of_src + 1]
    return Ranges(*(bound.int() for bound in bounds))


@pytest.mark.parametrize(
    ("window", "causal"), [(None, False), (None, True), (1, False), (4, True), (5, False)]
)
def test_ranges_hide_the_other_sentences_and_what_is_outside_the_window(window, causal):
    lengths = [3, 1, 7, 5]
    ranges = within_window(packed_ranges(lengths, lengths, causal), sum(lengths), window)
    sentence = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    for query in range(sum(lengths)):
        for key in range(sum(lengths)):
            expected = sentence[query] == sentence[key] and (not causal or key <= query)
            expected = bool(expected and (window is None or abs(query - key) <= window // 2))
            assert bool(ranges.dense()[query, key]) is expected
            assert bool(ranges.query_start[key] <= query < ranges.query_end[key]) is expected


def test_packed_sentences_attend_as_each_sentence_does_alone_and_a_query_without_keys_gets_zeros():
    src_lengths, tgt_lengths = [3, 1, 6], [2, 5, 4]
    ranges = packed_ranges(src_lengths, tgt_lengths)
    q, k, v = torch.randn(1, 2, 11, 4), torch.randn(1, 2, 10, 4), torch.randn(1, 2, 10, 3)
    packed = attention(q, k, v, ranges)
    alone = zip(
        q.split(tgt_lengths, 2), k.split(src_lengths, 2), v.split(src_lengths, 2), strict=True
    )
    expected = torch.cat([attention(*sentence, None) for sentence in alone], 2)
    torch.testing.assert_close(packed, expected)
    hidden = ranges._replace(key_end=ranges.key_start.clone())
    assert torch.equal(attention(q, k, v, hidden), torch.zeros(1, 2, 11, 3))


def heads_with(dropout: float) -> MultiHeadAttention:
    torch.manual_seed(1)
    return MultiHeadAttention(12, 3, 5, 7, dropout)


def test_dropout_zeroes_attention_weights_at_its_rate_and_scales_the_others():
    n = 400
    q, k, v = torch.zeros(1, 2, n, 3), torch.zeros(1, 2, n, 3), torch.eye(n).expand(1, 2, n, n)

    weights = attention(q, k, v, None, p_drop=0.2)  # without dropout 1 / n each

    kept = weights != 0
    assert abs(int((~kept).sum()) - 0.2 * kept.numel()) < 5 * math.sqrt(kept.numel() * 0.2 * 0.8)
    torch.testing.assert_close(weights[kept] * n, torch.full_like(weights[kept], 1 / 0.8))


def test_dropout_of_attention_acts_while_training_only():
    x, mask = torch.randn(2, 6, 12), torch.ones(6, 6, dtype=torch.bool)
    plain, dropped = heads_with(0.0), heads_with(0.5)
    expected = plain(x, x, mask)

    assert not torch.equal(dropped(x, x, mask), expected)
    assert torch.equal(dropped.eval()(x, x, mask), expected)


def test_without_dropout_of_attention_no_random_number_is_drawn():
    x = torch.randn(2, 6, 12)
    attend = heads_with(0.0)
    before = torch.get_rng_state()

    attend(x, x, None)

    assert torch.equal(torch.get_rng_state(), before)
