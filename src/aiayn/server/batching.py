"""Dynamic batching: the lines of all requests that wait are translated together."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiayn.inference.translator import Translation

NBest = Callable[[list[str], int], list[list[Translation]]]

BATCH_LINES = 64  # translated at once; what comes in meanwhile waits that long


class QueueFullError(Exception):
    """Too many lines wait; later there is room again."""


@dataclass
class _Request:
    n: int  # translations per line
    answer: asyncio.Future  # of the translations of every line
    waiting: deque[tuple[int, str]]  # lines that no batch has taken yet, with their indices
    results: list[list[Translation] | None]  # None: not translated yet


class Batcher:
    """Translates for many requests with one model, in one thread.

    While the model works on a batch, requests gather; the next batch takes their lines in turns, so that a long text
    does not keep short ones waiting. Nobody waits for a batch to fill up.
    """

    def __init__(self, n_best: NBest, max_waiting: int):
        """`n_best` is that of a translator; a line's result must not depend on the lines beside it."""
        self._n_best = n_best
        self._max_waiting = max_waiting
        self._requests: deque[_Request] = deque()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1)  # torch keeps threads of its own for every thread that calls it

    async def n_best(self, lines: list[str], n: int) -> list[list[Translation]]:
        """Returns the n best translations of every line, as the translator does. Cancelling it drops waiting lines.

        Raises QueueFullError, and what the translator raises for one of these lines by itself.
        """
        waiting = sum(len(request.waiting) for request in self._requests if not request.answer.done())
        if waiting + len(lines) > self._max_waiting:
            raise QueueFullError
        answer = asyncio.get_running_loop().create_future()
        self._requests.append(_Request(n, answer, deque(enumerate(lines)), [None] * len(lines)))
        self._arrived.set()
        return await answer

    async def call(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Returns work(*arguments), computed between two batches."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Within the context requests are answered."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            self._thread.shutdown(cancel_futures=True)

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while batch := self._next_batch():
                lines, n = [line for _, _, line in batch], max(request.n for request, _, _ in batch)
                found = await self.call(self._translate, lines, n)
                for (request, index, _), result in zip(batch, found, strict=True):
                    _store(request, index, result)

    def _next_batch(self) -> list[tuple[_Request, int, str]]:
        """Takes a line of each request in turn until the batch is full or nothing waits."""
        batch = []
        while self._requests and len(batch) < BATCH_LINES:
            request = self._requests.popleft()
            if not request.answer.done():  # else cancelled or failed
                batch.append((request, *request.waiting.popleft()))
                if request.waiting:
                    self._requests.append(request)
        return batch

    def _translate(self, lines: list[str], n: int) -> list[list[Translation] | Exception]:
        """Returns a result, or an error, for every line: the error of one must not become that of others."""
        try:
            return list(self._n_best(lines, n))
        except Exception as error:
            if len(lines) == 1:
                return [error]
            return [result for line in lines for result in self._translate([line], n)]


def _store(request: _Request, index: int, result: list[Translation] | Exception) -> None:
    """Notes a line's result, and answers the request if it was the last one, or an error."""
    if request.answer.done():
        return
    if isinstance(result, Exception):
        request.answer.set_exception(result)
        return
    request.results[index] = result[: request.n]
    if None not in request.results:
        request.answer.set_result(request.results)
