"""The plan's promises, for arbitrary corpora, budgets, seeds and numbers of devices."""

import hashlib
import itertools
import os
import subprocess
import sys
import tracemalloc
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aiayn.data import batch_plan as plan_module
from aiayn.data.batch_plan import BatchPlan, MicroBatch, device_counts
from aiayn.data.length_order import LengthRuns, scrambled, sort_keys
from aiayn.data.samplers import TrainingSampler

LENGTHS = st.integers(1, 40)
CORPORA = st.lists(st.tuples(LENGTHS, LENGTHS), min_size=1, max_size=120).map(np.array)
# One length for all, so that hardly anything but ties is left to draw.
EQUAL = st.tuples(LENGTHS, LENGTHS, st.integers(1, 60)).map(lambda drawn: np.array([drawn[:2]] * drawn[2]))
WORLDS = st.integers(1, 8)


class PlanOfText(BatchPlan):
    """The plan of a corpus, (n, 2) source and target tokens of every pair, with the numbers of pairs in that order."""

    def __init__(self, corpus: np.ndarray, **options):
        self.order = np.argsort(sort_keys(corpus[:, 0], corpus[:, 1], np.arange(len(corpus))), kind="stable")
        super().__init__(LengthRuns.of_pairs(*corpus[self.order].T), **options)

    def micro_batch(self, number: int) -> MicroBatch:
        found = super().micro_batch(number)
        return MicroBatch(self.order[found.pairs], found.step_tokens)


def make(corpus: np.ndarray, **options) -> BatchPlan:
    return PlanOfText(corpus, **{"tokens_per_step": 100, "seed": 1} | options)


def step(plan: BatchPlan, k: int) -> list[int]:
    """Pairs of optimizer step k, its micro-batches joined in order."""
    numbers = range(k * plan.micro_batches, (k + 1) * plan.micro_batches)
    return np.concatenate([plan.micro_batch(number).pairs for number in numbers]).tolist()


def epoch(plan: BatchPlan, e: int) -> list[list[int]]:
    return [step(plan, e * plan.steps_per_epoch + k) for k in range(plan.steps_per_epoch)]


def micro_batches_of(plan: BatchPlan, steps: int) -> list[np.ndarray]:
    return [plan.micro_batch(number).pairs for number in range(steps * plan.micro_batches)]


def longest(corpus: np.ndarray, pairs: np.ndarray) -> int:
    """Padded tokens of the longer side of a micro-batch."""
    return len(pairs) * int(corpus[pairs].max()) if len(pairs) else 0


def lognormal_corpus(n: int, seed: int = 0) -> np.ndarray:
    """Lengths like those of WMT14: long tails, targets about as long as their sources."""
    rng = np.random.default_rng(seed)
    src = rng.lognormal(3.1, 0.65, n)
    return np.clip(np.stack([src, src * rng.lognormal(0.05, 0.2, n)], axis=1).round().astype(int) + 1, 2, 256)


@given(CORPORA | EQUAL, WORLDS, st.integers(1, 3), st.integers(0, 2**32 - 1), st.integers(40, 400))
def test_all_ranks_together_see_every_pair_once_an_epoch_in_equally_many_batches(
    corpus, world, accumulate, seed, budget
):
    plan = make(corpus, seed=seed, tokens_per_step=budget, micro_batches=accumulate * world)
    for e in (0, 1, 7):
        start, count = e * plan.steps_per_epoch, plan.steps_per_epoch * accumulate
        shares = []
        for rank in range(world):
            at = {"global_step": start, "global_rank": rank, "world_size": world}
            trainer = SimpleNamespace(**at, limit_train_batches=1.0, overfit_batches=0)
            shares.append(list(TrainingSampler(plan.steps_per_epoch, plan.micro_batches, trainer)))
            assert len(shares[-1]) == count
        seen = np.concatenate([plan.micro_batch(number).pairs for share in shares for number in share])
        assert sorted(seen.tolist()) == list(range(len(corpus)))
        interleaved = [number for together in zip(*shares, strict=True) for number in together]
        first = start * plan.micro_batches
        assert interleaved == list(range(first, first + len(interleaved))), "ranks in turn are world 1"


@given(CORPORA | EQUAL, st.integers(40, 400), st.integers(0, 5))
def test_no_step_has_more_source_or_more_target_tokens_than_its_budget(corpus, budget, e):
    for pairs in epoch(make(corpus, tokens_per_step=budget), e):
        assert len(pairs) > 0
        assert corpus[pairs].sum(axis=0).max() <= budget


def test_a_pair_exactly_as_long_as_the_budget_is_kept_and_a_longer_one_is_a_bug_of_the_caller():
    corpus = np.array([[3, 100], [100, 2], [1, 1]])
    assert sorted(itertools.chain(*epoch(make(corpus), 0))) == [0, 1, 2]
    with pytest.raises(AssertionError, match="does not fit into a step"):
        make(corpus, tokens_per_step=99)


@given(CORPORA | EQUAL, WORLDS, st.integers(40, 120), st.integers(40, 400))
@example(np.array([[1, 1], [1, 1], [38, 38]]), 1, 40, 40)  # the last pair alone is most of the last step
def test_micro_batches_are_a_multiple_of_the_devices_that_fits_padded_and_at_most_a_third_more_than_the_fewest(
    corpus, devices, limit, budget
):
    plan = make(corpus, tokens_per_step=budget, devices=devices, max_tokens_per_device=limit)
    assert plan.micro_batches % devices == 0
    assert max(longest(corpus, pairs) for pairs in micro_batches_of(plan, plan.steps_per_epoch)) <= limit
    # A third more is 1 at 3, and none at fewer.
    for fewer in (count for count in range(devices, plan.micro_batches, devices) if 4 * count < 3 * plan.micro_batches):
        too_few = make(corpus, tokens_per_step=budget, micro_batches=fewer)
        assert max(longest(corpus, pairs) for pairs in micro_batches_of(too_few, too_few.steps_per_epoch)) > limit


@pytest.mark.parametrize(
    ("fewest", "taken", "counts"),
    [(1, 1, "1"), (2, 2, "1 or 2"), (3, 4, "1, 2 or 4"), (5, 6, "1, 2, 3 or 6"), (7, 8, "1, 2, 4 or 8"), (9, 12, None)],
)
def test_steps_in_several_parts_are_cut_so_that_more_devices_can_share_them(fewest, taken, counts):
    """Pairs of one length, of which a device takes so many that `fewest` parts would do."""
    corpus = np.full((fewest * 1000, 2), 10)
    plan = make(corpus, tokens_per_step=fewest * 10_000, max_tokens_per_device=10_000)
    assert (plan.steps_per_epoch, plan.micro_batches) == (1, taken)
    assert counts is None or device_counts(taken) == counts
    on_two = make(corpus, tokens_per_step=fewest * 10_000, max_tokens_per_device=10_000, devices=2)
    assert on_two.micro_batches % 2 == 0


@given(CORPORA | EQUAL, WORLDS, st.integers(1, 24), st.integers(0, 2**32 - 1))
def test_steps_are_the_same_pairs_in_the_same_order_however_they_are_cut(corpus, devices, micro_batches, seed):
    whole = make(corpus, seed=seed, micro_batches=1)
    for other in (
        make(corpus, seed=seed, micro_batches=micro_batches),
        make(corpus, seed=seed, devices=devices, max_tokens_per_device=50),
    ):
        assert other.steps_per_epoch == whole.steps_per_epoch
        assert [epoch(other, e) for e in (0, 3)] == [epoch(whole, e) for e in (0, 3)]


@given(CORPORA, st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_epochs_exchange_nothing_but_pairs_of_equal_lengths_and_the_order_of_steps(corpus, seed, micro_batches):
    plan = make(corpus, seed=seed, micro_batches=micro_batches)

    def lengths(e: int) -> list:
        """Of every step, of every micro-batch, the lengths in order; the steps sorted."""
        count = plan.steps_per_epoch * micro_batches
        found = [corpus[plan.micro_batch(e * count + i).pairs].tolist() for i in range(count)]
        return sorted(found[i : i + micro_batches] for i in range(0, count, micro_batches))

    assert lengths(0) == lengths(1) == lengths(5)


def test_epochs_differ_in_the_order_of_steps_and_in_their_pairs():
    plan = make(np.array([[4, 6], [5, 5]] * 200))
    first, second = epoch(plan, 0), epoch(plan, 1)
    assert [len(pairs) for pairs in first] != [len(pairs) for pairs in second] or first != second
    assert {frozenset(pairs) for pairs in first}.isdisjoint({frozenset(pairs) for pairs in second})
    lone_lengths = make(np.arange(1, 41)[:, None].repeat(2, axis=1))  # no ties: only the order of steps is left
    orders = [epoch(lone_lengths, e) for e in range(4)]
    assert all(a != b for a, b in itertools.combinations(orders, 2))
    assert all(sorted(map(sorted, a)) == sorted(map(sorted, orders[0])) for a in orders)


def test_seeds_differ():
    corpus = lognormal_corpus(500)
    drawn = [epoch(make(corpus, tokens_per_step=600, seed=seed), 0) for seed in (0, 1, 2, 2**32 - 1)]
    assert all(a != b for a, b in itertools.combinations(drawn, 2))


@given(CORPORA | EQUAL, st.integers(1, 4), st.randoms(use_true_random=False))
def test_a_micro_batch_depends_on_its_number_alone_and_not_on_what_was_asked_before(corpus, micro_batches, random):
    plan = make(corpus, micro_batches=micro_batches)
    in_order = micro_batches_of(plan, 4 * plan.steps_per_epoch)
    numbers = list(range(len(in_order)))
    random.shuffle(numbers)
    for number in numbers:
        assert plan.micro_batch(number).pairs.tolist() == in_order[number].tolist()
    last = numbers[0]
    fresh = make(corpus, micro_batches=micro_batches)
    assert fresh.micro_batch(last).pairs.tolist() == in_order[last].tolist()


@given(CORPORA | EQUAL, st.integers(1, 9))
def test_every_micro_batch_knows_the_target_tokens_of_its_whole_step(corpus, micro_batches):
    plan = make(corpus, micro_batches=micro_batches)
    for k in range(2 * plan.steps_per_epoch):
        expected = int(corpus[step(plan, k), 1].sum())
        assert {plan.micro_batch(k * micro_batches + i).step_tokens for i in range(micro_batches)} == {expected}


def test_a_step_of_fewer_pairs_than_micro_batches_has_empty_micro_batches():
    plan = make(np.array([[7, 9]]), micro_batches=4)
    assert sorted(len(plan.micro_batch(number).pairs) for number in range(4)) == [0, 0, 0, 1]
    assert [plan.micro_batch(number).step_tokens for number in range(8)] == [9] * 8


@given(CORPORA, st.integers(1, 5))
@example(np.array([[1, 1], [1, 2]]), 2)
def test_the_share_of_padding_is_what_a_count_over_all_micro_batches_gives(corpus, micro_batches):
    plan = make(corpus, micro_batches=micro_batches)
    found = [pairs for pairs in micro_batches_of(plan, plan.steps_per_epoch) if len(pairs)]
    positions = sum(len(pairs) * int(corpus[pairs, side].max()) for pairs in found for side in (0, 1))
    assert plan.padding == pytest.approx(1 - corpus.sum() / positions)


def test_at_the_papers_batch_a_corpus_like_its_own_is_padded_by_less_than_three_per_cent():
    corpus = lognormal_corpus(300_000)
    plan = make(corpus, tokens_per_step=25_000, max_tokens_per_device=16_384)
    assert plan.padding < 0.03
    assert plan.micro_batches == 2


@pytest.mark.parametrize(("n", "budget"), [(101, 2500), (260, 2500), (997, 2500), (3000, 2500), (38_000, 4096)])
@pytest.mark.parametrize("seed", range(5))
def test_steps_are_about_equally_full_and_the_last_one_is_no_stump(n, budget, seed):
    corpus = lognormal_corpus(n, seed)
    plan = make(corpus, tokens_per_step=budget)
    fullness = np.array([corpus[pairs].sum(axis=0).max() for pairs in epoch(plan, 0)])
    assert fullness.min() > 0.7 * fullness.mean()


def test_a_remainder_is_spread_over_all_steps_instead_of_making_one_of_its_own():
    plan = make(np.array([[10, 10]] * 101), tokens_per_step=1000)
    assert sorted(len(pairs) for pairs in epoch(plan, 0)) == [50, 51]


SCRIPT = """
import hashlib, numpy as np
from aiayn.data.batch_plan import BatchPlan, device_counts
from aiayn.data.length_order import LengthRuns
rng = np.random.default_rng(5)
lengths = LengthRuns.of_counts(rng.integers(1, 90, 200), rng.integers(1, 90, 200), rng.integers(1, 20, 200))
plan = BatchPlan(lengths, tokens_per_step=900, seed=11, micro_batches=3)
drawn = [plan.micro_batch(number).pairs.tolist() for number in range(6 * plan.steps_per_epoch)]
print(hashlib.sha256(repr(drawn).encode()).hexdigest())
"""


def test_two_processes_with_different_hash_seeds_draw_the_same_plan():
    digests = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert digests[0] == digests[1]
    assert len(digests[0].strip()) == 64


@pytest.mark.parametrize(
    ("corpus", "options", "digest"),
    [
        (
            lognormal_corpus(3000, seed=4),
            {"tokens_per_step": 4096, "seed": 11, "micro_batches": 3},
            "ec382ab5f8780019",
        ),
        (
            lognormal_corpus(40_000, seed=5),
            {"tokens_per_step": 25_000, "seed": 2**32 - 1, "micro_batches": 12},  # a run stores their number
            "ac1f8c754ec0b8ff",
        ),
        (np.array([[7, 11]] * 500 + [[1, 90], [90, 1]]), {"tokens_per_step": 150, "seed": 0}, "e84276babe7d6db8"),
    ],
)
def test_the_plan_of_a_corpus_never_changes_since_runs_that_began_with_it_continue_with_it(corpus, options, digest):
    plan = make(corpus, **options)
    drawn = hashlib.sha256()
    for number in range(2 * plan.steps_per_epoch * plan.micro_batches):
        found = plan.micro_batch(number)
        drawn.update(f"{found.step_tokens} {found.pairs.tolist()}\n".encode())
    assert drawn.hexdigest()[:16] == digest


@given(st.integers(1, 400), st.integers(1, 90), st.integers(0, 2**32 - 1), st.integers(0, 3))
def test_pairs_of_equal_lengths_change_places_within_windows_of_neighbours_only(n, window, seed, e):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_module, "WINDOW", window)
        plan = BatchPlan(LengthRuns.of_pairs(*np.full((2, n), 5)), tokens_per_step=35, seed=seed)
    found = sorted(epoch(plan, e), key=min)
    places = np.sort(np.concatenate(found))
    assert places.tolist() == list(range(n))
    whole = BatchPlan(LengthRuns.of_pairs(*np.full((2, n), 5)), tokens_per_step=5 * n, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole, "_windows", plan._windows)
        [drawn] = epoch(whole, e)
    assert (np.array(drawn) // window == np.arange(n) // window).all()


def test_every_order_of_a_window_is_drawn_about_equally_often():
    lengths = LengthRuns.of_pairs(*np.full((2, 4), 5))
    drawn = Counter(
        tuple(BatchPlan(lengths, tokens_per_step=20, seed=seed).micro_batch(0).pairs) for seed in range(4800)
    )
    assert len(drawn) == 24
    assert sum((count - 200) ** 2 / 200 for count in drawn.values()) < 60  # chi-squared, 23 degrees: P < 0.0001


def test_scrambled_numbers_are_the_published_ones_and_all_different():
    # The first outputs of SplitMix64 from state 0 (Vigna's splitmix64.c).
    assert [hex(z) for z in scrambled(np.arange(1, 4, dtype=np.uint64))] == [
        *("0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f"),
    ]
    assert len(set(scrambled(np.arange(10**5, dtype=np.uint64)).tolist())) == 10**5


def test_a_plan_of_a_thousand_times_the_pairs_holds_no_more_for_each_of_them():
    corpus = lognormal_corpus(20_000)
    runs = LengthRuns.of_pairs(*corpus[np.argsort(sort_keys(*corpus.T, np.arange(len(corpus))))].T)
    many = LengthRuns.of_counts(runs.src.length, runs.tgt.length, runs.pairs * 1000)
    tracemalloc.start()
    plan = BatchPlan(many, tokens_per_step=25_000, seed=3, max_tokens_per_device=16_384)
    found = [plan.micro_batch(number).pairs for number in range(0, 50_000, 5000)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * len(many), "bytes"
    for pairs in found:
        assert np.ptp(pairs) < len(pairs) + 2 * plan_module.WINDOW, "neighbours on the disk"


def test_one_enormous_pair_costs_no_memory():
    corpus = np.array([[5, 6]] * 50 + [[1_000_000, 3], [2, 999_999]])
    tracemalloc.start()
    plan = make(corpus, tokens_per_step=1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1e6
    assert plan.steps_per_epoch == 3


@given(CORPORA | EQUAL, st.integers(40, 400))
@example(np.array([[1, 22], [21, 1], [21, 1]]), 40)  # a step from the end of a run of equal lengths into the next
def test_steps_are_as_few_as_the_budget_allows_and_then_as_even_as_they_can_be(corpus, budget):
    """Against a cut pair by pair."""

    def greedy(limit: int) -> list[int] | None:
        sizes, sums = [0], np.zeros(2, int)
        for pair in corpus[in_order]:
            if pair.max() > limit:
                return None
            if (sums + pair).max() > limit:
                sizes, sums = [*sizes, 0], np.zeros(2, int)
            sizes[-1] += 1
            sums = sums + pair
        return sizes

    def key(i: int) -> tuple[int, int]:
        longer, difference = corpus[i].max(), corpus[i, 0] - corpus[i, 1]
        return longer, difference if longer % 2 else -difference

    in_order = sorted(range(len(corpus)), key=key)
    fewest = len(greedy(budget))
    evenest = next(cut for limit in range(1, budget + 1) if (cut := greedy(limit)) and len(cut) == fewest)
    plan = make(corpus, tokens_per_step=budget)
    assert sorted(len(pairs) for pairs in epoch(plan, 0)) == sorted(evenest)
