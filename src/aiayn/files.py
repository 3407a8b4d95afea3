"""Files that are whole whenever they stand under their name, whatever happens and whenever."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path


def atomic_write(path: Path, *parts: bytes | memoryview) -> None:
    """Writes the parts beside `path`, flushes them to the disk and renames. Raises OSError where that is impossible;

    what stood under `path` before is then still there.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(temporary, "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        fsync_folder(path.parent)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def atomic_write_text(path: Path, text: str) -> None:
    """`atomic_write` for text, in UTF-8."""
    atomic_write(path, text.encode())


def fsync_folder(folder: Path) -> None:
    """Makes renames inside `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """Of a file's content, as hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
