"""benchmarks/gpu.py: its rows at toy size on a CPU, and what runs them."""

import json
import threading
import time

import gpu
import pytest
import torch
from gpu import Bench, LeftOut

CPU = torch.device("cpu")
HEAVY = ("step base", "big", "kernels", "host", "text", "train", "continued", "lost", "translate", "correct compiled")


def good(bench: Bench, *words: str) -> dict[str, str]:
    return {"said": " ".join(words)}


def failing(bench: Bench) -> dict[str, str]:
    raise ValueError("a kernel\ncould not be compiled")


def ending(bench: Bench) -> dict[str, str]:
    raise SystemExit(3)


def impossible(bench: Bench) -> dict[str, str]:
    raise LeftOut("there is no GPU")


def waiting(bench: Bench) -> dict[str, str]:
    try:
        threading.Event().wait()
    except Exception:  # code in a row that catches everything it may
        return {}


def no_exception_ends(event: threading.Event) -> None:
    try:
        threading.Event().wait()
    finally:
        event.wait()


def run(rows, tmp_path, seconds=1000.0, records=()):
    bench = Bench(CPU, False, tmp_path, list(records))
    gpu.run_rows(rows, bench, tmp_path, time.time() + seconds, lambda: None)
    return {record["row"]: record for record in bench.records}


def test_a_row_that_fails_ends_or_is_over_its_budget_says_so_and_the_next_one_runs(tmp_path):
    rows = [(9, good, "a", "b"), (9, failing), (9, ending), (9, impossible), (0.05, waiting), (9, good)]
    found = run(rows, tmp_path)
    assert list(found) == ["good a b", "failing", "ending", "impossible", "waiting", "good"]
    assert found["good a b"]["said"] == "a b"
    assert found["failing"]["failed"] == "ValueError: a kernel could not be compiled"
    assert found["ending"]["failed"].startswith("SystemExit")
    assert found["impossible"]["left out"] == "there is no GPU"
    assert "longer" in found["waiting"]["failed"]
    assert "failed" not in found["good"]


def test_when_time_is_over_the_rows_that_are_left_say_so_and_those_before_are_not_repeated(tmp_path):
    found = run([(9, failing), (9, good)], tmp_path, seconds=-1, records=[{"row": "failing"}])
    assert "failed" not in found["failing"]
    assert found["good"]["left out"] == "no time was left"


def test_a_gpu_that_has_failed_and_a_row_that_hangs_are_given_up_with_the_process(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "synchronize", lambda: failing(None))
    monkeypatch.setattr(gpu, "is_broken", lambda: True)
    given_up = []
    bench = Bench(CPU, False, tmp_path, [])
    gpu.run_rows([(9, good), (9, failing)], bench, tmp_path, time.time() + 99, lambda: given_up.append(1))
    assert given_up == [1]
    monkeypatch.setattr(gpu, "HANGS", 0.05)
    hangs = threading.Event()
    with pytest.raises(gpu.OverBudget), gpu.time_limit(0.01, hangs.set):
        no_exception_ends(hangs)


@pytest.mark.parametrize("rows", [pytest.param([], marks=pytest.mark.slow), ["machine", "correct", "skipped", "loss"]])
def test_a_dry_run_goes_from_the_first_row_to_the_last(tmp_path, rows, monkeypatch):
    chosen = [row for row in gpu.ROWS if gpu.name_of(row).startswith(tuple(rows or [""]))]
    if rows:
        chosen = [row for row in chosen if not gpu.name_of(row).startswith(HEAVY)]
    monkeypatch.setattr(gpu, "ROWS", chosen)
    gpu.main(["--dry-run", "--seconds", "3000", "--out", str(tmp_path)])
    found = {record["row"]: record for record in json.loads((tmp_path / "gpu.json").read_text())["rows"]}
    assert list(found) == [gpu.name_of(row) for row in chosen]
    assert [record for record in found.values() if "failed" in record or not record.get("good", True)] == []
    assert all("GPU" in record["left out"] for record in found.values() if "left out" in record)
