"""A translator whose lines are split over processes of this machine, each with the model on a
device of its own.
"""

import signal
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import torch

from aiayn.config.extensions import register_extensions
from aiayn.config.search import SamplingConfig
from aiayn.errors import DivergedError, NonFiniteOutputError, ResourceError
from aiayn.hardware import threads
from aiayn.search.force_decode import ScoredPair
from aiayn.search.line_translator import LineTranslator, Progress, require_gpus
from aiayn.search.translations import Hypothesis, Translation
from aiayn.search.translator import Translator, load_translator


class SplitTranslator(LineTranslator):
    """Splits lines into equal consecutive parts: one for this process and one for each further
    process.
    """

    def __init__(self, translator: Translator, others: list[Connection]):
        of_run = translator.tokenizer, translator.search, translator.task, translator.languages
        super().__init__(*of_run, translator.max_positions)
        self.translator, self.others = translator, others

    def in_torch(self) -> Translator:
        return self.translator

    def find(
        self, src_ids: list[list[int]], n: int, on_batch: Progress | None, first_line: int
    ) -> list[list[Hypothesis]]:
        return self._split("find", [src_ids], [n], on_batch, first_line)

    def sample(
        self,
        lines: list[str],
        sampling: SamplingConfig,
        on_batch: Progress | None = None,
        first_line: int = 1,
    ) -> list[Translation]:
        """Samples as `Translator.sample` does."""
        return self._split("sample", [lines], [sampling], on_batch, first_line)

    def score(
        self,
        sources: list[str],
        targets: list[str],
        on_batch: Progress | None = None,
        first_line: int = 1,
    ) -> list[ScoredPair]:
        """Scores as `Translator.score` does."""
        return self._split("score", [sources, targets], [], on_batch, first_line)

    def _split(
        self,
        method: str,
        columns: list[list],
        options: list,
        on_batch: Progress | None,
        first_line: int,
    ) -> list:
        """Calls a method of every process' translator with its part of the lines, each a row of the
        columns.
        """
        lines = len(columns[0])
        size = max(1, -(-lines // (1 + len(self.others))))
        first_part, *parts = (
            [column[start : start + size] for column in columns]
            for start in range(0, max(lines, 1), size)
        )
        for number, (other, part) in enumerate(zip(self.others, parts, strict=False), 1):
            with _alive():
                other.send((method, part, options, first_line + number * size))
        # The other processes are about as far as this one.
        shown: Progress | None = on_batch and (
            lambda done, total: on_batch(done * lines // max(total, 1), lines)
        )
        answers = getattr(self.translator, method)(*first_part, *options, shown, first_line)
        for other in self.others[: len(parts)]:
            with _alive():
                answer = other.recv()
            if isinstance(answer, Exception):
                raise answer
            answers += answer
        return answers


@contextmanager
def _alive() -> Iterator[None]:
    """Raises ResourceError where a process has ended."""
    try:
        yield
    except (EOFError, OSError) as error:
        raise ResourceError(
            "a process that translates some lines has died; if memory ran out, use fewer devices"
        ) from error


@contextmanager
def on_devices(
    translator: Translator, devices: int, made_of: Sequence[Any], extensions: Sequence[str]
) -> Iterator[Translator | SplitTranslator]:
    """Yields a translator that shares its lines with `devices` - 1 further processes, which end
    with the context.

    `made_of` are the arguments of `load_translator` that made it, `extensions` the files whose
    parts and constraints it has.
    Raises ConfigError for devices that are not there.
    """
    if devices == 1:
        yield translator
        return
    if translator.device.type == "cuda":
        require_gpus(devices, torch.cuda.device_count())
    share = max(1, torch.get_num_threads() // devices)
    context = torch.multiprocessing.get_context("spawn")
    started, others = [], []
    try:
        for number in range(1, devices):
            own_end, other_end = context.Pipe()
            work = (other_end, number, share, made_of, extensions)
            started.append(context.Process(target=_work, args=work, daemon=True))
            started[-1].start()
            other_end.close()
            others.append(own_end)
        with threads(share):
            yield SplitTranslator(translator, others)
    finally:
        for process in started:
            process.terminate()
            process.join()


def _work(
    tasks: Connection,
    number: int,
    n_threads: int,
    made_of: Sequence[Any],
    extensions: Sequence[str],
) -> None:
    """Translates what comes, with a model on the GPU of this number, if there are any."""
    # Ctrl-C is for the command, which ends this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(n_threads)
    if torch.cuda.is_available():
        torch.cuda.set_device(number % torch.cuda.device_count())
    translator = load_translator(*made_of, extensions=register_extensions(extensions))
    while True:
        try:
            method, columns, options, first_line = tasks.recv()
        except EOFError:  # the command has ended
            return
        try:
            answer = getattr(translator, method)(*columns, *options, None, first_line)
        except NonFiniteOutputError as error:
            answer = DivergedError(str(error))  # can be pickled
        except Exception as error:
            error.add_note(traceback.format_exc())
            answer = error
        tasks.send(answer)
