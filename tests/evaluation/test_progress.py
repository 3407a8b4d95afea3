"""The progress of a translation, on a terminal and elsewhere."""

import re

import pytest

from aiayn.evaluation import progress as module
from aiayn.evaluation.progress import TranslationProgress


@pytest.fixture
def clock(monkeypatch):
    now = iter([100.0, 104.0, 112.0, 120.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(now, 120.0))


def test_elsewhere_at_most_one_plain_line_every_ten_seconds_goes_to_stderr(clock, capsys):
    progress = TranslationProgress()
    progress(8, 60)
    progress(24, 60)
    assert progress.finish() == 20
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (
        "",
        "translated 24 of 60 lines  2 lines/s  ETA 0:00:18\n",
    )


def test_a_terminal_shows_a_live_bar_and_is_left_clean(capsys, monkeypatch):
    monkeypatch.setattr(module.sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    progress = TranslationProgress()
    progress(24, 60)
    progress.bar.refresh()
    progress.finish()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.search(
        r"translating ━.*24/60 .*lines/s  ETA \d+:\d\d:\d\d",
        re.sub(r"\x1b\[[0-9;]*m", "", captured.err),
    )
    assert captured.err.endswith("\x1b[2K")  # the line is erased
