"""benchmarks/data_pipeline.py in miniature."""

import json

import data_pipeline
import numpy as np
import pytest
from data_pipeline import main, write_corpus


class WorkerHere:
    """`measure.Worker` in this process."""

    cpu, peak_mb = (0.5,), 1.0

    def __init__(self, build, *arguments):
        self.work = build(*arguments)

    def __call__(self):
        return self.work()

    def close(self):
        pass


@pytest.fixture(autouse=True)
def few_words(monkeypatch):
    monkeypatch.setattr(data_pipeline, "WORDS", 3000)
    monkeypatch.setattr(data_pipeline, "COMMON", 100)
    data_pipeline._words.cache_clear()
    yield
    data_pipeline._words.cache_clear()


def test_it_prints_tables_and_writes_json(tmp_path, monkeypatch, capsys):
    write_corpus(tmp_path / "real", 150, seed=3)
    monkeypatch.setattr(data_pipeline, "Worker", WorkerHere)

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
