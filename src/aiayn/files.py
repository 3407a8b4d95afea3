"""Files that are whole whenever they stand under their name, whatever happens and whenever."""

import os
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, *parts: bytes | memoryview) -> None:
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
        sync_folder(path.parent)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def write_text(path: Path, text: str) -> None:
    """`write_whole` for text, in UTF-8."""
    write_whole(path, text.encode())


def sync_folder(folder: Path) -> None:
    """Makes renames inside `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
