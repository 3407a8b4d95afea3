"""Beam search against the model itself, against enumeration of all outputs, and against a search
written with lists.
"""

import itertools
import math
import random
from dataclasses import replace

import pytest
import torch
from applications import small_model
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from aiayn.config.search import SearchConfig
from aiayn.errors import ConfigError, DivergedError
from aiayn.model.transformer import Transformer
from aiayn.search import beam_search as module
from aiayn.search.beam_search import beam_search
from aiayn.search.translations import length_penalty
from aiayn.token_ids import BOS_ID, EOS_ID, PAD_ID

SEARCH = SearchConfig(
    beam_size=4, length_penalty=0.6, penalty="gnmt", max_extra_tokens=5, batch_tokens=1000
)
SENTENCES = [[5, 6], [9, 4, 7, 7, 3], [8], [3, 10, 4], [6, 5, 9, 9]]


def transformer(vocab_size: int, seed: int) -> Transformer:
    """A random model that is sure of itself: its distributions are far from uniform."""
    torch.manual_seed(seed)
    model = Transformer(small_model(), vocab_size).eval()
    with torch.no_grad():
        model.embedding.weight.mul_(3)
    return model


def padded(sentences: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    src = pad_sequence(
        [torch.tensor([*ids, EOS_ID]) for ids in sentences], batch_first=True, padding_value=PAD_ID
    )
    return src, (src != PAD_ID)[:, None, None, :]


def search(model, sentences: list[list[int]], config: SearchConfig):
    return beam_search(model, *padded(sentences), config)


def teacher_forced(model: Transformer, sentence: list[int], output: list[int]) -> float:
    """log P(output, eos | sentence) by one forward pass over the whole output, in float64."""
    with torch.no_grad():
        logits = model(
            torch.tensor([[*sentence, EOS_ID]]),
            torch.tensor([[BOS_ID, *output]]),
            padded([sentence])[1],
        )
    log_probs = logits[0].double().log_softmax(-1)
    return sum(float(log_probs[t, token]) for t, token in enumerate([*output, EOS_ID]))


def penalty_by_hand(length: int, config: SearchConfig) -> float:
    return math.pow((5 + length) / 6 if config.penalty == "gnmt" else length, config.length_penalty)


class ScriptedModel(nn.Module):
    """The model's interface around a function (source, prefix) -> logits; counts what it is asked
    to do.
    """

    def __init__(self, logits):
        super().__init__()
        self.logits = logits
        self.encoded = 0
        self.rows_per_step: list[int] = []

    def encode(self, src, src_mask):
        self.encoded += 1
        return src

    def init_cache(self, memory, src_mask, beam_size):
        sources = [tuple(row[row != PAD_ID].tolist()[:-1]) for row in memory]
        return ScriptedCache(sources, [[()] for _ in sources])

    def step(self, tokens, cache):
        self.rows_per_step.append(len(cache.sources))
        assert tokens.shape == (len(cache.prefixes), len(cache.prefixes[0]))
        cache.prefixes = [
            [(*prefix, token) for prefix, token in zip(*row, strict=True)]
            for row in zip(cache.prefixes, tokens.tolist(), strict=True)
        ]
        return torch.tensor(
            [
                [self.logits(source, prefix[1:]) for prefix in prefixes]
                for source, prefixes in zip(cache.sources, cache.prefixes, strict=True)
            ]
        )

    def project(self, states):
        return states


class ScriptedCache:
    def __init__(self, sources, prefixes):
        self.sources, self.prefixes = sources, prefixes

    def reorder(self, parents):
        self.prefixes = [
            [row[p] for p in chosen]
            for row, chosen in zip(self.prefixes, parents.tolist(), strict=True)
        ]

    def select(self, sentences):
        self.sources = [self.sources[n] for n in sentences.tolist()]
        self.prefixes = [self.prefixes[n] for n in sentences.tolist()]


def random_logits(vocab_size: int, seed: int, eos_bonus: float = 0.0):
    """Every (source, prefix) has its own fixed random distribution."""

    def logits(source, prefix):
        dice = random.Random(f"{seed} {source} {prefix}")
        values = [dice.gauss(0, 2) for _ in range(vocab_size)]
        values[EOS_ID] += eos_bonus
        return values

    return logits


def sorted_continuations(
    logits, source: tuple, alive: list[tuple[tuple, float]], only_eos: bool
) -> list:
    """All hypotheses that are longer than the alive ones by a token, with log P, best first."""
    continuations = []
    for prefix, log_prob in alive:
        values = logits(source, prefix)
        norm = math.log(sum(map(math.exp, values)))
        for token, value in enumerate(values):
            if token not in (PAD_ID, BOS_ID) and (token == EOS_ID or not only_eos):
                continuations.append(((*prefix, token), log_prob + value - norm))
    return sorted(continuations, key=lambda c: -c[1])


def list_beam_search(
    logits, source: tuple, config: SearchConfig
) -> list[tuple[list[int], float, float]]:
    """Section 6.1's search for one sentence in plain lists, never stopping before the limit."""
    k, limit = config.beam_size, len(source) + config.max_extra_tokens
    alive, finished = [((), 0.0)], []
    for length in range(1, limit + 2):
        best = sorted_continuations(logits, source, alive, only_eos=length > limit)[
            : 2 * k if k > 1 else 1
        ]
        finished += [
            (list(y[:-1]), p / penalty_by_hand(length, config), p)
            for y, p in best
            if y[-1] == EOS_ID
        ]
        finished = sorted(finished, key=lambda f: -f[1])[:k]
        alive = [(y, p) for y, p in best if y[-1] != EOS_ID][:k]
    return finished


def assert_same(found, expected) -> None:
    assert [h[0] for h in found] == [e[0] for e in expected]
    for hypothesis, other in zip(found, expected, strict=True):
        assert hypothesis[1:] == pytest.approx(other[1:], abs=2e-5)


def test_length_penalties_match_hand_computed_values():
    assert length_penalty(7, SEARCH) == pytest.approx(2**0.6)
    assert length_penalty(1, SEARCH) == 1
    assert length_penalty(16, replace(SEARCH, penalty="power", length_penalty=0.5)) == 4
    assert length_penalty(16, replace(SEARCH, length_penalty=0.0)) == 1


@pytest.mark.quick("gnmt-0.6")
@pytest.mark.parametrize(("penalty", "alpha"), [("gnmt", 0.6), ("power", 1.0), ("gnmt", 0.0)])
def test_every_score_is_the_models_own_log_probability_of_the_output_with_its_end(penalty, alpha):
    config = replace(SEARCH, penalty=penalty, length_penalty=alpha)
    for seed in range(3):
        model = transformer(vocab_size=11, seed=seed)
        for sentence, hypotheses in zip(SENTENCES, search(model, SENTENCES, config), strict=True):
            assert len(hypotheses) == 4
            for tokens, score, log_prob in hypotheses:
                expected = teacher_forced(model, sentence, tokens)
                assert log_prob == pytest.approx(expected, abs=2e-5)
                assert score == pytest.approx(
                    expected / penalty_by_hand(len(tokens) + 1, config), abs=2e-5
                )


def test_one_beam_is_greedy_search_token_by_token():
    config = replace(SEARCH, beam_size=1)
    for seed in range(3):
        model = transformer(vocab_size=11, seed=seed)
        for sentence, [hypothesis] in zip(SENTENCES, search(model, SENTENCES, config), strict=True):
            output: list[int] = []
            src, src_mask = padded([sentence])
            while len(output) < len(sentence) + config.max_extra_tokens:
                with torch.no_grad():
                    logits = model(src, torch.tensor([[BOS_ID, *output]]), src_mask)[0, -1]
                logits[[PAD_ID, BOS_ID]] = -torch.inf
                if int(logits.argmax()) == EOS_ID:
                    break
                output.append(int(logits.argmax()))
            assert hypothesis.tokens == output


@pytest.mark.quick("0.6-gnmt", "1.0-power")
@pytest.mark.parametrize("penalty", ["gnmt", "power"])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_a_beam_wide_enough_finds_what_enumerating_all_outputs_finds(penalty, alpha):
    # Ids 3, 4 and 5 may be output, two source tokens and one extra allow three of them: 27 beams
    # lose nothing.
    config = SearchConfig(
        beam_size=27, length_penalty=alpha, penalty=penalty, max_extra_tokens=1, batch_tokens=1000
    )
    outputs = [list(y) for length in range(4) for y in itertools.product([3, 4, 5], repeat=length)]
    for seed in range(2):
        model = transformer(vocab_size=6, seed=seed)
        for sentence in ([3, 5], [4, 4]):
            log_probs = [teacher_forced(model, sentence, y) for y in outputs]
            scored = [
                (y, log_prob / penalty_by_hand(len(y) + 1, config), log_prob)
                for y, log_prob in zip(outputs, log_probs, strict=True)
            ]
            [found] = search(model, [sentence], config)
            assert_same(found, sorted(scored, key=lambda s: -s[1])[:27])


# What may follow a prefix, by source, prefix and token.
CONSTRAINTS = {
    "at least two subwords": lambda src, prefix, token: token != EOS_ID or len(prefix) > 1,
    "the 4 must come": lambda src, prefix, token: token != EOS_ID or 4 in prefix,
    "no 3 after a 5": lambda src, prefix, token: [*prefix[-1:], token] != [5, 3],
    "what the source has": lambda src, prefix, token: token == EOS_ID or token in src,
}


def constraint_of(may_follow):
    def constraint(src, prefixes, log_probs):
        for sentence, beams, rows in zip(src.tolist(), prefixes.tolist(), log_probs, strict=True):
            for prefix, row in zip(beams, rows, strict=True):
                for token in range(len(row)):
                    if not may_follow(sentence, prefix, token):
                        row[token] = -torch.inf
        return log_probs

    return constraint


@pytest.mark.parametrize("may_follow", CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_a_constrained_beam_wide_enough_finds_the_best_of_all_outputs_that_are_allowed(may_follow):
    config = replace(SEARCH, beam_size=27, max_extra_tokens=1)
    outputs = [list(y) for length in range(4) for y in itertools.product([3, 4, 5], repeat=length)]
    model, sentences = transformer(vocab_size=6, seed=1), [[3, 5], [4]]
    results = beam_search(model, *padded(sentences), config, constraint_of(may_follow))
    for sentence, found in zip(sentences, results, strict=True):
        allowed = [
            y
            for y in outputs
            if len(y) <= len(sentence) + 1
            and all(may_follow(sentence, y[:n], token) for n, token in enumerate([*y, EOS_ID]))
        ]
        log_probs = [teacher_forced(model, sentence, y) for y in allowed]
        scored = [
            (y, log_prob / penalty_by_hand(len(y) + 1, config), log_prob)
            for y, log_prob in zip(allowed, log_probs, strict=True)
        ]
        assert_same(found, sorted(scored, key=lambda s: -s[1])[:27])


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_constraint_sees_each_beams_own_source_prefix_and_log_probabilities(beam_size):
    model, seen = transformer(vocab_size=11, seed=3), set()

    def constraint(src, prefixes, log_probs):
        for sentence, beams, rows in zip(src, prefixes, log_probs, strict=True):
            source = sentence[sentence != PAD_ID][None]
            for prefix, row in zip(beams, rows, strict=True):
                tgt_in = torch.cat([torch.tensor([BOS_ID]), prefix])[None]
                expected = model(source, tgt_in, (source != PAD_ID)[:, None, None])[0, -1]
                assert row.allclose(expected.log_softmax(-1), atol=1e-4)
                seen.add((len(source[0]) - 1, len(prefix)))
        return log_probs

    config = replace(SEARCH, beam_size=beam_size)
    found = beam_search(model, *padded(SENTENCES), config, constraint)

    assert found == search(model, SENTENCES, config)
    assert {length for length, _ in seen} == {len(sentence) for sentence in SENTENCES}
    assert max(length for _, length in seen) > 3


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        (
            constraint_of(lambda *_: False),
            r"allows a sentence no translation up to 5 subwords longer",
        ),
        (lambda src, prefixes, log_probs: log_probs[..., :3], r"returns \(2, 1, 3\); return log"),
        (
            lambda src, prefixes, log_probs: None,
            r"returns NoneType; return log-probabilities \(2, 1, \d+\)",
        ),
        (
            lambda src, prefixes, log_probs: log_probs * torch.nan,
            r"NaN by step \d+ of the search; check the constraint",
        ),
    ],
)
def test_a_constraint_that_allows_nothing_or_returns_something_else_is_refused(constraint, message):
    with pytest.raises(ConfigError, match=message):
        beam_search(transformer(6, 0), *padded([[3], [4, 5]]), SEARCH, constraint)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    sources=st.lists(st.lists(st.integers(3, 7), max_size=5), min_size=1, max_size=4),
    beam_size=st.integers(1, 5),
    vocab_size=st.integers(4, 9),
    alpha=st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    penalty=st.sampled_from(["gnmt", "power"]),
    max_extra_tokens=st.integers(1, 4),
    eos_bonus=st.sampled_from([-3.0, 0.0, 3.0]),
    steps_per_check=st.sampled_from([1, 3]),
)
def test_batched_search_with_early_stopping_equals_single_search_to_the_limit_in_plain_lists(
    seed,
    sources,
    beam_size,
    vocab_size,
    alpha,
    penalty,
    max_extra_tokens,
    eos_bonus,
    steps_per_check,
):
    config = SearchConfig(
        beam_size=beam_size,
        length_penalty=alpha,
        penalty=penalty,
        max_extra_tokens=max_extra_tokens,
        batch_tokens=1000,
    )
    logits = random_logits(vocab_size, seed, eos_bonus)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(module.STEPS_PER_CHECK, "cpu", steps_per_check)
        results = search(ScriptedModel(logits), sources, config)
    for source, found in zip(sources, results, strict=True):
        assert_same(found, list_beam_search(logits, tuple(source), config))


def test_the_result_does_not_depend_on_the_other_sentences_nor_on_their_order():
    for seed in range(5):
        model = transformer(vocab_size=11, seed=seed)
        together = search(model, SENTENCES, SEARCH)
        backwards = search(model, SENTENCES[::-1], SEARCH)[::-1]
        alone = [search(model, [sentence], SEARCH)[0] for sentence in SENTENCES]
        for first, second, third in zip(together, backwards, alone, strict=True):
            assert_same(first, second)
            assert_same(first, third)


@pytest.mark.quick("1-1", "3-5", "3-40")
@pytest.mark.parametrize("beam_size", [1, 2, 3, 4, 5, 12, 40])
@pytest.mark.parametrize("extra", [1, 3])
def test_hypotheses_are_sorted_distinct_within_the_limit_and_free_of_special_tokens(
    beam_size, extra
):
    config = replace(SEARCH, beam_size=beam_size, max_extra_tokens=extra)
    sentences = [*SENTENCES, []]
    for sentence, hypotheses in zip(
        sentences, search(transformer(11, seed=1), sentences, config), strict=True
    ):
        outputs = [tuple(h.tokens) for h in hypotheses]
        assert 1 <= len(outputs) == len(set(outputs)) <= beam_size
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        assert all(math.isfinite(h.score) and h.log_prob < 0 for h in hypotheses)
        assert not {PAD_ID, BOS_ID, EOS_ID} & set(itertools.chain(*outputs))
        assert max(map(len, outputs)) <= len(sentence) + extra


@pytest.mark.parametrize("beam_size", [1, 2, 5])
def test_at_its_own_limit_each_sentence_ends_and_pays_for_its_end(beam_size):
    # Never ends by itself
    model = ScriptedModel(lambda source, prefix: [0.0, 0.0, -20.0, 1.0, 3.0, 2.0])
    norm = math.log(2 + math.exp(-20) + math.exp(1) + math.exp(3) + math.exp(2))
    sentences = [[3, 3, 3], [], [5]]
    config = replace(SEARCH, beam_size=beam_size, max_extra_tokens=2)
    for sentence, [best, *_] in zip(sentences, search(model, sentences, config), strict=True):
        steps = len(sentence) + 2
        assert best.tokens == [4] * steps
        assert best.log_prob == pytest.approx(steps * (3 - norm) + (-20 - norm), abs=1e-4)


def test_the_source_is_encoded_once_and_finished_sentences_leave_the_batch_early():
    def logits(source, prefix):  # ends for sure when the output is as long as the source
        return [0.0, 0.0, 30.0 if len(prefix) >= len(source) else -30.0, 1.0, 2.0, 0.0]

    model = ScriptedModel(logits)
    results = search(
        model, [[3], [3] * 6, [3] * 3, [4]], replace(SEARCH, beam_size=2, max_extra_tokens=50)
    )
    assert [len(hypotheses[0].tokens) for hypotheses in results] == [1, 6, 3, 1]
    assert model.encoded == 1
    assert model.rows_per_step[0] == 4
    assert model.rows_per_step[-1] == 1
    assert len(model.rows_per_step) <= 8


def test_a_sentence_is_not_given_up_while_a_long_output_can_still_win():
    # Two outputs end early, at scores of about -0.8 and -0.66; the third has log P = -2.3 then,
    # which |Y| = 13 with its penalty of 9 turns into -0.26.
    def logits(source, prefix):
        if len(prefix) >= 12:
            shares = [0, 0, 1, 0, 0]
        else:
            shares = {(): [0, 0, 0.45, 0.45, 0.1], (3,): [0, 0, 0.9, 0.1, 0]}.get(
                prefix, [0, 0, 0, 1, 0]
            )
        return [math.log(share + 1e-9) for share in shares]

    config = replace(SEARCH, beam_size=2, length_penalty=2.0, max_extra_tokens=12)
    [[best, _]] = search(ScriptedModel(logits), [[3]], config)
    assert best.tokens == [4, *[3] * 11]
    assert best.score == pytest.approx(math.log(0.1) / 9, abs=1e-4)


def list_patience_search(
    logits, source: tuple, config: SearchConfig
) -> list[tuple[list[int], float, float]]:
    """Kasai et al. 2022: ends once patience * K hypotheses ended among the best K continuations of
    their step.
    """
    k, limit = config.beam_size, len(source) + config.max_extra_tokens
    alive, finished, n_ended = [((), 0.0)], [], 0
    for length in range(1, limit + 2):
        best = sorted_continuations(logits, source, alive, only_eos=length > limit)[: 2 * k]
        finished += [
            (list(y[:-1]), p / penalty_by_hand(length, config), p)
            for y, p in best
            if y[-1] == EOS_ID
        ]
        alive = [(y, p) for y, p in best if y[-1] != EOS_ID][:k]
        n_ended += sum(y[-1] == EOS_ID for y, _ in best[:k])
        if n_ended >= config.patience * k:
            break
    return sorted(finished, key=lambda f: -f[1])[:k]


@settings(deadline=None, max_examples=10)
@given(
    seed=st.integers(0, 10**6), patience=st.sampled_from([0.5, 1.0]), beam_size=st.integers(2, 4)
)
def test_a_patient_searchs_result_does_not_depend_on_how_long_a_done_sentence_waits_to_leave(
    seed, patience, beam_size
):
    config = replace(
        SEARCH, patience=patience, beam_size=beam_size, length_penalty=3.0, max_extra_tokens=4
    )
    logits, sources = random_logits(7, seed, eos_bonus=1.0), [[3], *[[4] * n for n in range(1, 19)]]
    together = search(ScriptedModel(logits), sources, config)
    for source, found in zip(sources, together, strict=True):
        assert_same(found, list_patience_search(logits, tuple(source), config))


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 10**6),
    patience=st.sampled_from([0.5, 1.0, 1.5, 2.0]),
    beam_size=st.integers(2, 4),
)
def test_a_patient_search_ends_when_that_many_outputs_ended_and_not_before(
    seed, patience, beam_size
):
    # The best possible score falls slowly with such a penalty, so the exact bound hardly ever ends
    # a search first.
    config = replace(
        SEARCH, patience=patience, beam_size=beam_size, length_penalty=3.0, max_extra_tokens=4
    )
    logits, sources = random_logits(7, seed, eos_bonus=1.0), [[3, 4], [5]]
    steps = []
    for source, found in zip(sources, search(ScriptedModel(logits), sources, config), strict=True):
        assert_same(found, list_patience_search(logits, tuple(source), config))
        model = ScriptedModel(logits)
        search(model, [source], config)
        steps.append(len(model.rows_per_step))
    exact = ScriptedModel(logits)
    expected = search(exact, sources, replace(config, patience=None))
    assert search(ScriptedModel(logits), sources, replace(config, patience=0.0)) == expected
    assert max(steps) <= len(exact.rows_per_step)


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("steps_per_check", [1, 4])
def test_a_broken_model_is_reported_with_its_step_instead_of_searching_on(
    broken, steps_per_check, monkeypatch
):
    monkeypatch.setitem(module.STEPS_PER_CHECK, "cpu", steps_per_check)
    unhurt = [0.0, 0.0, -9.0, 1.0, 2.0]

    def logits(source, prefix):
        if len(prefix) < 2:
            return unhurt
        return [broken] * 5 if math.isinf(broken) and broken < 0 else [*unhurt[:4], broken]

    model = ScriptedModel(logits)
    with pytest.raises(DivergedError, match=f"by step {max(3, steps_per_check)} "):
        search(model, [[3, 4], [4]], replace(SEARCH, max_extra_tokens=50))
    assert len(model.rows_per_step) <= 4


def test_a_model_that_can_never_end_is_reported():
    model = ScriptedModel(lambda source, prefix: [0.0, 0.0, -math.inf, 1.0, 2.0])
    with pytest.raises(DivergedError, match="end token"):
        search(model, [[3, 4]], SEARCH)


def test_half_precision_logits_are_normalised_in_single_precision():
    values = [0.125, 0.25, 0.5, 1.5, 2.0, -0.75]  # exact in bfloat16
    scripted = ScriptedModel(lambda source, prefix: values)
    step = scripted.step
    scripted.step = lambda tokens, cache: step(tokens, cache).bfloat16()
    norm = math.log(sum(map(math.exp, values)))
    [[best, *_]] = search(scripted, [[3]], replace(SEARCH, max_extra_tokens=3, length_penalty=0.0))
    expected = sum(values[token] - norm for token in [*best.tokens, EOS_ID])
    assert best.log_prob == pytest.approx(expected, abs=1e-5)
