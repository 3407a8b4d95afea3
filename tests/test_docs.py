"""The pages name only what exists: files, functions, classes, tests and rooms."""

import ast
import re
import signal
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from applications import ROOT
from test_imports import MODULES, WALLS

from aiayn.errors import InterruptedRunError, UserError
from aiayn.signals import exit_signal
from aiayn.sweep.jobs import job_names

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
# Paths in the pages are relative to one of these.
HOMES = (ROOT, ROOT / "src/aiayn", ROOT / "src", ROOT / "src/aiayn/training")
LINK = re.compile(r"\[`([^`\]]+)`\]\(([^)\s]+\.py)\)")
QUOTED = re.compile(r"`([^`\n]+)`")
SOURCE = "\n".join(
    path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py"))
)

OF_LIBRARIES = {
    "ModelCheckpoint",
    "LearningRateMonitor",
    "LearningRateFinder",
    "BatchSizeFinder",
    "GradientAccumulationScheduler",
}  # classes that are named because they are not used

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def located(path: str) -> Path | None:
    return next((home / path for home in HOMES if (home / path).exists()), None)


@cache
def defined(path: Path) -> set[str]:
    """Functions, classes, `Class.method`s and constants of a module."""
    names = set()
    for node in ast.parse(read(path)).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{inner.name}"
                for inner in node.body
                if isinstance(inner, ast.FunctionDef)
            }
        if isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def missing_names(text: str) -> list[str]:
    """What is quoted as `path/module.py: name` without being there."""
    found = [re.fullmatch(r"([\w/]+\.py): ([\w.]+)", quoted) for quoted in QUOTED.findall(text)]
    named = [(match[0], located(match[1]), match[2]) for match in found if match]
    return [quoted for quoted, path, name in named if path is None or name not in defined(path)]


@every_page
def test_every_function_that_a_page_names_exists(page):
    assert missing_names(read(page)) == []


@every_page
def test_every_file_that_a_page_names_exists(page):
    paths = re.findall(r"`((?:[\w.-]+/)+[\w.-]*\.(?:py|yaml|md|txt))\b[^`]*`", read(page))
    written = ("outputs/", "evaluation/", "checkpoints/", "data/SRC")  # by runs

    assert [path for path in paths if not path.startswith(written) and located(path) is None] == []


@every_page
def test_a_link_to_a_module_names_what_is_defined_there(page):
    for quoted, target in LINK.findall(read(page)):
        path = (page.parent / target).resolve()
        module, _, name = quoted.rpartition(": ")
        assert target.endswith(module), quoted
        assert name in defined(path), quoted


def test_there_are_links_from_the_paper_to_the_code():
    assert len(LINK.findall(read(ROOT / "docs/reading.md"))) >= 20


def test_the_baseline_that_the_page_on_sweeps_names_is_a_row_of_its_sweep():
    page = read(ROOT / "docs/sweeps.md")
    swept = re.search(r"train.py -m (.*) sweep=heads", page)[1].split()
    options = [(key, values.split(",")) for key, values in (one.split("=") for one in swept)]
    rows = product(*([f"{key}={value}" for value in values] for key, values in options))

    assert re.search(r"--baseline (\S+)", page)[1] in job_names([list(row) for row in rows], swept)


@every_page
def test_every_class_that_a_page_names_occurs_in_the_source(page):
    classes = {
        quoted
        for quoted in QUOTED.findall(read(page))
        if re.fullmatch(r"([A-Z]+[a-z]+){2,}\w*", quoted)
    }

    assert [name for name in classes - OF_LIBRARIES if not re.search(rf"\b{name}\b", SOURCE)] == []


@every_page
def test_every_test_that_a_page_names_exists(page):
    for path, name in re.findall(r"(tests/[\w/]+\.py)(?:::(\w+))?", read(page)):
        assert (ROOT / path).exists(), path
        assert not name or name in defined(ROOT / path), f"{path}::{name}"


def test_every_command_that_fine_tunes_has_the_same_learning_rate():
    commands = [
        command
        for page in PAGES
        for command in re.findall(r"^ *python train\.py .*", read(page), re.MULTILINE)
        if "init_from=" in command
    ]

    assert len(commands) >= 2
    for command in commands:
        assert re.findall(r"optim\.\S+", command) == [
            "optim.peak_lr=1e-4",
            "optim.warmup_steps=100",
        ], command


def test_every_misconception_has_a_section_code_and_what_shows_it():
    page = read(ROOT / "docs/misconceptions.md")
    rows = [row for row in page.split("\n") if row.startswith("| ")][1:]
    tests = defined(ROOT / "tests/model/test_paper_claims.py")

    assert len(rows) > 10
    for row in rows:
        claim, answer, shown = row.strip("| ").split(" | ")
        assert re.search(r"[Ss]ection \d", answer), claim
        assert LINK.search(answer), claim
        for keyword in re.findall(r"`-k (\w+)`", shown):
            assert len([name for name in tests if keyword in name]) == 1, keyword
        assert QUOTED.search(shown), claim
    for question in page.partition("## Common questions")[2].split("\n\n**")[1:]:
        assert re.search(r"[Ss]ection \d", question), question
        assert LINK.search(question), question
        assert QUOTED.search(LINK.sub("", question)), question


def test_every_promise_of_the_page_on_reliability_names_the_tests_that_hold_it():
    tables = read(ROOT / "docs/reliability.md").split("| promise | test |\n|---|---|\n")[1:]
    rows = [row for table in tables for row in table.split("\n\n")[0].split("\n")]
    test = r"`tests/[\w/]+\.py::test_\w+`"

    assert len(rows) > 25
    assert [row for row in rows if not re.search(rf"\| {test}(?:, {test})* \|$", row)] == []


def test_the_exit_codes_of_the_page_on_reliability_are_those_of_the_errors():
    section = read(ROOT / "docs/reliability.md").split("## Exit codes")[1].split("\n## ")[0]
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)}
    kinds = {kind.exit_code for kind in UserError.__subclasses__() if "exit_code" in vars(kind)}
    ends = {InterruptedRunError("", exit_signal(number)).exit_code for number in signal.Signals}

    assert codes == {0} | kinds | ends


def test_contributing_names_every_room():
    text = read(ROOT / "CONTRIBUTING.md").split("## Rooms and walls")[1].split("\n## ")[0]

    assert set(WALLS) - {"__init__", "__main__"} <= set(QUOTED.findall(text))


def test_the_readme_names_every_room():
    tree = read(ROOT / "README.md").split("## How it is built")[1].split("```")[1]

    assert {module.split("/")[0] for module in MODULES} - {"__init__", "__main__"} <= set(
        re.findall(r"\w+", tree)
    )


def test_the_page_on_run_folders_lists_every_file():
    names = set(re.findall(r'/ "([\w.]+)"', read(ROOT / "src/aiayn/runs/run_folder.py")))
    page = read(ROOT / "docs/run-folder.md")

    assert len(names) >= 14
    assert [name for name in names if name not in page] == []


def test_the_front_page_links_every_page():
    front = ROOT / "docs/index.md"

    assert [
        page
        for page in (ROOT / "docs").rglob("*.md")
        if page != front and f"({page.relative_to(front.parent).as_posix()})" not in read(front)
    ] == []


def test_the_chinese_readme_has_the_commands_numbers_and_links_of_the_english_one():
    english, chinese = (read(ROOT / name) for name in ("README.md", "README.zh-CN.md"))

    def commands(page: str) -> list[str]:
        return [
            re.sub(r"(?:^|\s+)#.*", "", line)
            for block in re.findall(r"^```bash\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
            for line in block.splitlines()
        ]

    def figures(page: str) -> list[list[str]]:
        """What the paper has, what is measured here, and the commit, a list for each row."""
        rows = page.partition("<!-- begin results -->")[2].partition("<!-- end")[0].splitlines()
        cells = [[cell.strip() for cell in row.split("|")] for row in rows if row]
        # The text around a number is in the language of the page.
        return [[*re.findall(r"[\d.]+", f"{row[2]} {row[3]}"), row[6]] for row in cells[2:]]

    def links(page: str) -> list[str]:
        """Everything that leads to another page, the two languages' own pages left out."""
        targets = re.findall(r"\]\(([^)#]+)", page)
        return sorted(target for target in targets if not target.startswith("README"))

    assert commands(english) == commands(chinese)
    assert len(commands(english)) > 15
    assert links(english) == links(chinese)
    assert figures(english) == figures(chinese)
    assert len(figures(english)) == 4
    assert english.count("\n## ") == chinese.count("\n## ")
