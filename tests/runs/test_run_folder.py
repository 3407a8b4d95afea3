"""What is read from a run's folder, whatever other hands have left there."""

import json
import math
import os
import signal

import pytest
from applications import composed

from aiayn import files
from aiayn.errors import RefusedError
from aiayn.files import write_json
from aiayn.runs import checkpoints, run_folder
from aiayn.runs.owner import is_own
from aiayn.runs.results import read_evaluation, read_samples
from aiayn.runs.run_folder import (
    RunFolder,
    append_jsonl,
    drop_records_after,
    is_count,
    is_number,
    read_json,
    read_jsonl,
    saved_steps,
    series,
)
from aiayn.training.resume import run_lock


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, True, "1", None, [1]])
def test_what_is_no_finite_number_is_not_taken_for_one(value):
    assert not is_number(value)
    assert not is_count(value)


def test_numbers_up_to_the_limits_of_a_float_are_numbers_and_only_whole_ones_are_counts():
    assert all(map(is_number, (0, -1, 1e304, 1.7e308, 5e-324)))
    assert [value for value in (-1, 0, 7, 7.0, 2**53) if is_count(value)] == [0, 7]


def test_a_resumed_run_drops_later_records_and_those_without_a_step(tmp_path):
    path = tmp_path / "samples.jsonl"
    path.write_text(
        '{"step": 1}\n{"step": 3}\n{"source": "x"}\n{"step": "2"}\n{"step": 2}\n{"step": 2, "cut'
    )
    drop_records_after(path, 2)
    assert read_jsonl(path) == [{"step": 1}, {"step": 2}]


def test_metrics_and_samples_without_what_every_line_has_are_skipped(tmp_path):
    run = RunFolder(tmp_path)
    run.metrics.write_text(
        '{"step": 1, "a": 2.5}\n{"a": 3}\n{"step": NaN, "a": 1}\n[]\n{"step": 2, "a": NaN}\n'
    )
    assert series(run.read_metrics(), "a") == [(1, 2.5)]
    whole = {"source": "a", "reference": "b", "hypothesis": "c"}
    run.samples.write_text(
        "".join(json.dumps(line) + "\n" for line in (whole, whole | {"source": 1}, {"source": "a"}))
    )
    assert read_samples(run.samples) == [whole]


WHOLE = {"metrics": {"sacrebleu": 9.5, "ter": None}, "step": 12, "lines": 5, "averaged": [6, 12]}


def test_scores_with_a_value_of_another_type_than_they_declare_are_damaged(tmp_path):
    path = tmp_path / "evaluation.json"

    def read(**changed):
        write_json(path, WHOLE | changed)
        return read_evaluation(path)

    assert read(details={"sacrebleu": None}, forced=None, prefix=["a", "b"], seconds=3)
    for changed in (
        {"averaged": None},
        {"averaged": [6, "12"]},
        {"step": 10**400},
        {"metrics": {"sacrebleu": "9.5"}},
        {"details": {"sacrebleu": "long"}},
        {"signatures": 7},
        {"checkpoint": 2.5},
        {"search": []},
    ):
        assert read(**changed) is None, changed
    lengths = {"hypothesis_tokens": 10, "reference_tokens": 20}
    assert read(details={"sacrebleu": lengths}).length_ratio("sacrebleu") == 0.5
    for wrong in ("20", 10**400, 0, None):
        of_kind = {"sacrebleu": lengths | {"reference_tokens": wrong}}
        assert read(details=of_kind).length_ratio("sacrebleu") is None


def test_nesting_without_end_is_skipped_too(tmp_path):
    path = tmp_path / "corpus.json"
    path.write_text("[" * 99_999)
    assert (read_json(path), read_jsonl(path)) == ({}, [])

    run = RunFolder(tmp_path)
    run.config.write_text("trainer: " + "[" * 9_999)
    with pytest.raises(RefusedError, match=r"config\.yaml: not the configuration of a run"):
        run.read_config()


def test_saved_steps_are_sorted_as_numbers_and_other_files_are_none(tmp_path):
    assert saved_steps(tmp_path / "not_there") == []
    for name in (
        "step_1000.ckpt",
        "step_99.ckpt",
        "step_5.optim",
        "step_x.ckpt",
        "last.ckpt",
        ".step_7.ckpt.1.part",
    ):
        (tmp_path / name).touch()
    assert saved_steps(tmp_path) == [99, 1000]


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl", "samples.jsonl", "config.yaml"])
def test_nothing_is_written_through_a_link_of_a_run_folder_from_elsewhere(name, tmp_path):
    foreign, folder = tmp_path / "foreign", RunFolder(tmp_path / "run")
    foreign.write_text("kept")
    folder.path.mkdir()
    (folder.path / name).symlink_to(foreign)
    if name == "config.yaml":
        folder.write_config(composed())
        assert not folder.config.is_symlink()
    else:
        record = [{"step": 1}]
        write = (
            run_lock(folder).__enter__
            if name == ".lock"
            else lambda: append_jsonl(folder.path / name, record)
        )
        with pytest.raises(
            RefusedError, match="is a symbolic link, which is not supported here; remove it"
        ):
            write()
    assert foreign.read_text() == "kept"


@pytest.fixture
def in_time():
    """Ends a test that waits for ever."""
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("device", [None, "/dev/zero"])
def test_a_pipe_or_a_device_in_a_run_folder_is_neither_waited_for_nor_read_without_end(
    device, tmp_path
):
    run = RunFolder(tmp_path)
    path = run.config
    path.symlink_to(device) if device else os.mkfifo(path)
    assert (read_json(path), read_jsonl(path)) == ({}, [])
    assert not is_own(path, composed().data)
    with pytest.raises(RefusedError, match=r"config\.yaml: not the configuration of a run"):
        run.read_config()
    with pytest.raises(RefusedError, match=r"cannot be read \(a pipe or a device"):
        checkpoints.load(path)
    with pytest.raises(OSError, match="a pipe or a device, not a file"):
        files.sha256(path)
    kind = "symbolic link" if device else "pipe or a device, not a file; remove it"
    with pytest.raises(RefusedError, match=f"is a {kind}"):
        append_jsonl(path, [{"step": 1}])
    leftover = tmp_path / f".new.{files.host()}.1.part"
    os.mkfifo(leftover)
    files.atomic_write(tmp_path / "new", "written")


def test_files_larger_than_any_of_a_run_are_named_with_their_size_before_they_are_read(
    tmp_path, monkeypatch
):
    for name in ("MAX_CONFIG", "MAX_JSON", "MAX_LINES"):
        monkeypatch.setattr(run_folder, name, 2_000_000)
    run = RunFolder(tmp_path)
    run.config.write_text("trainer: {max_steps: 1}\ndata: {src_lang: en, tgt_lang: de}\n")
    run.corpus.write_text('{"step": 1}')
    for path, read in (
        (run.config, lambda: run.read_config()["trainer"]["max_steps"]),
        (run.corpus, lambda: read_json(run.corpus)["step"]),
        (run.corpus, lambda: read_jsonl(run.corpus)[0]["step"]),
    ):
        os.truncate(path, len(path.read_bytes().rstrip()))
        path.write_bytes(path.read_bytes().ljust(2_000_000))
        assert read() == 1
        with open(path, "a") as file:
            file.write(" ")
        with pytest.raises(
            RefusedError, match=f"{path.name}: is 2.0 MB, and at most 2.0 MB are read; replace it"
        ):
            read()


def test_a_copy_of_a_run_by_hard_links_does_not_change_the_original(tmp_path):
    original, copied = tmp_path / "original.jsonl", tmp_path / "copy.jsonl"
    append_jsonl(original, [{"step": 1}])
    os.link(original, copied)
    append_jsonl(copied, [{"step": 2}])
    assert (read_jsonl(original), read_jsonl(copied)) == ([{"step": 1}], [{"step": 1}, {"step": 2}])


@pytest.mark.parametrize(
    "name",
    [
        *("checkpoints", "extensions", "wandb", "tensorboard", "csv"),
        *("csv/from_step_0", "extensions/mine"),
    ],
)
def test_a_folder_of_a_run_that_leads_elsewhere_is_refused_before_anything_is_written(
    name, tmp_path
):
    foreign, run = tmp_path / "foreign", tmp_path / "run"
    foreign.mkdir()
    (foreign / "step_1.optim").touch()  # would be removed, as one without a checkpoint
    (run / name).parent.mkdir(parents=True)
    (run / name).symlink_to(foreign)
    with pytest.raises(RefusedError, match=f"{name}: is a symbolic link, which is not supported"):
        run_lock(RunFolder(run)).__enter__()
    assert [file.name for file in foreign.iterdir()] == ["step_1.optim"]
    assert [file for file in run.rglob("*") if not file.is_dir() or file.is_symlink()] == [
        run / name
    ]


def test_a_temporary_file_that_somebody_put_there_is_not_written_through(tmp_path, monkeypatch):
    foreign, path = tmp_path / "foreign", tmp_path / "report.html"
    foreign.write_text("kept")
    monkeypatch.setattr(files, "host", lambda: "here")
    (tmp_path / f".report.html.here.{os.getpid()}.part").symlink_to(foreign)
    files.atomic_write(path, b"new")
    assert (foreign.read_text(), path.read_text()) == ("kept", "new")


def test_a_file_is_written_into_a_folder_that_is_made_for_it(tmp_path):
    path = tmp_path / "new" / "inner" / "report.html"
    files.atomic_write(path, b"new")
    assert [entry.read_bytes() for entry in path.parent.iterdir()] == [b"new"]
