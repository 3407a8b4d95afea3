"""benchmarks/startup.py in miniature."""

import json

import pytest
import startup
from applications import run_application


def test_it_prints_tables_and_writes_json(tmp_path, monkeypatch, capsys):
    started, tried = [], set()

    def start_here(folder, arguments, until=None):
        """Entry points inside this process; the empty application is started in another test."""
        monkeypatch.chdir(folder)
        script = arguments[0].split("/")[-1]
        started.append(" ".join([script, *arguments[1:]]))
        if script != "empty.py" and (*arguments, until) not in tried:  # the warm-up round runs them, the next need not
            tried.add((*arguments, until))
            outcome = run_application(script, *arguments[1:])
            assert outcome.code == (2 if "n_head" in started[-1] or "split=dev" in started[-1] else 0), outcome.err
            assert until is None or f"\n{until}" in outcome.err

    monkeypatch.setattr(startup, "start", start_here)
    monkeypatch.setattr(startup, "interleaved", lambda runs, _: {name: [run() or 0.5] for name, run in runs.items()})
    monkeypatch.setattr(startup, "RUN", [*startup.RUN, "trainer.accelerator=cpu", "model.d_model=8", "model.d_ff=8"])

    startup.main(["--rounds", "1", "--pairs", "60", "--lines", "7", "--out", str(tmp_path / "out")])

    assert "train.py --help" in capsys.readouterr().out
    rows = {p.stem: json.loads(p.read_text())["rows"] for p in (tmp_path / "out").glob("*.json")}
    assert {row["command"] for row in rows["startup"]} == set(startup.COMMANDS)
    assert [row["over_empty_s"] for row in rows["startup"]] == [0] * 7
    assert rows["startup_first_step"] == [{"command": "to the first step", "seconds": 0.5, "low": 0.5, "high": 0.5}]
    assert [row["lines"] for row in rows["startup_evaluation"]] == [1, 7]


def test_a_start_lasts_to_its_end_or_to_a_line_of_its_log(tmp_path):
    program = "import sys, time; print('step 1/1', file=sys.stderr, flush=True); time.sleep(600)"
    startup.start(tmp_path, ["-c", program], until="step 1/")
    with pytest.raises(AssertionError, match="ended with 3: no step"):
        startup.start(tmp_path, ["-c", "import sys; print('no step', file=sys.stderr); sys.exit(3)"], until="step 1/")
    (tmp_path / "empty.py").write_text(startup.EMPTY)
    startup.start(tmp_path, ["empty.py", *startup.QUIET])
    assert list(tmp_path.iterdir()) == [tmp_path / "empty.py"]
