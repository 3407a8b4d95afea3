"""Files that are never seen half-written, even after a kill or a power cut."""

import errno
import glob
import hashlib
import json
import os
import platform
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO


def atomic_write(path: Path, content: bytes | memoryview | str) -> None:
    """Writes a file by `atomic_file`: text in UTF-8, in which undecodable bytes, as in file names,
    are escaped.
    """
    if isinstance(content, str):
        content = content.encode(errors="backslashreplace")
    with atomic_file(path) as file:
        file.write(content)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes plain values by `atomic_write`, as an indented object of JSON."""
    atomic_write(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def jsonl_line(record: Mapping[str, Any]) -> str:
    """Returns plain values as a line of a .jsonl file."""
    return json.dumps(record, ensure_ascii=False) + "\n"


@contextmanager
def atomic_file(path: Path, *, flushed: bool = True) -> Iterator[BinaryIO]:
    """Opens a temporary file, in a folder that is made if need be; at the end it is flushed to the
    disk and renamed to `path`.

    Raises OSError, and then leaves an earlier file under `path` as it was.
    """
    from filelock import lock_descriptor

    temporary = path.with_name(f".{path.name}.{host()}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)  # not written through, should it be a link
        with open(temporary, "xb") as file:
            with suppress(OSError):  # a file system without locks
                lock_descriptor(file.fileno(), blocking=False)
            # What killed writers left behind, and no process has locked. Only of this machine: on a
            # shared disk another one may not see its locks.
            for leftover in path.parent.glob(f".{glob.escape(path.name)}.{host()}.*.part"):
                with suppress(OSError), open_regular(leftover) as left:
                    if lock_descriptor(left.fileno(), blocking=False):
                        leftover.unlink()
            yield file
            file.flush()
            if flushed:
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if flushed:
            fsync_folder(path.parent)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yields a temporary folder to write into; at the end it is flushed to the disk and renamed to
    `path`.

    Raises OSError, as if there is a folder that is not empty under `path`, and then leaves that as
    it was.
    """
    temporary = path.with_name(f".{path.name}.{host()}.{os.getpid()}.part")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        for file in (entry for entry in temporary.rglob("*") if entry.is_file()):
            with open(file, "rb") as opened:
                os.fsync(opened.fileno())
        fsync_folder(temporary)
        os.replace(temporary, path)
        fsync_folder(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def open_regular(path: Path) -> BufferedReader:
    """Opens a file, or the one that a link leads to, for reading. Raises OSError for a pipe, which
    might wait for a writer for ever, and for a device, which might never end.
    """
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "a pipe or a device, not a file", str(path))
    return file


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # which Windows lacks


def read_regular(path: Path, most: int) -> bytes:
    """Returns the content of a file of at most so many bytes. Raises OSError for a larger one, with
    the number EOVERFLOW and before it is in memory, and what `open_regular` raises.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            sizes = f"is {size / 1e6:,.1f} MB, and at most {most / 1e6:,.1f} MB are read"
            raise OSError(errno.EOVERFLOW, sizes, str(path))
        return file.read()


def host() -> str:
    """Returns this machine's name, fit for names of temporary files."""
    return "".join(c if c.isalnum() or c == "-" else "-" for c in platform.node()) or "host"


def fsync_folder(folder: Path) -> None:
    """Flushes a folder's entries to the disk, so that renames inside it survive a power cut."""
    if os.name == "nt":
        return  # which cannot open folders
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cores() -> int:
    """Returns how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file's content, in hexadecimal."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def lines_sha256(*texts: list[str]) -> str:
    """Returns the SHA-256 of the lines of all texts, as hexadecimal digits."""
    return hashlib.sha256("\n".join(chain(*texts)).encode()).hexdigest()


def source_commit() -> str | None:
    """Returns the commit of the clone that this program runs from, `-dirty` if its files differ;
    None without one.
    """
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    try:
        command = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty"]
        git = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):  # no git
        return None
    return git.stdout.strip() or None
