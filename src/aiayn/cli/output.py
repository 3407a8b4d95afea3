"""Standard output of the commands that write a line for every line of text, and their progress on the terminal."""

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiayn.evaluation.progress import TranslationProgress

FILE_LINES = 2000  # translated at once from a file


@contextmanager
def show_progress(lines: int) -> "Iterator[TranslationProgress | None]":
    """Shows progress while a file of `lines` lines is turned into another file, to which standard output goes.

    Only then: what reads a pipe may write to the same terminal.
    """
    if not lines or not (sys.stderr.isatty() and stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)):
        yield None
        return
    from aiayn.evaluation.progress import TranslationProgress

    progress = TranslationProgress()
    try:
        yield progress
    finally:
        progress.finish()


def write_lines(lines: Iterable[str]) -> None:
    """Writes and flushes lines as bytes, UTF-8 and ended by LF, so that no locale or platform changes them."""
    sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode())
    sys.stdout.buffer.flush()
