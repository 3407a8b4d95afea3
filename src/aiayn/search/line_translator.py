"""Turns lines into subwords before a search, and its results into text, for every engine."""

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from aiayn.config.rules import require
from aiayn.config.search import SearchConfig
from aiayn.data.cleaning import normalise
from aiayn.data.text_files import MAX_LINE_BYTES, SURROGATE
from aiayn.data.tokenizer import SubwordIds, Tokenizer
from aiayn.errors import DataError, ResourceError, counted
from aiayn.search.translations import Hypothesis, Translation

if TYPE_CHECKING:
    from aiayn.search.translator import Translator

# Padded subwords x beams at once, without search.batch_tokens
BATCH_TOKENS = {"cpu": 8192, "cuda": 65536}

T = TypeVar("T")

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]  # called with the number of lines done and of all lines


def longest_first(ids: SubwordIds) -> list[int]:
    """Returns the numbers of the lines that have subwords, the longest line first."""
    lines = [number for number, line in enumerate(ids) if line]
    return sorted(lines, key=lambda number: len(ids[number]), reverse=True)


def require_gpus(devices: int, gpus: int) -> None:
    """Raises ConfigError for more devices than this machine has GPUs."""
    require(
        devices <= gpus,
        f"devices={devices}: this machine has {counted(gpus, 'GPU')}; lower it, or set "
        "accelerator=cpu",
    )


@dataclass(eq=False, repr=False)
class LineTranslator(ABC):
    """Translates lines with an engine that searches."""

    tokenizer: Tokenizer
    search: SearchConfig
    task: str = "translation"  # the run's data.task
    languages: tuple[str, str] = ("", "")  # source and target
    max_positions: int | None = None  # learned ones, if any

    batch_tokens: int = field(init=False)  # padded subwords x beams at once

    @abstractmethod
    def find(
        self, src_ids: SubwordIds, n: int, on_batch: Progress | None, first_line: int
    ) -> list[list[Hypothesis]]:
        """Returns up to n hypotheses for the subwords of every line, best first; none for a line
        without subwords.
        """

    @abstractmethod
    def in_torch(self) -> "Translator":
        """Returns a translator of the same model in torch, which has its attention weights."""

    def translate(self, lines: list[str], on_batch: Progress | None = None) -> list[str]:
        """Returns the best translation of every line; that of a blank line is empty.

        Raises DataError for input that is not text or too long for the model, DivergedError for a
        broken model, ResourceError if memory runs out.
        """
        return [best.text for best, *_ in self.n_best(lines, 1, on_batch)]

    def n_best(
        self, lines: list[str], n: int, on_batch: Progress | None = None, first_line: int = 1
    ) -> list[list[Translation]]:
        """Returns the n best translations of every line, best first; fewer if the search finished
        fewer.

        `first_line` is the number of lines[0] in error messages. Raises ConfigError if n exceeds
        `beam_size`, and what `translate` raises.
        """
        beams = self.search.beam_size
        require(
            1 <= n <= beams,
            f"{n} translations per line with search.beam_size={beams}: ask for 1 to {beams}, or "
            f"set search.beam_size={max(n, 1)}",
        )
        hypotheses_of_line = self.find(self.sources(lines, first_line), n, on_batch, first_line)
        return [self.to_text(hypotheses) or [Translation()] for hypotheses in hypotheses_of_line]

    def source_ids(self, lines: list[str], first_line: int = 1) -> SubwordIds:
        """Returns the subword ids of every line, without eos, after the normalisation of the
        training text.

        A blank line has none. Raises DataError for input that is not text.
        """
        return self._encoded(self.tokenizer.source, lines, first_line)

    def target_ids(self, lines: list[str], first_line: int = 1) -> SubwordIds:
        """Returns the ids of lines of the target language; see `source_ids`."""
        return self._encoded(self.tokenizer, lines, first_line)

    def _encoded(self, tokenizer: Tokenizer, lines: list[str], first_line: int) -> SubwordIds:
        if isinstance(lines, str):
            raise DataError("the text is a single string: give a list of lines")
        for number, line in enumerate(lines, first_line):
            if not isinstance(line, str) or SURROGATE.search(line):
                raise DataError(f"line {number} is not valid text: {line!r:.80}; correct it")
            if len(line) > MAX_LINE_BYTES:
                raise DataError(
                    f"line {number} has {len(line):,} characters; split it into sentences"
                )
        return tokenizer.encode(list(map(normalise, lines)))

    def sources(self, lines: list[str], first_line: int) -> SubwordIds:
        """Returns `source_ids`. Raises DataError if learned positions are too few for a line and
        its translation.
        """
        src_ids = self.source_ids(lines, first_line)
        remedy = f" or lower search.max_extra_tokens={self.search.max_extra_tokens}"
        self.refuse_long(src_ids, first_line, self.longest_source, remedy)
        return src_ids

    def refuse_long(
        self, rows: SubwordIds, first_line: int, longest: int | None, remedy: str = ""
    ) -> None:
        """Raises DataError for a line of more than `longest` subwords, all that learned positions
        allow.
        """
        for number, ids in enumerate(rows, first_line):
            if longest is not None and len(ids) > longest:
                raise DataError(
                    f"line {number} has {len(ids)} subwords: this model's {self.max_positions} "
                    f"learned positions allow at most {longest}; split the line{remedy}"
                )

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Returns whether an error of this engine means that memory ran out."""
        return isinstance(error, MemoryError)

    def run_batches(
        self,
        groups: list[list[int]],
        ids: SubwordIds,
        start: Callable[[list[int]], Callable[[], T]],
        first_line: int,
        beams: int,
        at_once: int = 1,
    ) -> Iterator[tuple[list[int], T]]:
        """Yields batches of lines, and what the function returns that `start` returns for each.

        The lines of a batch are neighbours in one group, whose longest line comes first, so that a
        lack of memory shows at once. A batch has `batch_tokens` padded positions x beams, and half
        as many whenever memory runs out; up to `at_once` of them are started before one ends.
        """
        waiting = deque(deque(group) for group in groups if group)
        running = deque[Any]()
        while waiting or running:
            while waiting and len(running) < at_once:
                lines = waiting[0]
                width = len(ids[lines[0]]) + 1
                size = max(1, self.batch_tokens // (width * beams))
                batch = [lines.popleft() for _ in range(min(size, len(lines)))]
                running.append((batch, start(batch)))
                if not lines:
                    waiting.popleft()
            batch, finish = running.popleft()
            try:
                outputs = finish()
            except (RuntimeError, MemoryError) as error:
                if not self.is_out_of_memory(error):
                    raise
                width = len(ids[batch[0]]) + 1
                if len(batch) == 1:
                    raise ResourceError(
                        f"out of memory with line {first_line + batch[0]} ({width} subwords) "
                        "alone: split it, or lower search.beam_size (now "
                        f"{self.search.beam_size})"
                    ) from error
                self.batch_tokens = min(self.batch_tokens, len(batch) // 2 * width * beams)
                log.warning(
                    f"out of memory with {len(batch)} lines of {width} subwords: continuing "
                    f"with search.batch_tokens={self.batch_tokens}"
                )
                waiting.appendleft(deque(batch))
                continue
            yield batch, outputs

    @property
    def longest_source(self) -> int | None:
        """Returns the most subwords of a line that learned positions allow with its translation;
        None without any.
        """
        positions = self.max_positions
        return max(positions - self.search.max_extra_tokens - 1, 0) if positions else None

    def to_text(self, hypotheses: list[Hypothesis]) -> list[Translation]:
        """Returns the text of hypotheses; a line break, which bytes of a vocabulary can make,
        becomes a space.
        """
        texts = self.tokenizer.decode([hypothesis.tokens for hypothesis in hypotheses])
        return [
            Translation(" ".join(text.splitlines()), score, log_prob, tokens)
            for text, (tokens, score, log_prob) in zip(texts, hypotheses, strict=True)
        ]
