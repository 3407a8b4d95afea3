"""Many requests, one model: who shares a batch, who waits, and that nobody gets another one's
answer.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from aiayn.apps.server import batching
from aiayn.apps.server.batching import SECOND_OF_A_CORE, Batcher, QueueFullError, cost
from aiayn.errors import DataError
from aiayn.search.translations import Translation


class Model:
    """Says every line twice, keeps every batch, and holds the first one until it is released."""

    def __init__(self):
        self.batches: list[list[str]] = []
        self.started, self.release = threading.Event(), threading.Event()

    def n_best(self, lines: list[str], n: int) -> list[list[Translation]]:
        self.batches.append(lines)
        self.started.set()
        self.release.wait()
        if "bad" in lines:
            raise DataError("bad is no line")
        return [
            [Translation(f"{line} {line} {k}", 0.0, 0.0, []) for k in range(n)] for line in lines
        ]


@asynccontextmanager
async def busy(model: Model, max_waiting: int = 100):
    """A batcher whose model holds the line `first`, so that what follows must wait."""
    batcher = Batcher(max_waiting)
    async with batcher.running():
        first = asyncio.create_task(batcher.n_best(model.n_best, ["first"], 1, [0]))
        await asyncio.to_thread(model.started.wait)
        try:
            yield batcher
        finally:
            model.release.set()
        await first


async def ask(
    model: Model, batcher: Batcher, *requests: list[str], n: int = 1
) -> list[asyncio.Task]:
    """Requests that have been queued."""
    tasks = [
        asyncio.create_task(batcher.n_best(model.n_best, lines, n, [0] * len(lines)))
        for lines in requests
    ]
    await asyncio.sleep(0)
    return tasks


def texts(found: list[list[Translation]]) -> list[list[str]]:
    return [[translation.text for translation in best] for best in found]


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())


def test_requests_that_wait_are_translated_together_and_each_gets_its_own_lines_and_number():
    model = Model()

    async def test():
        async with busy(model) as batcher:
            [one] = await ask(model, batcher, ["a", "b"])
            [two] = await ask(model, batcher, ["c"], n=2)
            model.release.set()
            assert texts(await one) == [["a a 0"], ["b b 0"]]
            assert texts(await two) == [["c c 0", "c c 1"]]

    run(test)
    assert model.batches == [["first"], ["a", "c", "b"]]


def test_a_long_text_does_not_keep_a_short_one_waiting(monkeypatch):
    monkeypatch.setattr(batching, "BATCH_LINES", 3)
    model = Model()

    async def test():
        async with busy(model) as batcher:
            long, short = await ask(model, batcher, list("abcde"), ["x"])
            model.release.set()
            assert texts(await short) == [["x x 0"]]
            assert texts(await long) == [[f"{line} {line} 0"] for line in "abcde"]

    run(test)
    assert model.batches == [["first"], ["a", "x", "b"], ["c", "d", "e"]]


def test_the_error_of_one_line_reaches_its_own_request_only():
    model = Model()

    async def test():
        async with busy(model) as batcher:
            good, bad, other = await ask(model, batcher, ["a"], ["b", "bad"], ["c"])
            model.release.set()
            assert texts(await good) == [["a a 0"]]
            assert texts(await other) == [["c c 0"]]
            with pytest.raises(DataError, match="bad is no line"):
                await bad
            assert texts(await batcher.n_best(model.n_best, ["d"], 1, [0])) == [["d d 0"]]

    run(test)


def test_lines_of_a_request_that_has_failed_are_not_translated(monkeypatch):
    monkeypatch.setattr(batching, "BATCH_LINES", 2)
    model = Model()

    async def test():
        async with busy(model) as batcher:
            bad, good = await ask(model, batcher, ["bad", "a", "b"], ["c", "d"])
            model.release.set()
            assert texts(await good) == [["c c 0"], ["d d 0"]]
            with pytest.raises(DataError):
                await bad

    run(test)
    assert model.batches == [["first"], ["bad", "c"], ["bad"], ["c"], ["d"]]


def test_lines_of_a_request_that_is_cancelled_are_not_translated():
    model = Model()

    async def test():
        async with busy(model, max_waiting=3) as batcher:
            gone, here = await ask(model, batcher, ["a", "b"], ["c"])
            gone.cancel()
            await asyncio.wait([gone])
            [later] = await ask(model, batcher, ["d", "e"])  # in the room of the one that is gone
            model.release.set()
            await asyncio.gather(here, later)

    run(test)
    assert model.batches == [["first"], ["c", "d", "e"]]


def test_more_lines_than_may_wait_are_refused_until_there_is_room_again():
    model = Model()

    async def test():
        async with busy(model, max_waiting=3) as batcher:
            fits, too_many = await ask(model, batcher, ["a", "b"], ["c", "d"])
            with pytest.raises(QueueFullError):
                await too_many
            [fits_too] = await ask(model, batcher, ["e"])
            model.release.set()
            await asyncio.gather(fits, fits_too)
            assert texts(await batcher.n_best(model.n_best, ["c", "d"], 1, [0, 0])) == [
                ["c c 0"],
                ["d d 0"],
            ]

    run(test)


def test_lines_for_two_models_never_share_a_batch_and_each_is_translated_by_its_own():
    old, new = Model(), Model()
    new.release.set()

    async def test():
        async with busy(old) as batcher:
            [one] = await ask(old, batcher, ["a", "b"])
            [two] = await ask(new, batcher, ["c", "d"])
            [three] = await ask(old, batcher, ["e"])
            old.release.set()
            assert texts(await one) == [["a a 0"], ["b b 0"]]
            assert texts(await two) == [["c c 0"], ["d d 0"]]
            assert texts(await three) == [["e e 0"]]

    run(test)
    assert (old.batches, new.batches) == ([["first"], ["a", "e", "b"]], [["c", "d"]])


def test_other_work_waits_in_the_same_list_and_is_done_between_two_batches(monkeypatch):
    monkeypatch.setattr(batching, "BATCH_LINES", 2)
    model, done = Model(), []
    model.n_best = lambda lines, n, plain=model.n_best: (
        done.append("".join(lines)) or plain(lines, n)
    )

    async def test():
        async with busy(model, max_waiting=6) as batcher:
            pieces = [asyncio.create_task(batcher.call(done.append, piece)) for piece in (1, 2, 3)]
            [text] = await ask(model, batcher, list("abc"))
            assert batcher.waiting == 6
            with pytest.raises(QueueFullError):
                await batcher.call(done.append, 4)
            pieces[1].cancel()
            await asyncio.wait(pieces[1:2])
            model.release.set()
            await asyncio.gather(text, *pieces, return_exceptions=True)
            assert batcher.waiting == 0

    run(test)
    assert done == ["first", 1, 3, "ab", "c"]


def test_an_error_of_other_work_reaches_whoever_asked_for_it_and_nobody_else():
    model = Model()

    async def test():
        async with busy(model) as batcher:
            wrong = asyncio.create_task(batcher.call(lambda: 1 / 0))
            [good] = await ask(model, batcher, ["a"])
            model.release.set()
            with pytest.raises(ZeroDivisionError):
                await wrong
            assert texts(await good) == [["a a 0"]]
            assert await batcher.call(lambda x: x + 1, 2) == 3

    run(test)


def test_answers_are_those_of_each_line_alone_whatever_shares_its_batch(translator):
    lines = [
        "the old house",
        "two cats",
        "the man sees the old house of the man",
        "",
        "a",
        "é 猫",
        "the cat",
        "the",
    ]
    alone = [[(one.text, one.tokens) for one in translator.n_best([line], 3)[0]] for line in lines]
    sizes = []

    def n_best(some: list[str], n: int) -> list[list[Translation]]:
        sizes.append(len(some))
        return translator.n_best(some, n)

    async def test():
        batcher = Batcher(100)
        async with batcher.running():
            requests = [(lines[k:] + lines[:k], 1 + k % 3) for k in range(len(lines))]
            answers = await asyncio.gather(
                *(batcher.n_best(n_best, some, n, [0] * len(some)) for some, n in requests)
            )
        for k, ((_, n), answer) in enumerate(zip(requests, answers, strict=True)):
            expected = [best[:n] for best in alone[k:] + alone[:k]]
            assert [[(one.text, one.tokens) for one in best] for best in answer] == expected

    run(test)
    assert max(sizes) > 8


class TimedModel:
    """Takes a second of a clock of its own for every 10 subwords, or another rate, and some for
    every batch; a line of n words has n subwords, or some more.
    """

    def __init__(self, rate: float = 10.0, overhead: float = 0.0, more: int = 0):
        self.now, self.rate, self.overhead, self.batches = 0.0, rate, overhead, []
        self.more = more

    def n_best(self, lines: list[str], n: int) -> list[list[Translation]]:
        self.batches.append(lines)
        self.now += self.overhead + sum(self.more + len(line.split()) for line in lines) / self.rate
        return [[Translation(line, 0.0, 0.0, [])] for line in lines]


async def send(
    batcher: Batcher,
    model: TimedModel,
    words: int,
    lines: int,
    line_cost: Callable[[int], float] = float,
) -> float | None:
    """Sends a request; returns when it was answered, None where it was refused."""
    costs = [line_cost(words)] * lines
    try:
        await batcher.n_best(model.n_best, [" ".join("w" * words)] * lines, 1, costs)
        return model.now
    except QueueFullError:
        return None


@pytest.mark.parametrize("load", [1, 4, 16])
def test_as_many_requests_are_answered_in_time_at_any_load_and_the_rest_is_refused_at_once(load):
    model = TimedModel()

    async def test():
        batcher = Batcher(10_000, time_limit=50, clock=lambda: model.now)
        async with batcher.running():
            await send(batcher, model, 10, 1)  # measures the rate: 400 subwords in 40 seconds
            start = model.now
            requests = [asyncio.create_task(send(batcher, model, 10, 4)) for _ in range(10 * load)]
            ends = await asyncio.gather(*requests)
            answered = [end - start for end in ends if end is not None]
            assert len(answered) == 10
            assert max(answered) <= 40
            assert await send(batcher, model, 10, 4) is not None, "there is room again"

    run(test)


@pytest.mark.parametrize(("time_limit", "least"), [(5, 5), (60, 60)])
def test_of_a_hundred_requests_to_a_slow_server_that_just_started_some_are_answered_all_in_time(
    time_limit, least
):
    model = TimedModel(rate=SECOND_OF_A_CORE / 6)

    async def test():
        batcher = Batcher(10_000, time_limit=time_limit, clock=lambda: model.now)
        async with batcher.running():
            requests = [asyncio.create_task(send(batcher, model, 20, 14)) for _ in range(100)]
            answered = [end for end in await asyncio.gather(*requests) if end is not None]
        assert least - 1 <= len(answered) < 100
        assert max(answered) <= time_limit

    run(test)


def test_lists_of_words_that_are_admitted_are_done_in_time_after_sentences_too():
    model = TimedModel(more=7)

    async def test():
        batcher = Batcher(10_000, time_limit=50, clock=lambda: model.now)
        async with batcher.running():
            await send(batcher, model, 20, 10, cost)
            start = model.now
            requests = [asyncio.create_task(send(batcher, model, 1, 10, cost)) for _ in range(40)]
            ends = await asyncio.gather(*requests)
            assert 0 < max(end - start for end in ends if end is not None) <= 50

    run(test)


@pytest.mark.parametrize(
    ("rate", "measured", "largest"),
    [(1_000, 1, 1), (2_500, 1, 1), (2_500, 64, 1), (100_000, 1, 1), (1_000_000, 640, 4)],
)
def test_a_short_request_behind_long_lines_is_answered_after_two_batches_of_about_a_second(
    rate, measured, largest
):
    # One short line takes much longer than its share of a batch would, which hides the rate.
    model, size = TimedModel(rate, overhead=0.02), int(cost(450))

    async def test():
        batcher = Batcher(10_000, time_limit=5, clock=lambda: model.now)
        async with batcher.running():
            for lines in (1, measured, 1):
                await send(batcher, model, 10, lines)
            model.batches.clear()
            long = asyncio.create_task(send(batcher, model, size, 64))
            while not model.batches:
                await asyncio.sleep(0)
            start = model.now
            answered = await send(batcher, model, 10, 1)
            assert answered is not None, "it can be answered in time"
            assert answered - start <= 2 * (model.overhead + max(1, SECOND_OF_A_CORE / rate))
            long.cancel()

    run(test)
    assert len(model.batches[0]) == largest


def test_long_lines_cost_more_than_short_ones_of_as_many_subwords():
    assert 64 * cost(14) < SECOND_OF_A_CORE < 2 * cost(450)
    assert cost(450) < SECOND_OF_A_CORE


def test_a_text_that_cannot_be_done_in_time_does_not_keep_short_ones_out(monkeypatch):
    monkeypatch.setattr(batching, "BATCH_COST", 20)
    model = TimedModel()

    async def test():
        batcher = Batcher(10_000, time_limit=50, clock=lambda: model.now)
        async with batcher.running():
            await send(batcher, model, 10, 1)  # measures the rate: 400 subwords in 40 seconds
            long = asyncio.create_task(send(batcher, model, 10, 60))
            await asyncio.sleep(0)
            start = model.now
            ends = await asyncio.gather(*(send(batcher, model, 10, 1) for _ in range(20)))
            assert max(end - start for end in ends if end is not None) < 40
            assert len([end for end in ends if end is not None]) == 20
            assert await send(batcher, model, 10, 30) is None, "two long ones cannot be done"
            assert await long is not None

    run(test)


def test_a_batch_is_bounded_by_cost_and_what_a_client_left_behind_is_not_translated(
    monkeypatch,
):
    monkeypatch.setattr(batching, "BATCH_COST", 100)
    model = Model()

    async def test():
        async with busy(model) as batcher:
            long = ["long " * 45] * 12
            left = asyncio.create_task(batcher.n_best(model.n_best, long, 1, [45] * 12))
            [short] = await ask(model, batcher, ["short"])
            model.release.set()
            while len(model.batches) < 2:
                await asyncio.sleep(0)
            left.cancel()
            await short

    run(test)
    assert [sum(len(line.split()) for line in batch) for batch in model.batches[1:]] in (
        [91],
        [91, 90],
    )
