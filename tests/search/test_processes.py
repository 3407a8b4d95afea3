"""Two processes translate and score what one does, to the byte, started as users start them."""

import os
import signal
from pathlib import Path

import pytest
import torch
from applications import (
    TINY,
    in_new_interpreter,
    run_application,
    text_in,
    write_pairs,
    write_run,
)

import aiayn
from aiayn.errors import ConfigError, DataError, DivergedError, NonFiniteOutputError, ResourceError
from aiayn.runs.checkpoints import load
from aiayn.search.processes import SplitTranslator, _work, on_devices
from aiayn.search.translator import load_translator


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run that has learned a little; its search takes a few lines at a time."""
    folder = tmp_path_factory.mktemp("run")
    for seed, (split, count) in enumerate({"train": 90, "val": 5, "test": 23}.items()):
        write_pairs(folder / split, count, seed)
    more = ("trainer.max_steps=20", "optim.warmup_steps=5", "search.batch_tokens=60", "name=run")
    return aiayn.train(aiayn.compose(*TINY, *text_in(folder), *more, f"outputs={folder}/outputs"))


def test_a_process_chooses_its_gpu_before_a_model_is_loaded(monkeypatch):
    done, (here, there) = [], torch.multiprocessing.Pipe()
    here.close()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", done.append)
    monkeypatch.setattr(
        "aiayn.search.processes.load_translator", lambda path, extensions: done.append(path)
    )
    before = signal.getsignal(signal.SIGINT)
    try:
        _work(there, 3, 1, ["the model"], [])
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == [3, "the model"]


@pytest.mark.slow
def test_evaluation_on_two_devices_writes_the_bytes_of_one(run, warm):
    folder, texts = run.parent.parent, []
    for devices in (1, 2):
        ended = in_new_interpreter(
            folder, "evaluate.py", f"run={run}", f"devices={devices}", "accelerator=cpu"
        )
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.count("sacrebleu ") == 1, "only the first process speaks"
        texts.append((run / "evaluation/test/hypotheses.txt").read_bytes())
    assert texts[0] == texts[1]
    assert texts[0].count(b"\n") == 23


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("--sample", "--seed", "2", "--scores"),
        pytest.param(("--markup", "--paragraphs"), marks=pytest.mark.slow),
        pytest.param(("--engine", "torch"), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_file_is_translated_on_two_devices_into_the_bytes_of_one_in_its_order(
    run, tmp_path, warm, arguments
):
    lines = (run.parent.parent / "test.en").read_text(encoding="utf-8").split("\n")[:-1]
    text = [*lines, "", *lines[::-1], "<b>two</b> {x}. One five. " * 3]
    (tmp_path / "new.en").write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    code = tmp_path / "command.py"  # the console command
    code.write_text(
        "import sys\nfrom aiayn.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
    )
    command = ("translate", str(run), str(tmp_path / "new.en"), *arguments)
    one = run_application("aiayn", *command)
    two = in_new_interpreter(tmp_path, str(code), *command, "--devices", "2")
    assert (one.code, two.returncode) == (0, 0), two.stderr
    assert two.stdout == one.out
    assert one.out.count("\n") == len(text)


@pytest.fixture(scope="module")
def made_of(tmp_path_factory) -> tuple:
    run = write_run(tmp_path_factory.mktemp("untrained"))
    return load(run / "checkpoints/averaged.ckpt"), None, "cpu", "float32", []


@pytest.mark.slow
def test_results_and_errors_come_from_where_the_lines_went(made_of):
    alone = load_translator(*made_of)
    lines = ["one two", "", "three one five", "two", "five four three two one"]
    threads, shown = torch.get_num_threads(), []
    with on_devices(alone, 2, made_of, []) as shared:
        assert isinstance(shared, SplitTranslator)
        found = shared.n_best(lines, 2, lambda *done: shown.append(done))
        assert [[one.tokens for one in best] for best in found] == [
            [one.tokens for one in best] for best in alone.n_best(lines, 2)
        ]
        assert shown[-1] == (5, 5)
        pairs, expected = shared.score(lines, lines[::-1]), alone.score(lines, lines[::-1])
        assert [pair.log_prob for pair in pairs] == pytest.approx(
            [pair.log_prob for pair in expected], abs=1e-5
        )
        assert shared.n_best([], 1) == []
        assert shared.translate(["two"]) == alone.translate(["two"])
        with pytest.raises(DataError, match="line 5 has 40,000 characters"):
            shared.score([*lines[:4], "x" * 40_000], lines)
        assert shared.translate(lines) == [best[0].text for best in found], (
            "a refused line ends nothing"
        )
        assert shared.in_torch() is alone
    assert torch.get_num_threads() == threads


def test_a_process_that_is_killed_is_reported_and_none_is_left(made_of):
    with on_devices(load_translator(*made_of), 2, made_of, []) as shared:
        assert len(shared.translate(["one", "two"])) == 2
        [child] = torch.multiprocessing.active_children()
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(ResourceError, match="a process that translates some lines has died"):
            shared.translate(["one", "two"])
    assert torch.multiprocessing.active_children() == []


@pytest.mark.slow
def test_a_broken_model_is_told_from_another_process_too(made_of, monkeypatch):
    checkpoint, *others = made_of
    weights = {
        name: torch.full_like(weight, torch.nan) for name, weight in checkpoint.weights.items()
    }
    broken = (type(checkpoint)(**vars(checkpoint) | {"weights": weights}), *others)
    alone = load_translator(*made_of)
    with (
        on_devices(alone, 2, broken, []) as shared,
        pytest.raises(DivergedError, match=r"^the model's output is NaN"),
    ):
        shared.translate(["one", "two"])
    assert str(NonFiniteOutputError()).startswith("the model's output is NaN")


def test_devices_that_are_not_there_are_refused(made_of, monkeypatch):
    alone = load_translator(*made_of)
    alone.device = torch.device("cuda")
    with pytest.raises(ConfigError, match="devices=2: this machine has 0 GPUs"):  # noqa: SIM117
        with on_devices(alone, 2, made_of, []):
            pass
