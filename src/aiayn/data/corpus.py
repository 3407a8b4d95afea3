"""Raw pairs of sentences from text files, hub data sets or the phrasebook, and the rules that clean them.

Text is bytes until a pair is cleaned, and only LF ends a line: any other idea of a line (there are ten more) would
shift one language against the other.
"""

import gzip
import hashlib
import io
import os
import re
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit
from urllib.request import getproxies

from aiayn.config import DataConfig
from aiayn.errors import DataError

# No sentence is that long; longer lines are dropped before anything looks at their characters.
MAX_LINE_BYTES = 32_768
# Line ends of other systems and of Unicode: inside a line they are mere spaces. CR LF counts as one.
SEPARATOR = re.compile("\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
# What has no place in text: C0 and C1 controls but TAB and the separators above.
CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f]")
REMEDY = "download it elsewhere and set data.hub_path=FOLDER, or use text files: data=files data.train=PREFIX"


@dataclass
class Report:
    """What cleaning did to a split; `read == kept + sum(dropped.values())`. Pairs count from 1, over all files."""

    read: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)  # reason: pairs
    first_dropped: dict[str, list[int]] = field(default_factory=dict)  # reason: the numbers of its first five pairs
    separators: int = 0  # turned into spaces, in the pairs that were kept at this stage

    def drop(self, reason: str, number: int) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        first = self.first_dropped.setdefault(reason, [])
        if len(first) < 5:
            first.append(number)


class _UnusableError(Exception):
    """Carries the reason why a line, and with it its pair, is dropped."""


def normalise(text: str) -> tuple[str, int]:
    """A line without surrounding white space, and how many separators inside it became spaces."""
    return SEPARATOR.subn(" ", text.strip())


def clean(pairs: Iterable[tuple[bytes, bytes]], report: Report) -> Iterator[tuple[str, str]]:
    """Yields the usable pairs as text and counts the others in `report`; a bad side drops both.

    While a pair is yielded, `report.read` is its number.
    """
    for raw_src, raw_tgt in pairs:
        report.read += 1
        try:
            src, n_src = _clean_line(raw_src)
            tgt, n_tgt = _clean_line(raw_tgt)
        except _UnusableError as reason:
            report.drop(str(reason), report.read)
            continue
        report.kept += 1
        report.separators += n_src + n_tgt
        yield src, tgt


def _clean_line(raw: bytes) -> tuple[str, int]:
    if len(raw) > MAX_LINE_BYTES:
        raise _UnusableError("too_many_bytes")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise _UnusableError("not_utf8") from None
    text = text.strip()
    if not text:
        raise _UnusableError("empty")
    # Nearly every line is printable throughout, which is ten times faster to see than two searches.
    if text.isprintable():
        return text, 0
    if CONTROL.search(text):
        raise _UnusableError("control_characters")
    return normalise(text)


def raw_pairs(config: DataConfig, split: str) -> Iterator[tuple[bytes, bytes]]:
    """Streams the pairs of a split ("train", "val" or "test"), source first, as they stand in the corpus.

    Raises DataError for missing, misaligned, empty or unreadable text; for files before the first pair.
    """
    if config.source == "files":
        return _file_pairs(aligned_files(config, split))
    if config.source == "hub":
        return _hub_pairs(config, split)
    return _phrasebook_pairs(config, split)


def read_split(config: DataConfig, split: str) -> tuple[list[str], list[str]]:
    """Sources and references for evaluation, untouched: nothing is cleaned, dropped or normalised.

    Raises DataError as `raw_pairs` does, and for a line that is not UTF-8.
    """
    if config.source == "files":
        files = aligned_files(config, split)
        return [x for src, _ in files for x in read_lines(src)], [x for _, tgt in files for x in read_lines(tgt)]
    pairs = list(raw_pairs(config, split))
    where = f"data.{split}={getattr(config, split)}"
    return [_decode(src, where, i) for i, (src, _) in enumerate(pairs, 1)], [
        _decode(tgt, where, i) for i, (_, tgt) in enumerate(pairs, 1)
    ]


def read_lines(path: str | Path) -> list[str]:
    """The lines of a text file, plain or .gz. Raises DataError with file and line where it is not UTF-8."""
    return [_decode(line, path, number) for number, line in enumerate(_lines(Path(path)), 1)]


def _decode(line: bytes, where: str | Path, number: int) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}: line {number} is not UTF-8 ({error.reason}); correct it, or convert the file with iconv"
        ) from None


def identity(config: DataConfig, split: str) -> Any:
    """What decides the text of a split, as plain values for a fingerprint: content where it can be had.

    A data set on the hub is known by name and revision, so that a prepared corpus needs no network.
    """
    if config.source == "files":
        return [[scan(path)["sha256"] for path in files] for files in aligned_files(config, split)]
    if config.source == "hub" and (folder := _hub_folder(config)):
        paths = sorted(
            p for p in folder.rglob("*") if p.is_file() and not p.relative_to(folder).as_posix().startswith(".")
        )
        return [_choice(config, split), [[p.relative_to(folder).as_posix(), scan(p)["sha256"]] for p in paths]]
    if config.source == "hub":
        return [_choice(config, split), config.hub_path, config.hub_name, config.hub_revision]
    from aiayn.data import phrasebook

    return ["phrasebook", phrasebook.VERSION]


def _choice(config: DataConfig, split: str) -> list[str]:
    """The option data.SPLIT as a list: prefixes of files, or names of hub splits."""
    value = getattr(config, split)
    if value is None:
        raise DataError(
            f"data.{split} is not set: name text to read, data.{split}=PREFIX (files) or data.{split}=SPLIT (hub)"
        )
    return [value] if isinstance(value, str) else list(value)


# Text files


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


def aligned_files(config: DataConfig, split: str) -> list[tuple[Path, Path]]:
    """The files of a split. Raises DataError unless both sides of each have equally many lines, and at least one."""
    files = parallel_files(_choice(config, split), config.src_lang, config.tgt_lang, f"data.{split}")
    counts = [(scan(src)["lines"], scan(tgt)["lines"]) for src, tgt in files]
    for (src, tgt), (n_src, n_tgt) in zip(files, counts, strict=True):
        if n_src != n_tgt:
            raise DataError(
                f"data.{split}: {src} has {n_src} lines and {tgt} has {n_tgt}: line N of one must translate line N of "
                "the other (only LF ends a line)"
            )
    if not any(n for n, _ in counts):
        names = ", ".join(f"{src} and {tgt}" for src, tgt in files)
        raise DataError(f"data.{split}: there is no text in {names}")
    return files


def _file_pairs(files: list[tuple[Path, Path]]) -> Iterator[tuple[bytes, bytes]]:
    for src, tgt in files:
        yield from zip(_lines(src), _lines(tgt), strict=True)


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


# Hub data sets


def _hub_folder(config: DataConfig) -> Path | None:
    """The local folder that holds the data set (or its configuration), if it is one."""
    folder = Path(config.hub_path).expanduser()
    if folder.is_dir():
        named = folder / config.hub_name if config.hub_name else folder
        return named if named.is_dir() else folder
    if config.hub_path.startswith(("/", ".", "~")) or config.hub_path.count("/") > 1:
        raise DataError(f"data.hub_path={config.hub_path}: there is no such folder")
    return None


def _hub_pairs(config: DataConfig, split: str) -> Iterator[tuple[bytes, bytes]]:
    datasets = [_load_hub(config, name) for name in _choice(config, split)]
    return _rows(config, split, datasets)


def _rows(config: DataConfig, split: str, datasets: list[Any]) -> Iterator[tuple[bytes, bytes]]:
    empty = True
    for dataset in datasets:
        try:
            # Whole Arrow batches: row by row costs ten times as much.
            for table in dataset.with_format("arrow").iter(batch_size=10_000):
                sides = [_texts(config, table, lang) for lang in (config.src_lang, config.tgt_lang)]
                empty = empty and not sides[0]
                yield from zip(*sides, strict=True)
        except DataError:
            raise
        except Exception as error:  # datasets, pyarrow and the file system raise many kinds
            raise DataError(f"data.hub_path={config.hub_path}: cannot be read ({_one_line(error)})") from error
    if empty:
        raise DataError(f"data.hub_path={config.hub_path}: split {getattr(config, split)} is empty")


def _texts(config: DataConfig, table: Any, lang: str) -> list[bytes]:
    """One language's column: a field of `translation` as in WMT14, or a column named by the language as in Multi30k."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = {name: table.column(name) for name in table.column_names}
    if "translation" in columns:
        fields = [f.name for f in columns["translation"].type]
        columns = {name: pc.struct_field(columns["translation"], name) for name in fields}
    if lang not in columns:
        raise DataError(f"data.hub_path={config.hub_path}: no language {lang} among its columns {', '.join(columns)}")
    # A pair is one line: a line feed inside it would become two when hypotheses are written.
    texts = pc.replace_substring(pc.fill_null(columns[lang], ""), "\n", " ")
    return texts.cast(pa.large_binary()).to_pylist()


def _load_hub(config: DataConfig, name: str) -> Any:
    folder = _hub_folder(config)
    answered = _probe_hub() if folder is None else None
    try:
        import datasets
        import huggingface_hub.constants
    except ImportError as error:
        raise DataError(f"data.source=hub needs `pip install datasets`; or {REMEDY}") from error
    offline = answered is not None and not answered()
    if offline:
        # Left alone the library tries again for 23 seconds; like this it looks into its cache and gives up at once.
        datasets.config.HF_HUB_OFFLINE = huggingface_hub.constants.HF_HUB_OFFLINE = True
    try:
        if folder is None:
            return datasets.load_dataset(config.hub_path, config.hub_name, revision=config.hub_revision, split=name)
        # Read in place, without a second copy in the library's cache.
        whole = folder == Path(config.hub_path).expanduser()
        return datasets.load_dataset(str(folder), config.hub_name if whole else None, split=name, streaming=True)
    except Exception as error:  # as above
        reason = "no connection to the hub, and not in its local cache" if offline else _one_line(error)
        remedy = REMEDY if folder is None else "the folder must be laid out as on the hub"
        raise DataError(f"data.hub_path={config.hub_path}, split {name}: {reason}; {remedy}") from error


def _probe_hub() -> Callable[[], bool]:
    """Starts to look for the hub (or the proxy before it); the function returned says whether it answers.

    In a thread, because a name look-up knows no time-out, and the imports that follow take as long.
    """
    address = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    proxy = getproxies().get(address.scheme)
    address = urlsplit(proxy) if proxy else address
    deadline = time.monotonic() + 1.2
    found = threading.Event()

    def connect() -> None:
        port = address.port or (80 if address.scheme == "http" else 443)
        with suppress(OSError):
            socket.create_connection((address.hostname, port), timeout=1).close()
            found.set()

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()

    def answered() -> bool:
        thread.join(max(0.0, deadline - time.monotonic()))
        return found.is_set()

    return answered


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


# The phrasebook


def _phrasebook_pairs(config: DataConfig, split: str) -> Iterator[tuple[bytes, bytes]]:
    from aiayn.data import phrasebook

    _choice(config, split)
    if {config.src_lang, config.tgt_lang} != {"en", "de"}:
        raise DataError(
            f"data.src_lang={config.src_lang}, data.tgt_lang={config.tgt_lang}: the phrasebook has en and de only; "
            "set data.src_lang=en data.tgt_lang=de, or bring text with data=files"
        )
    for en, de in phrasebook.pairs(split):
        pair = en.encode(), de.encode()
        yield pair if config.src_lang == "en" else pair[::-1]
