"""A training run on the screen: a live display on a terminal, plain lines elsewhere."""

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from aiayn.config.tasks import VAL_METRICS

log = logging.getLogger(__name__)

# The metrics of a validation that are shown, and their decimals.
DECIMALS = (
    {"val/loss": 3, "val/ppl": 2, "val/accuracy": 3}
    | dict.fromkeys(VAL_METRICS, 1)
    | {"val/length_ratio": 3}
)


def metrics_text(metrics: Mapping[str, float]) -> str:
    """Returns what a validation found; "" where it found nothing that is shown."""
    return "  ".join(
        f"{name} {metrics[name]:.{digits}f}" for name, digits in DECIMALS.items() if name in metrics
    )


@dataclass
class Display:
    """Shows what ThroughputMonitor and Validate measure, on rank 0 only."""

    max_steps: int
    progress_bar: bool = True
    live: Live | None = None
    measured: str = ""
    validated: str = ""
    remaining: str = ""

    def start(self, done: int) -> None:
        """Begins the live display, on a terminal, `done` steps into the run."""
        if not (self.progress_bar and sys.stderr.isatty()):
            return
        columns = (
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
        )
        console = Console(stderr=True)
        self.bar = Progress(*columns, console=console)
        self.task = self.bar.add_task("", total=self.max_steps, completed=done)
        self.status = Text(no_wrap=True, overflow="ellipsis")
        self.live = Live(Group(self.bar, self.status), console=console, refresh_per_second=4)
        self.live.start()

    def stop(self) -> None:
        if self.live:
            self.live.stop()
            self.live = None

    def advance(self, step: int) -> None:
        if self.live:
            self.bar.update(self.task, completed=step)

    def show_training(self, step: int, metrics: Mapping[str, float], seconds_left: float) -> None:
        """Shows loss, learning rate and speed of the last interval."""
        time_left = timedelta(seconds=round(seconds_left))
        text = (
            f"loss {metrics['train/loss']:.3f}  lr {metrics['train/lr']:.2e}  "
            f"{metrics['perf/tokens_per_sec']:,.0f} tokens/s"
        )
        if self.live:
            self.measured, self.remaining = text, f"ETA {time_left}"
            self._refresh()
        else:
            log.info(
                "step %d/%d  epoch %.1f  %s  ETA %s",
                step,
                self.max_steps,
                metrics["train/epoch"],
                text,
                time_left,
            )

    def show_validation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Shows a validation on a line of its own, which the display on a terminal keeps as
        well.
        """
        if not (text := metrics_text(metrics)):
            return
        self.validated = (
            f"step {step}: {text.partition('  ')[2] or text}"  # without the loss, if there is more
        )
        if self.live:
            self._refresh()
        log.info("step %d/%d  %s", step, self.max_steps, text)

    def show_translating(self, done: int, lines: int) -> None:
        """Shows how far the translation of a validation is, on a terminal only, since it lasts
        seconds.
        """
        if self.live:
            self._refresh(f"validating: {done}/{lines} lines translated")

    def _refresh(self, doing: str = "") -> None:
        self.bar.update(self.task, description=self.remaining)
        self.status.plain = "  |  ".join(filter(None, [doing or self.measured, self.validated]))
