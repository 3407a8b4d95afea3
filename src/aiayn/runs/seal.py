"""The seal that a checkpoint file ends with: a mark and the SHA-256 of the bytes before it, in the zip comment."""

from pathlib import Path

MARK = b"sha256:"
SEAL_SIZE = len(MARK) + 64


def read_seal(checkpoint: Path) -> bytes:
    """Returns the seal at a checkpoint's end; b"" for a file without one, such as a checkpoint of Lightning's own."""
    with open(checkpoint, "rb") as file:
        file.seek(max(0, checkpoint.stat().st_size - SEAL_SIZE))
        end = file.read(SEAL_SIZE)
    return end if end.startswith(MARK) else b""
