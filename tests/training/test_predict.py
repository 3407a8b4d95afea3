"""Two processes translate what one does, to the byte, started as users start them."""

from pathlib import Path

import pytest
from applications import TINY, in_new_interpreter, text_in, write_pairs

import aiayn
from aiayn.errors import ConfigError


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run that has learned a little; its search takes a few lines at a time."""
    folder = tmp_path_factory.mktemp("run")
    for seed, (split, count) in enumerate({"train": 90, "val": 5, "test": 23}.items()):
        write_pairs(folder / split, count, seed)
    more = ("trainer.max_steps=20", "optim.warmup_steps=5", "search.batch_tokens=60", "name=run")
    return aiayn.train(aiayn.compose(*TINY, *text_in(folder), *more, f"outputs={folder}/outputs"))


def test_evaluation_on_two_devices_writes_the_bytes_of_one(run):
    folder, texts = run.parent.parent, []
    for devices in (1, 2):
        ended = in_new_interpreter(folder, "evaluate.py", f"run={run}", f"devices={devices}", "accelerator=cpu")
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.count("sacrebleu ") == 1, "only the first process speaks"
        texts.append((run / "evaluation/test/hypotheses.txt").read_bytes())
    assert texts[0] == texts[1]
    assert texts[0].count(b"\n") == 23


def test_a_file_is_translated_on_two_devices_into_the_bytes_of_one_in_its_order(run, tmp_path):
    lines = (run.parent.parent / "test.en").read_text(encoding="utf-8").split("\n")[:-1]
    (tmp_path / "new.en").write_text("".join(f"{line}\n" for line in [*lines, "", *lines[::-1]]), encoding="utf-8")
    code = tmp_path / "command.py"  # the console command
    code.write_text("import sys\nfrom aiayn.cli import main\nsys.exit(main())\n")
    ends = [
        in_new_interpreter(tmp_path, str(code), "translate", str(run), "new.en", "--scores", *more)
        for more in ((), ("--devices", "2"))
    ]
    assert [end.returncode for end in ends] == [0, 0], ends[1].stderr
    assert ends[0].stdout == ends[1].stdout
    assert ends[0].stdout.count("\n") == 2 * len(lines) + 1


def test_a_stream_is_not_shared(run, tmp_path):
    code = tmp_path / "command.py"
    code.write_text("import sys\nfrom aiayn.cli import main\nsys.exit(main())\n")
    ended = in_new_interpreter(tmp_path, str(code), "translate", str(run), "--devices", "2")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "--devices 2: for a FILE only" in ended.stderr


def test_in_python_there_is_one_device(run):
    with pytest.raises(ConfigError, match="use aiayn evaluate devices=2"):
        aiayn.evaluate(f"run={run}", "devices=2", "accelerator=cpu")
