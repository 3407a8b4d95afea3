"""Errors that a user can cause: one line that names the remedy, and an exit code."""

import errno
import io
import linecache
import logging
import os
import re
import select
import signal
import stat
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

log = logging.getLogger(__name__)

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
EXTENSIONS = "aiayn_extension_"  # begins the names of the modules that extensions are imported as
# In the message of an error that torch raises again, with a traceback in text
WORKER = "in DataLoader worker process"
NEXT_ERROR = "\nerror: "  # between several errors, as of the rows of a sweep


class UserError(Exception):
    """Base of all errors that the entry points print as one line, without a traceback."""

    exit_code = 1


class ConfigError(UserError):
    """An option is misspelt, mistyped, out of range or at odds with another one; or a run folder is
    in use.
    """

    exit_code = 2


class DataError(UserError):
    """Text is missing, misaligned, unreadable or too small."""

    exit_code = 3


class RefusedError(UserError):
    """The command contradicts an existing run, checkpoint or prepared corpus."""

    exit_code = 4


class DivergedError(UserError):
    """A loss, gradient or score became NaN or infinite, or the loss lies far above that of a
    uniform guess.
    """

    exit_code = 5


class NonFiniteOutputError(DivergedError):
    """A model computed NaN or infinite probabilities; `where` says when, such as "at step 3 of the
    search".
    """

    def __init__(self, where: str = ""):
        super().__init__(
            f"the model's output is NaN or infinite{where and f' {where}'}: its weights are "
            "damaged or its training diverged; use an earlier checkpoint"
        )


class ResourceError(UserError):
    """The machine ran out of memory or disk."""

    exit_code = 6


class InterruptedRunError(BaseException):
    """A signal asked the program to stop, and everything has been saved.

    Derives from BaseException, like KeyboardInterrupt, so that `except Exception` cannot swallow
    it.
    """

    def __init__(self, message: str, signal_number: int):
        super().__init__(message)
        self.exit_code = 128 + signal_number


class FailedJobsError(UserError):
    """Jobs of a sweep failed; the exit code is that of the first one."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code


def counted(count: int, noun: str) -> str:
    """Returns a count with its noun, which is in the plural unless the count is 1."""
    plural = "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{'' if count == 1 else plural}"


@contextmanager
def writing(path: object, remedy: str = "make room or choose another folder") -> Iterator[None]:
    """Raises ResourceError, which names the path and the remedy, where a file cannot be written."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            remedy = "make it writable, or work on a copy in a folder that is"
        elif error.errno in (errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR):
            remedy = "choose another path"
        raise ResourceError(
            f"{path}: cannot be written ({error.strerror or error}); {remedy}"
        ) from error


@contextmanager
def optional(name: object) -> Iterator[None]:
    """Warns in one line if the block fails, and goes on: pictures, pages and uploads must not cost
    a result.
    """
    try:
        yield
    except Exception as error:
        log.warning("warning  %s: left out (%s)", name, summary_of(error))


def summary_of(error: BaseException) -> str:
    """Returns an error as one short line: its message, after its class if the user cannot have
    caused it.
    """
    if WORKER in str(error):
        last_line = str(error).strip().rpartition("\n")[2]
        return f"{one_line(last_line)} (in a data loader worker)"
    prefix = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
    return prefix + one_line(error)


def one_line(message: object) -> str:
    """Returns the message of an error, or what a program printed, as one line of at most 300
    characters.
    """
    return " ".join(str(message).split())[:300]


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Exits with one line on stderr and the error's exit code; debug=true or --debug adds the
    traceback.
    """
    try:
        with writable_output():
            yield
    except (Exception, InterruptedRunError, KeyboardInterrupt) as error:
        if too_long := _name_too_long(error):
            message, code = f"error: {too_long}", ConfigError.exit_code
        elif isinstance(error, KeyboardInterrupt):  # Python's own has no arguments
            message, code = "interrupted", 128 + (error.args or (signal.SIGINT,))[0]
        elif isinstance(error, InterruptedRunError):
            message, code = str(error), error.exit_code
        elif isinstance(error, UserError):
            message, code = f"error: {error}", error.exit_code
        elif line := explain_own_code(error):
            message, code = f"error: {line}", ConfigError.exit_code
        else:
            raise
        if any(argument.lower().lstrip("+") in ("debug=true", "--debug") for argument in sys.argv):
            traceback.print_exc()
        lines = map(without_controls, message.split(NEXT_ERROR))
        print(NEXT_ERROR.join(lines), file=sys.stderr)
        sys.exit(code)


def without_controls(text: str) -> str:
    """Escapes control characters, and what UTF-8 cannot encode: a name in a file of somebody else's
    could clear the terminal, or begin a second line.
    """
    return re.sub(
        r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", lambda control: repr(control[0])[1:-1], text
    )


@cache
def library_folders() -> list[Path]:
    """Returns where the standard library, site-packages and this program are."""
    folders = [*map(Path, sysconfig.get_paths().values()), Path(__file__).parent]
    return [folder.resolve() for folder in folders]


def is_own_file(name: str) -> bool:
    """Returns whether code comes from a file of the user's: an extension, or what it imports."""
    file = Path(name).resolve()
    return file.is_file() and not any(map(file.is_relative_to, library_folders()))


def explain_own_code(error: Exception, files: str = "") -> str:
    """Returns one line for an error that passed through code of the user's, also in a loader's
    worker, with its innermost place there; for another error a line that names the `files`, or
    without any an empty one. A full disk is nobody's mistake, and gets an empty line.
    """
    if getattr(error, "errno", None) in DISK_FULL:
        return ""
    summary = summary_of(error)
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    locations = [(code.co_filename, line, code.co_qualname) for code, line in frames]
    if WORKER in str(error):
        described = re.findall(r'File "(.+)", line (\d+), in (.+)', str(error))
        locations += [(file, int(line), function) for file, line, function in described]
    for file, line, function in reversed(locations):
        if is_own_file(file):
            location = f"{file}, line {line}, in {function}"
            return f"extensions: {location}: {summary}; debug=true shows the traceback"
    if not files:
        return ""
    program = Path(__file__).parent
    calls = [
        f"`{linecache.getline(file, line).strip()}`"
        for file, line, _ in locations
        if Path(file).is_relative_to(program)
    ]
    caller = ""
    if calls and not isinstance(error, SyntaxError):
        caller = f", in a call from {' and '.join(calls[-2:])}"
    return (
        f"extensions: {files}: {summary}{caller}; compare this code with docs/ideas.md "
        "and docs/lightning.md; debug=true shows the traceback"
    )


def _name_too_long(error: BaseException | None) -> str:
    """Returns what to say of a path that no file system can have, with the argument that it comes
    from; empty for an error with another cause.
    """
    while error and getattr(error, "errno", None) != errno.ENAMETOOLONG:
        error = error.__cause__ or error.__context__
    if error is None:
        return ""
    path = str(getattr(error, "filename", ""))
    name = max(path.split("/"), key=len)
    typed = next((argument for argument in sys.argv[1:] if name[:60] in argument), path)
    return f"{typed:.80}...: too long for a file; choose a shorter name or path"


@contextmanager
def writable_output() -> Iterator[None]:
    """Raises ResourceError where the disk behind standard output is full; ends without a word, with
    the exit code of SIGPIPE, where the reader of a pipe has closed it.

    Flushes at the end, because Python would do so only after the program's last error message.
    Characters that the output's encoding cannot represent, such as undecodable bytes in file names,
    are escaped.
    """
    # Otherwise the next file that is opened gets the descriptor of a stream that is closed, as in
    # `2>&-`, and a library's warning is written into it.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - open until the end
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    handle_error, logging.StreamHandler.handleError = (
        logging.StreamHandler.handleError,
        _raise_output_errors,
    )
    try:
        try:
            yield
        except SystemExit:  # as after --help
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    except OSError as error:
        if not _is_of_output(error):
            raise
        # Otherwise Python flushes again when it exits, and prints a second error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:
            sys.exit(128 + signal.SIGPIPE)
        raise ResourceError(
            f"standard output cannot be written ({error.strerror}); make room and run again"
        ) from error
    finally:
        logging.StreamHandler.handleError = handle_error


def _raise_output_errors(self: logging.StreamHandler, record: logging.LogRecord) -> None:
    """Replaces `StreamHandler.handleError`, which would only print an error of standard output
    (Hydra's --info).
    """
    if self.stream is sys.stdout:
        raise  # the error that is being handled
    logging.Handler.handleError(self, record)


def _is_of_output(error: OSError) -> bool:
    """Returns whether an OSError comes from standard output, and not from a named file or another
    pipe.
    """
    try:
        output = sys.stdout.fileno()
        mode = os.fstat(output).st_mode
    except (OSError, AttributeError):  # closed, or replaced by something that is no file
        return False
    if error.errno == errno.EPIPE and hasattr(select, "poll"):  # not on Windows
        poll = select.poll()
        poll.register(output, 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    full = error.errno in (*DISK_FULL, errno.EIO)
    return full and error.filename is None and not stat.S_ISFIFO(mode)
