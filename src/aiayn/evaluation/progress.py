"""Progress of a translation: a live line on a terminal, else a plain line every ten seconds."""

import sys
import time
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn


class TranslationProgress:
    """Lines done, rate and time left, on stderr; call it as `Translator.translate` calls its
    `on_batch`.
    """

    EVERY = 10.0

    def __init__(self) -> None:
        self.start = self.last = time.monotonic()
        self.bar: Progress | None = None
        if sys.stderr.isatty():
            columns = (
                TextColumn("translating"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.description}"),
            )
            self.bar = bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self.task = bar.add_task("", total=None)
            bar.start()

    def __call__(self, done: int, lines: int) -> None:
        clock = time.monotonic()
        rate = max(done, 1) / max(clock - self.start, 1e-9)
        text = f"{rate:,.0f} lines/s  ETA {timedelta(seconds=round((lines - done) / rate))}"
        if self.bar:
            self.bar.update(self.task, completed=done, total=lines, description=text)
        elif clock - self.last >= self.EVERY:
            self.last = clock
            print(f"translated {done} of {lines} lines  {text}", file=sys.stderr, flush=True)

    def finish(self) -> float:
        """Removes the live line. Returns the seconds since the start."""
        if self.bar:
            self.bar.stop()
        return time.monotonic() - self.start
