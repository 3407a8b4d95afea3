"""How rank 0 notices that a rank that it started has died."""

import subprocess
import sys

import pytest

from aiayn.training.distributed import local_ranks


@pytest.mark.parametrize(("code", "expected"), [(3, 6), (-15, 143), (130, 130)])
def test_a_rank_that_dies_before_anyone_watches_it_ends_the_run(monkeypatch, code, expected):
    def exits(message, code):
        raise SystemExit(code)

    monkeypatch.setattr(local_ranks, "LOST_RANK_GRACE", 0.0)
    monkeypatch.setattr(local_ranks, "exit_at_once", exits)
    dies = f"import os; os.kill(os.getpid(), {-code})" if code < 0 else f"raise SystemExit({code})"
    child = subprocess.Popen([sys.executable, "-c", dies])
    child.wait()
    monkeypatch.setattr(local_ranks, "STARTED", [child])
    with pytest.raises(SystemExit) as ended:
        local_ranks._watch_children()
    assert ended.value.code == expected
