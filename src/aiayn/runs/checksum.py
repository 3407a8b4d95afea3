"""The checksum at the end of a checkpoint file, in its zip comment: SHA-256 of the bytes before it. No torch here."""

from pathlib import Path

PREFIX = b"sha256:"
CHECKSUM_SIZE = len(PREFIX) + 64


def read_checksum(checkpoint: Path) -> str:
    """Returns its hexadecimal digits; "" for a file without one, such as a checkpoint of Lightning's own."""
    with open(checkpoint, "rb") as file:
        file.seek(max(0, checkpoint.stat().st_size - CHECKSUM_SIZE))
        end = file.read(CHECKSUM_SIZE)
    return end.removeprefix(PREFIX).decode() if end.startswith(PREFIX) else ""
