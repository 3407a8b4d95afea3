"""`train.py -m`: what is refused before anything starts, what folders are called, and a sweep in
real processes.
"""

import html
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from applications import (
    ROOT,
    TEXT,
    TINY,
    composed_jobs,
    composed_options,
    in_new_interpreter,
    run_application,
    write_pairs,
    write_text,
)
from filelock import lock_descriptor
from hydra._internal.hydra import Hydra
from hydra.core.plugins import Plugins
from hypothesis import given
from hypothesis import strategies as st

from aiayn.config.rules import NAME_CHARACTERS, valid_name
from aiayn.errors import ConfigError, InterruptedRunError
from aiayn.files import sha256
from aiayn.runs.continuation import store_end
from aiayn.runs.run_folder import RunFolder
from aiayn.sweep.jobs import SweepJob, asked_scores, canonical_override, is_finished, job_names
from aiayn.sweep.runner import Processes

SMALL = (*TEXT, *TINY)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A working directory with a little text."""
    write_text(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def started(monkeypatch) -> list[Processes]:
    """The sweeps that are started, none of whose jobs runs."""
    begun: list[Processes] = []
    monkeypatch.setattr(Processes, "run", lambda self: begun.append(self) or {})
    return begun


# Refusals: before any process starts, and nothing is written.


@pytest.mark.quick("n_heads")
@pytest.mark.parametrize(
    ("arguments", "code", "lines"),
    [
        (
            ["name=x"],
            2,
            [
                "name=: each job of a sweep has its own folder; name the sweep with sweep=NAME "
                "instead"
            ],
        ),
        (["sweep=a,b"], 2, ["sweep=: takes one name, for all jobs"]),
        (["sweep=../a", "seed=1,2"], 2, ["sweep=../a: use letters, digits"]),
        (
            ["ablation=d_ls00,a_h3"],
            2,
            ["a_h3: no file 'ablation/a_h3': choose one of a_h1, a_h16"],
        ),
        (["ablation=glob(zz*)"], 2, ["ablation=glob(zz*): matches nothing"]),
        (
            ["model.n_heads=1,3,5"],
            2,
            ["n_heads-3: model.d_model=16 is not", "n_heads-5: model.d_model=16 is not"],
        ),
        (["seed=1,2", "model.dropout=1.5"], 2, ["model.dropout=1.5: must be"]),
        (["model.d_modle=3,4"], 2, ["model.d_modle: no such option; did you mean model.d_model?"]),
        (
            ["optim.lr_scale=interval(1,2)"],
            2,
            ["optim.lr_scale=interval(1,2): has no list of values"],
        ),
        (
            ["data.train=nowhere,gone"],
            3,
            ["train-nowhere: data.train=nowhere", "train-gone: data.train=gone"],
        ),
        (
            ["data.test=nowhere,gone", "hydra.launcher.score=[val,test]"],
            3,
            ["test-nowhere: data.test=nowhere", "test-gone: data.test=gone"],
        ),
        (["seed=1", "hydra.launcher.jobs=0"], 2, ["hydra.launcher.jobs=0: must be at least 1"]),
        (["seed=1", "hydra.launcher.job=2"], 2, ["hydra.launcher.job: no such option"]),
        (["--cfg", "job"], 2, ["--multirun and --cfg: use only one of them"]),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, list) else None,
)
def test_a_sweep_that_cannot_work_is_refused_with_a_line_for_each_mistake_and_nothing_written(
    folder, arguments, code, lines
):
    before = sorted(folder.iterdir())

    outcome = run_application("train.py", *SMALL, "-m", *arguments)

    assert (outcome.code, outcome.out) == (code, "")
    shown = outcome.err.split("\n")[:-1]
    assert len(shown) == len(lines), outcome.err
    for line, start in zip(shown, lines, strict=True):
        assert line.startswith(f"error: {start}")
    assert sorted(folder.iterdir()) == before


def test_torchrun_and_a_sweep_exclude_each_other(folder, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "0")

    outcome = run_application("train.py", "-m", *SMALL, "seed=1,2")

    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "torchrun" in outcome.err


@pytest.mark.slow
def test_several_runs_are_scored_one_after_the_other_and_a_failure_ends_with_its_code(folder, warm):
    ended = in_new_interpreter(folder, "evaluate.py", "-m", "run=x,y")
    assert ended.returncode == 2
    errors = [line for line in ended.stderr.split("\n") if line.startswith("error: ")]
    assert errors[0].startswith("error: x: neither a run")
    assert errors[1].startswith("error: y: neither a run")
    assert errors[2] == (
        "error: 2 of 2 jobs failed: run=x (exit 2), run=y (exit 2); the same command tries them "
        "again"
    )
    assert not list(folder.glob("multirun*"))


@pytest.mark.slow
def test_a_few_steps_of_every_row_for_a_try_are_not_scored(folder, started):
    assert (
        run_application("train.py", "-m", *SMALL, "seed=1,2", "trainer.fast_dev_run=true").code == 0
    )
    assert [job.scored for job in started[0].jobs] == [{}, {}]


def test_a_sweep_scores_what_it_is_asked_for():
    assert asked_scores(["val"]) == {"val": "last"}
    assert asked_scores(["val:averaged", "test"]) == {"val": "averaged", "test": "averaged"}
    for wrong in (["dev"], ["val", "val:last"], ["test:first"]):
        with pytest.raises(ConfigError, match=r"hydra.launcher.score=.*: name val, test or both"):
            asked_scores(wrong)


def test_a_job_is_finished_when_all_that_was_asked_for_is_scored(scored):
    both = replace(scored, scored=asked_scores(["val", "test"]))
    assert not is_finished(both)
    (scored.folder / "evaluation/test").mkdir()
    result = json.loads((scored.folder / "evaluation/val/evaluation.json").read_text())
    result["split"] = "test"
    (scored.folder / "evaluation/test/evaluation.json").write_text(json.dumps(result))
    assert not is_finished(both)  # with the last checkpoint
    (scored.folder / "evaluation/test/evaluation.json").write_text(
        json.dumps(result | {"checkpoint": "averaged.ckpt"})
    )
    assert is_finished(both)


def test_a_row_scored_with_its_best_checkpoint_is_trained_on_to_a_later_end_and_scored_anew(scored):
    best = scored.folder / "checkpoints/best.ckpt"
    best.write_bytes(b"of step 1")
    scores = scored.folder / "evaluation/val/evaluation.json"
    found = {"checkpoint": "best.ckpt", "step": 1, "checkpoint_sha256": sha256(best)}
    scores.write_text(json.dumps(json.loads(scores.read_text()) | found))
    row = replace(scored, scored=asked_scores(["val:best"]))
    assert is_finished(row)
    assert not is_finished(
        replace(row, config=replace(row.config, trainer=replace(row.config.trainer, max_steps=3)))
    )
    best.write_bytes(b"of step 2")
    assert not is_finished(row)


@pytest.mark.parametrize(
    ("options", "finished"),
    [
        ({"max_steps": 30}, False),
        ({"max_steps": 30, "max_epochs": 1}, True),  # of two steps
        ({"max_steps": 30, "max_epochs": 2}, False),
        ({"max_steps": 30, "patience": 1}, True),
        ({"max_steps": 30, "patience": 2}, False),
    ],
)
def test_a_row_that_ended_before_max_steps_is_finished_if_the_same_command_would_train_no_further(
    scored, options, finished
):
    (scored.folder / "corpus.json").write_text('{"steps_per_epoch": 2}')
    # 3: lost by a kill
    losses = [{"step": step, "val/loss": loss} for step, loss in ((1, 3.0), (2, 4.0), (3, 9.0))]
    (scored.folder / "metrics.jsonl").write_text(
        "".join(f"{json.dumps(record)}\n" for record in losses)
    )
    stored = yaml.safe_load((scored.folder / "config.yaml").read_text())
    stored["trainer"] |= options | {"max_steps": 2 if "max_epochs" in options else 30}
    (scored.folder / "config.yaml").write_text(yaml.safe_dump(stored))

    assert is_finished(with_trainer(scored, **options)) == finished


@pytest.mark.slow
def test_a_row_that_was_begun_before_there_were_other_seeds_is_one_of_them(scored):
    def folders(*more: str) -> list[str]:
        options = [*SMALL, "ablation=d_ls00", *more]
        return [
            job.folder.name for job in composed_jobs([*options, "seed=0"], [*options, "seed=1"])
        ]

    assert folders() == ["d_ls00", "d_ls00_seed-1"]
    assert folders("model.dropout=0.2") == ["d_ls00_seed-0", "d_ls00_seed-1"]  # another training


@pytest.mark.slow
def test_another_seed_by_itself_has_a_folder_beside_the_first(scored):
    def folder(*more: str) -> str:
        return composed_jobs([*SMALL, "ablation=d_ls00", *more])[0].folder.name

    assert [folder(f"seed={seed}") for seed in (0, 1, 2)] == [
        "d_ls00",
        "d_ls00_seed-1",
        "d_ls00_seed-2",
    ]
    assert folder("seed=1", "model.dropout=0.2") == "d_ls00", (
        "is refused there: it is another training"
    )
    begun = scored.folder.rename(scored.folder.with_name("d_ls00_seed-0"))
    assert [folder("seed=0"), folder("seed=1")] == ["d_ls00_seed-0", "d_ls00"]
    shutil.copytree(begun, scored.folder)
    assert [folder("seed=0"), folder("seed=1")] == ["d_ls00", "d_ls00_seed-1"]


def test_scores_that_stand_are_not_made_again_where_a_row_is_trained_on_in_vain(scored, folder):
    """As where an extension's callback, or trainer.max_time, has ended it."""
    for script in ("train.py", "evaluate.py"):
        (folder / script).write_text(FAKE)
    row = replace(with_trainer(scored, max_steps=30), scored=asked_scores(["val", "test"]))
    train, evaluate = (
        [sys.executable, str(folder / script)] for script in ("train.py", "evaluate.py")
    )
    assert Processes([row], train, evaluate).run() == {}
    # Training, and test
    assert row.folder.with_name(f"{row.name}.log").read_text().count("working on") == 2


# Names of folders.


@pytest.mark.parametrize(
    ("batch", "names"),
    [
        ([["ablation=base", "seed=1"], ["ablation=a_h1", "seed=1"]], ["base", "a_h1"]),
        ([["ablation=a_h1"]], ["a_h1"]),
        ([["ablation=quarter/base"], ["ablation=quarter/a_h1"]], ["base", "a_h1"]),
        ([["trainer.max_steps=3"]], ["base"]),
        (
            [["model.n_heads=4", "model.d_k=16"], ["model.n_heads=8", "model.d_k=32"]],
            ["n_heads-4_d_k-16", "n_heads-8_d_k-32"],
        ),
        ([["model.d_k=null", "seed=3"], ["model.d_k=16", "seed=3"]], ["d_k-null", "d_k-16"]),
        (
            [["ablation=a_h1", "seed=1"], ["ablation=a_h1", "seed=2"]],
            ["a_h1_seed-1", "a_h1_seed-2"],
        ),
        ([["model=tiny"], ["model=base"]], ["model-tiny", "model-base"]),
        ([["data.train='my/a=b'"], ["data.train=[x,y]"]], ["train-my-a-b", "train--x-y"]),
        ([["data.train=my/a"], ["data.train=my-a"]], ["train-my-a-7da5ca16", "train-my-a"]),
        ([["ablation=a_h1"], ["ablation=quarter/a_h1"]], ["a_h1", "a_h1-ef282bee"]),
        (
            [["data.train=/é/dev"], ["data.train=/ü/dev"]],
            ["train-dev-87bb8f0b", "train-dev-15569dd7"],
        ),
        (
            [
                ["search.batch_tokens=9", "data.batch_tokens=1"],
                ["search.batch_tokens=8", "data.batch_tokens=2"],
            ],
            [
                "search.batch_tokens-9_data.batch_tokens-1",
                "search.batch_tokens-8_data.batch_tokens-2",
            ],
        ),
    ],
)
def test_a_folder_is_named_by_what_its_job_changes(batch, names):
    typed = [override for override in batch[0] if all(override in job for job in batch)]
    assert job_names(batch, typed) == names


@pytest.mark.parametrize("value", ["my/übung", "my text", "2"])
def test_a_row_has_one_name_in_whichever_quotes_its_value_is_written(value):
    single, double = (
        [canonical_override(f"data.train={mark}{value}{mark}")] for mark in ("'", '"')
    )
    assert single == double
    assert job_names([single, ["data.train=x"]], []) == job_names([double, ["data.train=x"]], [])


LONG = "a-rather-long-folder-name/" * 6


@pytest.mark.quick("1e-1,0.1,.2")
@pytest.mark.parametrize(
    ("swept", "rows", "values"),
    [
        ("model.dropout=1e-1,0.1,.2", ["dropout-0.1", "dropout-0.2"], [0.1, 0.2]),
        ("model.dropout=0,0.0", ["dropout-0.0"], [0.0]),
        (
            "model.dropout=range(0.1,0.4,0.1)",
            ["dropout-0.1", "dropout-0.2", "dropout-0.3"],
            [0.1, 0.2, 0.3],
        ),
        (
            "model.dropout=range(0.4,0.1,-0.1)",
            ["dropout-0.4", "dropout-0.3", "dropout-0.2"],
            [0.4, 0.3, 0.2],
        ),
        ("seed=1,1", ["seed-1"], [1]),
        (
            "trainer.limit_train_steps=1,1.0",
            ["limit_train_steps-1", "limit_train_steps-1.0"],
            [1, 1.0],
        ),
        ("data.test=dev,'dev'", ["test-dev"], ["dev"]),
        ("model.n_heads=2,02,'2',1", ["n_heads-2", "n_heads-1"], [2, 1]),
        ("data.lowercase=true,yes,'True'", ["lowercase-true"], [True]),
    ],
)
def test_equal_values_are_one_row_which_is_named_by_the_value(folder, started, swept, rows, values):
    outcome = run_application("train.py", "-m", *SMALL, "sweep=s", swept)
    assert outcome.code == 0, outcome.err
    [sweep] = started
    assert [job.name for job in sweep.jobs] == rows
    *sections, name = swept.partition("=")[0].split(".")
    configs = [getattr(job.config, sections[0]) if sections else job.config for job in sweep.jobs]
    assert [getattr(config, name) for config in configs] == values
    count = swept.count(",") + 1
    assert ("equal jobs run as one" in outcome.err) == ("range" not in swept and len(rows) < count)


@pytest.mark.slow
def test_long_values_and_letters_of_any_script_are_folders_of_their_own_whatever_else_is_swept(
    folder, started
):
    for name in ("one", "two", "日本", "中国"):
        write_pairs(folder / LONG / name, 3, seed=1)
    paths = [f"{LONG}{name}" for name in ("one", "two", "日本", "中国")]

    def rows(*chosen: str) -> list[str]:
        values = ",".join(f"'{path}'" for path in chosen)
        assert (
            run_application("train.py", "-m", *SMALL, "sweep=s", f"data.train={values}").code == 0
        )
        return [job.name for job in started[-1].jobs]

    names = rows(*paths)
    assert len({*names}) == 4
    assert names[0].startswith("train-")
    assert "-folder-name-one-" in names[0]
    for name in names:
        assert len(name) < 60
        assert set(name) <= NAME_CHARACTERS
    assert rows(*paths[2:]) == names[2:]


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["C"]), max_size=20),
        min_size=2,
        max_size=4,
        unique=True,
    )
)
def test_folder_names_need_no_quotes_whatever_the_values_are(values):
    names = job_names([[f"data.hub_path={value}"] for value in values], [])
    assert len(set(names)) == len(values)
    for name in names:
        assert set(name) <= NAME_CHARACTERS
        valid_name("name", f"sweeps/x/{name}")


@pytest.mark.slow
def test_all_of_table_3_composes_into_fixed_folders_of_one_group():
    jobs = composed_jobs(
        *([f"ablation={path.stem}"] for path in (ROOT / "conf/ablation").glob("*.yaml"))
    )

    assert len(jobs) == 19
    for job in jobs:
        assert job.config.name == f"sweeps/wmt14_en_de-base/{job.name}"
        assert (job.config.sweep, job.config.logger.group) == (
            "wmt14_en_de-base",
            "wmt14_en_de-base",
        )
        assert composed_options(*job.overrides) == job.config  # as launchers of Hydra compose it


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "rows"),
    [
        ("glob(quarter/*)", [path.stem for path in (ROOT / "conf/ablation/quarter").iterdir()]),
        ("glob([quarter/b*,e*],exclude=*/base)", ["e_learned", "b_dk4", "b_dk8"]),
        ("glob(b*)", ["b_dk16", "b_dk32", "base"]),
    ],
)
def test_a_pattern_with_a_folder_matches_the_rows_in_it_and_one_without_does_not(
    folder, started, pattern, rows
):
    assert run_application("train.py", "-m", *TEXT, f"ablation={pattern}").code == 0

    [sweep] = started
    assert sorted(job.name for job in sweep.jobs) == sorted(rows)


def test_a_name_a_group_and_a_sweep_that_are_given_win_over_derived_ones():
    [first, _] = composed_jobs(
        *(
            ["experiment=multi30k", "sweep='3'", "logger.group=mine", f"seed={seed}"]
            for seed in (1, 2)
        )
    )

    assert (first.config.name, first.config.sweep, first.config.logger.group) == (
        "sweeps/3/seed-1",
        "3",
        "mine",
    )


def test_jobs_that_share_neither_data_nor_model_need_a_name():
    with pytest.raises(ConfigError, match="sweep=NAME"):
        composed_jobs(["data=wmt14_en_fr", "model=tiny"], ["data=wmt14_en_de", "model=base"])


# What is finished.


@pytest.fixture
def scored(tmp_path, monkeypatch) -> SweepJob:
    """A job with all files of one that was trained for two steps and scored."""
    monkeypatch.chdir(tmp_path)
    [job] = composed_jobs([*SMALL, "ablation=d_ls00"])
    from aiayn.config.stored import to_dict

    (job.folder / "evaluation/val").mkdir(parents=True)
    (job.folder / "checkpoints").mkdir()
    for name in ("step_2", "averaged"):
        (job.folder / f"checkpoints/{name}.ckpt").touch()
    (job.folder / "config.yaml").write_text(yaml.safe_dump(to_dict(job.config), sort_keys=False))
    result = {"checkpoint": "last.ckpt", "step": 2, "search": to_dict(job.config.search)}
    result |= {"metrics": {}, "lines": 5, "split": "val"}
    (job.folder / "evaluation/val/evaluation.json").write_text(json.dumps(result))
    return job


def test_a_trained_and_scored_job_is_finished_unless_anything_is_missing_or_differs(scored):
    config = scored.config
    assert is_finished(scored)
    for section, option, value, finished in (
        ("model", "dropout", 0.2, False),
        ("trainer", "max_steps", 3, False),
        ("search", "beam_size", 7, False),
        ("trainer", "val_every", 9, True),
        ("logger", "kind", "csv", True),
    ):
        changed = replace(config, **{section: replace(getattr(config, section), **{option: value})})
        assert is_finished(replace(scored, config=changed)) == finished, option

    for path in ("config.yaml", "evaluation/val/evaluation.json"):
        whole = (scored.folder / path).read_text()
        for torn in (whole[: len(whole) // 2], "[]", "", "{'", '{"search": [1]}'):
            (scored.folder / path).write_text(torn)
            assert not is_finished(scored)
        (scored.folder / path).write_text(whole)
    assert is_finished(scored)
    (scored.folder / "checkpoints/averaged.ckpt").unlink()
    assert not is_finished(scored)


# Order, failures and signals, with programs that take no time.

FAKE = """
import os, signal, sys
chosen = next((a for a in sys.argv if a.startswith(("--row=", "run="))), "")
job = chosen.strip("'").split("/")[-1].removesuffix(".json")
print("working on", job, flush=True)
here = os.path.basename(sys.argv[0])
if here == "train.py" and job == "a_h4":
    print("error: the loss is nan", file=sys.stderr); print("afterwards"); sys.exit(5)
if here == "evaluate.py" and job == "c_n2":
    os.kill(os.getpid(), signal.SIGKILL)
if here == "train.py" and job == "d_drop02":
    ending = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1]
    heeded = [number for number in ending if signal.getsignal(number) is not signal.SIG_IGN]
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    for number in map(int, os.environ["SEND"].split()):
        os.kill(os.getppid(), number)
        if number in heeded:
            print("heard", signal.sigwait(ending).name, flush=True)
    sys.exit(1 if heeded == ending else 0)
"""


def with_trainer(job: SweepJob, **options: object) -> SweepJob:
    return replace(job, config=replace(job.config, trainer=replace(job.config.trainer, **options)))


def fake_sweep(folder: Path, rows: list[str], parallel: int = 1) -> Processes:
    for script in ("train.py", "evaluate.py"):
        (folder / script).write_text(FAKE)
    jobs = composed_jobs(*([f"ablation={row}", "sweep=s"] for row in rows))
    train, evaluate = (
        [sys.executable, str(folder / script)] for script in ("train.py", "evaluate.py")
    )
    return Processes(jobs, train, evaluate, parallel)


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_failing_job_is_reported_with_its_last_error_and_the_others_run(folder, capsys, parallel):
    assert fake_sweep(folder, ["a_h1", "a_h4", "c_n2", "base"], parallel).run() == {
        "a_h4": 5,
        "c_n2": 137,
    }

    said = capsys.readouterr().err
    assert "sweep 2/4 a_h4: failed with exit code 5 after 0:00:0" in said
    assert ": the loss is nan; " in said
    assert "sweep 3/4 c_n2: failed with exit code 137" in said
    assert "killed by signal 9; working on c_n2" in said
    assert "sweep 1/4 a_h1: done in 0:00:0" in said
    assert "sweep 4/4 base: done in 0:00:0" in said
    assert said.count("; 0 left\n") == 1
    assert said.endswith(
        "sweep outputs/sweeps/s: 2 of 4 jobs finished\nnext     aiayn table outputs/sweeps/s\n"
    )
    assert (folder / "outputs/sweeps/s/a_h1.log").read_text() == "working on a_h1\n" * 2
    assert sorted(path.name for path in (folder / "outputs/sweeps/s").iterdir()) == [
        ".rows",
        "a_h1.log",
        "a_h4.log",
        "base.log",
        "c_n2.log",
    ]


def test_a_log_or_a_folder_of_options_that_is_a_link_fails_its_rows_alone_and_is_not_written_through(
    folder, capsys
):
    foreign, log = folder / "foreign", folder / "outputs/sweeps/s/a_h1.log"
    foreign.write_text("kept")
    log.parent.mkdir(parents=True)
    log.symlink_to(foreign)
    assert fake_sweep(folder, ["a_h1", "base"]).run() == {"a_h1": 4}
    assert "a_h1.log: is a symbolic link, which is not supported here" in capsys.readouterr().err
    assert foreign.read_text() == "kept"
    shutil.rmtree(log.parent)
    log.parent.mkdir()
    (log.parent / ".rows").symlink_to(folder)
    assert fake_sweep(folder, ["base"]).run() == {"base": 4}
    assert ".rows: is a symbolic link, which is not supported here" in capsys.readouterr().err


def test_a_sweep_its_page_and_the_table_have_the_same_notes(folder, capsys):
    sweep = fake_sweep(folder, ["a_h1", "base", "e_learned"])
    steps = [job.config.trainer.max_steps for job in sweep.jobs]
    for job, step, measured in zip(sweep.jobs, (30, 30, steps[2]), (30, 30, 20), strict=True):
        run = RunFolder(job.folder)
        run.checkpoints.mkdir(parents=True)
        (run.checkpoints / f"step_{step}.ckpt").touch()
        run.write_config(job.config)
        run.metrics.write_text(json.dumps({"step": measured, "val/ppl": 9.5}) + "\n")
    store_end(RunFolder(sweep.jobs[1].folder), sweep.jobs[1].config.trainer, 30, "divergence")

    sweep.run()

    said = capsys.readouterr().err
    page = html.unescape((folder / "outputs/sweeps/s/report.html").read_text())
    table = run_application("aiayn", "table", "outputs/sweeps/s").out
    for name, note in {
        "a_h1": f"unfinished: step 30 of {steps[0]:,}",
        "base": f"ended by divergence: step 30 of {steps[1]:,}",
        "e_learned": "the perplexity is that of step 20",
    }.items():
        line = f"outputs/sweeps/s/{name}: {note}"
        assert [line in text for text in (said, page, table)] == [True] * 3, line


@pytest.mark.quick("4,5-1-3", "None-2-2", "None-1-1")
@pytest.mark.parametrize(
    ("visible", "devices", "parallel", "expected"),
    [
        (None, 1, 2, ["0", "1"]),
        ("4,5,7", 1, 3, ["4", "5", "7"]),
        ("4,5", 1, 3, ["4", "4", "5"]),  # shared evenly
        (None, 2, 2, ["0,1", "2,3"]),
        (None, 1, 1, [None]),
    ],
)
def test_parallel_jobs_have_gpus_of_their_own(
    folder, monkeypatch, visible, devices, parallel, expected
):
    monkeypatch.setattr(
        torch.cuda, "device_count", lambda: len(visible.split(",")) if visible else 4
    )
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    on_cpu = ["base"] if visible == "4,5" else []
    sweep = fake_sweep(folder, ["a_h1", "a_h4", "c_n2"][:parallel] + on_cpu, parallel)
    shows = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))"
    sweep.commands = ([sys.executable, "-c", shows], [sys.executable, "-c", ""])
    sweep.waiting = [
        with_trainer(job, devices=devices, accelerator="auto") for job in sweep.waiting
    ]
    if on_cpu:
        sweep.waiting[-1] = with_trainer(sweep.waiting[-1], accelerator="cpu")
    sweep.jobs = list(sweep.waiting)
    sweep.run()

    logs = [
        job.folder.with_name(f"{job.name}.log").read_text().split() for job in sweep.jobs[:parallel]
    ]
    assert sorted(log[0] for log in logs) == sorted(map(str, expected))


def test_a_job_whose_log_cannot_be_written_fails_and_says_why_before_it_starts(folder, capsys):
    # As in a folder that is read-only, also for root
    (folder / "outputs/sweeps/s/a_h1.log").mkdir(parents=True)

    assert fake_sweep(folder, ["a_h1", "base"]).run() == {"a_h1": 6}

    said = capsys.readouterr().err
    assert (
        "sweep 1/2 a_h1: failed with exit code 6 after 0:00:00: outputs/sweeps/s/a_h1.log: Is a "
        "directory; " in said
    )
    assert "sweep 2/2 base: done" in said


INT, TERM, HUP, USR1 = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1


@pytest.fixture
def handlers():
    """Every signal that asks for an end as a shell in the foreground has it."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (INT, TERM, HUP, USR1)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.quick("sent0", "sent1", "sent4")
@pytest.mark.parametrize(
    ("sent", "heard", "code"),
    [
        ([INT], ["SIGINT"], 130),
        ([TERM], ["SIGTERM"], 143),
        ([HUP], ["SIGTERM"], 143),
        ([USR1], ["SIGTERM"], 143),
        ([USR1, INT], ["SIGTERM", "SIGTERM"], 143),
        ([INT, TERM], ["SIGINT", "SIGINT"], 130),
    ],
)
def test_a_signal_reaches_the_running_job_and_ends_the_sweep_and_a_second_one_changes_nothing(
    folder, capsys, monkeypatch, handlers, sent, heard, code
):
    monkeypatch.setenv("SEND", " ".join(str(int(number)) for number in sent))

    with pytest.raises(
        InterruptedRunError, match="stopped  1 of 3 jobs finished; run the same command"
    ) as stopped:
        fake_sweep(folder, ["base", "d_drop02", "a_h1"]).run()

    assert stopped.value.exit_code == code
    assert all(signal.getsignal(number) == signal.SIG_DFL for number in (INT, TERM, HUP, USR1))
    said = capsys.readouterr().err
    assert re.findall("heard (.*)", (folder / "outputs/sweeps/s/d_drop02.log").read_text()) == heard
    assert "sweep 2/3 d_drop02: stopped after" in said
    assert "a_h1" not in said


def test_a_signal_that_another_thread_gets_ends_the_sweep_all_the_same(
    folder, monkeypatch, handlers
):
    monkeypatch.setenv("SEND", str(int(INT)))
    is_over = threading.Event()
    other = threading.Thread(target=is_over.wait)
    other.start()
    signal.pthread_sigmask(signal.SIG_BLOCK, {INT})  # of this thread and of those that it starts
    try:
        with pytest.raises(InterruptedRunError, match="stopped  1 of 3 jobs finished") as stopped:
            fake_sweep(folder, ["base", "d_drop02", "a_h1"]).run()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {INT})
        is_over.set()
        other.join()
    assert stopped.value.exit_code == 130


def test_under_nohup_a_sweep_outlives_its_terminal(folder, capsys, monkeypatch, handlers):
    monkeypatch.setenv("SEND", str(int(HUP)))
    signal.signal(HUP, signal.SIG_IGN)

    fake_sweep(folder, ["base", "d_drop02", "a_h1"]).run()

    assert signal.getsignal(HUP) == signal.SIG_IGN
    assert "sweep outputs/sweeps/s: 3 of 3 jobs finished" in capsys.readouterr().err


# The whole, in processes. `test_slurm.py` has one whose processes are new interpreters.


def sweep(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return in_new_interpreter(folder, "train.py", "-m", *arguments)


@pytest.mark.slow
def test_a_sweep_trains_and_scores_each_job_continues_what_was_lost_and_then_costs_nothing(
    folder, warm
):
    command = (*SMALL, "sweep=table", "ablation=base,d_ls00", "hydra.launcher.score=[val,test]")
    first = sweep(folder, *command, "hydra.launcher.jobs=2")
    assert first.returncode == 0, first.stderr
    done = folder / "outputs/sweeps/table"
    for job in ("base", "d_ls00"):
        result = json.loads((done / job / "evaluation/val/evaluation.json").read_text())
        assert (result["checkpoint"], result["step"], result["lines"]) == ("last.ckpt", 2, 5)
        test = json.loads((done / job / "evaluation/test/evaluation.json").read_text())
        assert (test["checkpoint"], test["split"]) == ("averaged.ckpt", "test")
        assert "step 2/2" in (done / f"{job}.log").read_text()
    assert first.stdout == ""
    page, last = first.stderr.split("\n")[-3:-1]
    assert (page, last) == (
        "page     outputs/sweeps/table/report.html",
        "next     aiayn table outputs/sweeps/table",
    )
    scores = re.findall(
        r"^(base|d_ls00) +0(?:\.1)? +1 +[\d.]+ +[\d.]+ ", first.stderr, re.MULTILINE
    )
    assert scores == ["base", "d_ls00"], first.stderr
    assert "base/report.html" in (done / "report.html").read_text()

    # As if one job had been killed after its first step, and the other had been started with
    # another seed.
    for lost in ("step_2.ckpt", "averaged.ckpt", "last.ckpt"):
        (done / "base/checkpoints" / lost).unlink()
    shutil.rmtree(done / "base/evaluation")
    stored = (done / "d_ls00/config.yaml").read_text()
    (done / "d_ls00/config.yaml").write_text(stored.replace("seed: 0", "seed: 7"))
    second = sweep(folder, *command)
    assert second.returncode == 4
    assert (
        "run      outputs/sweeps/table/base, continued at step 1" in (done / "base.log").read_text()
    )
    assert (done / "base/evaluation/val/evaluation.json").exists()
    assert "seed: 7 -> 0" in second.stderr
    assert second.stderr.split("\n")[-2].startswith(
        "error: 1 of 2 jobs failed: d_ls00 (exit 4); the same command"
    )

    (done / "d_ls00/config.yaml").write_text(stored)
    before = {path: path.stat().st_mtime_ns for path in done.rglob("*")}
    third = run_application("train.py", "-m", *command, "trainer.average_last=7")
    assert (third.code, "2 finished before" in third.err, "started" in third.err) == (
        0,
        True,
        False,
    )
    late = [
        line
        for line in third.err.split("\n")
        if "trainer.average_last: 5 -> 7 has no effect on a finished run" in line
    ]
    assert [line.partition(":")[0] for line in late] == ["warning  base", "warning  d_ls00"]
    assert {path: path.stat().st_mtime_ns for path in done.rglob("*")} == before
    (done / "report.html").unlink()
    assert run_application("train.py", "-m", *command).code == 0
    assert (done / "report.html").exists()


@pytest.mark.slow
def test_a_row_with_code_of_its_own_is_scored_with_it_and_finished_until_another_text_or_search_is_asked_for(
    folder, warm
):
    (folder / "it's mine").mkdir()
    shutil.copy(ROOT / "examples/extensions/pre_norm.py", folder / "it's mine")
    write_pairs(folder / "other", 3, seed=5)
    code = 'extensions=["it\'s mine/pre_norm.py"]'
    command = [*SMALL, "sweep=code", code, "hydra.launcher.score=[test]", "search.patience=2"]
    scores = folder / "outputs/sweeps/code/base/evaluation/test/evaluation.json"

    def lines_and_patience() -> tuple[int, float | None]:
        first = sweep(folder, *command)
        assert first.returncode == 0, first.stderr
        again = run_application("train.py", "-m", *command)
        assert (again.code, "1 finished before" in again.err, "started" in again.err) == (
            0,
            True,
            False,
        )
        found = json.loads(scores.read_text())
        return found["lines"], found["search"]["patience"]

    assert lines_and_patience() == (5, 2)
    command[-1] = "search.patience=null"
    assert lines_and_patience() == (5, None)
    command.append("data.test=other")
    assert lines_and_patience() == (3, None)


@pytest.mark.slow
def test_a_fine_tuned_job_is_finished_with_the_model_and_the_vocabulary_of_its_source(folder, warm):
    parent = run_application("train.py", *SMALL, "name=parent")
    assert parent.code == 0, parent.err
    options = [option for option in SMALL if not option.startswith(("model.", "data.vocab_size"))]
    options += ["init_from=outputs/parent", "model.dropout=0.3", "sweep=tuned"]
    first = sweep(folder, *options)
    assert first.returncode == 0, first.stderr

    again = run_application("train.py", "-m", *options)

    assert (again.code, "1 finished before" in again.err, "started" in again.err) == (
        0,
        True,
        False,
    )
    for other in (
        "model.dropout=0.2",
        "model.n_heads=8",
        "model=tiny",
        "data.vocab_size=300",
        "init_from=outputs/x",
    ):
        [changed] = composed_jobs([*options, other])
        assert not is_finished(changed), other


# Its surroundings.


def test_hydras_flags_reach_the_jobs_abbreviated_ones_too(folder, started):
    shutil.copytree(ROOT / "conf", folder / "mine")
    text = (folder / "mine/train.yaml").read_text()
    (folder / "mine/train.yaml").write_text(text.replace("seed: 0\n", "seed: 77\n"))
    assert (
        run_application(
            "train.py", "-m", *SMALL, "ablation=d_ls00", "--config-pat", str(folder / "mine")
        ).code
        == 0
    )

    [sweep] = started
    assert sweep.jobs[0].config.seed == 77


def test_a_row_trains_with_the_options_that_were_checked_and_composes_none(folder, monkeypatch):
    [job] = composed_jobs([*SMALL, "sweep=s", "seed=3", "model.n_heads=2"])
    compositions, trainings = [], []
    monkeypatch.setattr(Hydra, "compose_config", lambda *_, **__: compositions.append(1))
    monkeypatch.setattr(
        "aiayn.training.run.train", lambda options, chosen: trainings.append((options, chosen))
    )
    outcome = run_application("train.py", *job.train_command([]))
    assert outcome.code == 0, outcome.err
    assert (compositions, trainings) == ([], [(job.config, set(job.chosen))])

    refused = run_application("train.py", "--row=nowhere.json")
    assert (refused.code, "--row=nowhere.json: cannot be read" in refused.err) == (2, True)


# Other launchers.


@pytest.mark.slow
def test_a_launcher_of_hydras_own_trains_and_scores_each_row_in_a_process_and_the_grid_has_their_codes(
    folder, warm
):
    command = (*SMALL, "sweep=other", "hydra/launcher=basic")
    first = sweep(folder, *command, "seed=1,2,1")
    assert first.returncode == 0, first.stderr
    rows = [folder / f"outputs/sweeps/other/seed-{seed}" for seed in (1, 2)]
    for row in rows:
        assert json.loads((row / "evaluation/val/evaluation.json").read_text())["step"] == 2
    stored = (rows[0] / "config.yaml").read_text()
    (rows[0] / "config.yaml").write_text(stored.replace("seed: 1", "seed: 7"))
    second = sweep(folder, *command, "seed=1,2")
    assert second.returncode == 4
    assert second.stderr.split("\n")[-2].startswith(
        "error: 1 of 2 jobs failed: seed-1 (exit 4); the same command"
    )
    refused = run_application("train.py", "-m", *command, "model.n_heads=2,3")
    assert (refused.code, "n_heads-3: model.d_model=16 is not" in refused.err) == (2, True)


def test_what_a_launcher_of_hydras_own_writes_goes_into_the_folder_of_the_sweep(
    folder, monkeypatch
):
    """As submitit's launcher, which is told its folder when it is made."""
    folders = []
    Plugins.instance()  # it imports the launchers, again if they are imported
    launcher = sys.modules["hydra._internal.core_plugins.basic_launcher"].BasicLauncher
    for name, method in {
        "__init__": lambda self, folder: folders.append(folder),
        "setup": lambda self, **settings: None,
        "launch": lambda self, job_overrides, initial_job_idx: [],
    }.items():
        monkeypatch.setattr(launcher, name, method)
    options = ("hydra/launcher=basic", "+hydra.launcher.folder=${hydra.sweep.dir}/.jobs", "seed=1")
    outcome = run_application("train.py", "-m", *SMALL, "sweep=other", *options)
    assert (outcome.code, folders[1:]) == (0, ["outputs/sweeps/other/.jobs"]), outcome.err


# Rows and those who wait for them.

WAITS = """
import os, signal, sys, time
from aiayn.signals import end_with_parent
end_with_parent()
signal.signal(signal.SIGTERM, lambda *_: (print("saved", flush=True), os._exit(143)))
print("working", os.getpid(), flush=True)
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a signal at a parent's death is Linux's")
def test_a_row_saves_and_ends_when_its_sweep_is_killed(folder):
    (folder / "train.py").write_text(WAITS)
    code = f"""
from applications import composed_jobs
from aiayn.sweep.runner import Processes
Processes(composed_jobs(["sweep=s"]), [{sys.executable!r}, "train.py"], ["false"]).run()
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    log = folder / "outputs/sweeps/s/base.log"
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL
    ) as killed:
        until(lambda: log.exists() and "working" in log.read_text())
        killed.kill()
    row = int(log.read_text().split()[1])
    until(lambda: not Path(f"/proc/{row}").exists())
    assert log.read_text().endswith("saved\n")


def until(holds, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_of_two_equal_sweeps_at_once_the_second_waits_for_the_row_and_both_succeed(
    folder, scored, monkeypatch, capsys
):
    """The other one trains: it holds the lock, and has scored the row when it lets go."""
    evaluation = scored.folder / "evaluation/val/evaluation.json"
    result = evaluation.read_text()
    evaluation.unlink()
    lock = open(scored.folder / ".lock", "w")  # noqa: SIM115 - it is locked for as long as it is open
    assert lock_descriptor(lock.fileno(), blocking=False)
    (folder / "train.py").write_text(
        "import sys; print('error: outputs/x is in use by process 7; wait', file=sys.stderr); sys.exit(2)"
    )

    def other_ends(seconds: float) -> None:
        evaluation.write_text(result)
        lock.close()

    monkeypatch.setattr("aiayn.sweep.runner.time.sleep", other_ends)
    command = [sys.executable, str(folder / "train.py")]
    assert Processes([scored], command, ["false"]).run() == {}
    assert "outputs/x is in use by process 7; waiting for it\n" in capsys.readouterr().err


# Other sweepers.


def test_optuna_searches_over_rows_which_return_what_optimized_metric_says(
    folder, started, monkeypatch
):
    """Each trial is a row of its own in the sweep's folder, where Optuna leaves the best."""
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="pip install 'aiayn[optuna]'")
    seen = {}

    def run(sweep: Processes) -> dict[str, int]:
        for job in sweep.jobs:
            job.folder.mkdir(parents=True, exist_ok=True)
            dropout = seen[job.name] = job.config.model.dropout
            assert (job.config.name, job.config.data.test) == (f"sweeps/2_16/{job.name}", None)
            rows = [
                {"step": 1, "val/ppl": 9},
                {"step": 2, "val/ppl": abs(dropout - 0.3)},
                {"step": 2, "train/loss": 7},
            ]
            (job.folder / "metrics.jsonl").write_text(
                "".join(f"{json.dumps(row)}\n" for row in rows)
            )
        return {}

    monkeypatch.setattr(Processes, "run", run)
    searched = (
        "model.dropout=interval(0.1,0.5)",
        "hydra.sweeper.n_trials=3",
        "hydra.sweeper.n_jobs=2",
    )
    fixed = (*SMALL, "data.test=null", "sweep=2_16", "optimized_metric=val/ppl")
    outcome = run_application(
        "train.py", "-m", *fixed, "hydra/sweeper=optuna", "hydra.sweeper.sampler.seed=7", *searched
    )
    assert outcome.code == 0, outcome.err

    assert len(seen) == 3
    assert all(name == f"dropout-{dropout}" for name, dropout in seen.items())
    best = yaml.safe_load((folder / "outputs/sweeps/2_16/optimization_results.yaml").read_text())
    assert best["best_params"]["model.dropout"] == min(
        seen.values(), key=lambda dropout: abs(dropout - 0.3)
    )
    assert best["best_value"] == min(abs(dropout - 0.3) for dropout in seen.values())


@pytest.mark.slow
def test_points_that_a_search_draws_twice_are_one_row_and_each_trial_is_told_its_value(
    folder, monkeypatch
):
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="pip install 'aiayn[optuna]'")
    trained = []

    def run(sweep: Processes) -> dict[str, int]:
        for job in sweep.jobs:
            trained.append(job.name)
            job.folder.mkdir(parents=True, exist_ok=True)
            measured = {"step": 1, "val/loss": job.config.model.dropout}
            (job.folder / "metrics.jsonl").write_text(f"{json.dumps(measured)}\n")
        return {}

    monkeypatch.setattr(Processes, "run", run)
    trials = (
        "hydra.sweeper.n_trials=6",
        "hydra.sweeper.n_jobs=6",
        "hydra.sweeper.sampler.seed=1",
        "sweep=twice",
    )
    outcome = run_application(
        "train.py", "-m", *SMALL, "hydra/sweeper=optuna", "model.dropout=choice(0.1,0.2)", *trials
    )
    assert outcome.code == 0, outcome.err
    assert sorted(trained) == ["dropout-0.1", "dropout-0.2"]
    assert re.findall(r"sweep    (dropout-0\.\d): (\d) equal jobs run as one", outcome.err)
    best = yaml.safe_load((folder / "outputs/sweeps/twice/optimization_results.yaml").read_text())
    assert best["best_value"] == 0.1


def test_an_option_that_is_fixed_and_searched_is_refused(folder):
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="pip install 'aiayn[optuna]'")
    (folder / "own/experiment").mkdir(parents=True)
    (folder / "own/experiment/search.yaml").write_text(
        '# @package _global_\nhydra: {sweeper: {params: {model.dropout: "choice(0.1,0.2)"}}}\n'
    )
    for fixed in ("model.dropout=0.3", "model={dropout: 0.3}"):
        search = ("hydra/sweeper=optuna", "experiment=search", fixed)
        outcome = run_application("train.py", "-m", "-cd", "own", *SMALL, *search)
        assert outcome.code == 2
        assert "error: model.dropout: both fixed on the command line and searched" in outcome.err


@pytest.mark.parametrize(
    ("rows", "searched", "reason"),
    [
        ("a_h4", "model.n_heads=choice(2,4)", "model.n_heads: both fixed by ablation=a_h4"),
        ("a_h4,d_drop02", "model.dropout=interval(0,0.3)", "by ablation=d_drop02 and searched"),
    ],
)
def test_an_option_that_a_row_of_table_3_fixes_and_a_search_varies_is_refused_at_the_defaults(
    folder, rows, searched, reason
):
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="pip install 'aiayn[optuna]'")
    outcome = run_application(
        "train.py", "-m", "hydra/sweeper=optuna", f"ablation={rows}", searched
    )
    assert outcome.code == 2
    assert reason in outcome.err.split("\n")[-2]
    assert "searched by hydra/sweeper=optuna; leave one out" in outcome.err
    assert not (folder / "outputs").exists()


def test_a_file_of_options_must_not_fix_what_its_own_search_varies_but_the_command_line_may_search(
    folder, monkeypatch
):
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="pip install 'aiayn[optuna]'")
    (folder / "own/experiment").mkdir(parents=True)
    (folder / "own/experiment/search.yaml").write_text(
        "# @package _global_\nmodel: {dropout: 0.3}\n"
        'hydra: {sweeper: {params: {model.dropout: "choice(0.1,0.2)"}}}\n'
    )
    (folder / "own/experiment/fixed.yaml").write_text(
        "# @package _global_\nmodel: {dropout: 0.3}\n"
    )
    command = ("train.py", "-m", "-cd", "own", *SMALL, "hydra/sweeper=optuna")
    outcome = run_application(*command, "experiment=search")
    assert outcome.code == 2
    assert "error: model.dropout: both fixed by experiment=search and searched" in outcome.err
    monkeypatch.setattr(Processes, "run", lambda sweep: {sweep.jobs[0].name: 6})
    outcome = run_application(*command, "experiment=fixed", "model.dropout=choice(0.1,0.2)")
    assert outcome.code == 6, outcome.err


def test_a_search_for_a_value_that_no_validation_measures_is_refused(folder):
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="pip install 'aiayn[optuna]'")
    search = ("hydra/sweeper=optuna", "model.dropout=interval(0,0.3)")
    outcome = run_application("train.py", "-m", *SMALL, *search, "trainer.limit_val_batches=0")
    assert outcome.code == 2
    assert "error: hydra/sweeper=optuna: searches for the best val/loss, which" in outcome.err
    assert not (folder / "outputs").exists()


@pytest.mark.parametrize(
    ("swept", "reason"),
    [
        ("model.dropout=range(0,1,0)", "its step is 0; give another, range(A,B,STEP)"),
        ("ablation=a_h1,glob(c_n*)", "or one pattern: ablation=glob([A*,B])"),
        ("seed=1,range(2,4)", "no glob(), range() or interval() among"),
    ],
)
def test_what_cannot_be_listed_is_refused_in_one_line(folder, swept, reason):
    outcome = run_application("train.py", "-m", *SMALL, swept)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert outcome.err.startswith(f"error: {swept}: ")
    assert reason in outcome.err


def test_rows_for_which_there_are_too_few_gpus_are_refused_before_the_first(folder, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    command = ("-m", *SMALL, "seed=1,2", "trainer.accelerator=gpu", "trainer.devices=2,3")
    outcome = run_application("train.py", *command, "trainer.max_steps=4")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert outcome.err.startswith("error: trainer.devices=2: this machine has 1 GPU; lower ")
    assert not (folder / "outputs").exists()


@pytest.mark.slow
def test_a_row_that_fails_ends_a_search_with_its_exit_code_and_one_that_diverges_is_the_worst(
    folder, monkeypatch
):
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="pip install 'aiayn[optuna]'")
    command = (
        "train.py",
        "-m",
        *SMALL,
        "hydra/sweeper=optuna",
        "model.dropout=interval(0.1,0.5)",
        "sweep=s",
    )
    monkeypatch.setattr(Processes, "run", lambda sweep: {sweep.jobs[0].name: 6})
    outcome = run_application(*command)
    assert outcome.code == 6
    assert "(exit 6)" in outcome.err.split("\n")[-2]

    def run(sweep: Processes) -> dict[str, int]:
        for job in sweep.jobs:
            job.folder.mkdir(parents=True, exist_ok=True)
            measured = {"step": 1, "val/loss": job.config.model.dropout}
            (job.folder / "metrics.jsonl").write_text(f"{json.dumps(measured)}\n")
        return {job.name: 5 for job in sweep.jobs if job.config.model.dropout > 0.3}

    monkeypatch.setattr(Processes, "run", run)
    grid = [each.replace("interval(0.1,0.5)", "choice(0.2,0.3,0.4)") for each in command]
    more = ("hydra/sweeper/sampler=grid", "hydra.sweeper.n_trials=3", "hydra.sweeper.n_jobs=1")
    outcome = run_application(*grid, *more, "hydra.sweeper.direction=maximize")
    assert outcome.code == 0, outcome.err
    best = yaml.safe_load((folder / "outputs/sweeps/s/optimization_results.yaml").read_text())
    assert best["best_value"] == best["best_params"]["model.dropout"] == 0.3
