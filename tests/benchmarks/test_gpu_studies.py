"""benchmarks/gpu_studies.py: a study of toy size on a CPU."""

import json

import gpu_studies
import pytest


@pytest.mark.slow
def test_a_study_is_trained_scored_on_every_test_set_and_kept_without_its_checkpoints(tmp_path):
    gpu_studies.main(["multi30k_wu2021_en_fr", "--dry-run", "--jobs", "1", "--out", str(tmp_path)])
    assert json.loads((tmp_path / "multi30k_wu2021_en_fr.json").read_text())["runs"] == 1
    [run] = [path.parent for path in tmp_path.glob("multi30k_wu2021_en_fr/*/config.yaml")]
    tests = {path.parent.name for path in run.glob("evaluation/*/hypotheses.txt")}
    assert tests == {"test", "test_2017_flickr", "test_2017_mscoco"}
    assert not list(run.rglob("*.ckpt"))


def test_a_study_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(SystemExit, match="multi30k: no study; choose of multi30k_wu2021, "):
        gpu_studies.main(["multi30k"])
