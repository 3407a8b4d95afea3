"""The rules that clean pairs of sentences, and the count of what they dropped."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

# No sentence is that long. Longer lines are dropped before their characters are looked at.
MAX_LINE_BYTES = 32_768
# Line ends of other systems and of Unicode. Inside a line they become spaces; CR LF counts as one.
SEPARATOR = re.compile("\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
# C0 and C1 control characters, except TAB and the separators above.
CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f]")


class Flaw(bytes):
    """Stands in for the source of a malformed row: the reason, such as b"columns"."""


@dataclass
class CleaningReport:
    """Counts of a split's pairs; `read == kept + sum(dropped.values())`. Pairs are numbered from 1, over all files."""

    read: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)  # reason: pairs
    first_dropped: dict[str, list[int]] = field(default_factory=dict)  # reason: numbers of the first five pairs
    separators: int = 0  # replaced by spaces, in pairs that pass `clean`

    def drop(self, reason: str, number: int) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        first = self.first_dropped.setdefault(reason, [])
        if len(first) < 5:
            first.append(number)

    def add(self, other: "CleaningReport") -> None:
        """Adds the counts of the pairs that follow these."""
        self.read, self.kept = self.read + other.read, self.kept + other.kept
        self.separators += other.separators
        for reason, pairs in other.dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + pairs
            self.first_dropped[reason] = (self.first_dropped.get(reason, []) + other.first_dropped[reason])[:5]


class _UnusableError(Exception):
    """Carries the reason why a line is dropped."""


def normalise(text: str) -> tuple[str, int]:
    """Returns a line without surrounding white space, and how many separators inside it became spaces."""
    return SEPARATOR.subn(" ", text.strip())


def clean(pairs: Iterable[tuple[bytes, bytes]], report: CleaningReport) -> Iterator[tuple[str, str]]:
    """Yields the usable pairs as text and counts the others in `report`. One bad side drops the pair.

    When a pair is yielded, `report.read` is its number.
    """
    for raw_src, raw_tgt in pairs:
        report.read += 1
        if type(raw_src) is Flaw:
            report.drop(raw_src.decode(), report.read)
            continue
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
    # Nearly every line is printable, and checking that is ten times faster than the two searches below.
    if text.isprintable():
        return text, 0
    if CONTROL.search(text):
        raise _UnusableError("control_characters")
    return normalise(text)
