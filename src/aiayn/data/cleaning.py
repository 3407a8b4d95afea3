"""The rules that clean pairs of sentences, and the report on what they did."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

# No sentence is that long; longer lines are dropped before anything looks at their characters.
MAX_LINE_BYTES = 32_768
# Line ends of other systems and of Unicode: inside a line they are mere spaces. CR LF counts as one.
SEPARATOR = re.compile("\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
# What has no place in text: C0 and C1 controls but TAB and the separators above.
CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f]")


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
