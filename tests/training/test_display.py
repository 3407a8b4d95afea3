"""What a user sees of a training run, on a real pseudo-terminal and in a file."""

import logging
import os
import pty
import re
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from aiayn.errors import ConfigError
from aiayn.training.callbacks.validate import Validate
from aiayn.training.finish import next_commands
from aiayn.training.run import train

ERASURES = re.compile(r"\r(?!\n)|\x1b\[2K")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")


@contextmanager
def terminal():
    """stderr on a pseudo-terminal; what was written there is in the list when the context has
    ended.

    No fixture: pytest puts its own stderr in place between setup and test.
    """
    master, slave = pty.openpty()
    written: list[str] = []
    blocks: list[bytes] = []

    def read() -> None:
        with suppress(OSError):  # how a pseudo-terminal reports its end
            while block := os.read(master, 4096):
                blocks.append(block)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    with pytest.MonkeyPatch.context() as patch, open(slave, "w", encoding="utf-8") as stderr:
        patch.setattr("sys.stderr", stderr)
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", "110")
        for name in ("NO_COLOR", "TTY_COMPATIBLE", "FORCE_COLOR"):
            patch.delenv(name, raising=False)
        yield written
    reader.join(10)
    os.close(master)
    written.append(b"".join(blocks).decode())


@pytest.fixture(autouse=True)
def _own_handler():
    """The program's own log handler, for the stderr that it finds."""
    logging.getLogger("aiayn").handlers.clear()
    yield
    logging.getLogger("aiayn").handlers.clear()


def test_a_terminal_shows_a_bar_with_loss_rate_time_left_and_the_last_validation(config, tmp_path):
    with terminal() as written:
        train(config, tmp_path)
    [raw] = written
    assert "\x1b[?25l" in raw  # a live display hides the cursor,
    assert raw.count("\x1b[?25h") == raw.count("\x1b[?25l")  # and gives it back
    # What is written over an erased line begins a line
    text = ESCAPES.sub("", ERASURES.sub("\n", raw))
    assert re.search(r"━+ 12/12 \d:\d\d:\d\d ETA 0:00:00", text)
    assert re.search(
        r"loss \d\.\d{3}  lr \d\.\d\de-\d\d  [\d,]+ tokens/s  \|  step 6: val/ppl [\d.]+  val/accuracy",
        text,
    )
    # Validations and the summary stay as lines of their own, above and below the bar; steps do not.
    validated = r"val/loss [\d.]+  val/ppl [\d.]+  val/accuracy 0\.\d+  val/bleu [\d.]+  val/length_ratio [\d.]+"
    assert re.search(rf"(^|\n)step 6/12  {validated} *\n", text)
    assert "step 1/12  epoch" not in text
    assert re.search(r"(^|\n)done     ", text)


def test_an_error_leaves_the_terminal_as_it_was(config, tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("planted")

    monkeypatch.setattr(Validate, "on_step_end", fail)
    with terminal() as written, pytest.raises(ConfigError, match="RuntimeError: planted"):
        train(config, tmp_path)
    [raw] = written
    assert raw.count("\x1b[?25h") == raw.count("\x1b[?25l") > 0


def test_elsewhere_every_measurement_is_one_plain_line_that_a_program_can_read(
    config, tmp_path, capsys
):
    settings = replace(config, trainer=replace(config.trainer, log_every=3))
    folder = train(settings, tmp_path)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "\x1b" not in captured.err
    assert "\r" not in captured.err
    lines = captured.err.split("\n")
    step = r"step (\d+)/12  epoch \d+\.\d  loss \d+\.\d{3}  lr \d\.\d\de-\d\d  [\d,]+ tokens/s  ETA \d+:\d\d:\d\d"
    assert [int(found[1]) for line in lines if (found := re.fullmatch(step, line))] == [
        1,
        2,
        3,
        6,
        9,
        12,
    ]
    summary = lines[next(number for number, line in enumerate(lines) if line.startswith("done ")) :]
    assert summary[0] == f"done     {folder}, step 12"
    assert re.fullmatch(
        r"scores   val/ppl [\d.]+ \(lowest [\d.]+ at step \d+\)  val/bleu [\d.]+ \(highest [\d.]+ at step \d+\)",
        summary[1],
    )
    names = summary[2].removeprefix("files    ").split(", ")
    assert {"report.html", "checkpoints/averaged.ckpt", "attention.png"} <= set(names)
    assert all((folder / name).exists() for name in names)
    assert summary[3:] == [
        f"next     aiayn evaluate run={folder}",
        f"         aiayn translate {folder}",
        "",
    ]


def test_a_run_without_test_text_is_told_to_score_its_development_text():
    for test, option in (("my/test", ""), (None, " split=val")):
        commands = next_commands(Path("mine"), {"extensions": [], "data": {"test": test}})
        assert commands[0] == f"next     aiayn evaluate run=mine{option}"
