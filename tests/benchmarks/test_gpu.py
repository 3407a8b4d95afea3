"""benchmarks/gpu.py: a row of toy size on a CPU."""

import json

import gpu
import pytest


@pytest.mark.slow
def test_a_row_is_trained_and_its_speed_losses_and_form_are_stored(tmp_path):
    gpu.main(["--out", str(tmp_path), "--rows", "base padded", "--dry-run"])
    [row] = json.loads((tmp_path / "gpu.json").read_text())["rows"]
    assert row["row"] == "base padded"
    assert list(row["losses"]) == ["1", "2", "3"]
    assert len(row["tokens a second"]) == 3
