"""benchmarks/data_pipeline.py in miniature."""

import json

import data_pipeline
import numpy as np
import pytest
from data_pipeline import in_a_process, main, randomness, write_corpus

from aiayn.data.batch_plan import BatchPlan, MicroBatch


@pytest.fixture(autouse=True)
def few_words(monkeypatch):
    monkeypatch.setattr(data_pipeline, "WORDS", 3000)
    monkeypatch.setattr(data_pipeline, "COMMON", 100)
    data_pipeline._words.cache_clear()
    yield
    data_pipeline._words.cache_clear()


def test_it_prints_tables_and_writes_json_and_a_picture(tmp_path, monkeypatch, capsys):
    write_corpus(tmp_path / "real", 150, seed=3)
    monkeypatch.setattr(
        data_pipeline,
        "in_a_process",
        lambda stage, *values: json.loads(json.dumps(data_pipeline.STAGES[stage](*values))),
    )

    small = "--pairs 200 500 --plan-pairs 3000 5000 --tokenizer-pairs 100 --vocab-size 300 --batches 3"
    real = f"--real {tmp_path}/real --real-tokens 900 --real-vocab-size 300"
    main(f"{small} {real} --scratch {tmp_path} --out {tmp_path}/out".split(" "))

    printed = capsys.readouterr().out
    assert all(name in printed for name in ("data_plan", "data_prepare", "data_batches", "numpy"))
    rows = {p.stem: json.loads(p.read_text())["rows"] for p in (tmp_path / "out").glob("*.json")}
    assert [row["pairs"] for row in rows["data_plan"]] == [3000, 5000]
    assert [row["pairs"] for row in rows["data_prepare"]] == [200, 500]
    assert [row["tokens_per_step"] for row in rows["data_batches"]] == [25_000, 25_000, 900]
    assert all(0 <= row["padding_percent"] < 100 for row in rows["data_batches"])
    assert (tmp_path / "out/data_pipeline.png").stat().st_size > 1000
    assert [path.name for path in tmp_path.glob("tmp*")] == [], "the generated text is removed"


def test_the_text_is_the_same_every_time_and_as_long_as_wmts(tmp_path):
    write_corpus(tmp_path / "a", 3000, seed=0)
    write_corpus(tmp_path / "b", 3000, seed=0)
    for lang in ("en", "de"):
        text = (tmp_path / f"a.{lang}").read_bytes()
        assert text == (tmp_path / f"b.{lang}").read_bytes()
        counts = np.array([len(line.split(b" ")) for line in text.split(b"\n")[:-1]])
        assert len(counts) == 3000
        assert 23 < counts.mean() < 27
        assert 12 < counts.std() < 20


def test_a_stage_in_a_process_of_its_own_tells_its_peak_of_memory():
    figures = in_a_process("plan", 2000)
    assert figures["pairs"] == 2000
    assert 10 < figures["peak_mb"] < 500


def test_randomness_counts_couples_that_meet_again():
    class Fixed:
        """Three steps of two pairs; in the second epoch one couple of three is as before."""

        steps_per_epoch, micro_batches = 3, 1

        def micro_batch(self, number):
            steps = [[0, 1], [2, 3], [4, 5], [1, 0], [2, 4], [5, 3]]
            return MicroBatch(np.array(steps[number]), step_tokens=7)

    assert randomness(Fixed(), 6)["meet_again_percent"] == pytest.approx(100 / 3)
    alike = BatchPlan(np.full(400, 5), np.full(400, 6), tokens_per_step=60, seed=1)
    found = randomness(alike, 400)
    assert found["by_chance_percent"] == 2.5
    assert found["meet_again_percent"] < 8
