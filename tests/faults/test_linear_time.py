"""Twice the text takes about twice the time, in every pattern and every parser of outsiders' text."""

import asyncio
import importlib
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from aiayn.apps.documents.document import in_lines
from aiayn.apps.documents.placement import UNIT
from aiayn.apps.documents.texts import split_paragraph
from aiayn.apps.encodings import decode_document
from aiayn.apps.server.requests import read_fields
from aiayn.data.cleaning import folded, normalise
from aiayn.data.placeholders import has_letters, placeholders
from aiayn.data.raw_text import RawPair
from aiayn.data.survey import profile_of
from aiayn.data.tables import header_columns, read_json_lines, read_table
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import DataError
from aiayn.parsing.linear_form import repaired_tree
from aiayn.parsing.penn_files import read_trees

ROOMS = (
    "data",
    "apps",
    "apps.server",
    "apps.localisation",
    "apps.documents",
    "evaluation",
    "parsing",
    "reports",
)


def patterns() -> Iterator[tuple[str, re.Pattern]]:
    """Yields the patterns that the modules of these rooms hold, by name."""
    for room in ROOMS:
        package = importlib.import_module(f"aiayn.{room}")
        for module in pkgutil.iter_modules(package.__path__, f"aiayn.{room}."):
            for name, value in vars(importlib.import_module(module.name)).items():
                if isinstance(value, re.Pattern):
                    yield f"{module.name}.{name}", value


def characters(parsed) -> Iterator[str]:
    """Yields characters that a parsed pattern names, and some of each category in it."""
    for operator, argument in parsed:
        name = str(operator)
        if name in ("LITERAL", "NOT_LITERAL"):
            yield chr(argument)
        elif name == "RANGE":
            yield chr(argument[0])
        elif name == "ANY":
            yield from "a\n"
        elif name == "CATEGORY":
            yield from {"DIGIT": "1", "SPACE": " ", "WORD": "a"}[str(argument).rpartition("_")[2]]
        elif name == "IN":
            yield from characters(argument)
        elif name == "BRANCH":
            for branch in argument[1]:
                yield from characters(branch)
        elif isinstance(argument, tuple):
            for part in argument:
                if isinstance(part, re._parser.SubPattern):
                    yield from characters(part)


def growth(
    work: Callable[[str], object], unit: str, beginning: str = "", size: int = 8000
) -> float:
    """Returns how much longer twice the text takes; 0 for what is too short to be measured."""

    def seconds(length: int) -> float:
        start = time.process_time()
        with suppress(DataError, HTTPException):
            work(beginning + unit * (length // len(unit)))
        return time.process_time() - start

    if seconds(2 * size) < 0.05:  # a square of 8,000 steps would take longer
        return 0.0
    return min(seconds(2 * size) / seconds(size) for _ in range(5))


NAMED = dict(patterns())
# Tried at one place of a text, where a tag, a sentence or a line begins; others are searched for.
TRIED_ONCE = (
    "aiayn.apps.localisation.exchange.TAG",
    "aiayn.apps.documents.texts.INITIAL",
    *(f"aiayn.apps.documents.markdown.{name}" for name in ("TITLED", "DIRECTIVE", "BRACKETS")),
    "aiayn.apps.documents.dialect_blocks.DIRECTIVE_FENCE",
)
# Comments and instructions of XML that a parser has accepted: what begins there also ends.
del NAMED["aiayn.apps.localisation.exchange.NOT_TEXT"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMED)
def test_a_pattern_takes_time_in_proportion_to_the_text(name):
    pattern = NAMED[name]
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode()
    letters = sorted({"a", " ", *characters(re._parser.parse(source, pattern.flags & re.VERBOSE))})
    letters = letters[:: max(1, len(letters) // 12)]
    units = [*letters, *map("".join, product(letters, repeat=2))]

    def work(text: str) -> None:
        subject: Any = text if isinstance(pattern.pattern, str) else text.encode()
        if name in TRIED_ONCE:
            pattern.match(subject)
        else:
            pattern.sub(subject[:0], subject)

    assert {unit: ratio for unit in units if (ratio := growth(work, unit)) > 2.5} == {}


async def read_request(content_type: str, body: str) -> object:
    async def receive() -> dict:
        return {"type": "http.request", "body": body.encode()}

    headers = [(b"content-type", content_type.encode())]
    scope = {"type": "http", "method": "POST", "headers": headers, "query_string": b"", "app": None}
    return await read_fields(Request(scope, receive), 1 << 20)


def posted(content_type: str) -> Callable[[str], object]:
    return lambda text: asyncio.run(read_request(content_type, text))


def from_file(read: Callable, suffix: str) -> Callable[[str], object]:
    def work(text: str) -> list[RawPair]:
        with TemporaryDirectory() as folder:
            path = Path(folder) / f"x.{suffix}"
            path.write_text(text, "utf-8")
            return list(read(path, "en", "de"))

    return work


TOKENIZER = Tokenizer.train([["the old house 1", "das alte Haus"]], 270)
PARSERS: dict[str, tuple[Callable[[str], object], str, list[str]]] = {
    "json": (posted("application/json"), '{"q": "', ["[", '{"a":', "\\\\", '", "a": "']),
    "form": (posted("application/x-www-form-urlencoded"), "q=", ["&q=", "%41", "+", "=", ";"]),
    "parts": (
        posted("multipart/form-data; boundary=b"),
        "--b\r\nContent-Disposition: form-data; name=q\r\n\r\n",
        [
            "--b\r\n",
            "\r\n",
            "-",
            "a: b\r\n",
            "\r\n--b\r\nContent-Disposition: form-data; name=q\r\n\r\n",
        ],
    ),
    "content type": (
        lambda text: asyncio.run(read_request(f"multipart/form-data; boundary=b{text}", "")),
        "",
        [";a=", '"', ';a="', "\\", ' ;a="b"'],
    ),
    "part": (
        lambda text: posted("multipart/form-data; boundary=b")(f"{text}\r\n\r\na\r\n--b--"),
        "--b\r\nContent-Disposition: form-data; name=q",
        [";a=", '"', ';a="', "\\", ' ;a="b"'],
    ),
    "csv": (from_file(read_table, "csv"), "en,de\n", [",", '"', '""', '","', "a,b\n", "\n", ";"]),
    "tsv": (from_file(read_table, "tsv"), "en\tde\n", ["\t", '"', '"\t"', "a\tb\n", "\n"]),
    "jsonl": (
        from_file(read_json_lines, "jsonl"),
        '{"en": "a", "de": "b"}\n',
        ["[", "{", "null\n", '{"en": '],
    ),
    "header": (
        lambda text: header_columns(Path("x"), text.split(","), "en", "de"),
        "",
        ["(", "text_de,", "_", "'"],
    ),
    "declared": (
        lambda text: decode_document(Path("x.html"), text.encode()),
        "",
        ["<meta ", "<?xml ", "<!--", "content-type:", "charset=", "\n"],
    ),
    "normalise": (
        normalise,
        "",
        ["\u00e4", "a\u0308", "\u0308\u0323", "\u0f73", "\u200b", "\u1112\u1161\u11ab"],
    ),
    "folded": (folded, "a", ["!", " ", "1"]),
    "placeholders": (
        placeholders,
        "",
        [
            "{",
            "%(",
            "&#",
            "<a ",
            "http://",
            "a@",
            "<!--",
            "\u200d",
            "&lt;a ",
            "v1.",
            "a.",
            "a-",
            "a.de:",
            "DE89 ",
            "AA00 0000 0000",
        ],
    ),
    "has letters": (has_letters, "1", ["{", "%", "{a", "\U0001f469\u200d"]),
    "profile": (lambda text: profile_of([text]), "", ["a", "a b", "\u4eca", "ab "]),
    "sentences": (
        lambda text: split_paragraph(text, "en"),
        "",
        ["\u4eca\u3002", "a. ", "A.", "(", '"', "...", "\n", "!?"],
    ),
    "lines": (
        lambda text: in_lines(text, [5] * 50, ["\n"] * 49),
        "",
        ["a ", "<a ", "\u4eca", ">", "-->"],
    ),
    "subwords": (
        lambda text: TOKENIZER.decode(TOKENIZER.encode([text])),
        "",
        ["a", "a ", "  ", "\u00e4", "\u0308", "\u4eca", "1", "<2de> "],
    ),
    "trees": (
        from_file(lambda path, *langs: read_trees(path), "mrg"),
        "(S ",
        ["(", "(A ", "(A a)", ")", "a ", "(A (A a)) ", "(-NONE- a)"],
    ),
    "linear trees": (
        lambda text: repaired_tree("a " * 500, text),
        "",
        ["(S ", "(S )X ", "A ", ")S ", "(S A "],
    ),
    "units": (UNIT.findall, "", ["\u0308", "a\u200d", "http://", "<a ", "\U0001f469\u200d"]),
}


@pytest.mark.parametrize(
    ("name", "unit"), [(name, unit) for name, (_, _, units) in PARSERS.items() for unit in units]
)
def test_a_parser_takes_time_in_proportion_to_the_text(name, unit):
    work, beginning, _ = PARSERS[name]
    assert growth(work, unit, beginning) <= 2.5
