"""Text files, plain or compressed.

Text stays bytes until a pair is cleaned, and only LF ends a line: splitting at any of the ten other
line separators that programs know would misalign the two languages.
"""

import bz2
import codecs
import gzip
import hashlib
import io
import lzma
import math
import re
import stat
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import cast

from aiayn.errors import DataError, counted

# No sentence is that long. Longer lines are dropped before their characters are looked at.
MAX_LINE_BYTES = 32_768
# Read of one line: enough to see that it is too long, with BOM and line ending
READ_BYTES = MAX_LINE_BYTES + 8
ENDLESS = 256 << 20  # bytes without a line end
MAX_EXPANSION = 200  # times its size that a compressed file of text may hold
FREE_EXPANSION = 64 << 20  # bytes that any may hold
CONTROL_BYTE = re.compile(rb"[\x00-\x08\x0e-\x1a]")
OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
# Lone UTF-16 surrogates, which Python also uses for bytes of command-line arguments that are not
# UTF-8.
SURROGATE = re.compile("[\ud800-\udfff]")
# How compressed files begin, with what, and what is done about it.
COMPRESSED = {
    b"\x1f\x8b": "gzip; name it .gz",
    b"BZh": "bzip2; name it .bz2",
    b"\xfd7zXZ\0": "xz; name it .xz",
    b"PK\3\4": "zip; decompress it",
    b"\x28\xb5\x2f\xfd": "zstd; decompress it",
}


def scan(path: Path, is_text: bool = True, max_expansion: int | None = None) -> tuple[int, str]:
    """Returns the number of lines and the SHA-256 of a file's decompressed content.

    It is read again only if it has changed. Raises DataError if it cannot be read, or not twice, or
    if a compressed file holds more than `max_expansion` times its size (None: where no option sets
    it, MAX_EXPANSION), and what `opened` raises.
    """
    with _readable(path):
        status = path.stat()
    if stat.S_ISFIFO(status.st_mode):
        raise DataError(
            f"{path}: is a pipe, but text for training is read more than once; store it in a file"
        )
    # Unlike the modification time, the inode's change time cannot be set by hand.
    stamp = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    # A file that changed a moment ago may change again within the resolution of its time stamps.
    changed_now = time.time_ns() - max(stamp[1:3]) < 2e9
    read = _scanned.__wrapped__ if changed_now else _scanned
    # Not resolved: a link may have a suffix that its target lacks, as in Hugging Face's cache.
    return read(path.absolute(), stamp, is_text, max_expansion)


@cache
def _scanned(
    path: Path, stamp: tuple[int, ...], is_text: bool, max_expansion: int | None
) -> tuple[int, str]:
    digest, newlines, last, length = hashlib.sha256(), 0, b"\n", 0
    most = max_expansion or MAX_EXPANSION
    or_raise = "" if max_expansion is None else " or raise data.max_expansion"
    room = max(most * stamp[0], FREE_EXPANSION) if path.suffix in OPENERS else math.inf
    with opened(path, is_text) as stream:
        while block := stream.read(1 << 20):
            if (room := room - len(block)) < 0:
                raise DataError(
                    f"{path}: expands to more than {most} times its size, which is rare for text; "
                    f"if the file is correct, decompress it{or_raise}"
                )
            digest.update(block)
            newlines += (ends := block.count(b"\n"))
            length = 0 if ends else length + len(block)
            _refuse_endless(length, path)
            last = block[-1:]
    return newlines + (last != b"\n"), digest.hexdigest()


def suffix(name: str) -> str:
    """Returns the suffix of a file's name in lower case, without that of its compression."""
    path = Path(name)
    return (
        Path(path.stem if path.suffix.lower() in OPENERS else name).suffix.removeprefix(".").lower()
    )


def read_lines(path: str | Path) -> list[str]:
    """Reads the lines of a text file, plain or compressed. Raises what `decoded_lines` and, for a
    compressed file, `scan` raise: all of it is in memory at once.
    """
    if Path(path).suffix in OPENERS and Path(path).is_file():
        scan(Path(path))
    return list(decoded_lines(path))


def read_parallel(option: str, path: str | Path, lines: int) -> list[str]:
    """Reads a text file. Raises DataError unless it has as many lines as the source."""
    text = read_lines(Path(path).expanduser())
    if len(text) != lines:
        raise DataError(
            f"{option}={path}: it has {counted(len(text), 'line')} and the source has {lines:,}: "
            "line N of one must translate line N of the other (only LF ends a line)"
        )
    return text


def decoded_lines(path: str | Path) -> Iterator[str]:
    """Yields the lines of a text file, plain or compressed.

    Raises DataError with file and line where one is not UTF-8 or longer than MAX_LINE_BYTES.
    """
    return (decode(line, path, number) for number, line in enumerate(lines(Path(path)), 1))


def decode(line: bytes, where: str | Path, number: int) -> str:
    """Returns a line as text. Raises DataError with its place where it is not UTF-8, or too long
    for a sentence.
    """
    if len(line) > MAX_LINE_BYTES:
        raise DataError(
            f"{where}: line {number} is longer than {MAX_LINE_BYTES:,} bytes; split it into "
            "sentences"
        )
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}: line {number} is not UTF-8 ({error.reason}); correct it, or convert the "
            "file with iconv"
        ) from None


def lines(path: Path, longest: int = READ_BYTES) -> Iterator[bytes]:
    """Yields lines without their LF or CR LF, and without a byte order mark. A last line needs no
    LF.

    A line longer than `longest` bytes is cut there. Raises DataError for a file that is UTF-16.
    """
    with opened(path) as stream:
        start = stream.peek(64)[:64]
        refuse_utf_32(start, path)
        if start.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise DataError(f"{path}: the file is UTF-16; convert it: iconv -f UTF-16 -t UTF-8")
        refuse_utf_16(start, path)
        if start.startswith(codecs.BOM_UTF8):
            stream.read(3)
        while line := stream.readline(longest):
            rest, skipped = line, 0
            while len(rest) >= longest and not rest.endswith(b"\n"):
                rest = stream.readline(longest)
                skipped += len(rest)
                _refuse_endless(skipped, path)
            yield line.removesuffix(b"\n").removesuffix(b"\r")


@contextmanager
def opened(path: Path, is_text: bool = True) -> Iterator[io.BufferedReader]:
    """Opens a file's decompressed content. Raises DataError if it cannot be read, now or later, or
    is no text.
    """
    with _readable(path):
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise DataError(f"{path}: is a folder; name a file in it")
        # Reading from a pipe may block silently; process substitution, `<(command)` or /dev/fd/63,
        # is read.
        if stat.S_ISFIFO(mode) and not str(path).startswith(("/dev/", "/proc/")):
            raise DataError(
                f"{path}: is a named pipe; store its text in a file, or pipe it to standard input"
            )
        with open(path, "rb") as raw:
            opener = OPENERS.get(path.suffix)
            for magic, advice in COMPRESSED.items() if is_text and not opener else ():
                if raw.peek(6).startswith(magic):
                    raise DataError(f"{path}: the file is compressed with {advice}")
            # A second buffer makes reading lines four times as fast.
            yield io.BufferedReader(cast(io.RawIOBase, opener(raw)), 1 << 20) if opener else raw


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raises DataError where a file cannot be read."""
    try:
        yield
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or error
        remedy = "check its name" if isinstance(error, FileNotFoundError) else "check the file"
        raise DataError(f"{path}: cannot be read ({reason}); {remedy}") from error


def refuse_utf_32(start: bytes, path: Path) -> None:
    """Raises DataError for text in UTF-32, whose mark begins with that of UTF-16."""
    if start.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        raise DataError(f"{path}: the file is UTF-32; convert it: iconv -f UTF-32 -t UTF-8")


def refuse_utf_16(start: bytes, path: Path) -> None:
    """Raises DataError for text in UTF-16 without a mark. The letters of an alphabet begin with a
    number below 32 there, so every other byte is one, and control characters are among them.
    """
    big, little = (
        bool(CONTROL_BYTE.search(half)) and sum(byte < 32 for byte in half) > 0.7 * len(half)
        for half in (start[::2], start[1::2])
    )
    if big != little:
        name = "UTF-16LE" if little else "UTF-16BE"
        raise DataError(
            f"{path}: the file is UTF-16 without a mark; convert it: iconv -f {name} -t UTF-8"
        )


def _refuse_endless(length: int, path: Path) -> None:
    """Raises DataError for a line that no text has, such as those of a device or of a compressed
    disk image.
    """
    if length > ENDLESS:
        raise DataError(f"{path}: a line exceeds {ENDLESS >> 20} MB, so this is not a text file")
