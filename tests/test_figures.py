"""Every measured figure in the pages is in a file of results.

A block of text or a table is preceded by a comment that names the files or folders its figures come from:

    <!-- figures: benchmarks/results/translate.json results/quickstart -->

A figure may be rounded, in percent or in thousands; of several runs in one folder also mean, spread, minimum, maximum.
"""

import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from applications import ROOT

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
# Their figures are the paper's, other papers', or values of options.
NOT_MEASURED = {"attention.md", "fidelity.md", "glossary.md", "reading.md", "reproduce.md"}
# Elsewhere: sections, versions, options, published scores, names and sizes of texts and models.
STATED = {"6.3", "3.11", "22.05", "3.0", "0.3", "0.6", "27.3", "28.4", "91.3", "92.7", "2.6"}
STATED |= {"2016", "1,014", "29,000", "38,000", "40,000", "24,000", "160,487", "41.02"}
MARK = re.compile(r"<!-- figures: (.+) -->")
NUMBER = re.compile(r"(?<![\w.,/-])\d+(?:,\d{3})*(?:\.\d+)?(?![\w/-]|[.,]\d)")
SCALES = (1, 100, 1000, 1e-3)  # as it is, in percent, in thousandths (milliseconds, GFLOP/s), in thousands


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Yields the paragraphs, lists and tables of a page outside code, each with the files it names, "" for none."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    sources = ""
    for block in re.split(r"\n\s*\n", text):
        if mark := MARK.search(block):
            sources, block = mark[1], MARK.sub("", block)
        if block.strip():
            yield block, sources
            sources = ""


def figures(block: str) -> list[str]:
    """Returns the numbers of a block, without those in code, links and pictures."""
    return NUMBER.findall(re.sub(r"`[^`]*`|!?\[[^]]*\]\([^)]*\)", "", block))


def decimals(block: str) -> set[str]:
    return {figure for figure in figures(block) if "." in figure} - STATED


@cache
def values(sources: str) -> frozenset[float]:
    """Returns all numbers in files or folders, and mean, spread, minimum and maximum of what several files hold."""
    found: dict[str, list[float]] = defaultdict(list)
    for source in sources.split():
        place = ROOT / source
        paths = sorted(path for path in place.rglob("*") if path.is_file()) if place.is_dir() else [place]
        for path in paths:
            for key, value in _numbers(_read(path), f"{source}/{path.name}"):
                found[key].append(value)
    several = [column for column in found.values() if len(column) > 1]
    derived = [f(column) for column in several for f in (statistics.mean, statistics.stdev, min, max)]
    return frozenset([value for column in found.values() for value in column] + derived)


def _read(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    return yaml.safe_load(text) if path.suffix == ".yaml" else json.loads(text)


def _numbers(value: Any, key: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _numbers(each, f"{key}/{name}")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _numbers(each, f"{key}/{index}")
    elif isinstance(value, str):
        for number in NUMBER.findall(value):
            yield f"{key}/{number}", float(number.replace(",", ""))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield key, float(value)


def missing(block: str, sources: str) -> list[str]:
    """Returns the figures of a block that its files do not hold."""
    return [figure for figure in figures(block) if figure not in STATED and not _is_in(figure, values(sources))]


def _is_in(figure: str, found: frozenset[float]) -> bool:
    digits = len(figure.partition(".")[2])
    shown = float(figure.replace(",", ""))
    return any(abs(value * scale - shown) <= 0.5001 * 10**-digits for value in found for scale in SCALES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_figure_of_a_marked_block_is_in_its_files(page):
    wrong = {block.strip()[:80]: missing(block, sources) for block, sources in blocks(page) if sources}

    assert {block: figures for block, figures in wrong.items() if figures} == {}


@pytest.mark.parametrize("page", [p for p in PAGES if p.name not in NOT_MEASURED], ids=lambda page: page.name)
def test_every_block_with_a_decimal_figure_names_its_files(page):
    unmarked = [(block.strip(), decimals(block)) for block, sources in blocks(page) if not sources and decimals(block)]

    assert unmarked == []


@pytest.mark.parametrize(("shown", "found"), [("41", True), ("41.4", True), ("41.38", True), ("0.41", False)])
def test_a_figure_may_be_rounded(shown, found):
    assert _is_in(shown, frozenset([41.384])) == found


def test_a_figure_that_drifts_is_noticed():
    [block, sources] = next((b, s) for b, s in blocks(ROOT / "README.md") if "results/captions" in s)
    assert missing(block, sources) == []
    assert missing(block.replace("47.53", "47.43"), sources) == ["47.43"]
