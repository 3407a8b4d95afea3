"""Decodes lines in batches of similar lengths, smaller ones if memory runs out."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from aiayn.errors import ResourceError
from aiayn.hardware import is_out_of_memory
from aiayn.kernels.prepacked import round_down
from aiayn.model.transformer import Transformer
from aiayn.search.ensemble import Ensemble

BATCH_TOKENS = {"cpu": 8192, "cuda": 65536}  # without search.batch_tokens; more leaves a CPU's caches

Progress = Callable[[int, int], None]
T = TypeVar("T")

log = logging.getLogger(__name__)


def longest_first(ids: list[list[int]]) -> list[int]:
    """Returns the numbers of the lines that are not blank, by their numbers of subwords."""
    return sorted((n for n, line in enumerate(ids) if line), key=lambda n: len(ids[n]), reverse=True)


class BatchDecoder:
    """Decodes lines with a model, in batches of `batch_tokens` padded positions times beams."""

    def __init__(self, model: Transformer | Ensemble, device: torch.device, batch_tokens: int | None):
        """Without `batch_tokens` it is that of BATCH_TOKENS."""
        self.model = model
        self.device = device
        self.batch_tokens = batch_tokens or BATCH_TOKENS[device.type]

    @contextmanager
    def without_dropout(self) -> Iterator[None]:
        """Puts the model into evaluation mode, and afterwards back into the mode it was in."""
        if not self.model.training:  # going through all modules takes as long as several steps of one sentence
            yield
            return
        self.model.eval()
        try:
            yield
        finally:
            self.model.train()

    def _in_batches(
        self,
        ids: list[list[int]],
        beams: int,
        decode: Callable[[list[int]], list[T]],
        blank: Callable[[], T],
        first_line: int,
        on_batch: Progress | None,
    ) -> list[T]:
        """Returns what `decode` finds for each line; it gets the indices of a batch. For blank lines: `blank()`.

        The longest lines come first, so that an out-of-memory error shows at once.
        """
        order = longest_first(ids)
        results, done = [blank() for _ in ids], len(ids) - len(order)
        for found in self._decoded(ids, order, beams, decode, first_line):
            for number, result in found:
                results[number] = result
            done += len(found)
            if on_batch:
                on_batch(done, len(ids))
        return results

    def _decoded(
        self,
        ids: list[list[int]],
        order: list[int],
        beams: int,
        decode: Callable[[list[int]], list[T]],
        first_line: int,
    ) -> Iterator[list[tuple[int, T]]]:
        """Yields, batch by batch of the lines in this order, the index of each line and what `decode` finds for it.

        Batches have `search.batch_tokens` padded positions x beams, and half as many whenever memory runs out.
        """
        start = 0
        while start < len(order):
            batch = self._next_batch(ids, order, start, beams)
            width = len(ids[batch[0]]) + 1
            try:
                with self.without_dropout():
                    found = decode(batch)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if len(batch) == 1:
                    raise ResourceError(
                        f"out of memory with line {first_line + batch[0]} ({width} subwords) alone: split it, or lower "
                        f"search.beam_size (now {beams})"
                    ) from error
                self.batch_tokens = len(batch) // 2 * width * beams
                log.warning(
                    "out of memory with %d lines of %d subwords: continuing with search.batch_tokens=%d",
                    *(len(batch), width, self.batch_tokens),
                )
                continue
            yield list(zip(batch, found, strict=True))
            start += len(batch)

    def _next_batch(self, ids: list[list[int]], order: list[int], start: int, beams: int) -> list[int]:
        """Returns the lines, longest first from `start` on, that are decoded together."""
        most = self.batch_tokens // ((len(ids[order[start]]) + 1) * beams)
        return order[start : start + round_down(most)]
