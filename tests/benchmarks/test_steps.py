"""benchmarks/steps.py in miniature."""

import json

from steps import main


def test_steps_of_more_parts_are_nearer_to_the_corpus(tmp_path, capsys):
    main(["--pairs", "20000", "--tokens", "3000", "--parts", "1", "4", "--out", f"{tmp_path}/out"])
    assert "padding_percent" in capsys.readouterr().out
    rows = json.loads((tmp_path / "out" / "steps.json").read_text())["rows"]
    low, high = zip(
        *((float(row["tgt_length"].split()[0]), float(row["tgt_length"].split()[2])) for row in rows), strict=True
    )
    assert low[0] < low[1] < high[1] < high[0]
    assert all(row["padding_percent"] < 10 for row in rows)
