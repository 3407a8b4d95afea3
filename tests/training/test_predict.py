"""Two processes translate what one does, to the byte, started as users start them but for the time that it takes."""

import signal
from pathlib import Path

import pytest
import torch
from aiayn.training.predict import SharedTranslator
from applications import TINY, in_new_interpreter, run_application, text_in, write_pairs
from pytorch_lightning import Trainer

import aiayn
from aiayn.errors import ConfigError
from aiayn.search.translator import Translator


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run that has learned a little; its search takes a few lines at a time."""
    folder = tmp_path_factory.mktemp("run")
    for seed, (split, count) in enumerate({"train": 90, "val": 5, "test": 23}.items()):
        write_pairs(folder / split, count, seed)
    more = ("trainer.max_steps=20", "optim.warmup_steps=5", "search.batch_tokens=60", "name=run")
    return aiayn.train(aiayn.compose(*TINY, *text_in(folder), *more, f"outputs={folder}/outputs"))


def test_evaluation_on_two_devices_writes_the_bytes_of_one(run, warm):
    folder, texts = run.parent.parent, []
    for devices in (1, 2):
        ended = in_new_interpreter(folder, "evaluate.py", f"run={run}", f"devices={devices}", "accelerator=cpu")
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.count("sacrebleu ") == 1, "only the first process speaks"
        texts.append((run / "evaluation/test/hypotheses.txt").read_bytes())
    assert texts[0] == texts[1]
    assert texts[0].count(b"\n") == 23


@pytest.mark.parametrize(
    ("arguments", "out"),
    [(("--sample", "--seed", "2", "--scores"), "out"), (("--markup", "--paragraphs"), None)],
)
def test_a_file_is_translated_on_two_devices_into_the_bytes_of_one_in_its_order(
    run, tmp_path, monkeypatch, warm, arguments, out
):
    lines = (run.parent.parent / "test.en").read_text(encoding="utf-8").split("\n")[:-1]
    text = [*lines, "", *lines[::-1], "<b>two</b> {x}. One five. " * 3]
    (tmp_path / "new.en").write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    code = tmp_path / "command.py"  # the console command
    code.write_text("import sys\nfrom aiayn.cli import main\nsys.exit(main())\n")
    command = ("translate", str(run), "new.en", *arguments)
    one = run_application("aiayn", *command)
    two = in_new_interpreter(tmp_path, str(code), *command, "--devices", "2", *(("--out", out) if out else ()))
    assert (one.code, two.returncode) == (0, 0), two.stderr
    assert (Path(out).read_bytes().decode() if out else two.stdout) == one.out
    assert one.out.count("\n") == len(text)


def test_a_stream_is_not_shared(run):
    ended = run_application("aiayn", "translate", str(run), "--devices", "2")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "--devices 2: for a FILE only" in ended.err


def test_ranks_go_on_with_the_batch_size_of_the_one_whose_memory_ran_out(run, monkeypatch):
    """Each plans the batches by itself: unequal plans would lose lines, or wait for each other for ever."""
    shared = SharedTranslator(Translator.from_run(run), Trainer(accelerator="cpu", logger=False))

    def gather(shares, mine):
        shares[:] = [(mine[0], 33)]

    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
    assert len(shared.n_best(["one two", ""], 1)) == 2
    assert shared.batch_tokens == 33


def test_an_interrupt_stays_one_so_that_shards_say_how_to_go_on(run, monkeypatch):
    shared = SharedTranslator(Translator.from_run(run), Trainer(accelerator="cpu", logger=False))

    def interrupted(*arguments):
        raise KeyboardInterrupt(signal.SIGTERM)

    monkeypatch.setattr("aiayn.search.translator.beam_search", interrupted)
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(KeyboardInterrupt) as raised:
            shared.n_best(["one two"], 1)
    finally:
        signal.signal(signal.SIGINT, before)  # Lightning ignores it from now on
    assert raised.value.args == (signal.SIGTERM,)


def test_in_python_there_is_one_device(run):
    with pytest.raises(ConfigError, match="use aiayn evaluate devices=2"):
        aiayn.evaluate(f"run={run}", "devices=2", "accelerator=cpu")
