"""The generated blocks of pages: what stands between `<!-- begin NAME -->` and `<!-- end NAME
-->`.
"""

from collections.abc import Mapping
from pathlib import Path
from textwrap import fill

from aiayn.files import atomic_write

ROOT = Path(__file__).resolve().parents[1]


def replaced(page: str, blocks: Mapping[str, str]) -> str:
    """Return the page with these generated blocks replaced."""
    for name, text in blocks.items():
        head, begin, rest = page.partition(f"<!-- begin {name} -->\n")
        _, end, tail = rest.partition(f"\n<!-- end {name} -->")
        assert begin, name
        assert end, name
        page = head + begin + text + end + tail
    return page


def publish(page: Path, blocks: Mapping[str, str]) -> None:
    """Write the generated blocks into the page."""
    atomic_write(page, replaced(page.read_text(encoding="utf-8"), blocks))
    print(f"written: {page}")


def wrapped(text: str, indent: str = "") -> str:
    """Break a paragraph into lines of at most 120 characters."""
    return fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
