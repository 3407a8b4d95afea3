"""Writes in a thread: in order, none after one that failed, and none forgotten."""

from threading import Event

import pytest
import torch

from aiayn.training.checkpoint_io import BackgroundWriter


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
    """A program that submits `write`, a write that fails and the same again, and then raises the
    errors itself.
    """
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


def test_a_copy_has_the_values_of_its_time_at_any_depth_and_shares_no_tensor():
    weight = torch.tensor([1.0, 2.0], requires_grad=True)
    state = {
        "state": {0: {"step": torch.tensor(3.0), "moments": [weight]}},
        "rates": (0.5, None, "text"),
    }
    copy = BackgroundWriter().copied(state)
    with torch.no_grad():
        weight.add_(10)
        state["state"][0]["step"] += 1
    [moment] = copy["state"][0]["moments"]
    assert moment.tolist() == [1.0, 2.0]
    assert not moment.requires_grad
    assert copy["state"][0]["step"] == 3
    assert copy["rates"] == (0.5, None, "text")


class OnGPU(torch.Tensor):
    """A tensor that says so; it computes on the CPU."""

    is_cuda = True


def test_tensors_of_a_gpu_are_copied_to_the_same_pinned_memory_every_time_without_waiting(
    monkeypatch,
):
    """The writing waits for the copies instead, with an event that is recorded behind them."""
    said, plain = [], torch.empty

    class Event:
        def record(self):
            said.append("recorded")

        def synchronize(self):
            said.append("arrived")

    def empty(*sizes, pin_memory=False, **options):
        said.append(f"pinned {tuple(sizes[0])}" if pin_memory else "")
        return plain(*sizes, **options)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch, "empty", empty)
    weight, moments = (
        torch.tensor([1.0, 2.0]).as_subclass(OnGPU),
        [torch.ones(2).as_subclass(OnGPU), torch.ones(3)],
    )
    with BackgroundWriter() as writer:
        first = writer.copied({"weight": weight, "moments": moments})
        assert said == ["pinned (2,)", "pinned (2,)", "recorded"]
        writer.submit(said.append, "written")
        writer.wait()
        assert said[3:] == ["arrived", "written"]
        weight.mul_(10)
        again = writer.copied({"weight": weight})
        assert said[5:] == ["recorded"]
    assert again["weight"].tolist() == [10, 20]
    assert (
        again["weight"].data_ptr() == first["weight"].data_ptr() != first["moments"][0].data_ptr()
    )
