"""The documentation keeps its word: links to lines lead to what they quote, and the tests that it names exist."""

import re

import pytest
from applications import ROOT

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
LINE_LINKS = [
    pytest.param(page, text.strip("`"), target, id=f"{page.name}: {text[:40]}")
    for page in PAGES
    for text, target in LINK.findall(page.read_text(encoding="utf-8"))
    if "#L" in target
]


@pytest.mark.parametrize(("page", "quoted", "target"), LINE_LINKS)
def test_a_link_to_a_line_quotes_that_line(page, quoted, target):
    path, number = target.split("#L")
    lines = (page.parent / path).read_text(encoding="utf-8").split("\n")
    found = [at for at, line in enumerate(lines, 1) if quoted in line]

    assert int(number) in found, f"{path}: this text stands in lines {found}"


def test_there_are_links_from_the_paper_to_the_code():
    assert len(LINE_LINKS) >= 20


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page):
    named = re.findall(r"(tests/[\w/]+\.py)::(\w+)", page.read_text(encoding="utf-8"))
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not re.search(rf"^def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    ]

    assert missing == []
    assert len(named) > 40 or page.name != "reliability.md"
