"""What a user can cause, as exceptions: one line that names the remedy, and the exit code that goes with it."""


class UserError(Exception):
    """Base of every error whose message is meant for a person; the entry points print it without a traceback."""

    exit_code = 1


class ConfigError(UserError):
    """An option is misspelt, mistyped, out of range or at odds with another one; or a run folder is in use."""

    exit_code = 2


class DataError(UserError):
    """Text is missing, misaligned, unreadable or too small for what is asked of it."""

    exit_code = 3


class RefusedError(UserError):
    """What is asked contradicts an existing run, checkpoint or prepared corpus."""

    exit_code = 4


class DivergedError(UserError):
    """A loss, gradient or score stopped being a finite number."""

    exit_code = 5


class ResourceError(UserError):
    """The machine ran out of memory or disk."""

    exit_code = 6


class InterruptedRunError(BaseException):
    """A signal asked the program to stop; what there was to save has been saved.

    No Exception, as Python's KeyboardInterrupt is none: what takes those for the flaw of a file lets it pass.
    """

    def __init__(self, message: str, signal_number: int):
        super().__init__(message)
        self.exit_code = 128 + signal_number


class FailedRowsError(UserError):
    """Jobs of a sweep failed; the exit code is that of the first of them."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code
