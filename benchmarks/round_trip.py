"""What becomes of real documents through two engines: one that copies, and one that appends a
letter to every word.

    python benchmarks/round_trip.py FOLDER ...

Reads the pages (`.html`), the Markdown (`.md`) and the README of every package below the folders,
up to 400,000 characters, each text once. With the first engine a document is `identical`, has other
`blanks`, is `shown` the same in spite of other characters, or is `different`. With the second one it
is compared without these letters.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
from markdown_it import MarkdownIt
from measure import parse_options, report

from aiayn.apps.documents.document import parse_document
from aiayn.apps.documents.markup import Part, rendered
from aiayn.apps.documents.placement import UNIT, UNSPACED, written

MAX_CHARACTERS = 400_000
LANGS = ("en", "de")
MARK = "\u02bc"  # a letter, so that it belongs to the word
LANG = re.compile(r"""(\blang=["']?)de\b""")  # which becomes that of the translation
WORD = re.compile(rf"[^\W\d_{UNSPACED}]")
MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
COLUMNS = ("identical", "blanks", "shown", "different")


def same(text: str) -> str:
    return text


def marked(text: str) -> str:
    """Returns a text whose words are others: each has a letter more."""
    return UNIT.sub(
        lambda unit: unit[0] + MARK if WORD.match(unit[0]) and not unit[1] else unit[0], text
    )


ENGINES = {"copies": same, "marks every word": marked}


def translated(name: str, text: str, engine: str) -> str:
    """Returns what a document becomes with an engine that translates word by word."""

    def translate(part: Part) -> str:
        words = ENGINES[engine](part.text)
        return written(part, words, np.eye(len(UNIT.findall(words))), Counter())

    return rendered(parse_document(Path(name), text.encode(), LANGS).pieces, translate)


class Shown(HTMLParser):
    """The tags of a page, and the text between them without blanks."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.events: list[Any] = [""]
        self.feed(page)
        self.close()

    def handle_data(self, data: str) -> None:
        self.events[-1] += "".join(data.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = [(name, "".join((value or "").split())) for name, value in attrs]
        self.events += [("open", tag, values), ""]

    def handle_endtag(self, tag: str) -> None:
        self.events += [("close", tag), ""]

    def handle_comment(self, data: str) -> None:
        self.events += [("comment", data), ""]


def shown(name: str, text: str) -> str:
    """Returns what a browser is shown of a document."""
    page = MARKDOWN.render(text) if name.endswith("md") else text
    return str(Shown(page).events)


def compared(name: str, text: str, engine: str) -> str:
    """Returns the column of a document."""
    translation = LANG.sub(r"\1en", translated(name, text, engine).replace(MARK, ""))
    text = LANG.sub(r"\1en", text)
    if translation == text:
        return "identical"
    if "".join(translation.split()) == "".join(text.split()):
        return "blanks"
    return "shown" if shown(name, translation) == shown(name, text) else "different"


def documents(folders: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Yields the suffix and the text of every document."""
    known = set()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            is_known = path.suffix in (".html", ".md") or path.name == "METADATA"
            if not is_known or not path.is_file():
                continue
            text = path.read_bytes().decode("utf-8", "ignore")
            suffix = path.suffix[1:]
            if path.name == "METADATA":
                head, _, text = text.partition("\n\n")
                if "text/markdown" not in head:
                    continue
                suffix = "md"
            if text.strip() and len(text) <= MAX_CHARACTERS and (suffix, text) not in known:
                known.add((suffix, text))
                yield suffix, text


def rows(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """Returns a row for each format and engine."""
    counts = {}
    for suffix, text in documents(folders):
        for engine in ENGINES:
            count = counts.setdefault((suffix, engine), Counter())
            count[compared(f"a.{suffix}", text, engine)] += 1
    return [
        {"format": suffix, "engine": engine, "documents": count.total()}
        | {column: count[column] for column in COLUMNS}
        for (suffix, engine), count in counts.items()
    ]


def main(arguments: list[str] | None = None) -> None:
    options = parse_options(__doc__, arguments, {"folders": "+"})
    report("round_trip", rows(map(Path, options.folders)), options.out)


if __name__ == "__main__":
    main()
