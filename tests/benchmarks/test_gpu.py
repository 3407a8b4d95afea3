"""The stages of benchmarks/gpu.py at toy size, on a CPU."""

import json

import gpu
import pytest
import torch

ROWS = {"ceilings": 3, "correct": 9, "run": 5, "sdpa": 10, "step": 2, "train": 2, "kernels": 30, "loss": 2}
ROWS |= {"save": 1, "decode": 4}
SLOW = ("run", "train", "step", "kernels")  # whole trainings, compiled steps, profiles
STAGES = [pytest.param(stage, marks=pytest.mark.slow) if stage in SLOW else stage for stage in gpu.STAGES]


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_prints_a_table_and_writes_json(tmp_path, capsys, stage):
    gpu.main([stage, "--device", "cpu", "--models", "base", "--toy", "--out", str(tmp_path)])
    rows = json.loads((tmp_path / f"gpu_{stage}.json").read_text())["rows"]
    assert len(rows) == ROWS.get(stage, len(rows)) > 0  # peers: as many as are installed
    assert f"gpu_{stage}:" in capsys.readouterr().out
    if stage in ("correct", "run"):
        assert all(row["good"] for row in rows), rows


def test_batches_have_different_shapes_and_lengths_of_real_sentences():
    options = type("Options", (), {"tokens": 400, "vocab": 50})
    made = gpu.batches(options, 40)
    assert len({(batch.src.shape, batch.tgt_out.shape) for batch in made}) >= 40
    for batch in made:
        assert int(batch.src_mask.sum()) == batch.n_src_tokens
        assert int((batch.tgt_out != 0).sum()) == batch.n_tokens <= 400
        assert torch.equal(batch.tgt_in[:, 1:], batch.tgt_out[:, :-1])


def test_a_machine_without_a_gpu_and_an_unknown_stage_are_refused_in_one_line():
    with pytest.raises(SystemExit, match="error: spda: choose one of ceilings, correct, run, sdpa"):
        gpu.main(["spda"])
    if not torch.cuda.is_available():
        with pytest.raises(SystemExit, match="--toy --device cpu"):
            gpu.main(["step"])
