"""Requests to stop: what a signal does to a run, on one rank or on many."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from aiayn.config import program
from aiayn.errors import InterruptedRunError
from aiayn.signals import exit_signal
from aiayn.training.distributed.control_group import ControlGroup

RUN_AGAIN = "run the same command to continue from the last checkpoint"


class ValidationInterrupted(Exception):  # noqa: N818 - not an error
    """A validation ended early because a stop was requested; the resumed run validates again."""

    def __init__(self, agreed: bool = False):
        super().__init__()
        self.agreed = agreed  # all ranks know


class StopRequest:
    """A signal's request to stop: during training it takes effect at the end of the step, otherwise at once.

    A signal to any rank stops all of them, at the same step.
    """

    def __init__(self) -> None:
        self.signal: int | None = None  # that was received
        self.control_group: ControlGroup | None = None
        self._training = False
        self._message = "stopped before training"

    def connect_ranks(self, timeout: int) -> None:
        """From now on a signal to any rank reaches all of them; called by all ranks of a process group together."""
        self.control_group = ControlGroup(timeout)
        if self.signal_of_any_rank():
            self.raise_if_requested("stopped before training")

    def begin_training(self) -> None:
        """From now on a signal waits for the end of the step."""
        self._training = True

    def end_training(self, message: str) -> None:
        """From now on a signal stops at once, with this message."""
        self._training, self._message = False, message

    def enter_phase(self, message: str) -> None:
        """From now on a signal stops at once, with this message; an earlier one stops now."""
        self.end_training(message)
        self.raise_if_requested(message)

    def raise_if_requested(self, message: str) -> None:
        """Raises InterruptedRunError if a stop was requested."""
        if self.signal:
            raise InterruptedRunError(f"{message}; continue with: {program.typed_again()}", self.signal)

    def signal_of_any_rank(self) -> int | None:
        """The signal that any rank received, the same on all ranks; a collective call."""
        if not self.control_group:
            return self.signal
        received = self.control_group.max_over_ranks(self.signal or 0)
        if received:  # else keep a signal that came during the call for the next one
            self.signal = received
        return received or None

    def on_any_rank(self, condition: bool) -> bool:
        """Whether a condition holds on any rank, the same answer on all; a collective call."""
        return bool(self.control_group.max_over_ranks(int(condition))) if self.control_group else condition

    @contextmanager
    def interruptible_validation(self) -> Iterator[None]:
        """Raises ValidationInterrupted on all ranks if `interrupt_if_requested` did on any."""
        with suppress(ValidationInterrupted):
            yield
        if self.signal_of_any_rank():
            raise ValidationInterrupted

    def interrupt_if_requested(self) -> None:
        """Raises ValidationInterrupted if this rank received a signal or another has announced one; not collective."""
        if self.signal and self.control_group:
            self.control_group.set_flag("stop")
        if self.signal or (self.control_group and self.control_group.has_flag("stop")):
            raise ValidationInterrupted

    def on_signal(self, number: int, frame: object) -> None:
        """Handles one of the termination signals."""
        if self.signal and not self._training:
            return  # already stopping
        self.signal = self.signal or exit_signal(number)
        if not self._training:
            self.raise_if_requested(self._message)
