"""The suite tested by bugs: a copy of the program gets one of them, and the test that must notice
it is run on it.
"""

import compileall
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from applications import ROOT
from planted.bugs import BUGS, Bug

SOURCE = ROOT / "src"


def with_bug(bug: Bug) -> str:
    """The file with the bug, found whatever line ends and blanks a formatter put between its words
    and signs.
    """
    code = re.compile(r"\s*".join(map(re.escape, re.findall(r"\w+|\S", bug.old))))
    text = (SOURCE / "aiayn" / bug.file).read_text(encoding="utf-8")
    assert len(code.findall(text)) == 1, (
        f"src/aiayn/{bug.file} has changed: plant the bug into what it has now"
    )
    return code.sub(lambda _: bug.new, text)


@pytest.fixture(scope="session")
def server() -> Iterator[subprocess.Popen]:
    program = [sys.executable, str(Path(__file__).with_name("fork_server.py"))]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.stdin.close()


@pytest.fixture(scope="session")
def copy(tmp_path_factory) -> Path:
    """A copy of the program, with bytecode."""
    copy = tmp_path_factory.mktemp("copy") / "src"
    shutil.copytree(SOURCE, copy)
    copy.with_name("conf").symlink_to(ROOT / "conf")
    compileall.compile_dir(copy, quiet=1)
    return copy


@pytest.fixture
def outcome_of(server, copy, tmp_path) -> Callable[..., dict]:
    """Runs tests on the copy, with a bug or without."""

    def run(tests: list[str], bug: Bug | None = None) -> dict:
        paths = [f"{ROOT}/tests/{test}" for test in tests]
        job = {"root": str(ROOT), "source": str(copy), "place": str(tmp_path), "tests": paths}
        with planted(bug, copy) if bug else nullcontext():
            server.stdin.write(json.dumps(job | {"first_failure_only": bug is not None}) + "\n")
            server.stdin.flush()
            outcome = json.loads(server.stdout.readline())
        assert outcome.get("loaded", "").startswith(str(copy)), outcome["log"]
        return outcome

    return run


@contextmanager
def planted(bug: Bug, copy: Path) -> Iterator[None]:
    file = f"aiayn/{bug.file}"
    (copy / file).write_text(with_bug(bug), encoding="utf-8")
    try:
        yield
    finally:
        shutil.copy2(SOURCE / file, copy / file)  # with its time, by which its bytecode is known


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_suite_catches(bug, outcome_of):
    outcome = outcome_of([bug.test], bug)

    assert outcome["code"] == 1, outcome["log"]
    assert outcome["failed"], outcome["log"]


@pytest.mark.slow
def test_the_same_tests_pass_where_no_bug_is_planted(outcome_of):
    tests = sorted({bug.test for bug in BUGS})

    outcome = outcome_of(tests)

    assert outcome["code"] == 0, outcome["log"]
    assert outcome["passed"] >= len(tests)


def test_every_bug_has_a_name_of_its_own_changes_a_file_and_names_a_test():
    assert len({bug.name for bug in BUGS}) == len(BUGS)
    for bug in BUGS:
        assert with_bug(bug) != (SOURCE / "aiayn" / bug.file).read_text(encoding="utf-8"), bug.name
        file, _, test = bug.test.partition("::")
        assert f"\ndef {test}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), bug.name
