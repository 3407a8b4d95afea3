import subprocess

import cross_check
import pytest

from aiayn.errors import RefusedError


def test_results_that_the_benchmark_has_added_do_not_make_its_code_uncommitted(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(cross_check, "ROOT", tmp_path)
    monkeypatch.setattr(cross_check, "RESULTS", tmp_path / "results/cross_check.jsonl")
    # As of a clone whose results have changed
    monkeypatch.setattr(cross_check, "source_commit", lambda: "0123456789ab-dirty")
    (tmp_path / "results").mkdir()
    for path in ("train.py", "results/cross_check.jsonl"):
        (tmp_path / path).write_text("")
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "Begin"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)

    cross_check.keep("captions", {"arm": "here", "seed": 0})
    assert cross_check.committed_code() == "0123456789ab"

    (tmp_path / "train.py").write_text("changed")
    with pytest.raises(RefusedError, match=r"^train.py: has uncommitted changes; commit them"):
        cross_check.committed_code()
