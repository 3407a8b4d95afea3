"""What `benchmarks/collect_results.py` keeps of a sweep."""

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import sacrebleu
import yaml
from applications import composed
from collect_results import collect
from hypothesis import given
from hypothesis import strategies as st
from studies import read_study, read_translations, rescored, unpack, write_study, write_translations

from aiayn.config.stored import to_dict
from aiayn.errors import RefusedError
from aiayn.files import lines_sha256
from aiayn.reports.runs import read_runs
from aiayn.runs.run_folder import series

RECORDS = [
    {"step": 50, "train/loss": 7.0, "perf/mfu": 0.5},
    {"step": 60, "val/loss": 4.0, "val/ppl": 55.0},
    {"step": 100, "train/loss": 6.0, "perf/mfu": 0.6},
    {"step": 120, "val/loss": 3.0, "val/ppl": 20.0},
]


def write_run(run: Path, option: str = "data.train=my/train", *, scored: bool = True) -> None:
    key, _, value = option.partition("=")
    options = (
        "data=files",
        "data.train=my/train",
        "data.val=my/dev",
        "trainer.max_steps=120",
        "seed=3",
    )
    config = composed(*options, f"{key}='{value}'")
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints/last.ckpt").write_bytes(b"weights")
    (run / "config.yaml").write_text(yaml.safe_dump(to_dict(config)))
    (run / "machine.json").write_text('{"cores": 2, "commit": "abc"}')
    (run / "corpus.json").write_text('{"fingerprint": "abc"}')
    (run / "averaged.json").write_text('{"worse": true}')
    (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    if scored:
        (run / "evaluation/val").mkdir(parents=True)
        for name in ("hypotheses", "reference"):
            (run / f"evaluation/val/{name}.txt").write_text("Guten Tag\n")
        result = {
            "metrics": {"bleu_compound_split": 30.0},
            "step": 120,
            "lines": 1,
            "checkpoint": "best.ckpt",
            "split": "val",
        }
        (run / "evaluation/val/evaluation.json").write_text(json.dumps(result))


def test_scored_runs_become_lines_of_one_file_that_the_tables_read(tmp_path):
    write_run(tmp_path / "sweep/a_h1")
    write_run(tmp_path / "sweep/a_h2", "seed=4")
    write_run(tmp_path / "sweep/a_h4", scored=False)
    study = tmp_path / "small.jsonl"

    assert collect(tmp_path / "sweep", study, "python train.py") == ["a_h1", "a_h2"]

    stored = read_study(study)
    assert [record["config"]["seed"] for record in stored.values()] == [3, 4]
    origin = stored["a_h1"]["origin"]
    assert (origin["command"], origin["commit"], origin["seed"]) == ("python train.py", "abc", 3)
    run, other = read_runs([unpack(study, tmp_path / "unpacked")])[0]
    assert series(run.records, "val/ppl") == [(60, 55.0), (120, 20.0)]
    assert run.records[1] == {"step": 100, "train/loss": 6.0, "perf/mfu": 0.6}, (
        "of other series the last value"
    )
    assert (run.seed, other.seed, run.content("fingerprint")) == (3, 4, "abc")
    assert run.prefers_best(run.evaluations["val"])
    assert (run.step, run.evaluations["val"].metrics["bleu_compound_split"]) == (120, 30.0)


def test_runs_are_added_to_a_study_and_those_of_the_same_names_replaced(tmp_path):
    study = tmp_path / "small.jsonl"
    for sweep, seed in (("small", 5), ("large", 6), ("small", 7)):
        shutil.rmtree(tmp_path / "sweeps", ignore_errors=True)
        write_run(tmp_path / "sweeps" / sweep / "seed-0", f"seed={seed}")
        collect(tmp_path / "sweeps", study, "python train.py")
    stored = read_study(study)
    assert {name: record["config"]["seed"] for name, record in stored.items()} == {
        "large/seed-0": 6,
        "small/seed-0": 7,
    }
    assert [stored["run"] for stored in read_translations(study)] == [
        "large/seed-0",
        "small/seed-0",
    ]


HYPOTHESES, REFERENCES = (
    ["ein Haus ist alt", "zwei Katzen sehen heute"],
    ["das Haus ist alt", "zwei Katzen sehen heute"],
)


def test_scores_can_be_computed_again_from_the_stored_translations(tmp_path):
    write_run(tmp_path / "mine")
    scored = tmp_path / "mine/evaluation/val"
    (scored / "hypotheses.txt").write_text("\n".join(HYPOTHESES) + "\n")
    (scored / "reference.txt").write_text("\n".join(REFERENCES) + "\n")
    facts = {
        "tgt_lang": "de",
        "hypotheses_sha256": lines_sha256(HYPOTHESES),
        "metrics": {"chrf": 50.0},
    }
    (scored / "evaluation.json").write_text(json.dumps({"step": 120, "lines": 2, **facts}))
    study = tmp_path / "small.jsonl"
    collect(tmp_path / "mine", study, "c")

    [stored] = read_translations(study)
    assert stored["hypotheses"] == [[1, HYPOTHESES[0]], [2, HYPOTHESES[1]]]
    [(name, metrics, again)] = rescored(study, [REFERENCES])
    assert (name, metrics) == ("mine/val", {"chrf": 50.0})
    assert again["chrf"] == pytest.approx(sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score)
    assert [*rescored(study, [["another", "text"]])] == []
    write_translations(study, [stored | {"hypotheses": stored["hypotheses"][:1]}])
    with pytest.raises(
        RefusedError, match="mine/val: these translations are not those that were scored"
    ):
        [*rescored(study, [REFERENCES])]


def test_runs_of_uncommitted_code_are_refused(tmp_path):
    write_run(tmp_path / "mine")
    (tmp_path / "mine/machine.json").write_text('{"commit": "abc-dirty"}')
    with pytest.raises(RefusedError, match="made by uncommitted code"):
        collect(tmp_path / "mine", tmp_path / "small.jsonl", "c")
    assert not (tmp_path / "small.jsonl").exists()


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from("abcd"),
            st.recursive(
                st.integers(0, 1),
                lambda inner: st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
                max_leaves=6,
            ),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_a_study_returns_the_records_it_was_given(records):
    with TemporaryDirectory() as folder:
        runs = {f"seed-{number}": record for number, record in enumerate(records)}
        write_study(Path(folder) / "study.jsonl", runs)
        assert read_study(Path(folder) / "study.jsonl") == runs


def test_the_folder_in_which_the_run_was_kept_is_left_out(tmp_path):
    write_run(tmp_path / "mine")
    config = tmp_path / "mine/config.yaml"
    config.write_text(config.read_text().replace("outputs: null", f"outputs: {tmp_path}"))
    assert str(tmp_path) in config.read_text()

    collect(tmp_path / "mine", tmp_path / "small.jsonl", "python train.py")

    assert str(tmp_path) not in (tmp_path / "small.jsonl").read_text()


@pytest.mark.quick("2de")
@pytest.mark.parametrize(
    "option",
    ["data.train=/somewhere/train", "data.train=<2de>/somewhere/train", "init_from=/somewhere/run"],
)
def test_a_configuration_with_a_path_of_this_machine_is_refused_and_nothing_written(
    tmp_path, option
):
    write_run(tmp_path / "mine", option)

    with pytest.raises(RefusedError, match=rf"{option}: names a path of this machine"):
        collect(tmp_path / "mine", tmp_path / "small.jsonl", "c")

    assert not (tmp_path / "small.jsonl").exists()


def test_scores_of_a_text_with_a_path_of_this_machine_are_refused(tmp_path):
    write_run(tmp_path / "mine")
    scores = tmp_path / "mine/evaluation/val/evaluation.json"
    scores.write_text(json.dumps(json.loads(scores.read_text()) | {"prefix": "/somewhere/dev"}))

    with pytest.raises(
        RefusedError, match="val: test=/somewhere/dev: names a path of this machine"
    ):
        collect(tmp_path / "mine", tmp_path / "small.jsonl", "c")
