"""What a user sees of a training run, on a real pseudo-terminal and in a file."""

import logging
import os
import pty
import re
import threading
from copy import deepcopy

import pytest

from aiayn.training.run import train

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")


@pytest.fixture
def terminal(monkeypatch):
    """stderr on a pseudo-terminal; returns a function that ends it and gives all that was written."""
    logging.getLogger("aiayn").handlers.clear()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "110")
    for name in ("NO_COLOR", "TTY_COMPATIBLE", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    master, slave = pty.openpty()
    written: list[bytes] = []

    def read() -> None:
        try:
            while block := os.read(master, 4096):
                written.append(block)
        except OSError:  # how the end of a pseudo-terminal is told
            pass

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    stderr = open(slave, "w", encoding="utf-8")  # noqa: SIM115  (closed below)
    monkeypatch.setattr("sys.stderr", stderr)

    def end() -> str:
        stderr.close()
        reader.join(10)
        os.close(master)
        return b"".join(written).decode()

    yield end
    logging.getLogger("aiayn").handlers.clear()


def test_a_terminal_shows_a_bar_with_loss_rate_time_left_and_the_last_validation(config, tmp_path, terminal):
    train(config, tmp_path)
    raw = terminal()
    assert "\x1b[?25l" in raw  # a live display hides the cursor,
    assert raw.count("\x1b[?25h") == raw.count("\x1b[?25l")  # and gives it back
    text = ESCAPES.sub("", raw)
    assert re.search(r"━+ 12/12 \d:\d\d:\d\d ETA 0:00:00", text)
    assert re.search(r"loss \d\.\d{3}  lr \d\.\d\de-\d\d  [\d,]+ tokens/s  \|  step 6: val/ppl [\d.]+  val/bleu", text)
    # Validations and the summary stay as lines of their own, above and below the bar; steps do not.
    assert re.search(r"(^|\n)step 6/12  val/loss [\d.]+  val/ppl [\d.]+  val/bleu [\d.]+ *\n", text)
    assert "step 1/12  epoch" not in text
    assert re.search(r"(^|\n)done     ", text)


def test_an_error_leaves_the_terminal_as_it_was(config, tmp_path, terminal, monkeypatch):
    from aiayn.training.callbacks.validate import Validate

    def fail(*_):
        raise RuntimeError("planted")

    monkeypatch.setattr(Validate, "on_step_end", fail)
    with pytest.raises(RuntimeError, match="planted"):
        train(config, tmp_path)
    raw = terminal()
    assert raw.count("\x1b[?25h") == raw.count("\x1b[?25l") > 0


def test_elsewhere_every_measurement_is_one_plain_line_that_a_program_can_read(config, tmp_path, capsys):
    logging.getLogger("aiayn").handlers.clear()
    settings = deepcopy(config)
    settings.trainer.log_every = 3
    folder = train(settings, tmp_path)
    logging.getLogger("aiayn").handlers.clear()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "\x1b" not in captured.err
    assert "\r" not in captured.err
    lines = captured.err.split("\n")
    step = r"step (\d+)/12  epoch \d+\.\d  loss \d+\.\d{3}  lr \d\.\d\de-\d\d  [\d,]+ tokens/s  ETA \d+:\d\d:\d\d"
    assert [int(found[1]) for line in lines if (found := re.fullmatch(step, line))] == [3, 6, 9, 12]
    summary = lines[next(number for number, line in enumerate(lines) if line.startswith("done ")) :]
    assert summary[0] == f"done     {folder}, step 12"
    assert re.fullmatch(
        r"scores   val/ppl [\d.]+ \(lowest [\d.]+ at step \d+\)  val/bleu [\d.]+ \(highest [\d.]+ at step \d+\)",
        summary[1],
    )
    names = summary[2].removeprefix("files    ").split(", ")
    assert {"report.html", "checkpoints/averaged.ckpt", "corpus.png", "attention.png"} <= set(names)
    assert all((folder / name).exists() for name in names)
    assert summary[3:] == [f"next     python evaluate.py run={folder}", f"         aiayn translate {folder}", ""]
