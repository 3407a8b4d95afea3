"""Dynamic batching: translates the lines of all waiting requests together."""

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from time import perf_counter
from typing import TypeVar

from starlette.exceptions import HTTPException

from aiayn.search.translations import Translation

NBest = Callable[[list[str], int], list[list[Translation]]]
T = TypeVar("T")

# Translated at once, what takes about a second; what comes in meanwhile waits that long. One core
# does 2,100 of cost in it (examples/en-de.aiayn), which bounds the first batch.
BATCH_LINES, SECOND_OF_A_CORE, BATCH_COST = 64, 2100, 8400
QUEUED_LINES = 64  # of a request that wait at once: a long text does not fill up the queue
SLOWEST = SECOND_OF_A_CORE / 6  # cost a second, assumed before the first batch has shown it
FORGET = 0.9  # share of the measured rate that a batch leaves to those before it
MARGIN = 0.8  # share of the time limit that admitted text may take by the measured rate


def cost(subwords: int) -> float:
    """Returns what a line costs, in subwords of a batch of sentences: a line takes time by itself,
    and each subword attends to all before it.
    """
    return 8 + subwords + subwords**2 / 128


class QueueFullError(HTTPException):
    """More text waits than can be translated in time; after `seconds` there is room again."""

    def __init__(self, seconds: float = 1.0):
        later = {"Retry-After": str(max(1, math.ceil(seconds)))}
        super().__init__(503, "too much text is waiting; try again later", later)


@dataclass(eq=False)
class _Request:
    n_best: NBest  # belongs to the model that was served when the request came
    n: int  # translations of each line
    lines: deque[tuple[int, str, float]]  # that no batch has taken yet: index, text, cost
    translations: list[list[Translation]]  # of each line; empty until it is translated
    answer: asyncio.Future[list[list[Translation]]]

    def take(self, line_index: int, outcome: list[Translation] | BaseException) -> None:
        """Takes what became of a line; that of the last line, or an error, makes the answer."""
        if self.answer.done():
            return
        if isinstance(outcome, BaseException):
            self.answer.set_exception(outcome)
            return
        self.translations[line_index] = outcome[: self.n]
        if all(self.translations):
            self.answer.set_result(self.translations)


class Batcher:
    """Translates for many requests in one thread.

    While a model works on a batch, requests gather; the next batch takes their lines in turns, so
    that a long text does not keep short ones waiting. A batch is bounded by lines and cost, and
    lines of clients that have left are dropped. Nobody waits for a batch to fill up. Other work is
    done between two batches.
    """

    def __init__(
        self,
        max_waiting: int,
        on_batch: Callable[[int, float], None] = lambda lines, seconds: None,
        time_limit: float = 60.0,
        clock: Callable[[], float] = perf_counter,
    ):
        """At most `max_waiting` lines and pieces of other work wait. `on_batch` gets each batch's
        lines and seconds.

        Text that would take longer than `time_limit` seconds is not admitted.
        """
        self._max_waiting = max_waiting
        self._on_batch = on_batch
        self._longest = MARGIN * time_limit
        self._clock = clock
        # The cost of each admitted request's untranslated lines
        self._left: dict[object, float] = {}
        self._cost, self._seconds = 0.0, 0.0  # of the last batches, earlier ones counting less
        self._requests: deque[_Request] = deque()
        self._calls = 0  # pieces of other work that are not done
        self._arrived = asyncio.Event()
        # torch keeps threads of its own for every thread that calls it
        self._thread = ThreadPoolExecutor(1)

    @property
    def waiting(self) -> int:
        """Returns the number of lines that no batch has taken yet, and pieces of other work that
        are not done.
        """
        return self._calls + sum(
            len(request.lines) for request in self._requests if not request.answer.done()
        )

    @property
    def _rate(self) -> float:
        """Returns the cost of what is translated in a second; 0 before the first batch."""
        return self._cost / self._seconds if self._seconds else 0.0

    @property
    def _batch_cost(self) -> float:
        """Returns the most that several lines of a batch may cost: what is done in a second."""
        return min(self._rate or SECOND_OF_A_CORE, BATCH_COST)

    def _check_room(self, count: int) -> None:
        if self.waiting + count > self._max_waiting:
            raise QueueFullError

    async def n_best(
        self, n_best: NBest, lines: list[str], n: int, costs: Sequence[float]
    ) -> list[list[Translation]]:
        """Returns n_best(lines, n), the n best translations of every line. Cancelling it drops
        waiting lines.

        costs: of each line, see `cost`. A line's result must not depend on the lines beside it.
        Lines of one `n_best` share batches. Raises QueueFullError if there is no room or the text
        cannot be done in time, and what the translator raises for one of these lines by itself.
        """
        # What is refused costs nothing; what is admitted would miss its time limit if more was.
        # Requests get their turns, so a long one keeps a short one waiting no longer than another
        # short one does.
        request_cost, key = sum(costs), object()
        rate = self._rate or SLOWEST
        share = max(request_cost, self._batch_cost)
        waiting = sum(min(left, share) for left in self._left.values())
        if waiting and (waiting + request_cost) / rate > self._longest:
            raise QueueFullError(waiting / rate)
        self._left[key] = request_cost
        translations: list[list[Translation]] = []
        try:
            for start in range(0, len(lines), QUEUED_LINES):
                some = slice(start, start + QUEUED_LINES)
                self._check_room(len(lines[some]))
                answer = asyncio.get_running_loop().create_future()
                waiting = deque(zip(count(), lines[some], costs[some], strict=False))
                request = _Request(n_best, n, waiting, [[] for _ in waiting], answer)
                self._requests.append(request)
                self._arrived.set()
                try:
                    translations += await answer
                finally:
                    answer.cancel()
                self._left[key] -= sum(costs[some])
        finally:
            del self._left[key]
        return translations

    async def call(self, work: Callable[..., T], *arguments: object) -> T:
        """Returns work(*arguments), computed between two batches. Cancelling it while it waits
        drops it.

        Raises QueueFullError, and what `work` raises.
        """
        self._check_room(1)
        self._calls += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)
        finally:
            self._calls -= 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answers requests within the context."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            self._thread.shutdown(cancel_futures=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while batch := self._next_batch():
                requests, line_indices, texts, costs = zip(*batch, strict=True)
                start, n = self._clock(), max(request.n for request in requests)
                outcomes = await loop.run_in_executor(
                    self._thread, _translate, requests[0].n_best, list(texts), n
                )
                seconds = self._clock() - start
                self._on_batch(len(batch), seconds)
                if sum(costs):
                    self._cost = FORGET * self._cost + sum(costs)
                    self._seconds = FORGET * self._seconds + seconds
                for request, line_index, outcome in zip(
                    requests, line_indices, outcomes, strict=True
                ):
                    request.take(line_index, outcome)

    def _next_batch(self) -> list[tuple[_Request, int, str, float]]:
        """Takes a line of each request for one model in turn until the batch is full or nothing
        waits.
        """
        batch: list[tuple[_Request, int, str, float]] = []
        # For another model, or a line that costs more than is left
        others: list[_Request] = []
        room = self._batch_cost
        while self._requests and len(batch) < BATCH_LINES:
            request = self._requests.popleft()
            if not request.lines or request.answer.done():  # nobody waits for the rest of it
                continue
            line_cost = request.lines[0][2]
            if batch and (request.n_best != batch[0][0].n_best or line_cost > room):
                others.append(request)
                continue
            room -= line_cost
            batch.append((request, *request.lines.popleft()))
            self._requests.append(request)
        self._requests.extendleft(reversed(others))
        return batch


def _translate(n_best: NBest, lines: list[str], n: int) -> list[list[Translation] | BaseException]:
    """Returns a result, or an error, for every line: the error of one must not become that of
    others.
    """
    try:
        return list(n_best(lines, n))
    except BaseException as error:  # libraries in Rust panic with what is no `Exception`
        return (
            [error]
            if len(lines) == 1
            else [outcome for line in lines for outcome in _translate(n_best, [line], n)]
        )
