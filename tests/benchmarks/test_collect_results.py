"""What `benchmarks/collect_results.py` keeps of a sweep."""

import json
from pathlib import Path

import pytest
import yaml
from applications import composed
from collect_results import collect

from aiayn.config.stored import to_plain
from aiayn.errors import RefusedError
from aiayn.reports.runs import read_run
from aiayn.runs.run_folder import RunFolder

RECORDS = [
    {"step": 50, "train/loss": 7.0, "perf/mfu": 0.5},
    {"step": 60, "val/loss": 4.0, "val/ppl": 55.0},
    {"step": 100, "train/loss": 6.0, "perf/mfu": 0.6},
    {"step": 120, "val/loss": 3.0, "val/ppl": 20.0},
]


def write_run(run: Path, option: str = "data.train=my/train", *, scored: bool = True) -> None:
    key, _, value = option.partition("=")
    options = ("data=files", "data.train=my/train", "data.val=my/dev", "trainer.max_steps=120", "seed=3")
    config = composed(*options, f"{key}='{value}'")
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints/last.ckpt").write_bytes(b"weights")
    (run / "config.yaml").write_text(yaml.safe_dump(to_plain(config)))
    (run / "machine.json").write_text('{"cores": 2, "commit": "abc"}')
    (run / "corpus.json").write_text('{"fingerprint": "abc"}')
    (run / "averaged.json").write_text('{"worse": true}')
    (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    if scored:
        (run / "evaluation/val").mkdir(parents=True)
        (run / "evaluation/val/hypotheses.txt").write_text("Guten Tag\n")
        result = {"metrics": {"bleu_compound_split": 30.0}, "step": 120, "lines": 1, "checkpoint": "best.ckpt"}
        (run / "evaluation/val/evaluation.json").write_text(json.dumps(result))


def test_only_scored_runs_are_collected_without_weights_and_text_and_the_tables_read_them(tmp_path):
    write_run(tmp_path / "sweep/a_h1")
    write_run(tmp_path / "sweep/a_h4", scored=False)

    [folder] = collect(tmp_path / "sweep", tmp_path / "results", "python train.py")

    assert folder == tmp_path / "results/a_h1"
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()) == [
        "averaged.json",
        "config.yaml",
        "corpus.json",
        "evaluation/val/evaluation.json",
        "machine.json",
        "metrics.jsonl",
        "origin.json",
    ]
    origin = json.loads((folder / "origin.json").read_text())
    assert (origin["command"], origin["commit"], origin["seed"]) == ("python train.py", "abc", 3)
    kept = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert kept == [{"step": 50, "train/loss": 7.0}, *RECORDS[1:]]
    run = read_run(RunFolder(folder))
    assert run.content == {"corpus": "abc"}
    assert run.prefers_best(run.evaluations["val"])
    assert (run.step, run.last("val/ppl"), run.evaluations["val"]["metrics"]["bleu_compound_split"]) == (
        120,
        20.0,
        30.0,
    )


def test_runs_of_one_name_in_two_sweeps_keep_folders_of_their_own(tmp_path):
    for sweep in ("small", "large"):
        write_run(tmp_path / "sweeps" / sweep / "seed-0")
    found = collect(tmp_path / "sweeps", tmp_path / "results", "python train.py")
    assert [folder.relative_to(tmp_path / "results").as_posix() for folder in found] == ["large/seed-0", "small/seed-0"]


def test_the_folder_in_which_the_run_was_kept_is_left_out(tmp_path):
    write_run(tmp_path / "mine")
    config = tmp_path / "mine/config.yaml"
    config.write_text(config.read_text().replace("outputs: null", f"outputs: {tmp_path}"))
    assert str(tmp_path) in config.read_text()

    [folder] = collect(tmp_path / "mine", tmp_path / "results", "python train.py")

    assert str(tmp_path) not in (folder / "config.yaml").read_text()


@pytest.mark.parametrize(
    "option", ["data.train=/somewhere/train", "data.train=<2de>/somewhere/train", "init_from=/somewhere/run"]
)
def test_a_configuration_with_a_path_of_this_machine_is_refused_and_nothing_written(tmp_path, option):
    write_run(tmp_path / "mine", option)

    with pytest.raises(RefusedError, match=rf"{option}: names a path of this machine"):
        collect(tmp_path / "mine", tmp_path / "results", "c")

    assert not (tmp_path / "results").exists()


def test_scores_of_a_text_with_a_path_of_this_machine_are_refused(tmp_path):
    write_run(tmp_path / "mine")
    scores = tmp_path / "mine/evaluation/val/evaluation.json"
    scores.write_text(json.dumps(json.loads(scores.read_text()) | {"prefix": "/somewhere/dev"}))

    with pytest.raises(RefusedError, match="val: test=/somewhere/dev: names a path of this machine"):
        collect(tmp_path / "mine", tmp_path / "results", "c")
