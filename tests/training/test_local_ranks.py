"""How rank 0 notices that a rank that it started has died."""

import subprocess
import sys

import pytest

from aiayn.training.distributed import ranks


@pytest.mark.parametrize(("code", "expected"), [(3, 6), (-15, 143), (130, 130)])
def test_a_rank_that_dies_before_anyone_watches_it_ends_the_run(monkeypatch, code, expected):
    def exits(message, code):
        raise SystemExit(code)

    monkeypatch.setattr(ranks, "LOST_RANK_GRACE", 0.0)
    monkeypatch.setattr(ranks, "exit_at_once", exits)
    dies = f"import os; os.kill(os.getpid(), {-code})" if code < 0 else f"raise SystemExit({code})"
    child = subprocess.Popen([sys.executable, "-c", dies])
    child.wait()
    monkeypatch.setattr(ranks, "STARTED", [child])
    with pytest.raises(SystemExit) as ended:
        ranks._watch_children()
    assert ended.value.code == expected
