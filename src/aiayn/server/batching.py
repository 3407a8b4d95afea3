"""Dynamic batching: the lines of all requests that wait are translated together."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import TypeVar

from aiayn.search.translations import Translation

NBest = Callable[[list[str], int], list[list[Translation]]]
T = TypeVar("T")

BATCH_LINES = 64  # translated at once; what comes in meanwhile waits that long


class QueueFullError(Exception):
    """Too many lines wait; later there is room again."""


@dataclass
class _Request:
    n_best: NBest  # belongs to the model that was served when the request came
    n: int  # translations per line
    answer: asyncio.Future[list[list[Translation]]]
    waiting: deque[tuple[int, str]]  # lines that no batch has taken yet, with their indices
    results: dict[int, list[Translation]]  # by the index of the line
    lines: int


class Batcher:
    """Translates for many requests in one thread.

    While a model works on a batch, requests gather; the next batch takes their lines in turns, so that a long text
    does not keep short ones waiting. Nobody waits for a batch to fill up. Other work is done between two batches, one
    piece at a time, so that translations never wait for more than that.
    """

    def __init__(self, max_waiting: int, on_batch: Callable[[int, float], None] = lambda lines, seconds: None):
        """At most `max_waiting` lines and pieces of other work wait. `on_batch` gets each batch's lines and seconds."""
        self._max_waiting = max_waiting
        self._on_batch = on_batch
        self._requests: deque[_Request] = deque()
        self._calls: deque[tuple[asyncio.Future, Callable[[], object]]] = deque()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1)  # torch keeps threads of its own for every thread that calls it

    @property
    def waiting(self) -> int:
        """Lines that no batch has taken yet, and pieces of other work."""
        lines = sum(len(request.waiting) for request in self._requests if not request.answer.done())
        return lines + sum(not future.done() for future, _ in self._calls)

    async def n_best(self, n_best: NBest, lines: list[str], n: int) -> list[list[Translation]]:
        """Returns n_best(lines, n), the n best translations of every line. Cancelling it drops waiting lines.

        A line's result must not depend on the lines beside it. Lines of one `n_best` share batches. Raises
        QueueFullError, and what the translator raises for one of these lines by itself.
        """
        answer: asyncio.Future[list[list[Translation]]] = self._future(len(lines))
        if not lines:
            return []
        self._requests.append(_Request(n_best, n, answer, deque(enumerate(lines)), {}, len(lines)))
        self._arrived.set()
        return await answer

    async def call(self, work: Callable[..., T], *arguments: object) -> T:
        """Returns work(*arguments), computed between two batches. Cancelling it while it waits drops it.

        Raises QueueFullError, and what `work` raises.
        """
        answer: asyncio.Future[T] = self._future(1)
        self._calls.append((answer, lambda: work(*arguments)))
        self._arrived.set()
        return await answer

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Within the context requests are answered."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            self._thread.shutdown(cancel_futures=True)

    def _future(self, lines: int) -> asyncio.Future:
        if self.waiting + lines > self._max_waiting:
            raise QueueFullError
        return asyncio.get_running_loop().create_future()

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._requests or self._calls:
                await self._translate_batch()
                await self._do_call()

    async def _translate_batch(self) -> None:
        if not (batch := self._next_batch()):
            return
        n_best, n = batch[0][0].n_best, max(request.n for request, _, _ in batch)
        start = perf_counter()
        found = await self._in_thread(lambda: _translate(n_best, [line for _, _, line in batch], n))
        self._on_batch(len(batch), perf_counter() - start)
        for (request, index, _), result in zip(batch, found, strict=True):
            _keep_result(request, index, result)

    async def _do_call(self) -> None:
        while self._calls:
            answer, work = self._calls.popleft()
            if answer.done():  # cancelled
                continue
            try:
                result = await self._in_thread(work)
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(result)
            return

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _next_batch(self) -> list[tuple[_Request, int, str]]:
        """Takes a line of each request for one model in turn until the batch is full or nothing waits."""
        batch: list[tuple[_Request, int, str]] = []
        others: list[_Request] = []  # for another model
        while self._requests and len(batch) < BATCH_LINES:
            request = self._requests.popleft()
            if request.answer.done():  # cancelled or failed
                continue
            if batch and request.n_best != batch[0][0].n_best:
                others.append(request)
                continue
            batch.append((request, *request.waiting.popleft()))
            if request.waiting:
                self._requests.append(request)
        self._requests.extendleft(reversed(others))
        return batch


def _translate(n_best: NBest, lines: list[str], n: int) -> list[list[Translation] | BaseException]:
    """Returns a result, or an error, for every line: the error of one must not become that of others."""
    try:
        return list(n_best(lines, n))
    except BaseException as error:  # libraries in Rust panic with what is no Exception
        if len(lines) == 1:
            return [error]
        return [result for line in lines for result in _translate(n_best, [line], n)]


def _keep_result(request: _Request, index: int, result: list[Translation] | BaseException) -> None:
    """Notes a line's result, and answers the request if it was the last one, or an error."""
    if request.answer.done():
        return
    if isinstance(result, BaseException):
        request.answer.set_exception(result)
        return
    request.results[index] = result[: request.n]
    if len(request.results) == request.lines:
        request.answer.set_result([request.results[index] for index in range(request.lines)])
