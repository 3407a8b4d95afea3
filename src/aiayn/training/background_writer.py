"""Files that are written while training goes on."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any


class BackgroundWriter:
    """Runs writes one after another in a thread; after one that fails none is run. Waits for them as its context ends.

    What is written must be copied before: training changes weights in place.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="writer")
        self._last: Future | None = None
        self._error: Exception | None = None

    def submit(self, write: Callable[..., None], *arguments: Any) -> None:
        self._last = self._thread.submit(self._run, write, *arguments)

    def raise_error(self) -> None:
        """Raises the error of a write that has failed; does not wait."""
        if self._error:
            raise self._error

    def wait(self) -> None:
        """Waits until all is written. Raises the error of a write that failed."""
        if self._last:
            wait([self._last])
        self.raise_error()

    def __enter__(self) -> "BackgroundWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._thread.shutdown()
        if kind is None:
            self.raise_error()

    def _run(self, write: Callable[..., None], *arguments: Any) -> None:
        if not self._error:
            try:
                write(*arguments)
            except Exception as error:
                self._error = error
