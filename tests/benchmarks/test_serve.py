"""benchmarks/serve.py in miniature: also the soak of the server."""

import json

import pytest
import serve
from applications import write_run


@pytest.mark.slow
def test_every_request_under_load_and_beside_rude_clients_gets_its_own_answer(tmp_path):
    run = write_run(tmp_path / "tiny")
    (tmp_path / "text").write_text("".join(f"the {'old ' * count}house\n" for count in range(9)), encoding="utf-8")
    few = ("--clients", "8", "--requests", "24", "--rounds", "2", "--soak", "5")

    serve.main([str(run), str(tmp_path / "text"), *few, "--out", str(tmp_path / "out")])

    memory = json.loads((tmp_path / "out/serve_memory.json").read_text())["rows"]
    assert [row["requests"] for row in memory] == [0, 24, 48]
    names = ("serve", "serve_soak")
    rows = [json.loads((tmp_path / f"out/{name}.json").read_text())["rows"] for name in names]
    (one, many), [soaked] = rows
    assert (one["clients"], many["clients"], many["requests"]) == (1, 8, 24)
    assert [row[name] for row in (one, many, soaked) for name in ("wrong", "lost")] == [0] * 6
    assert (soaked["surprises"], soaked["exit"]) == (0, -15)
    assert min(soaked["honest requests"], soaked["other requests"]) > 10
