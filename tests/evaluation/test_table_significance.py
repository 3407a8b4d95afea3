"""`aiayn table --lines`: several systems and their seeds against one baseline, from the translations they stored."""

import csv
import io
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from applications import composed, run_application

from aiayn.evaluation.scoring import score
from aiayn.runs.run_folder import RunFolder

WORDS = ["Haus", "Mann", "Katze", "Sofa", "Zug", "Tag", "Hund", "Kind", "Stadt", "Wald"]


def store(folder: Path, dropout: float, seed: int, error_rate: float, references: list[str]) -> None:
    """A run whose translations lack words at random."""
    generator = random.Random(f"{dropout} {seed}")
    hypotheses = [" ".join(word for word in line.split() if generator.random() > error_rate) for line in references]
    config = composed("data=files", "data.train=x", "data.val=x", "data.test=x", "data.vocab_size=300", f"seed={seed}")
    place = RunFolder(folder).evaluation("test")
    place.folder.mkdir(parents=True)
    RunFolder(folder).write_config(replace(config, name=folder.name, model=replace(config.model, dropout=dropout)))
    place.hypotheses.write_text("".join(f"{line}\n" for line in hypotheses))
    place.reference.write_text("".join(f"{line}\n" for line in references))
    scores = score(hypotheses, references, "de")
    result = {"metrics": scores.metrics, "signatures": scores.signatures, "step": 0, "lines": len(references)}
    place.scores.write_text(json.dumps(result | {"split": "test", "text_sha256": "a", "n_references": 1}))


@pytest.fixture
def systems(tmp_path) -> Path:
    generator = random.Random(1)
    references = [" ".join(generator.choices(WORDS, k=generator.randint(5, 12))) for _ in range(80)]
    for name, dropout, seed, error_rate in (
        ("base_seed-1", 0.1, 1, 0.20),
        ("base_seed-2", 0.1, 2, 0.21),
        ("worse_seed-1", 0.3, 1, 0.5),
        ("worse_seed-2", 0.3, 2, 0.51),
        ("like", 0.2, 1, 0.2),
    ):
        store(tmp_path / name, dropout, seed, error_rate, references)
    return tmp_path


def test_systems_are_compared_over_seeds_and_lines(systems):
    command = ("table", str(systems), "--lines", "--baseline", "base", "--split", "test", "--metrics", "sacrebleu,ter")
    outcome = run_application("aiayn", *command, "--format", "csv")
    assert outcome.code == 0, outcome.err
    rows = [row for row in csv.DictReader(io.StringIO(outcome.out)) if row["table"] == "systems"]
    found = {row["group"]: row for row in rows}
    assert list(found) == ["base", "like", "worse"]
    assert [row["n"] for row in found.values()] == ["2", "1", "2"]
    worse = found["worse"]
    low, delta, high = (float(worse[f"test/sacrebleu difference{end}"]) for end in ("_low", "", "_high"))
    assert low < delta < high < 0
    assert worse["test/sacrebleu difference_significant"] == "True"
    assert float(worse["test/ter difference"]) > 0
    assert found["like"]["test/sacrebleu difference_significant"] == "False"
    text = run_application("aiayn", *command).out
    assert "Systems, line by line" in text
    assert "corrected for 4 comparisons (Holm)" in text


def test_two_single_runs_have_both_paired_tests(systems):
    runs = [str(systems / name) for name in ("base_seed-1", "worse_seed-1")]
    outcome = run_application("aiayn", "table", *runs, "--lines", "--baseline", "base_seed-1", "--split", "test")
    assert outcome.code == 0, outcome.err
    part = outcome.out.partition("Systems, line by line")[2]
    assert "p bootstrap" in part
    [line] = [line for line in part.split("\n") if line.startswith("worse")]
    assert line.split()[-1] == "0.0001"  # one of 10,001 trials


def test_what_cannot_be_compared_line_by_line_is_refused_in_one_line(systems):
    without = run_application("aiayn", "table", str(systems), "--lines")
    assert (without.code, without.err.count("\n")) == (2, 1)
    assert "--baseline NAME --split test" in without.err
    (systems / "like/evaluation/test/hypotheses.txt").unlink()
    gone = run_application("aiayn", "table", str(systems), "--lines", "--baseline", "base", "--split", "test")
    assert (gone.code, gone.err.count("\n")) == (4, 1)
    assert "no translations to compare" in gone.err
