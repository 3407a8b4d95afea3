"""What a continued run holds in main memory before its first step."""

import os
import signal
from pathlib import Path

import pytest
from faults.harness import configured, start, write_splits

from aiayn.training import run
from aiayn.training.module import TranslationModule


def of_this_process(what: str) -> int:
    """Bytes that it holds (VmRSS), or the most that it has held (VmHWM)."""
    lines = Path("/proc/self/status").read_text("utf-8").split("\n")
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(what))


@pytest.mark.slow
def test_weights_and_optimizer_state_are_in_memory_once_when_the_first_step_begins(tmp_path):
    """The model's own parameters, and what was read: its weights, and two moments of each."""
    options = "model.positions=learned", "model.max_positions=600000", "trainer.max_steps=3"
    config = configured(write_splits(tmp_path), *options)
    size = 2 * 600_000 * config.model.d_model * 4
    taken = tmp_path / "taken"

    def stops_in_its_second_step() -> None:
        plain = TranslationModule.training_step
        calls = iter(range(99))

        def step(self, *arguments):
            if next(calls) == 1:
                os.kill(os.getpid(), signal.SIGTERM)
            return plain(self, *arguments)

        TranslationModule.training_step = step

    def measures_up_to_its_first_step() -> None:
        plain, before = run.load_resume_state, []

        def load(*arguments):
            before.append(of_this_process("VmRSS"))
            return plain(*arguments)

        def step(self, *arguments):
            taken.write_text(str(of_this_process("VmHWM") - before[0]), "utf-8")
            os._exit(0)

        run.load_resume_state, TranslationModule.training_step = load, step

    first = start(config, tmp_path, stops_in_its_second_step).wait()
    assert first.code == 143, first.said
    second = start(config, tmp_path, measures_up_to_its_first_step).wait()
    assert second.code == 0, second.said
    assert int(taken.read_text("utf-8")) < 4.4 * size
