"""Every measured figure in the pages is a cell of a results file; docs/figures.yaml says which, and in what form."""

import fnmatch
import json
import math
import re
import statistics
from collections.abc import Callable, Iterator
from functools import cache, reduce
from pathlib import Path
from typing import Any

import pytest
import yaml
from applications import ROOT

from aiayn.model.flops import n_parameters, training_flops
from aiayn.reports.published import TABLE_3

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
ADDRESSES = yaml.safe_load((ROOT / "docs/figures.yaml").read_text(encoding="utf-8"))
FILES, STATED = ADDRESSES.pop("files"), ADDRESSES.pop("stated")
MARK = re.compile(r"<!-- figures: (.+) -->")
NUMBER = re.compile(r"(?<![\w.,/-])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?![\w/-]|[.,]\d)")
NOT_TEXT = re.compile(r"`[^`]*`|!\[[^]]*\]\([^)]*\)|\]\([^)]*\)")  # code, pictures, the targets of links
# The 97.5 % point of Student's t by degrees of freedom, as tables print it.
STUDENT_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
SECTION = re.compile(r"\((?:\d(?:\.\d)+(?:, )?)+\)|\*\*\d(?:\.\d)+|[Ss]ections? \d(?:\.\d)+(?: and \d(?:\.\d)+)?")
ROWS = {row.name: row for row in TABLE_3}


def _parameters(row: str, vocab_size: str) -> float:
    return n_parameters(ROWS[row].model(), int(vocab_size)) / 1e6


def _vocabularies_of_all_rows() -> list[int]:
    """The vocabularies with which every row but big rounds to the millions printed."""
    rows = [row for row in TABLE_3 if row.parameters and row.name != "big"]
    return [
        size
        for size in range(35_000, 45_000)
        if all(round(n_parameters(row.model(), size) / 1e6) == row.parameters for row in rows)
    ]


def _cost_in_bases(*without: str) -> float:
    costs = [row.max_steps * float(training_flops(row.model(), 37_000, 1, 1)) for row in TABLE_3]
    kept = [cost for row, cost in zip(TABLE_3, costs, strict=True) if row.name not in without]
    return sum(kept) / costs[0]


COUNTED: dict[str, Callable[..., float]] = {
    "parameters": _parameters,
    "fewest_entries": lambda: _vocabularies_of_all_rows()[0],
    "most_entries": lambda: _vocabularies_of_all_rows()[-1],
    "bases": _cost_in_bases,
    "hops": lambda n, reach: math.ceil((int(n) - 1) / int(reach)),
}
OVER_FILES: dict[str, Callable[[list[float]], float]] = {
    "mean": statistics.mean,
    "sd": statistics.stdev,
    "ci": lambda x: STUDENT_T[len(x) - 1] * statistics.stdev(x) / len(x) ** 0.5,
    "prediction": lambda x: STUDENT_T[len(x) - 1] * statistics.stdev(x) * (1 + 1 / len(x)) ** 0.5,  # of one more
    "min": min,
    "max": max,
}
BETWEEN: dict[str, Callable[[float, float], float]] = {
    " - ": lambda a, b: a - b,
    " * ": lambda a, b: a * b,
    " / ": lambda a, b: a / b,
}


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Yields the paragraphs, lists and tables of a page outside code, each with the name of its mark, "" for none.

    Blocks that a script of benchmarks/ makes of the results are left out: tests/benchmarks makes them again.
    """
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^<!-- begin (.+?) -->$.*?^<!-- end \1 -->$", "", text, flags=re.MULTILINE | re.DOTALL)
    for block in re.split(r"\n\s*\n", text):
        mark = MARK.search(block)
        yield MARK.sub("", block), mark[1] if mark else ""


def figures(block: str) -> list[str]:
    """Returns the numbers of a block, with their signs, without those in code, links and pictures."""
    return NUMBER.findall(NOT_TEXT.sub("", block))


def decimals(block: str) -> set[str]:
    """Returns the numbers with a decimal point, without those of sections of the paper."""
    return {figure.lstrip("+-") for figure in figures(SECTION.sub("", block)) if "." in figure}


def addresses(entry: Any) -> Iterator[Any]:
    """Yields the addresses of an entry of docs/figures.yaml one by one."""
    if isinstance(entry, list):
        for one in entry:
            yield from addresses(one)
    elif isinstance(entry, dict):
        [(names, rows)] = entry["for"].items()
        for row in rows:
            values = dict(zip(names.split(), row if isinstance(row, list) else [row], strict=True))
            for cell in addresses(entry["cells"]):
                yield reduce(lambda text, name: text.replace(f"{{{name}}}", str(values[name])), values, str(cell))
    else:
        yield entry


def value(address: Any) -> float:
    """Returns the number at an address. Raises AssertionError if it names no number, or more than one."""
    if not isinstance(address, str):
        return float(address)
    for sign, between in BETWEEN.items():
        first, found, second = address.rpartition(sign)
        if found:
            return between(value(first), value(second))
    if re.fullmatch(r"-?[\d.]+", address):
        return float(address)
    function, _, rest = address.partition(" ")
    if function == "counted":
        name, *arguments = rest.split()
        return COUNTED[name](*arguments)
    if function in OVER_FILES:
        return OVER_FILES[function](_cells(rest))
    cells = _cells(address)
    assert len(cells) == 1, f"{address}: {len(cells)} files"
    return cells[0]


def _cells(address: str) -> list[float]:
    pattern, *keys = address.split(" | ")
    pattern = re.sub(r"\$(\w+)", lambda name: FILES[name[1]], pattern)
    contents = [_read(path) for path in sorted(ROOT.glob(pattern))]
    if "*" in keys[-1]:  # all columns of one row that are called so
        [row] = [reduce(lambda content, key: _inner(content, key, address), keys[:-1], content) for content in contents]
        return [float(row[name]) for name in fnmatch.filter(row, keys[-1])]
    found = [_cell(content, keys, address) for content in contents]
    assert found, f"{address}: there is no such file"
    return [number for number in found if number is not None]


def _cell(content: Any, keys: list[str], address: str) -> float | None:
    """The number under the keys; None where a file of several lacks the last key."""
    for key in keys:
        if isinstance(content, dict) and key == keys[-1] and key not in content:
            return None
        content = _inner(content, key, address)
    return float(content)


def _inner(content: Any, key: str, address: str) -> Any:
    if isinstance(content, list) and "=" in key:
        name, _, wanted = key.partition("=")
        rows = [row for row in content if str(row.get(name)) == wanted]
        assert len(rows) == 1, f"{address}: {len(rows)} rows with {key}"
        return rows[0]
    if isinstance(content, list) and key.isdigit():
        return content[int(key)]
    if isinstance(content, list):  # .jsonl
        return [record for record in content if key in record][-1][key]
    return content[key]


@cache
def _read(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    return yaml.safe_load(text) if path.suffix == ".yaml" else json.loads(text)


def differences(block: str, entry: Any) -> list[str]:
    """Returns what is wrong with the figures of a block, one line for each."""
    shown, expected = figures(block), list(addresses(entry))
    wrong = [
        f"figure {number}, {figure}: {address} is {value(address):.6g}"
        for number, (figure, address) in enumerate(zip(shown, expected, strict=False), 1)
        if not is_rounded(figure, value(address))
    ]
    return wrong + [f"{len(shown)} figures, {len(expected)} addresses"] * (len(shown) != len(expected))


def is_rounded(figure: str, exact: float) -> bool:
    """Whether a figure is a number rounded to the digits that the figure shows."""
    digits = len(figure.partition(".")[2])
    return abs(exact - float(figure.replace(",", ""))) <= 0.5001 * 10**-digits


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_figure_of_a_marked_block_is_its_cell_rounded(page):
    marked = {mark: block for block, mark in blocks(page) if mark}
    known = ADDRESSES.get(page.name, {})

    assert set(marked) == set(known)
    wrong = {mark: differences(block, known[mark]) for mark, block in marked.items()}
    assert {mark: lines for mark, lines in wrong.items() if lines} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_decimal_figure_without_a_mark_is_known_to_be_stated(page):
    found = set().union(*(decimals(block) for block, mark in blocks(page) if not mark))
    stated = {float(number) for number in addresses(STATED.get(page.name, []))}

    unknown = {figure for figure in found if float(figure) not in stated}
    assert unknown == set(), "measured figures need a mark and addresses in docs/figures.yaml"
    assert stated - set(map(float, found)) == set(), "no longer on the page"


@pytest.mark.parametrize(("shown", "right"), [("41", True), ("41.4", True), ("41.38", True), ("41.39", False)])
def test_a_figure_may_be_rounded(shown, right):
    assert is_rounded(shown, 41.384) == right
    assert is_rounded("-0.7", -0.68)
    assert not is_rounded("0.7", -0.68)


def test_a_figure_that_drifts_changes_places_or_sign_is_noticed():
    [block] = [block for block, mark in blocks(ROOT / "README.md") if mark == "results"]
    entry = ADDRESSES["README.md"]["results"]

    assert differences(block, entry) == []
    assert len(differences(block.replace("47.53", "47.43"), entry)) == 1
    assert len(differences(block.replace("47.53", "97.87"), entry)) == 1  # a figure of another row
    assert len(differences(block.replace("47.53", "-47.53"), entry)) == 1
    assert differences(block + " 7", entry)
