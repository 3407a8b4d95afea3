"""What the entry points print and how they end; `faults/test_mistakes.py` has the mistakes in
options, one by one.
"""

import os
import re
import signal

import pytest
from applications import run_application

import aiayn
from aiayn.errors import ConfigError

FILES = [
    "data=files",
    "data.train=nowhere/train",
    "data.val=nowhere/dev",
    "model=base",
    "logger=none",
]


def the_one_line(err: str) -> str:
    assert err.startswith("error: ")
    assert err.count("\n") == 1, err
    return err


@pytest.mark.parametrize("option", ["debug=true", "+debug=True"])
def test_debug_adds_the_traceback_to_the_line(tmp_path, monkeypatch, option):
    monkeypatch.chdir(tmp_path)

    outcome = run_application("train.py", "model.dropout=1.5", option)

    assert outcome.code == 2
    assert "Traceback" in outcome.err
    assert outcome.err.endswith("error: model.dropout=1.5: must be at least 0 and below 1\n")


def test_text_that_is_not_there_is_exit_code_3_and_names_the_option(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    outcome = run_application("train.py", *FILES)

    assert outcome.code == 3
    line = the_one_line(outcome.err)
    assert "data.train=nowhere/train" in line
    assert "nowhere/train.en.gz" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.quick("arguments0")
@pytest.mark.parametrize("arguments", [["ablation=mine"], ["-m", "ablation=mine,a_h1"]])
def test_a_row_of_ones_own_is_found_in_a_folder_of_ones_own(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own/ablation").mkdir(parents=True)
    (tmp_path / "own/ablation/mine.yaml").write_text("# @package _global_\nmodel: {n_heads: 7}\n")

    outcome = run_application("train.py", "-cd", "own", *FILES, *arguments)

    assert (outcome.code, outcome.out) == (2, "")
    assert "model.d_model=512 is not divisible by model.n_heads=7" in the_one_line(outcome.err)

    (tmp_path / "own/ablation/mine.yaml").write_text("# @package _global_\nmodel: {n_heads: 4}\n")
    accepted = run_application("train.py", "-cd", "own", *FILES, *arguments)

    assert accepted.code == 3  # all that is wrong now is the text
    assert "data.train=nowhere/train" in the_one_line(accepted.err)


@pytest.mark.quick("15-143")
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143), (signal.SIGUSR1, 143)],
)
def test_a_signal_during_an_evaluation_ends_it_in_one_line_with_the_code_of_a_run(
    number, code, tmp_path, monkeypatch
):
    from aiayn.cli import hydra_commands
    from aiayn.evaluation import evaluate as module

    monkeypatch.setattr(hydra_commands, "find_checkpoint", lambda run, checkpoint: None)
    monkeypatch.setattr(module, "evaluate", lambda config: os.kill(os.getpid(), number))
    monkeypatch.chdir(tmp_path)
    before = signal.signal(
        number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler
    )

    try:
        outcome = run_application("evaluate.py", "run=x")
    finally:
        signal.signal(number, before)

    assert (outcome.code, outcome.out, outcome.err) == (code, "", "interrupted\n")


def test_options_may_stand_on_both_sides_of_a_flag(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own/ablation").mkdir(parents=True)
    (tmp_path / "own/ablation/mine.yaml").write_text("# @package _global_\nmodel: {d_ff: 48}\n")

    shown = run_application(
        "train.py", "seed=3", "--config-dir", "own", "ablation=mine", "--cfg", "job", "name=x"
    )

    assert (shown.code, shown.err) == (0, "")
    for line in ("seed: 3", "name: x", "  d_ff: 48"):
        assert line in shown.out.split("\n")


def test_an_option_may_take_a_value_from_the_environment_that_is_no_secret(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCRATCH", "/scratch/me")

    outcome = run_application("train.py", *FILES, "data.train=${oc.env:SCRATCH}/train")

    assert outcome.code == 3
    assert "data.train=/scratch/me/train: no file /scratch/me/train" in outcome.err


def test_an_option_may_name_what_hydra_has_chosen():
    assert (
        aiayn.compose(
            "model=tiny", "data=phrasebook", "name=${hydra:runtime.choices.model}-mine"
        ).name
        == "tiny-mine"
    )


@pytest.mark.quick("arguments0")
@pytest.mark.parametrize("arguments", [["--cfg", "job"], ["-m", "model.dropout=2"]])
def test_a_value_from_the_environment_has_its_options_type_wherever_it_is_checked(
    arguments, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "7")
    outcome = run_application(
        "train.py",
        *FILES,
        "seed=${oc.env:SLURM_ARRAY_TASK_ID}",
        "trainer.max_steps=${oc.env:SLURM_ARRAY_TASK_ID}",
        *arguments,
    )
    assert "must be of type" not in outcome.err
    assert outcome.code == (0 if "--cfg" in arguments else 2)


SPELLINGS = [
    "data.test=${oc.env:DATA_KEY}",
    "data.train=[x,'${oc.env:DATA_KEY}']",
    "data.test=${oc.env:DATA_KEY,nothing}",
    "trainer.max_steps=${oc.env:DATA_KEY}",
    "data.test=${ oc.env : GITHUB_TOKEN }",
    "data.test=${oc.env:DSN}",
    "data.test=${oc.env:PGURL,x}",
    'data.test="${oc.${sweep}:DATA_KEY}"',
    'data.test="${oc.decode:${oc.${sweep}:DATA_KEY}}"',
    "data.test=${oc.env:SLURM_JWT}",
    "data.test=${oc.env:AIAYN_API_KEY}",
]


@pytest.mark.quick('sweep}:DATA_KEY}"-one', 'DATA_KEY}}"-sweep')
@pytest.mark.parametrize("several", [(), ("-m", "seed=1,2")], ids=["one", "sweep"])
@pytest.mark.parametrize("option", SPELLINGS)
def test_an_option_from_the_environment_would_be_stored_and_is_refused_unseen(
    option, several, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("DATA_KEY", "SLURM_JWT", "AIAYN_API_KEY"):
        monkeypatch.setenv(name, "sk_very_secret")

    outcome = run_application("train.py", *FILES, *several, "sweep=env", option)

    assert (outcome.code, outcome.out) == (2, "")
    assert "is not supported, because options are stored" in the_one_line(outcome.err)
    assert "sk_very_secret" not in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_options_chosen_by_a_variable_is_refused_without_the_variables_value(monkeypatch):
    monkeypatch.setenv("A_KEY", "sk_very_secret")
    outcome = run_application("train.py", "data=${oc.env:A_KEY}")
    assert outcome.code == 2
    assert outcome.err.startswith("error: data=${oc.env:A_KEY}: give the name of one file")


def test_help_shows_commands_groups_and_every_option_with_its_comment():
    train, evaluate = (
        run_application("train.py", "--help"),
        run_application("evaluate.py", "--help"),
    )

    assert (train.code, evaluate.code) == (0, 0)
    assert re.search(r"\n  python \S*train\.py model=big trainer\.devices=8 ", train.out)
    assert "model: auto, base, big, quarter, tiny" in train.out
    assert "experiment: captions, iwslt14_de_en, iwslt16_de_en, multi30k, " in train.out
    assert re.search(r"\n  d_k: null +# null: d_model / n_heads\n", train.out)
    assert re.search(r"\n  beam_size: null +# hypotheses kept", evaluate.out)
    for shown in (train.out, evaluate.out):
        options = shown.partition("== Options")[2].strip().split("\n")[1:]
        assert [
            line for line in options if "#" not in line and not re.fullmatch(r"\w+:", line)
        ] == []


def test_help_names_the_program_that_was_started_and_shows_what_is_composed():
    shown = run_application("aiayn", "train", "--help", "model=big")

    assert shown.code == 0
    assert "aiayn train model=big trainer.devices=8" in shown.out
    assert "python train.py" not in shown.out
    assert "\n  d_model: 1024 " in shown.out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "# @package _global_\nmodel: {n_hds: 4}",
            "ablation/mine: model.n_hds: no such option; did you mean",
        ),
        (
            "model: {n_heads: 4}",
            "ablation/mine: its first line must be # @package _global_, or",
        ),
    ],
)
def test_a_mistake_in_a_file_of_ones_own_is_told_with_its_remedy(text, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own/ablation").mkdir(parents=True)
    (tmp_path / "own/ablation/mine.yaml").write_text(text + "\n")
    refused = run_application("train.py", "--config-dir", "own", "ablation=mine", *FILES)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert told in refused.err


@pytest.mark.quick("my/train")
@pytest.mark.parametrize(
    ("train", "source"),
    [("my/train", "files"), ("[my/a,my/b]", "files"), ("here", "files"), ("train[:1000]", "hub")],
)
def test_an_experiment_on_a_data_set_of_the_hub_reads_files_where_files_are_named(
    train, source, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("here.en", "here.de", "train.en", "train.de"):
        (tmp_path / name).touch()

    named = (f"data.train='{train}'" if "[:" in train else f"data.train={train}", "data.val=here")
    assert aiayn.compose("experiment=multi30k", *named).data.source == source
    if source == "files":
        with pytest.raises(ConfigError, match=r"data\.val is missing"):
            aiayn.compose("experiment=multi30k", named[0])
    assert aiayn.compose("experiment=multi30k").data.source == "hub"  # though there is a train.en
    # As other programs have it
    assert aiayn.compose("+experiment=multi30k") == aiayn.compose("experiment=multi30k")
    shown = run_application("train.py", "experiment=multi30k", *named, "--cfg", "job")
    assert f"\n  source: {source}\n" in shown.out
