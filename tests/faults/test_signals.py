"""A signal at any moment: saved at the end of the step, an exit code that says so, and the command
that continues.
"""

import os
import signal

import pytest
import torch
from applications import slow_but
from faults.harness import acts_at, configured, differences, measured, train

from aiayn.data import datamodule, preparation
from aiayn.runs import checkpoints
from aiayn.runs.run_folder import saved_steps
from aiayn.search.translator import Translator
from aiayn.training import run
from aiayn.training.checkpoint_io import BackgroundWriter
from aiayn.training.module import TranslationModule

TERM = signal.SIGTERM

# Where the signal comes, and the newest step that is saved then.
PHASES = {
    "before the preparation": ((datamodule, "prepare", 1, False), None),
    "after the preparation": ((datamodule, "prepare", 1, True), None),
    "before the first step": ((TranslationModule, "training_step", 1, False), 1),
    "between the micro-batches of a step": ((TranslationModule, "training_step", 9, True), 5),
    "in the last step of an epoch": ((TranslationModule, "training_step", 16, False), 8),
    "in validation": ((TranslationModule, "validation_step", 1, False), 6),
    "in the search of a validation": ((Translator, "translate", 1, False), 6),
    "in the last validation": ((TranslationModule, "validation_step", 3, False), 12),
    "in the last search": ((Translator, "translate", 2, False), 12),
    "while a checkpoint is copied": ((BackgroundWriter, "copied", 3, False), 7),
    "while the last one is written": ((checkpoints, "write_tensors", 9, False), 12),
    "in averaging": ((checkpoints, "average", 1, False), 12),
}


def sends(number, place):
    owner, name, call, after = place
    return acts_at(owner, name, lambda: os.kill(os.getpid(), number), call, after)


@pytest.mark.quick("search of a validation")
@pytest.mark.parametrize("phase", slow_but([*PHASES][2:10:4], PHASES))
def test_a_signal_saves_the_step_and_the_same_command_continues_to_the_bit(
    config, unbroken, tmp_path, phase
):
    place, saved = PHASES[phase]
    end = train(config, tmp_path, sends(TERM, place))
    assert end.code == 143, end.said
    last = end.said.rstrip("\n").split("\n")[-1]
    assert last.startswith("stopped  ")
    assert "; continue with: python" in last
    steps = saved_steps(tmp_path / "run" / "checkpoints") if (tmp_path / "run").exists() else []
    assert (steps[-1] if steps else None) == saved
    end = train(config, tmp_path)
    assert end.code == 0, end.said
    assert without_extra_saves(differences(tmp_path / "run", unbroken)) == []


def without_extra_saves(found):
    """The signal's step has an additional checkpoint, which may displace the optimizer state of
    another.
    """
    return [difference for difference in found if not difference.startswith("files")]


@pytest.mark.quick("2-130")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGHUP, 143), (signal.SIGUSR1, 143)]
)
def test_every_signal_that_asks_for_an_end_gets_it_and_ctrl_c_a_code_of_its_own(
    config, tmp_path, number, code
):
    end = train(config, tmp_path, sends(number, (TranslationModule, "training_step", 7, False)))
    assert end.code == code
    assert saved_steps(tmp_path / "run" / "checkpoints") == [3, 4]
    assert "Traceback" not in end.said


def test_a_run_under_nohup_outlives_its_terminal(config, unbroken, tmp_path):
    def prelude() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        sends(signal.SIGHUP, (TranslationModule, "training_step", 7, False))()

    end = train(config, tmp_path, prelude)
    assert end.code == 0, end.said
    assert differences(tmp_path / "run", unbroken) == []


@pytest.mark.slow
def test_an_abandoned_validation_computes_no_further_batch_and_is_made_up_for(text, tmp_path):
    config = configured(text, "data.max_tokens_per_device=60")
    calls = tmp_path / "calls"

    def prelude() -> None:
        plain = TranslationModule.validation_step

        def counted(self, *arguments):
            with open(calls, "a") as file:
                file.write("x")
            return plain(self, *arguments)

        TranslationModule.validation_step = counted
        sends(TERM, (TranslationModule, "validation_step", 2, False))()

    assert train(config, tmp_path, prelude).code == 143
    assert len(calls.read_text()) == 2
    assert not [record for record in measured(tmp_path / "run") if "val/loss" in record]
    whole = tmp_path / "whole"
    assert train(config, tmp_path).code == train(config, whole).code == 0
    assert without_extra_saves(differences(tmp_path / "run", whole / "run")) == []


@pytest.mark.quick("store_split")
@pytest.mark.parametrize("function", ["learn_tokenizer", "store_split", "write_manifest"])
def test_a_signal_during_preparation_leaves_no_corpus_and_no_run_and_the_next_start_both(
    text, unbroken, tmp_path, function
):
    config = configured(text, f"data.folder={tmp_path}/data")
    end = train(config, tmp_path, sends(TERM, (preparation, function, 1, False)))
    assert end.code == 143, end.said
    assert (
        end.said.rstrip("\n")
        .split("\n")[-1]
        .startswith("stopped  before training; continue with: python")
    )
    assert [path.name for path in (tmp_path / "data").glob("[!.]*")] == []
    assert not (tmp_path / "run").exists()
    assert train(config, tmp_path).code == 0
    assert differences(tmp_path / "run", unbroken) == []


@pytest.mark.slow
def test_a_signal_while_loggers_are_closed_says_what_was_reached(config, unbroken, tmp_path):
    end = train(config, tmp_path, sends(TERM, (run, "close", 1, False)))
    assert end.code == 143, end.said
    assert "stopped  after step 12; continue with: " in end.said
    assert train(config, tmp_path).code == 0
    assert differences(tmp_path / "run", unbroken) == []


@pytest.mark.slow
def test_a_signal_while_a_checkpoint_is_read_is_no_flaw_of_the_checkpoint(
    config, unbroken, tmp_path
):
    assert (
        train(config, tmp_path, sends(TERM, (TranslationModule, "training_step", 14, False))).code
        == 143
    )
    end = train(config, tmp_path, sends(TERM, (torch, "load", 1, False)))
    assert end.code == 143, end.said
    assert "stopped  before training; continue with: " in end.said
    assert train(config, tmp_path).code == 0
    assert without_extra_saves(differences(tmp_path / "run", unbroken)) == []


def test_the_first_of_two_signals_counts_and_neither_harms_the_save(config, tmp_path):
    def prelude() -> None:
        sends(TERM, (TranslationModule, "training_step", 7, False))()
        sends(signal.SIGINT, (checkpoints, "write_tensors", 5, False))()

    assert train(config, tmp_path, prelude).code == 143
    assert checkpoints.load(tmp_path / "run" / "checkpoints" / "last.ckpt").step == 4


@pytest.mark.slow
def test_workers_outlive_a_signal_to_the_whole_process_group(text, unbroken, tmp_path):
    """Schedulers signal every process of a job; the step that is to be saved still needs its
    batches.
    """

    def prelude() -> None:
        os.setpgid(0, 0)
        acts_at(TranslationModule, "training_step", lambda: os.killpg(0, TERM), 7)()

    end = train(configured(text, "data.num_workers=2"), tmp_path, prelude)
    assert end.code == 143, end.said
    assert train(configured(text), tmp_path).code == 0
    assert without_extra_saves(differences(tmp_path / "run", unbroken)) == []
