"""The plan's promises, for arbitrary corpora, budgets, seeds, parts and numbers of devices."""

import hashlib
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiayn.data.batch_plan import BatchPlan, evaluation_batches
from aiayn.data.datamodule import RankSampler, numbers_from

LENGTHS = st.integers(1, 40)
CORPORA = st.lists(st.tuples(LENGTHS, LENGTHS), min_size=1, max_size=120).map(np.array)
# One length for all, so that hardly anything but ties is left to draw.
EQUAL = st.tuples(LENGTHS, LENGTHS, st.integers(1, 60)).map(
    lambda drawn: np.array([drawn[:2]] * drawn[2])
)
PARTS = st.integers(1, 5)
WORLDS = st.integers(1, 8)


def make(corpus: np.ndarray, **options) -> BatchPlan:
    """corpus (n, 2): source and target tokens of every pair."""
    return BatchPlan(
        corpus[:, 0], corpus[:, 1], **{"tokens_per_step": 100, "parts": 3, "seed": 1} | options
    )


def step(plan: BatchPlan, k: int) -> list[int]:
    """Pairs of optimizer step k, its micro-batches joined in order."""
    numbers = range(k * plan.micro_batches, (k + 1) * plan.micro_batches)
    return np.concatenate([plan.micro_batch(number).pairs for number in numbers]).tolist()


def epoch(plan: BatchPlan, e: int) -> list[list[int]]:
    return [step(plan, e * plan.steps_per_epoch + k) for k in range(plan.steps_per_epoch)]


def micro_batches_of(plan: BatchPlan, steps: int) -> list[np.ndarray]:
    return [plan.micro_batch(number).pairs for number in range(steps * plan.micro_batches)]


def corpus_like_wmt(n: int, seed: int = 0) -> np.ndarray:
    """Lengths like those of WMT14: long tails, targets about as long as their sources."""
    rng = np.random.default_rng(seed)
    src = rng.lognormal(3.1, 0.65, n)
    return np.clip(
        np.stack([src, src * rng.lognormal(0.05, 0.2, n)], axis=1).round().astype(int) + 1, 2, 256
    )


@given(CORPORA | EQUAL, WORLDS, PARTS, st.integers(0, 2**32 - 1), st.integers(40, 400))
def test_all_ranks_together_see_every_pair_once_an_epoch_in_equally_many_batches(
    corpus, world, parts, seed, budget
):
    plan = make(corpus, seed=seed, tokens_per_step=budget, parts=parts, devices=world)
    for e in (0, 1, 7):
        start, count = e * plan.steps_per_epoch, plan.steps_per_epoch * plan.micro_batches // world
        shares = []
        for rank in range(world):
            at = {"global_step": start, "global_rank": rank, "world_size": world}
            trainer = SimpleNamespace(**at, limit_train_batches=1.0, overfit_batches=0)
            numbers = numbers_from(plan, trainer, start)
            shares.append(
                list(
                    RankSampler(
                        plan.steps_per_epoch * plan.micro_batches, trainer, lambda n=numbers: n
                    )
                )
            )
            assert len(shares[-1]) == count
        seen = np.concatenate(
            [plan.micro_batch(number).pairs for share in shares for number in share]
        )
        assert sorted(seen.tolist()) == list(range(len(corpus)))
        interleaved = [number for together in zip(*shares, strict=True) for number in together]
        first = start * plan.micro_batches
        assert interleaved == list(range(first, first + len(interleaved))), (
            "ranks in turn are world 1"
        )


@given(CORPORA | EQUAL, PARTS, WORLDS, st.integers(0, 2**32 - 1))
def test_steps_are_the_same_pairs_in_the_same_order_in_any_number_of_micro_batches(
    corpus, parts, devices, seed
):
    plans = [
        make(corpus, parts=parts, seed=seed, micro_batches=count) for count in (1, parts, 3 * parts)
    ]
    plans.append(make(corpus, parts=parts, seed=seed, devices=devices, max_tokens_per_device=50))
    first = [epoch(plans[0], e) for e in (0, 3)]
    assert all([epoch(plan, e) for e in (0, 3)] == first for plan in plans[1:])
    assert plans[-1].micro_batches % devices == 0


@given(CORPORA | EQUAL, PARTS, st.integers(40, 400), st.integers(0, 3))
def test_the_parts_of_a_step_hold_equally_many_tokens_up_to_a_pair(corpus, parts, budget, e):
    plan = make(corpus, parts=parts, tokens_per_step=budget)
    share = corpus.sum() / (plan.steps_per_epoch * parts)
    for k in range(e * plan.steps_per_epoch, (e + 1) * plan.steps_per_epoch):
        for part in plan.step(k):
            assert abs(corpus[part].sum() - share) <= corpus.sum(axis=1).max()
    assert plan.steps_per_epoch == -(-corpus.sum(axis=0).max() // budget)


def test_a_part_holds_one_length_a_step_all_of_them_and_ratios_are_mixed():
    """The figures that the order of the text, sorted by both lengths, would not give:
    docs/fidelity.md.
    """
    corpus = corpus_like_wmt(100_000)
    plan = make(corpus, tokens_per_step=5000, parts=4)
    within, means, ratios, ratios_of_parts = [], [], [], []
    for k in range(plan.steps_per_epoch):
        parts = plan.step(k)
        # Over parts: long sentences are rare, and a part may hold several lengths of them.
        within.append(np.median([np.ptp(corpus[part].max(axis=1)) for part in parts]))
        pairs = corpus[np.concatenate(parts)]
        means.append(pairs[:, 1].mean())
        ratios.append(pairs[:, 1].sum() / pairs[:, 0].sum())
        ratios_of_parts.append(
            min(np.std(corpus[part][:, 1] / corpus[part][:, 0]) for part in parts)
        )
    assert np.median(within) <= 1
    assert np.std(means) < 0.2 * corpus[:, 1].mean()
    assert np.std(ratios) < 0.03
    assert np.percentile(ratios_of_parts, 5) > 0.1


@pytest.mark.quick("4-25000", "4-2048")
@pytest.mark.parametrize(("tokens", "most"), [(25_000, 0.085), (2048, 0.1)])
@pytest.mark.parametrize("parts", [1, 4, 8])
def test_little_of_a_step_is_padding(tokens, most, parts):
    plan = make(corpus_like_wmt(300_000), tokens_per_step=tokens, parts=parts)
    assert plan.padding.mean() < most


@pytest.mark.parametrize(("parts", "micro_batches"), [(1000, None), (4, 1000)])
def test_a_thousand_micro_batches_a_step_delay_no_start(parts, micro_batches, monkeypatch):
    counted = []
    piece = BatchPlan._piece
    monkeypatch.setattr(
        BatchPlan, "_piece", lambda *arguments: counted.append(1) or piece(*arguments)
    )
    plan = make(
        corpus_like_wmt(100_000),
        tokens_per_step=8000,
        parts=parts,
        micro_batches=micro_batches,
        max_tokens_per_device=16_384,
    )
    assert plan.steps_per_epoch > 300
    assert 0 <= plan.padding.mean() < 0.1
    assert len(counted) < 50_000  # of more than 300,000


@given(st.integers(0, 60), st.integers(1, 5), st.integers(1, 9))
def test_pieces_of_a_part_differ_by_a_pair_at_most_and_leave_none_out(n_pairs, parts, pieces):
    plan = make(np.ones((1, 2), int), parts=parts)
    pairs = [np.arange(n_pairs) + 100 * part for part in range(parts)]
    batches = [plan._piece(pairs, parts * pieces, index) for index in range(parts * pieces)]
    for part in range(parts):
        cut = batches[part * pieces : (part + 1) * pieces]
        assert np.concatenate(cut).tolist() == pairs[part].tolist()
        assert [len(batch) for batch in cut] == [
            len(batch) for batch in np.array_split(pairs[part], pieces)
        ]


@given(CORPORA, PARTS)
def test_the_share_of_padding_is_what_a_count_over_all_micro_batches_gives(corpus, parts):
    plan = make(corpus, parts=parts)
    expected = []
    for pairs in micro_batches_of(plan, plan.steps_per_epoch):
        if len(pairs):
            positions = len(pairs) * corpus[pairs].max(axis=0).sum()
            expected.append(1 - corpus[pairs].sum() / positions)
    assert sorted(plan.padding) == pytest.approx(sorted(expected))


@given(CORPORA | EQUAL, WORLDS, PARTS, st.integers(40, 120))
def test_micro_batches_fit_a_device_padded_and_are_as_few_as_that_allows(
    corpus, devices, parts, limit
):
    plan = make(corpus, parts=parts, devices=devices, max_tokens_per_device=limit)

    def most(count: int) -> int:
        other = make(corpus, parts=parts, micro_batches=count)
        found = micro_batches_of(other, other.steps_per_epoch)
        return max(len(pairs) * corpus[pairs].max() for pairs in found if len(pairs))

    unit = np.lcm(parts, devices)
    assert plan.micro_batches % unit == 0
    assert most(plan.micro_batches) <= limit
    assert plan.micro_batches == unit or most(plan.micro_batches - unit) > limit


def test_a_step_without_pairs_weighs_nothing_and_divides_by_no_zero():
    plan = make(np.full((37, 2), 19), tokens_per_step=20, parts=4)
    batches = [
        plan.micro_batch(number) for number in range(3 * plan.steps_per_epoch * plan.micro_batches)
    ]
    assert not all(step(plan, k) for k in range(3 * plan.steps_per_epoch)), (
        "parts of less than a pair"
    )
    assert all(batch.step_tokens > 0 for batch in batches)


def test_micro_batches_that_would_mix_pieces_of_parts_are_refused():
    with pytest.raises(
        ValueError, match="6 micro-batches are neither a multiple nor a divisor of 4 parts"
    ):
        make(np.array([[3, 4]] * 9), parts=4, micro_batches=6)


@pytest.mark.parametrize("parts", [1, 4])
def test_epochs_and_seeds_differ_in_the_pairs_that_meet(parts):
    corpus = np.array([[4, 6], [5, 5]] * 200)
    plan = make(corpus, parts=parts)
    first, second = epoch(plan, 0), epoch(plan, 1)
    assert {frozenset(pairs) for pairs in first}.isdisjoint({frozenset(pairs) for pairs in second})
    drawn = [epoch(make(corpus, parts=parts, seed=seed), 0) for seed in (0, 1, 2, 2**32 - 1)]
    assert all(a != b for a, b in itertools.combinations(drawn, 2))


@given(CORPORA | EQUAL, PARTS, st.randoms(use_true_random=False))
def test_a_micro_batch_depends_on_its_number_alone_and_not_on_what_was_asked_before(
    corpus, parts, random
):
    plan = make(corpus, parts=parts)
    in_order = micro_batches_of(plan, 4 * plan.steps_per_epoch)
    numbers = list(range(len(in_order)))
    random.shuffle(numbers)
    for number in numbers:
        assert plan.micro_batch(number).pairs.tolist() == in_order[number].tolist()
    last = numbers[0]
    assert make(corpus, parts=parts).micro_batch(last).pairs.tolist() == in_order[last].tolist()


@given(CORPORA | EQUAL, PARTS)
def test_every_micro_batch_knows_the_target_tokens_of_its_whole_step(corpus, parts):
    plan = make(corpus, parts=parts)
    for k in range(2 * plan.steps_per_epoch):
        expected = int(corpus[step(plan, k), 1].sum())
        numbers = range(k * plan.micro_batches, (k + 1) * plan.micro_batches)
        assert {plan.micro_batch(number).step_tokens for number in numbers} == {max(1, expected)}


@pytest.mark.parametrize(
    ("corpus", "options", "digest"),
    [
        (
            corpus_like_wmt(3000, seed=4),
            {"tokens_per_step": 4096, "parts": 4, "seed": 11},
            "d25463e0cee639f1",
        ),
        (
            corpus_like_wmt(40_000, seed=5),
            {"tokens_per_step": 25_000, "parts": 8, "seed": 2**32 - 1, "micro_batches": 16},
            "0b578a08240e1204",
        ),
        (
            np.array([[7, 11]] * 500 + [[1, 90], [90, 1]]),
            {"tokens_per_step": 150, "parts": 1, "seed": 0},
            "51c1e0985d5480cd",
        ),
    ],
)
def test_the_plan_of_a_corpus_never_changes_since_runs_that_began_with_it_continue_with_it(
    corpus, options, digest
):
    plan = make(corpus, **options)
    drawn = hashlib.sha256()
    for number in range(2 * plan.steps_per_epoch * plan.micro_batches):
        found = plan.micro_batch(number)
        drawn.update(f"{found.step_tokens} {found.pairs.tolist()}\n".encode())
    assert drawn.hexdigest()[:16] == digest


@given(
    st.lists(st.tuples(LENGTHS, LENGTHS), min_size=1, max_size=60).map(np.array), st.integers(1, 90)
)
def test_evaluation_batches_hold_every_pair_once_fit_padded_and_begin_with_the_longest(
    corpus, limit
):
    batches = evaluation_batches([corpus[:, 0], corpus[:, 1]], limit)
    assert sorted(itertools.chain(*(batch.tolist() for batch in batches))) == list(
        range(len(corpus))
    )
    for batch in batches:
        assert len(batch) == 1 or len(batch) * corpus[batch].max() <= limit
    longest = [int(corpus[batch].max()) for batch in batches]
    assert longest == sorted(longest, reverse=True)


@pytest.mark.parametrize("often", [2.0, 10.0, 3.7])
def test_the_copies_of_a_pair_belong_to_different_steps_those_of_long_pairs_too(often):
    corpus = corpus_like_wmt(1500)
    plan = make(
        corpus,
        tokens_per_step=2000,
        parts=4,
        repetitions=np.where(np.arange(1500) < 300, often, 1.0),
    )
    for e in (0, 3):
        steps = epoch(plan, e)
        assert max(np.bincount(pairs).max() for pairs in steps) == 1
        assert sorted(set(np.concatenate(steps).tolist())) == list(range(1500))
        tokens = [corpus[pairs].sum() for pairs in steps]
        assert np.std(tokens) < 0.15 * np.mean(tokens), "steps stay equally large"


def test_more_copies_than_steps_are_dealt_evenly():
    plan = make(np.full((9, 2), 11), tokens_per_step=60, parts=1, repetitions=np.full(9, 4.0))
    halved = make(np.full((9, 2), 11), tokens_per_step=200, parts=1, repetitions=np.full(9, 4.0))
    assert (plan.steps_per_epoch, halved.steps_per_epoch) == (7, 2)
    assert max(np.bincount(pairs).max() for pairs in epoch(plan, 0)) == 1
    assert {count for pairs in epoch(halved, 0) for count in np.bincount(pairs, minlength=9)} == {2}


@pytest.mark.parametrize(("often", "seen"), [(0.5, {3}), (2.5, {15}), (0.3, {1, 2})])
def test_a_part_of_the_pairs_is_another_one_in_every_epoch_until_all_were_seen(often, seen):
    plan = make(corpus_like_wmt(400), tokens_per_step=1500, repetitions=np.full(400, often))
    epochs = [np.bincount(np.concatenate(epoch(plan, e)), minlength=400) for e in range(6)]
    assert set(sum(epochs).tolist()) == seen
    assert all(abs(counts.sum() - 400 * often) <= 1 for counts in epochs)
