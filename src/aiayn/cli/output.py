"""Standard output of the commands that write a line for every line of text, and their progress on
the terminal.
"""

import json
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiayn.evaluation.progress import TranslationProgress
    from aiayn.search.line_translator import LineTranslator
    from aiayn.search.translations import Translation

FILE_LINES = 2000  # translated at once from a file


@contextmanager
def show_progress(lines: int) -> "Iterator[TranslationProgress | None]":
    """Shows progress while a file of `lines` lines is turned into another file, to which standard
    output goes.

    Only then: what reads a pipe may write to the same terminal.
    """
    is_shown = lines and sys.stderr.isatty()
    if not is_shown or not stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode):
        yield None
        return
    from aiayn.evaluation.progress import TranslationProgress

    progress = TranslationProgress()
    try:
        yield progress
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
