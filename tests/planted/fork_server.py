"""Runs chosen tests on copies of the program, each in a fork of one process that has all libraries
loaded.

A new interpreter would spend ten seconds on torch and Lightning for every copy; a fork has them at
once, and loads this project's own modules from the copy. Reads jobs from standard input, one JSON
object a line, and answers each with a line of JSON on standard output.
"""

import gc
import importlib
import json
import os
import signal
import sys
from multiprocessing import get_context
from pathlib import Path

import hypothesis
import pytest
import torch
from _pytest.config import default_plugins

SECONDS = 900  # for one job, on the busiest machine
LIBRARIES = (
    *(
        "antlr4",
        "hydra._internal.hydra",
        "hydra._internal.core_plugins.file_config_source",
        "jinja2",
    ),
    *(
        "matplotlib.backends.backend_agg",
        "matplotlib.backends.backend_svg",
        "omegaconf.grammar_parser",
        "pdb",
    ),
    *(
        "pytorch_lightning",
        "sacrebleu",
        "sacremoses",
        "starlette.applications",
        "starlette.testclient",
        "tokenizers",
    ),
    *("typer", "uvicorn", "xml.etree.ElementTree", "yaml"),
    *(f"_pytest.{name}" for name in default_plugins),
)


class Outcomes:
    """A pytest plugin that remembers which tests failed, in their own code or before it, and how
    many passed.
    """

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.broken: list[str] = []
        self.passed = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.passed += report.passed
        if report.failed:
            (self.failed if report.when == "call" else self.broken).append(report.nodeid)


def run_job(
    root: str, source: str, place: Path, tests: list[str], first_failure_only: bool
) -> None:
    """Runs tests of the project in `root` on the program in `source`; leaves outcome.json and log
    in `place`.
    """
    os.setsid()
    log = os.open(place / "log", os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(root)
    # The copy comes first, here and in the interpreters that tests start. Examples are the same
    # every time. No bytecode of a bug is left for the next one, which may be as long and planted in
    # the same second.
    os.environ.update(
        PYTHONPATH=source, CI="1", OMP_NUM_THREADS="1", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"
    )
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    outcomes = Outcomes()
    options = [
        "-q",
        "--slow",
        "--tb=short",
        "-p",
        "_hypothesis_pytestplugin",
        "-p",
        "pytest_timeout",
        "-p",
        "no:cacheprovider",
    ]
    options += [f"--basetemp={place / 'tmp'}"]
    options += ["--override-ini", f"pythonpath={source} tests", "--hypothesis-profile=planted"]
    code = pytest.main(
        [*options, *(["-x"] if first_failure_only else []), *tests], plugins=[outcomes]
    )
    loaded = sys.modules["aiayn"].__file__
    (place / "outcome.json").write_text(
        json.dumps({"code": int(code), "loaded": loaded, **vars(outcomes)})
    )
    sys.stdout.flush()
    os._exit(0)  # nothing that libraries left running may hold it up


def outcome_of(job: dict) -> dict:
    """What became of the job's tests, with the end of their log."""
    place = Path(job["place"])
    process = get_context("fork").Process(target=run_job, kwargs=job | {"place": place})
    process.start()
    process.join(SECONDS)
    if process.exitcode is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.join()
    written = place / "outcome.json"
    outcome = (
        json.loads(written.read_text())
        if written.exists()
        else {"code": f"none within {SECONDS} seconds"}
    )
    return outcome | {"log": (place / "log").read_text(errors="replace")[-3000:]}


def main() -> None:
    for name in LIBRARIES:
        importlib.import_module(name)
    torch.set_num_threads(1)
    # To find a failing example is enough here, to shrink it would take long.
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    checks = [hypothesis.HealthCheck.too_slow]
    hypothesis.settings.register_profile(
        "planted", deadline=None, derandomize=True, phases=phases, suppress_health_check=checks
    )
    # pytest collects garbage several times, which among all of torch's objects takes a second
    gc.freeze()
    for line in sys.stdin:
        print(json.dumps(outcome_of(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
