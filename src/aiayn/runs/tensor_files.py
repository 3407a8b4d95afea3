"""Files of tensors: a torch archive of tensors and plain values with the SHA-256 of its bytes in
the zip comment.

A file under its final name is therefore either whole and verified, or refused.
"""

import contextlib
import hashlib
import os
import shutil
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch
from torch import Tensor

from aiayn.errors import RefusedError, writing
from aiayn.files import atomic_file
from aiayn.runs.run_folder import CHECKSUM_PREFIX, CHECKSUM_SIZE, checksum_at_end

FORMAT = 1
MOST_COPIES = 4  # of each value in memory: a tensor that has several names is stored once


def write_tensors(path: Path, payload: Mapping[str, Any]) -> None:
    """Writes tensors and plain values so that `path` is never incomplete, even after a kill or a
    power cut.

    Raises ResourceError if the disk is full; an earlier file under `path` is then still there.
    """
    with writing_checkpoint(path, n_bytes(payload)), atomic_file(path) as file:
        hashed = _HashedFile(file)
        torch.save(dict(payload), cast(BinaryIO, hashed))  # which calls write and flush only
        if hashed.error:
            raise hashed.error
        file.seek(-2, os.SEEK_END)
        file.write(struct.pack("<H", CHECKSUM_SIZE))  # the length of the zip comment
        file.write(CHECKSUM_PREFIX + hashed.digest.hexdigest().encode())


class _HashedFile:
    """What torch writes an archive to: each piece is hashed and written, so that no second copy is
    in memory.
    """

    def __init__(self, file: BinaryIO):
        self._file, self.digest = file, hashlib.sha256()
        self.error: OSError | None = (
            None  # a disk error, which torch would replace by one of its own
        )

    def write(self, chunk: bytes) -> int:
        self.digest.update(chunk)
        try:
            if not self.error:
                self._file.write(chunk)
        except OSError as error:
            self.error = error
        return len(chunk)

    def flush(self) -> None:
        """Does nothing, though torch calls it at the end: the file is flushed when it is
        complete.
        """


def n_bytes(payload: Any) -> int:
    """Returns the size of all tensors in tables and lists at any depth, as it is in memory once
    each has been copied.
    """
    size, pending, seen = 0, [payload], set[int]()
    while pending:
        value = pending.pop()
        if isinstance(value, Tensor):
            size += value.numel() * value.itemsize
        elif isinstance(value, Mapping | list | tuple) and id(value) not in seen:
            seen.add(id(value))  # a file may hold a list that contains itself
            pending += value.values() if isinstance(value, Mapping) else value
    return size


def writing_checkpoint(path: Path, size: int) -> contextlib.AbstractContextManager[None]:
    """Turns an OSError while so many bytes are written into a ResourceError that says what is
    needed and free.
    """
    sizes = f"{size / 1e6:.1f} MB are needed"
    with contextlib.suppress(OSError):
        sizes += f", {shutil.disk_usage(path.parent).free / 1e6:.1f} MB are free"
    return writing(
        path, f"{sizes}, earlier checkpoints are intact; make room and run the same command again"
    )


def read_tensors(path: Path) -> dict[str, Any]:
    """Reads what `write_tensors` wrote, onto the CPU. Raises RefusedError if it is missing or
    damaged, or needs much more memory than its size.
    """
    try:
        with open(path, "rb") as file:
            _verify(file, path)
            payload = load_archive(file, path)
    except OSError as error:
        raise RefusedError(f"{path}: cannot be read ({error.strerror})") from error
    except RefusedError:
        raise
    except Exception as error:  # torch.load raises many types on unexpected bytes
        raise RefusedError(
            f"{path}: not a checkpoint of this program (more than tensors and values)"
        ) from error
    if not isinstance(payload, dict):
        raise RefusedError(f"{path}: not a checkpoint of this program")
    if (written := payload.get("format")) != FORMAT:
        raise RefusedError(
            f"{path}: written in format {written}, this program reads format {FORMAT}"
        )
    return payload


def load_archive(file: BinaryIO, path: Path) -> Any:
    """Returns what a torch archive holds, on the CPU, without running code of it.

    Raises RefusedError if it needs much more memory than its size: by compression, or by tensors
    that repeat a few values.
    """
    size = file.seek(0, os.SEEK_END)
    with zipfile.ZipFile(file) as archive:
        _refuse_larger(path, sum(entry.file_size for entry in archive.infolist()), size)
    file.seek(0)
    payload = torch.load(file, map_location="cpu", weights_only=True)
    _refuse_larger(path, n_bytes(payload), size)
    return payload


def _refuse_larger(path: Path, memory: int, size: int) -> None:
    if memory > MOST_COPIES * size:
        raise RefusedError(
            f"{path}: not a checkpoint of this program (it has {size / 1e6:,.1f} MB and would take "
            f"{memory / 1e6:,.1f} MB of memory)"
        )


def _verify(file: BinaryIO, path: Path) -> None:
    """Raises RefusedError unless the file ends with the checksum of what comes before."""
    stored, left = checksum_at_end(file), file.seek(0, os.SEEK_END) - CHECKSUM_SIZE - 2
    if not stored:
        raise RefusedError(
            f"{path}: damaged or not a checkpoint of this program (no checksum at its end)"
        )
    digest = hashlib.sha256()
    file.seek(0)
    while left and (block := file.read(min(left, 1 << 20))):
        digest.update(block)
        left -= len(block)
    digest.update(b"\0\0")  # the length of a comment, before there was one
    if file.read(2) != struct.pack("<H", CHECKSUM_SIZE) or digest.hexdigest() != stored:
        raise RefusedError(f"{path}: damaged (its checksum does not match its content)")
