"""Text that is translated line by line, from a file, standard input, or one column of either; and
what commands write for each line, with their progress on the terminal.
"""

import io
import json
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from aiayn.errors import DataError, counted

if TYPE_CHECKING:
    from aiayn.search.line_translator import LineTranslator, Progress
    from aiayn.search.translations import Translation

FILE_LINES = 2000  # translated at once from a file
STREAM_BYTES = 1 << 17  # translated at once from a stream: up to 2,000 lines or so


@dataclass(frozen=True)
class Chunk:
    """Lines that are translated together, and a function from their translations to output
    lines.
    """

    lines: list[str]
    written: Callable[[list[str]], Iterable[str]] = list


def file_chunks(file: Path) -> tuple[int, Iterator[Chunk]]:
    """Returns how many lines a file has, and these.

    It is read twice if it can be: errors in it come before a model is loaded, and it need not fit
    into memory.
    """
    from aiayn.data.text_files import OPENERS, decoded_lines, scan

    if file.is_file() and file.suffix in OPENERS:
        scan(file)  # refuses one that holds too much, before it is decoded
    kept = (
        None if file.is_file() else list(decoded_lines(file))
    )  # `<(command)` can be read only once
    count = sum(1 for _ in decoded_lines(file)) if kept is None else len(kept)

    def chunks() -> Iterator[Chunk]:
        lines = decoded_lines(file) if kept is None else iter(kept)
        while some := list(islice(lines, FILE_LINES)):
            yield Chunk(some)

    return count, chunks()


def stream_chunks() -> Iterator[Chunk]:
    """Yields the whole lines read so far from standard input, so that output starts before the
    input ends.
    """
    from aiayn.data.text_files import MAX_LINE_BYTES

    pending, lines_read = b"", 0
    reader = sys.stdin.buffer
    assert isinstance(reader, io.BufferedIOBase)
    while block := reader.read1(STREAM_BYTES):
        *lines, pending = (pending + block).split(b"\n")
        if lines:
            yield Chunk(_decoded(lines, lines_read))
            lines_read += len(lines)
        if len(pending) > 2 * MAX_LINE_BYTES:  # too long, whatever follows: raises its error now
            _decoded([pending], lines_read)
    if pending:
        yield Chunk(_decoded([pending], lines_read))


def _decoded(lines: list[bytes], lines_before: int) -> list[str]:
    """Decodes lines that come after `lines_before` others, as lines of files are decoded."""
    from aiayn.data.text_files import decode

    if not lines_before:
        lines = [lines[0].removeprefix(b"\xef\xbb\xbf"), *lines[1:]]
    return [
        decode(line.removesuffix(b"\r"), "standard input", number)
        for number, line in enumerate(lines, lines_before + 1)
    ]


def prompted_chunks(greeting: str) -> Iterator[Chunk]:
    """Yields lines typed on a terminal, one at a time."""
    import readline  # noqa: F401  (gives `input` its arrow keys)

    print(greeting, file=sys.stderr)
    while True:
        try:
            yield Chunk([input("> ")])
        except EOFError:
            print()
            return


def column_chunks(chunks: Iterable[Chunk], column: int) -> Iterator[Chunk]:
    """Yields column `column` (from 1) of tab-separated lines; the other columns and blank lines
    stay.

    Raises DataError for a line that is not blank and has too few columns.
    """
    lines_before = 0
    for chunk in chunks:
        rows = [line.split("\t") if line else [] for line in chunk.lines]
        for number, row in enumerate(rows, lines_before + 1):
            if 0 < len(row) < column:
                raise DataError(
                    f"line {number} has {counted(len(row), 'column')}: --tsv {column} needs "
                    f"{column}; correct it"
                )
        lines_before += len(rows)

        def written(translations: list[str], rows: list[list[str]] = rows) -> Iterator[str]:
            for row, text in zip(rows, translations, strict=True):
                row[column - 1 : column] = [text.replace("\t", " ")] if row else []
                yield "\t".join(row)

        yield Chunk([row[column - 1] if row else "" for row in rows], written)


@contextmanager
def show_progress(total: int) -> "Iterator[Callable[[int, int], Progress | None]]":
    """Shows progress while a file of `total` lines is turned into another file, to which standard
    output goes.

    Only then: what reads a pipe may write to the same terminal. Gives a function of the lines that
    are done, and of those that are next: it returns the progress to be called with shares of these,
    which may be counted in sentences.
    """
    is_shown = total and sys.stderr.isatty()
    if not is_shown or not stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode):
        yield lambda lines_done, count: None
        return
    from aiayn.evaluation.progress import TranslationProgress

    progress = TranslationProgress()

    def progress_of(lines_done: int, count: int) -> "Progress":
        def on_batch(n_texts_done: int, n_texts: int) -> None:
            progress(lines_done + n_texts_done * count // max(n_texts, 1), total)

        return on_batch

    try:
        yield progress_of
    finally:
        progress.finish()


def write_lines(lines: Iterable[str]) -> None:
    """Writes and flushes lines as bytes, UTF-8 and ended by LF, so that no locale or platform
    changes them.
    """
    sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode())
    sys.stdout.buffer.flush()


def as_json(
    translator: "LineTranslator",
    lines: list[str],
    n_best: "list[list[Translation]]",
    first_index: int,
) -> Iterator[str]:
    """Yields one JSON object per translation, in order of the lines."""
    from aiayn.search.alignment import alignment_weights

    src_ids = translator.source_ids(lines)
    numbered = [(number, translation) for number, best in enumerate(n_best) for translation in best]
    outputs = [translation.tokens for _, translation in numbered]
    attention = alignment_weights(translator, [src_ids[number] for number, _ in numbered], outputs)
    for (number, translation), weights in zip(numbered, attention, strict=True):
        fields = {
            "index": first_index + number,
            "source": lines[number],
            "translation": translation.text,
            "score": translation.score,
            "log_prob": translation.log_prob,
            "source_tokens": translator.tokenizer.source.tokens(src_ids[number]),
            "tokens": translator.tokenizer.tokens(translation.tokens),
            "alignment": [] if weights is None else weights.argmax(-1).tolist(),
        }
        yield json.dumps(fields, ensure_ascii=False)
