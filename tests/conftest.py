"""What all tests share: one thread, reproducible examples, slow tests on request only."""

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Iterator

import pytest

# Equality to the bit holds for one number of threads only, and small tensors are fastest on one:
# CTranslate2's, too, which wait for each other on a busy machine.
os.environ["OMP_NUM_THREADS"] = "1"

import torch
from applications import prove_searches_once, small_model
from chromium import Chromium, find_chromium
from hypothesis import HealthCheck, settings

from aiayn.config.model import ModelConfig

torch.set_num_threads(1)
# As in a shell in which the environment is active.
os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
# The key that signs runs, as of a user who has none yet.
STATE = tempfile.TemporaryDirectory(prefix="aiayn-state-")
os.environ["XDG_STATE_HOME"] = STATE.name
# No machine loses its power during a test.
os.fsync = lambda descriptor: None

# What a shell starts in the background ignores Ctrl-C, what nohup starts the terminal's end, and so
# do their children; the tests send both.
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# Time limits and the check for slow drawing of examples would depend on how fast and how busy the
# machine is. The same commit gives the same verdict everywhere: new examples are drawn at random by
# `make test-all` only.
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "repeatable", settings.get_profile("random"), derandomize=True, max_examples=50
)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")


# Files that take longest. They are begun first, or the last of several workers would end long after
# the others.
LONGEST = (
    "sweep/test_sweep.py",
    "faults/test_kills.py",
    "training/test_extensions.py",
    "faults/test_ranks.py",
    "tests/test_readme.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.path.as_posix().endswith(LONGEST))
    quick_cases(items, whole=not any("::" in argument for argument in config.args))
    if not config.getoption("--slow"):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="runs with --slow, as in make test-all"))


def quick_cases(items: list[pytest.Item], whole: bool) -> None:
    """Marks as slow all cases of a test but those that its mark `quick` names by a part of their
    ids.
    """
    met: dict[tuple[str, str], bool] = {}
    for item in items:
        if mark := item.get_closest_marker("quick"):
            test, bracket, case = item.nodeid.partition("[")
            case = bracket + case
            named = [part for part in mark.args if part in case]
            met |= {
                (test, part): part in named or met.get((test, part), False) for part in mark.args
            }
            if not named:
                item.add_marker(pytest.mark.slow)
    if whole and (unmet := [f"{test}: {part}" for (test, part), found in met.items() if not found]):
        raise pytest.UsageError(f"quick names no case: {', '.join(unmet)}")


def pytest_collection_finish() -> None:
    """What is loaded by now stays: no test spends its time on searching the libraries' many objects
    for garbage.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)


def pytest_unconfigure() -> None:
    STATE.cleanup()


@pytest.fixture(autouse=True)
def _same_start() -> Iterator[None]:
    """Random tensors, threads and handlers of signals are the same whichever tests ran before."""
    torch.manual_seed(0)
    if "aiayn.training.proof" in sys.modules:
        prove_searches_once()
    hangup = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, hangup)  # a server's command ignores it
    # CTranslate2 sets the threads of the OpenMP that torch uses, too. Afterwards: a module's
    # fixtures come first.
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_config() -> ModelConfig:
    return small_model()


@pytest.fixture(scope="session")
def warm_program(tmp_path_factory) -> Iterator[str]:
    from warm_python import warm_python  # loads Lightning

    with warm_python(tmp_path_factory.mktemp("python")) as program:
        yield program


@pytest.fixture
def warm(request, monkeypatch) -> None:
    """The Python processes that the test starts are forks of one that has all libraries loaded.

    New interpreters where there is a GPU: forks cannot train once autograd has threads for it.
    """
    if not torch.accelerator.is_available():
        monkeypatch.setattr(sys, "executable", request.getfixturevalue("warm_program"))


@pytest.fixture(scope="session")
def browser(tmp_path_factory) -> Iterator[Chromium]:
    """One for all tests. Skips where there is none: `.ci/run` installs it."""
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium here: apt-get install chromium-headless-shell")
    try:
        chromium = Chromium(program, tmp_path_factory.mktemp("profile"))
    except (RuntimeError, OSError) as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"{program} does not start here: {error}")
    yield chromium
    chromium.close()
