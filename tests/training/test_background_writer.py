"""Writes in a thread: in order, none after one that failed, and none forgotten."""

from threading import Event

import pytest

from aiayn.training.background_writer import BackgroundWriter


def fail() -> None:
    raise OSError("disk full")


def test_writes_run_in_order_while_the_program_goes_on_and_are_all_done_at_the_end():
    go, done = Event(), []
    with BackgroundWriter() as writer:
        writer.submit(go.wait)
        for number in range(5):
            writer.submit(done.append, number)
        assert done == []
        go.set()
    assert done == [0, 1, 2, 3, 4]


def fails_after(write, *errors: Exception) -> None:
    """A program that submits `write`, a write that fails and the same again, and then raises the errors itself."""
    with BackgroundWriter() as writer:
        for each in (write, fail, write):
            writer.submit(each)
        for error in errors:
            raise error


def test_after_a_failed_write_none_is_run_and_its_error_is_raised_at_the_end():
    done = []
    with pytest.raises(OSError, match="disk full"):
        fails_after(lambda: done.append(1))
    assert done == [1]


def test_an_error_of_the_program_is_not_hidden_by_one_of_a_write_and_waits_for_the_writes():
    done = []
    with pytest.raises(ValueError, match="first"):
        fails_after(lambda: done.append(1), ValueError("first"))
    assert done == [1]


def test_the_error_of_a_write_is_raised_whenever_the_program_asks():
    writer = BackgroundWriter()
    writer.raise_error()
    writer.submit(fail)
    for ask in (writer.wait, writer.raise_error):
        with pytest.raises(OSError, match="disk full"):
            ask()
