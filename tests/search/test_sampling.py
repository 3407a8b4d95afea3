"""Sampled translations: how often each is drawn, what is left out, and what a sample depends on."""

import math
from collections import Counter

import pytest
import torch
from applications import small_model
from torch.nn.utils.rnn import pad_sequence

from aiayn.config.search import SamplingConfig, SearchConfig
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import ConfigError
from aiayn.model.transformer import Transformer
from aiayn.search.sampling import draw_tokens, sample
from aiayn.search.translations import Hypothesis, Translation
from aiayn.search.translator import Translator
from aiayn.token_ids import BOS_ID, EOS_ID, PAD_ID

SEARCH = SearchConfig(
    beam_size=3, length_penalty=0.6, penalty="gnmt", max_extra_tokens=1, batch_tokens=60
)
VOCAB = 7  # four special tokens, of which unk may be drawn, and three others
LINES = [
    "the old house",
    "a",
    "the cat sees the old house",
    "",
    "two cats",
    "the man the man",
    "the old house",
]


def transformer(vocab_size: int = VOCAB) -> Transformer:
    torch.manual_seed(6)
    model = Transformer(small_model(), vocab_size).eval()
    with torch.no_grad():
        model.embedding.weight.mul_(1.5)
    return model


def drawn_from(
    model, sentences: list[list[int]], lines: list[int] | None = None, **options
) -> list[Hypothesis]:
    src = pad_sequence(
        [torch.tensor([*ids, EOS_ID]) for ids in sentences], batch_first=True, padding_value=PAD_ID
    )
    sampling = SamplingConfig(**{"seed": 1} | options)
    mask = (src != PAD_ID)[:, None, None, :]
    return sample(model, src, mask, lines or list(range(len(sentences))), sampling, SEARCH)


def translator(batch_tokens: int = 60) -> Translator:
    tokenizer = Tokenizer.train(
        [["the old house of the man sees two cats", "das alte Haus des Mannes sieht"]], 280
    )
    options = vars(SEARCH) | {"batch_tokens": batch_tokens, "max_extra_tokens": 6}
    return Translator(transformer(tokenizer.vocab_size), tokenizer, SearchConfig(**options), "cpu")


def next_probabilities(model, prefix: tuple[int, ...], temperature: float) -> list[float]:
    """P(next token | source 5, prefix) without pad and bos, by a whole forward pass."""
    src = torch.tensor([[5, EOS_ID]])
    with torch.no_grad():
        logits = model(
            src, torch.tensor([[BOS_ID, *prefix]]), torch.ones(1, 1, 1, 2, dtype=torch.bool)
        )[0, -1]
    weights = (logits.double() / temperature).exp()
    weights[[PAD_ID, BOS_ID]] = 0
    return (weights / weights.sum()).tolist()


def test_frequencies_of_whole_outputs_are_the_models_probabilities():
    model, n, temperature = transformer(), 4000, 0.8
    first = next_probabilities(model, (), temperature)
    expected = {(): first[EOS_ID]}
    words = [token for token in range(VOCAB) if token not in (PAD_ID, BOS_ID, EOS_ID)]
    for token in words:
        second = next_probabilities(model, (token,), temperature)
        expected[(token,)] = first[token] * second[EOS_ID]
        # Then the limit ends it
        expected |= {(token, other): first[token] * second[other] for other in words}
    assert sum(expected.values()) == pytest.approx(1)
    assert len(expected) == 21

    found = Counter(
        tuple(hyp.tokens) for hyp in drawn_from(model, [[5]] * n, temperature=temperature)
    )

    assert set(found) <= set(expected)
    often = {output: n * p for output, p in expected.items() if n * p >= 5}
    assert len(often) > 12
    chi_square = sum((found[output] - count) ** 2 / count for output, count in often.items())
    assert chi_square < 46  # of 21 outputs: 1 in 1,000 by chance


def test_log_p_is_the_models_own_whatever_is_drawn_from():
    model = transformer()
    for options in ({}, {"temperature": 0.3}, {"top_k": 2}, {"top_p": 0.6}):
        for hyp in drawn_from(model, [[5]] * 20, **options):
            src = torch.tensor([[5, EOS_ID]])
            with torch.no_grad():
                row = torch.tensor([[BOS_ID, *hyp.tokens]])
                logits = model(src, row, torch.ones(1, 1, 1, 2, dtype=torch.bool))[0].double()
            log_probs = logits.log_softmax(-1)
            by_hand = sum(
                float(log_probs[t, token]) for t, token in enumerate([*hyp.tokens, EOS_ID])
            )
            assert hyp.log_prob == pytest.approx(by_hand, abs=1e-5)
            assert hyp.score == pytest.approx(
                by_hand / ((6 + len(hyp.tokens)) / 6) ** 0.6, abs=1e-5
            )
            assert len(hyp.tokens) <= 2


def frequencies(probabilities: list[float], n: int = 20_000, **options) -> list[float]:
    """How often each of the tokens from 3 on is drawn, at n evenly spread numbers."""
    logits = torch.tensor(
        [[9.0, 9.0, -math.inf, *map(math.log, probabilities)]], dtype=torch.float64
    )
    draws = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    drawn = draw_tokens(logits.repeat(n, 1), draws, SamplingConfig(seed=0, **options))
    return [
        round(count / n, 3)
        for count in torch.bincount(drawn, minlength=logits.size(1)).tolist()[3:]
    ]


def test_top_k_and_top_p_keep_the_most_probable_tokens_in_proportion():
    probabilities = [0.1, 0.4, 0.2, 0.25, 0.05]
    assert frequencies(probabilities) == probabilities
    assert frequencies(probabilities, top_k=1) == [0, 1, 0, 0, 0]
    assert frequencies(probabilities, top_k=2) == [0, 0.615, 0, 0.385, 0]
    assert (
        frequencies(probabilities, top_k=99)
        == frequencies(probabilities, top_p=1.0)
        == probabilities
    )
    assert frequencies(probabilities, top_p=0.3) == [0, 1, 0, 0, 0]
    assert frequencies(probabilities, top_p=0.6) == [0, 0.615, 0, 0.385, 0]
    assert frequencies(probabilities, top_p=0.7) == [0, 0.471, 0.235, 0.294, 0]
    assert frequencies([0.2, 0.8], temperature=0.5) == [0.059, 0.941]
    assert (
        frequencies([0.8, 0.2], temperature=1e-6)
        == frequencies([0.8, 0.2], temperature=1e-310)
        == [1, 0]
    )


@pytest.mark.quick("25")
@pytest.mark.parametrize("batch_tokens", [1, 25, 5000])
def test_a_lines_sample_depends_on_seed_and_line_number_and_not_on_its_batch(batch_tokens):
    sampling = SamplingConfig(seed=3)
    expected = [
        translator().sample([line], sampling, first_line=n)[0].tokens
        for n, line in enumerate(LINES, 1)
    ]
    ready = translator(batch_tokens)
    assert [drawn.tokens for drawn in ready.sample(LINES, sampling)] == expected
    assert [drawn.tokens for drawn in ready.sample(LINES[2:], sampling, first_line=3)] == expected[
        2:
    ]
    assert expected[0] != expected[6]  # the same text in another line
    assert [drawn.tokens for drawn in ready.sample(LINES, SamplingConfig(seed=4))] != expected
    assert ready.sample(["", " "], sampling) == [Translation("", 0.0, 0.0, [])] * 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0}, "--temperature=0: must be above 0"),
        ({"top_k": 0}, "--top-k=0: must be at least 1"),
        ({"top_p": 1.5}, "--top-p 1.5: must be above 0 and at most 1"),
        ({"top_k": 3, "top_p": 0.5}, "choose one"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        SamplingConfig(seed=0, **options)
