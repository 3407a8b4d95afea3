"""Files that are written while training goes on."""

from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any

import torch
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor


class BackgroundWriter:
    """Runs writes one after another in a thread, none after a failed one; waits for them when its
    context ends.

    Training changes weights in place, so they must be `copied` before they are submitted. Copies
    from a GPU go to page-locked memory, which is several times as fast and is kept for the next
    copies; only the thread waits for them. `check` is called before each write, and may raise: one
    write can take seconds, in which the run's folder can be lost.
    """

    def __init__(self, check: Callable[[], None] = lambda: None) -> None:
        self._check = check
        self._buffers: dict[tuple[torch.Size, torch.dtype], list[Tensor]] = {}
        self._arrived: torch.cuda.Event | None = None  # of the last copies from a GPU
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="writer")
        self._last: Future | None = None
        self._error: Exception | None = None

    def copied(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values with all their tensors copied, to be submitted; there is one copy at a
        time.

        Waits until all is written. Raises the error of a write that failed.
        """
        self.wait()
        n_copied: Counter[tuple[torch.Size, torch.dtype]] = Counter()

        def copy(tensor: Tensor) -> Tensor:
            if not tensor.is_cuda:
                return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
            shape = tensor.shape, tensor.dtype
            buffers = self._buffers.setdefault(shape, [])
            if n_copied[shape] == len(buffers):
                buffers.append(torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True))
            n_copied[shape] += 1
            return buffers[n_copied[shape] - 1].copy_(tensor.detach(), non_blocking=True)

        copies = apply_to_collection(dict(values), Tensor, copy)
        if n_copied:  # the GPU changes a weight only after it has copied it: both are in one queue
            self._arrived = torch.cuda.Event()
            self._arrived.record()
        return copies

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

    def __exit__(
        self,
        error_class: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._thread.shutdown()
        if error_class is None:
            self.raise_error()

    def _run(self, write: Callable[..., None], *arguments: Any) -> None:
        if not self._error:
            try:
                if self._arrived:
                    self._arrived.synchronize()
                self._check()
                write(*arguments)
            except Exception as error:
                self._error = error
