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
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO, cast

from aiayn.errors import DataError

# No sentence is that long. Longer lines are dropped before their characters are looked at.
MAX_LINE_BYTES = 32_768
# Read of one line: enough to see that it is too long, with BOM and line ending
READ_BYTES = MAX_LINE_BYTES + 8
ENDLESS = 256 << 20  # bytes without a line end
MAX_EXPANSION = 200  # times its size that a compressed file of text may hold
FREE_EXPANSION = 64 << 20  # bytes that any may hold
MAX_DOCUMENT = 256 << 20  # bytes of a file that is parsed as a whole
# In HTML, in the header of a catalogue (which does not begin with a tag) and in XML: elsewhere it
# is text.
DECLARED = re.compile(
    rb"(?i:<meta\s[^>]*|\A(?!\s*<)(?s:.*?)content-type:[^\n]*)\bcharset=[\"']?\s*([\w.:-]+)"
    rb"|<\?xml[^>]*\sencoding=[\"']([\w.:-]+)"
)
# Of those that the WHATWG's standard has, Python's names, and which of them it reads as another
# one. Python has further codecs, such as UTF-7 and escapes, in which text that is harmless to every
# browser may hide tags.
_TEXT_CODECS = (
    "utf-8 cp866 koi8-r koi8-u mac-roman mac-cyrillic cp874 cp949 gbk gb18030 big5 euc_jp "
    "iso2022_jp cp932"
)
ENCODINGS = {
    *_TEXT_CODECS.split(),
    *(f"iso8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)),
    *(f"cp125{page}" for page in range(9)),
}
READ_AS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
}
READ_AS |= {"euc_kr": "cp949", "shift_jis": "cp932", "gb2312": "gbk"}
MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
CONTROL_BYTE = re.compile(rb"[\x00-\x08\x0e-\x1a]")
OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
# Lone UTF-16 surrogates, which Python also uses for bytes of command-line arguments that are not
# UTF-8.
SURROGATE = re.compile("[\ud800-\udfff]")
# How compressed files begin, with what, and what is done about it.
COMPRESSED = {
    **{
        b"\x1f\x8b": "gzip; name it .gz",
        b"BZh": "bzip2; name it .bz2",
        b"\xfd7zXZ\0": "xz; name it .xz",
    },
    **{b"PK\3\4": "zip; decompress it", b"\x28\xb5\x2f\xfd": "zstd; decompress it"},
}


def scan(path: Path, is_text: bool = True, max_expansion: int = MAX_EXPANSION) -> tuple[int, str]:
    """Returns the number of lines and the SHA-256 of a file's decompressed content.

    It is read again only if it has changed. Raises DataError if it cannot be read, or not twice, or
    if a compressed file holds more than `max_expansion` times its size, and what `opened` raises.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
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
    path: Path, stamp: tuple[int, ...], is_text: bool, max_expansion: int
) -> tuple[int, str]:
    digest, newlines, last, length = hashlib.sha256(), 0, b"\n", 0
    room = max(max_expansion * stamp[0], FREE_EXPANSION) if path.suffix in OPENERS else math.inf
    with opened(path, is_text) as stream:
        while block := stream.read(1 << 20):
            if (room := room - len(block)) < 0:
                raise DataError(
                    f"{path}: holds more than {max_expansion} times its size (data.max_expansion), "
                    "as no usual text does; check it, and decompress it if it is right"
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
    """Reads the lines of a text file, plain or compressed. Raises what `decoded_lines` raises."""
    return list(decoded_lines(path))


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


def read_whole(path: Path) -> bytes:
    """Returns the content of a file that is parsed as a whole, plain or compressed."""
    with opened(path) as stream:
        content = stream.read(MAX_DOCUMENT + 1)
    if len(content) > MAX_DOCUMENT:
        raise DataError(
            f"{path}: files of this kind are limited to {MAX_DOCUMENT >> 20} MB; divide it"
        )
    return content


def decode_document(path: Path, content: bytes, may_declare: bool = True) -> tuple[str, str]:
    """Returns the text of a file and its encoding: that of its mark, the one that it declares, or
    UTF-8.
    """
    encoding = next((name for mark, name in MARKS.items() if content.startswith(mark)), "")
    declared = DECLARED.search(content[:4096]) if may_declare and not encoding else None
    if declared and declared[1] != b"CHARSET":  # of a catalogue that nobody has begun
        label = (declared[1] or declared[2]).decode()
        name = ""
        with suppress(LookupError, UnicodeError):
            name = codecs.lookup(label).name
        # Browsers read windows-1252 where a page says Latin-1.
        is_page = suffix(path.name) in ("html", "htm", "xhtml")
        encoding = READ_AS.get(name, label) if is_page else label
        if name not in ENCODINGS and name not in READ_AS:
            raise DataError(
                f"{path}: the encoding {label} is not supported; convert the file to UTF-8"
            )
    if not encoding:
        _refuse_utf_16(content[:64], path)
    try:
        return content.decode(encoding or "utf-8"), encoding or "utf-8"
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}: line {line} is not {encoding or 'UTF-8'}; correct or convert it"
        ) from None


def lines(path: Path, longest: int = READ_BYTES) -> Iterator[bytes]:
    """Yields lines without their LF or CR LF, and without a byte order mark. A last line needs no
    LF.

    A line longer than `longest` bytes is cut there. Raises DataError for a file that is UTF-16.
    """
    with opened(path) as stream:
        number = 0
        while line := stream.readline(longest):
            if number == 0:
                if line.startswith((b"\xff\xfe", b"\xfe\xff")):
                    raise DataError(
                        f"{path}: the file is UTF-16; convert it: iconv -f UTF-16 -t UTF-8"
                    )
                _refuse_utf_16(line[:64], path)
                line = line.removeprefix(b"\xef\xbb\xbf")
            number += 1
            rest, skipped = line, 0
            while len(rest) >= longest and not rest.endswith(b"\n"):
                rest = stream.readline(longest)
                skipped += len(rest)
                _refuse_endless(skipped, path)
            yield line.removesuffix(b"\n").removesuffix(b"\r")


@contextmanager
def opened(path: Path, is_text: bool = True) -> Iterator[BinaryIO]:
    """Opens a file's decompressed content. Raises DataError if it cannot be read, now or later, or
    is no text.
    """
    try:
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
            compression = next(
                (advice for magic, advice in COMPRESSED.items() if raw.peek(6).startswith(magic)),
                None,
            )
            opener = OPENERS.get(path.suffix)
            if is_text and compression and opener is None:
                raise DataError(f"{path}: the file is compressed with {compression}")
            # A second buffer makes reading lines four times as fast.
            yield io.BufferedReader(cast(io.RawIOBase, opener(raw)), 1 << 20) if opener else raw
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or error
        remedy = "check its name" if isinstance(error, FileNotFoundError) else "replace the file"
        raise DataError(f"{path}: cannot be read ({reason}); {remedy}") from error


def _refuse_utf_16(start: bytes, path: Path) -> None:
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
        raise DataError(
            f"{path}: a line has more than {ENDLESS >> 20} MB, so this is not a text file"
        )
