"""Standard output of the commands that write a line for every line of text, and their progress on the terminal."""

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiayn.evaluation.progress import TranslationProgress

FILE_LINES = 2000  # translated at once from a file


@contextmanager
def show_progress(lines: int, out: Path | None = None) -> "Iterator[TranslationProgress | None]":
    """Shows progress while a file of `lines` lines is turned into another file: `out`, or standard output.

    For standard output only if it is redirected to a file: what reads a pipe may write to the same terminal.
    """
    if not lines or (out is None and not (sys.stderr.isatty() and stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode))):
        yield None
        return
    from aiayn.evaluation.progress import TranslationProgress

    progress = TranslationProgress()
    try:
        yield progress
    finally:
        progress.finish()


def write_lines(lines: Iterable[str]) -> None:
    """Writes and flushes lines as bytes, so that neither locale nor platform changes text or line ends."""
    sys.stdout.buffer.write(as_bytes(lines))
    sys.stdout.buffer.flush()


def as_bytes(lines: Iterable[str]) -> bytes:
    """Returns lines as they are written: in UTF-8, each ended by LF."""
    return "".join(f"{line}\n" for line in lines).encode()
