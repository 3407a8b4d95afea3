"""The best continuations against sorting all of them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from aiayn.kernels import top_tokens as module
from aiayn.kernels.top_tokens import best_continuations
from aiayn.token_ids import BOS_ID, EOS_ID, PAD_ID


def sorted_continuations(logits: Tensor, log_probs: Tensor, only_eos: Tensor, n_best: int) -> list[list[tuple]]:
    """For each sentence the (log P, hypothesis, token) of all continuations, the n best of them."""
    found = []
    for of_beams, scores, ending in zip(logits.log_softmax(-1).tolist(), log_probs.tolist(), only_eos, strict=True):
        every = [
            (score + log_prob, beam, token)
            for beam, (row, score) in enumerate(zip(of_beams, scores, strict=True))
            for token, log_prob in enumerate(row)
            if token not in (PAD_ID, BOS_ID) and (token == EOS_ID or not ending)
        ]
        found.append(sorted(every, reverse=True)[:n_best])
    return found


@given(
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(4, 300),
    st.sampled_from([1, 7, 128]),
    st.booleans(),
    st.integers(1, 10),
    st.integers(0, 2**31),
)
def test_they_are_those_of_sorting_whatever_the_blocks_and_the_rows_at_a_time(
    n, k, vocab_size, rows, few, n_best, seed
):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, k, vocab_size, generator=generator) * 3
    log_probs = -torch.rand(n, k, generator=generator).cumsum(1)
    only_eos = torch.rand(n, generator=generator) < 0.3
    n_best = min(n_best, 2 * k)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEW", n * k * vocab_size if few else 0)
        patch.setattr(module, "ROWS", rows)
        patch.setattr(module, "CACHED", rows * vocab_size)
        best, parents, tokens = best_continuations(torch.clone, logits, log_probs, n_best, only_eos)
    assert best.shape == parents.shape == tokens.shape == (n, n_best)
    for row, expected in enumerate(sorted_continuations(logits, log_probs, only_eos, n_best)):
        found = list(zip(best[row].tolist(), parents[row].tolist(), tokens[row].tolist(), strict=True))
        assert [each[1:] for each in found[: len(expected)]] == [each[1:] for each in expected]
        assert [each[0] for each in found] == pytest.approx(
            [each[0] for each in expected] + [-float("inf")] * (len(found) - len(expected)), abs=1e-5
        )


def test_log_probabilities_are_not_normalised_again():
    log_probs = torch.log(torch.tensor([[[0.1, 0.1, 0.2, 0.3, 0.1]]]))  # sum to less than 1
    best, _, tokens = best_continuations(torch.clone, log_probs, torch.zeros(1, 1), 2, None, are_log_probs=True)
    assert tokens.tolist() == [[3, 2]]
    assert best.exp().tolist()[0] == pytest.approx([0.3, 0.2])


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
@pytest.mark.parametrize(("few", "n_best"), [(0, 4), (420, 4), (0, 1), (420, 1)])
def test_a_broken_row_is_noticed(broken, few, n_best, monkeypatch):
    monkeypatch.setattr(module, "FEW", few)
    logits = torch.zeros(3, 2, 70)
    logits[2, 1, 66] = broken
    best, _, _ = best_continuations(torch.clone, logits, torch.zeros(3, 2), n_best)
    assert best.isnan().any(1).tolist() == [False, False, True]
