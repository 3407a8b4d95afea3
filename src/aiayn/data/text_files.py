"""Parallel text files, plain or packed.

Text is bytes until a pair is cleaned, and only LF ends a line: any other idea of a line (there are ten more) would
shift one language against the other.
"""

import gzip
import hashlib
import io
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from aiayn.errors import DataError


def parallel_files(prefixes: list[str], src_lang: str, tgt_lang: str, key: str) -> list[tuple[Path, Path]]:
    """`PREFIX.LANG`, or else `PREFIX.LANG.gz`, of both languages. Raises DataError, naming option `key`, for none."""
    found = []
    for prefix in prefixes:
        sides = []
        for lang in (src_lang, tgt_lang):
            plain = Path(f"{prefix}.{lang}").expanduser()
            packed = Path(f"{plain}.gz")
            side = next((path for path in (plain, packed) if path.exists()), None)
            if side is None:
                raise DataError(
                    f"{key}={prefix}: there is neither {plain} nor {packed}; {key} is the part before .{lang}"
                )
            sides.append(side)
        found.append((sides[0], sides[1]))
    return found


def aligned_files(prefixes: list[str], src_lang: str, tgt_lang: str, key: str) -> list[tuple[Path, Path]]:
    """`parallel_files`, of which both sides have equally many lines, and at least one. Raises DataError otherwise."""
    files = parallel_files(prefixes, src_lang, tgt_lang, key)
    counts = [(scan(src)["lines"], scan(tgt)["lines"]) for src, tgt in files]
    for prefix, (src, tgt), (n_src, n_tgt) in zip(prefixes, files, counts, strict=True):
        if n_src != n_tgt:
            raise DataError(
                f"{key}={prefix}: {src} has {n_src} lines and {tgt} has {n_tgt}: line N of one must translate line N "
                "of the other (only LF ends a line)"
            )
    if not any(n for n, _ in counts):
        names = ", ".join(f"{src} and {tgt}" for src, tgt in files)
        raise DataError(f"{key}: there is no text in {names}")
    return files


def file_pairs(files: list[tuple[Path, Path]]) -> Iterator[tuple[bytes, bytes]]:
    """Streams the pairs of aligned files as bytes, source first."""
    for src, tgt in files:
        yield from zip(_lines(src), _lines(tgt), strict=True)


def read_lines(path: str | Path) -> list[str]:
    """The lines of a text file, plain or .gz. Raises DataError with file and line where it is not UTF-8."""
    return [decode(line, path, number) for number, line in enumerate(_lines(Path(path)), 1)]


def decode(line: bytes, where: str | Path, number: int) -> str:
    """A line as text. Raises DataError with its place where it is not UTF-8."""
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}: line {number} is not UTF-8 ({error.reason}); correct it, or convert the file with iconv"
        ) from None


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    try:
        with open(path, "rb") as raw:
            # Reading lines through a second buffer is four times as fast as GzipFile alone.
            yield io.BufferedReader(gzip.GzipFile(fileobj=raw), 1 << 20) if path.suffix == ".gz" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read ({error}); replace the file") from error


def _lines(path: Path) -> Iterator[bytes]:
    """Lines without their LF or CR LF; a last line without LF counts, a byte order mark does not."""
    with _open(path) as stream:
        first = stream.readline()
        if first.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise DataError(f"{path}: this is UTF-16; convert it: iconv -f UTF-16 -t UTF-8")
        if first:
            yield first.removeprefix(b"\xef\xbb\xbf").removesuffix(b"\n").removesuffix(b"\r")
        for line in stream:
            yield line.removesuffix(b"\n").removesuffix(b"\r")


# What `scan` found, by path; `prepared` keeps it between runs, so that gigabytes are not read at every start.
SCANS: dict[str, dict[str, Any]] = {}


def scan(path: Path) -> dict[str, Any]:
    """{"stamp", "lines", "sha256"} of a file's (unpacked) content, read at most once while the file stays untouched."""
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    # The inode's change time cannot be set by hand, unlike the modification time.
    stamp = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
    known = SCANS.get(str(path.resolve()))
    if known and known["stamp"] == stamp:
        return known
    digest, newlines, last = hashlib.sha256(), 0, b"\n"
    with _open(path) as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
            newlines += block.count(b"\n")
            last = block[-1:]
    found = {"stamp": stamp, "lines": newlines + (last != b"\n"), "sha256": digest.hexdigest()}
    # A file that changed a moment ago may change again within the resolution of its time stamps.
    if time.time_ns() - max(stamp[1:3]) > 2e9:
        SCANS[str(path.resolve())] = found
    return found
