"""The suite tested by bugs: a copy of the program gets one of them, and the test that must notice it is run on it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from applications import ROOT
from planted.bugs import BUGS, Bug

SOURCE = ROOT / "src"
CONTROL = "no_bug"


def places(bug: Bug) -> int:
    """How often the code that the bug replaces stands where it should stand once."""
    return (SOURCE / "aiayn" / bug.file).read_text(encoding="utf-8").count(bug.old)


def job(folder: Path, bug: Bug | None) -> dict:
    """A copy of the program with the bug, and the test that must fail there; without a bug, all those tests."""
    copy = folder / (bug.name if bug else CONTROL) / "src"
    shutil.copytree(SOURCE, copy)
    if bug:
        path = copy / "aiayn" / bug.file
        path.write_text(path.read_text(encoding="utf-8").replace(bug.old, bug.new), encoding="utf-8")
    tests = sorted({f"{ROOT}/tests/{each.test}" for each in ([bug] if bug else BUGS)})
    return {"root": str(ROOT), "source": str(copy), "tests": tests, "first_failure_only": bug is not None}


@pytest.fixture(scope="session")
def outcomes(request, tmp_path_factory):
    """What became of the tests, by name of the bug, for all that this session will ask for: they run side by side."""
    asked = [item for item in request.session.items if "outcomes" in getattr(item, "fixturenames", ())]
    bugs = [item.callspec.params["bug"] if hasattr(item, "callspec") else None for item in asked]
    folder = tmp_path_factory.mktemp("planted")
    jobs = [job(folder, bug) for bug in bugs if bug is None or places(bug) == 1]
    server = [sys.executable, str(Path(__file__).with_name("fork_server.py"))]
    subprocess.run(server, input=json.dumps(jobs), text=True, check=True)
    found = {}
    for place in folder.iterdir():
        written = place / "outcome.json"
        found[place.name] = json.loads(written.read_text()) if written.exists() else {"code": "none, it took too long"}
        found[place.name]["log"] = (place / "log").read_text(errors="replace")[-3000:]
    shutil.rmtree(folder)
    return found


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_suite_catches(bug, outcomes):
    assert places(bug) == 1, f"src/aiayn/{bug.file} has changed: plant the bug into what it has now"
    outcome = outcomes[bug.name]

    assert outcome["code"] == 1, outcome["log"]
    assert outcome["failed"], outcome["log"]
    assert f"/{bug.name}/src/aiayn/" in outcome["loaded"]


def test_the_same_tests_pass_where_no_bug_is_planted(outcomes):
    outcome = outcomes[CONTROL]

    assert outcome["code"] == 0, outcome["log"]
    assert outcome["passed"] >= len({bug.test for bug in BUGS})
    assert f"/{CONTROL}/src/aiayn/" in outcome["loaded"]


def test_bugs_have_names_of_their_own_and_change_something():
    assert len({bug.name for bug in BUGS}) == len(BUGS)
    assert all(bug.old != bug.new for bug in BUGS)
