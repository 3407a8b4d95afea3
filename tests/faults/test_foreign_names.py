"""What other programs' users type first: flags, sentences and file names."""

import pytest
from applications import run_application

from aiayn import __version__


@pytest.mark.parametrize(
    "command", [("train.py",), ("evaluate.py",), ("aiayn",), ("aiayn", "train")]
)
def test_the_version_is_the_programs_own(command):
    outcome = run_application(*command, "--version")

    assert (outcome.code, outcome.out, outcome.err) == (0, f"aiayn {__version__}\n", "")


def test_a_sentence_in_place_of_a_file_is_told_to_come_through_a_pipe():
    outcome = run_application("aiayn", "translate", "outputs/x", "It's late.")

    assert outcome.code == 3
    assert outcome.err.endswith("""echo 'It'"'"'s late.' | aiayn translate outputs/x\n""")
    assert outcome.err.count("\n") == 1


def test_a_file_that_only_exists_compressed_is_named(tmp_path):
    (tmp_path / "test.en.gz").touch()
    outcome = run_application("aiayn", "translate", "outputs/x", str(tmp_path / "test.en"))

    assert outcome.code == 3
    assert outcome.err.endswith(f"no such file; did you mean {tmp_path / 'test.en.gz'}?\n")


@pytest.mark.parametrize("ending", [".en", ".de", ".en.gz"])
def test_a_file_name_in_place_of_a_prefix_is_told_to_leave_out_the_language(ending):
    text = ("data=files", f"data.train=my/train{ending}", "data.val=my/dev", "logger=none")
    outcome = run_application("train.py", *text)

    assert outcome.code == 3
    assert (
        f"data.train=my/train{ending}: leave out {ending}; data.train=my/train names the files of both"
        in outcome.err
    )
