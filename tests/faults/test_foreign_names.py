"""What other programs' users type first: names of Hydra's settings, flags, sentences and file names."""

import pytest
from applications import run_application

from aiayn import __version__

# Settings of Hydra, typed after `train`, and what the one line must say.
HYDRA = [
    ("hydra.run.dir=here", "set outputs=, name= or sweep="),
    ("hydra.sweep.dir=here", "set outputs=, name= or sweep="),
    ("hydra.sweep.subdir=x", "has no effect"),
    ("hydra.output_subdir=x", "has no effect"),
    ("hydra.job.chdir=true", "has no effect"),
    ("hydra.job.name=x", "has no effect"),
    ("hydra/job_logging=default", "has no effect"),
    ("hydra/launcher=joblib", "choose one of processes, slurm"),
    ("hydra/launcher=basic", "choose one of processes, slurm"),
    ("+experiment=quickstart", "leave out the +: experiment=quickstart"),
    ("--experimental-rerun x.pickle", "unrecognized arguments: --experimental-rerun"),
    ("--output_dir x", "options are written key=value"),
    ("--learning_rate=5e-5", "options have no dashes"),
    ("paths.output_dir=x", "no such option"),
    ("callbacks=early_stopping", "--help lists"),
]


@pytest.mark.parametrize("several", [(), ("-m",)], ids=["one", "sweep"])
@pytest.mark.parametrize(("typed", "answer"), HYDRA)
def test_what_has_no_effect_here_is_refused_in_one_line_and_nothing_is_written(
    tmp_path, monkeypatch, several, typed, answer
):
    monkeypatch.chdir(tmp_path)

    outcome = run_application("train.py", *several, *typed.split())

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1, outcome.err
    assert answer in outcome.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [("train.py",), ("evaluate.py",), ("aiayn",), ("aiayn", "train")])
def test_the_version_is_the_programs_own(command):
    outcome = run_application(*command, "--version")

    assert (outcome.code, outcome.out, outcome.err) == (0, f"aiayn {__version__}\n", "")


def test_a_sentence_in_place_of_a_file_is_told_to_come_through_a_pipe():
    outcome = run_application("aiayn", "translate", "outputs/x", "It's late.")

    assert outcome.code == 3
    assert outcome.err.endswith("""echo 'It'"'"'s late.' | aiayn translate outputs/x\n""")
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("ending", [".en", ".de", ".en.gz"])
def test_a_file_name_in_place_of_a_prefix_is_told_to_leave_out_the_language(ending):
    text = ("data=files", f"data.train=my/train{ending}", "data.val=my/dev", "logger=none")
    outcome = run_application("train.py", *text)

    assert outcome.code == 3
    assert f"data.train=my/train{ending}: leave out {ending}: data.train=my/train names both" in outcome.err
