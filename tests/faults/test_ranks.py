"""Two processes on one run: they stop, save, continue and fail together, and neither waits for the
other for ever.
"""

import math
import os
import re
import signal
import time
from dataclasses import replace
from itertools import product

import pytest
import range_attention_on_cpu  # noqa: F401 - computes packed sentences here
import torch
from applications import slow_but
from faults.harness import (
    LIMIT,
    acts_at,
    configured,
    dies_at,
    differences,
    measured,
    same_weights,
    start_ranks,
    train,
    wait_until,
    within,
)
from pytorch_lightning.strategies import DDPStrategy
from torch import distributed

from aiayn.data import datamodule
from aiayn.runs import checkpoint_folder
from aiayn.runs.run_folder import saved_steps
from aiayn.search.translator import Translator
from aiayn.training import run
from aiayn.training.callbacks.checkpoint_saver import CheckpointSaver
from aiayn.training.distributed import failures
from aiayn.training.distributed.ranks import ControlGroup
from aiayn.training.graphed import GraphedModule
from aiayn.training.module import TranslationModule
from aiayn.training.start import StepForm

TERM = signal.SIGTERM


@pytest.fixture(scope="module")
def pair(text):
    return configured(text, "trainer.devices=2", "trainer.timeout=120")


@pytest.fixture(scope="module")
def whole(pair, tmp_path_factory):
    """An undisturbed run on two processes."""
    outputs = tmp_path_factory.mktemp("pair")
    assert codes(pair, outputs) == [0, 0]
    return outputs / "run"


def codes(config, outputs, preludes=None):
    return [end.code for end in ends(config, outputs, preludes)]


def ends(config, outputs, preludes=None):
    with within():
        return [child.wait() for child in start_ranks(config, outputs, preludes)]


def as_graphs() -> None:
    """A prelude: steps in the form of a GPU, whose ranks add up one tensor of all gradients."""
    run.step_form = lambda *_: StepForm(None, "not asked for", None)


def test_ranks_that_add_up_their_own_gradients_train_like_one(config, pair, tmp_path):
    def with_other_weights() -> None:  # until it is given those of the first rank
        as_graphs()
        make_module = run.make_module

        def make_other_module(*arguments):
            module = make_module(*arguments)
            torch.nn.init.normal_(module.model.embedding.weight)
            return module

        run.make_module = make_other_module

    assert train(config, tmp_path / "one", as_graphs).code == 0
    assert codes(pair, tmp_path / "two", {0: as_graphs, 1: with_other_weights}) == [0, 0]
    assert same_weights(tmp_path / "two/run", tmp_path / "one/run")


@pytest.mark.slow
def test_a_killed_one_of_ranks_that_add_up_their_own_gradients_ends_the_other(pair, tmp_path):
    def dies() -> None:
        as_graphs()
        dies_at(GraphedModule, "training_step", 8)()

    both = dict.fromkeys((0, 1), as_graphs)
    assert codes(pair, tmp_path / "whole", both) == [0, 0]
    outcome = ends(pair, tmp_path / "killed", {0: as_graphs, 1: dies})
    assert [end.code for end in outcome] == [6, -signal.SIGKILL], outcome[0].said
    assert "error: no answer from rank 1 of 2 after step 7" in outcome[0].said
    assert codes(pair, tmp_path / "killed", both) == [0, 0]
    assert differences(tmp_path / "killed/run", tmp_path / "whole/run") == []


def signals(place, *arguments):
    owner, name = place
    return acts_at(owner, name, lambda: os.kill(os.getpid(), TERM), *arguments)


def test_two_processes_train_to_the_weights_of_one_to_the_bit(whole, unbroken):
    assert same_weights(whole, unbroken)
    for name in ("train/loss", "val/loss", "val/bleu"):
        mine, theirs = ([r[name] for r in measured(run) if name in r] for run in (whole, unbroken))
        assert mine == pytest.approx(theirs, abs=1e-6)


@pytest.mark.slow
def test_killed_together_they_continue_to_the_bit(pair, whole, tmp_path):
    dies = dies_at(TranslationModule, "training_step", 8)
    assert codes(pair, tmp_path, {0: dies, 1: dies}) == [-signal.SIGKILL] * 2
    assert codes(pair, tmp_path) == [0, 0]
    assert differences(tmp_path / "run", whole) == []


@pytest.mark.slow
def test_with_an_optimizer_state_that_is_saved_by_time_a_killed_run_continues_to_the_bit(
    text, whole, tmp_path
):
    """At the first checkpoint and at the last, as all ranks agree."""
    config = configured(
        text, "trainer.devices=2", "trainer.timeout=120", "trainer.optimizer_state_minutes=1000"
    )

    def with_a_large_state():
        CheckpointSaver.SMALL = 0

    def then_killed():
        with_a_large_state()
        dies_at(TranslationModule, "training_step", 8)()

    assert codes(config, tmp_path, dict.fromkeys((0, 1), then_killed)) == [-signal.SIGKILL] * 2
    found = ends(config, tmp_path, dict.fromkeys((0, 1), with_a_large_state))
    assert "continued at step 3" in found[0].said
    assert same_weights(tmp_path / "run", whole)


@pytest.mark.slow
@pytest.mark.parametrize("before", [1, 2])
def test_a_run_goes_on_with_another_number_of_processes_to_the_bit(
    config, pair, unbroken, tmp_path, before
):
    # After an odd step, 3
    dies = dies_at(TranslationModule, "training_step", 9 if before == 1 else 5)
    if before == 1:
        assert train(config, tmp_path, dies).code == -signal.SIGKILL
        assert codes(pair, tmp_path) == [0, 0]
    else:
        assert codes(pair, tmp_path, {0: dies, 1: dies}) == [-signal.SIGKILL] * 2
        assert train(config, tmp_path).code == 0
    assert checkpoint_folder.step_path(tmp_path / "run" / "checkpoints", 6).exists()
    assert same_weights(tmp_path / "run", unbroken)


STOPS = [
    {5: ((TranslationModule, "training_step"), 5), 6: ((TranslationModule, "validation_step"), 1)},
    {6: ((Translator, "translate"), 1)},
]


@pytest.mark.parametrize(
    ("stops", "ranks"),
    slow_but(
        [(STOPS[0], (0, 1))],
        product(STOPS, [(0,), (1,), (0, 1)]),
    ),
)
def test_a_signal_to_any_of_them_stops_all_at_one_step(pair, whole, tmp_path, ranks, stops):
    for saved, (place, call) in stops.items():
        first, second = ends(pair, tmp_path, {rank: signals(place, call) for rank in ranks})
        assert (first.code, second.code) == (143, 0), first.said + second.said
        assert f"stopped  saved at step {saved}; continue with: " in first.said
        assert second.said == ""
        assert saved_steps(tmp_path / "run" / "checkpoints")[-1] == saved
    assert codes(pair, tmp_path) == [0, 0]
    assert same_weights(tmp_path / "run", whole)
    assert measured(tmp_path / "run") == measured(whole)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [(0,), (1,), (0, 1)])
def test_a_signal_that_comes_while_they_are_agreeing_counts_from_the_next_step_on(
    pair, whole, tmp_path, ranks
):
    # They agree twice before the first step
    preludes = {rank: signals((ControlGroup, "max_over_ranks"), 6, True) for rank in ranks}
    first, second = ends(pair, tmp_path, preludes)
    assert (first.code, second.code) == (143, 0), first.said + second.said
    assert "stopped  saved at step 5; continue with: " in first.said
    assert codes(pair, tmp_path) == [0, 0]
    assert same_weights(tmp_path / "run", whole)


@pytest.mark.quick("1")
@pytest.mark.parametrize("lost", [0, 1])
def test_a_process_that_dies_ends_the_other_which_names_it(pair, whole, tmp_path, lost):
    # It is not the time-out that ends the other one: `ends` would not wait for that.
    patient = replace(pair, trainer=replace(pair.trainer, timeout=10 * int(LIMIT)))
    outcome = ends(patient, tmp_path, {lost: dies_at(TranslationModule, "training_step", 8)})
    assert outcome[lost].code == -signal.SIGKILL
    other = outcome[1 - lost]
    assert other.code == 6, other.said
    assert f"error: no answer from rank {lost} of 2 after step 7" in other.said
    assert "Traceback" not in other.said
    assert codes(pair, tmp_path) == [0, 0]
    assert differences(tmp_path / "run", whole) == []


@pytest.mark.quick("1")
@pytest.mark.parametrize("stuck", [0, 1])
def test_a_stopped_process_ends_the_other_within_the_timeout(text, tmp_path, stuck):
    config = configured(text, "trainer.devices=2", "trainer.timeout=6")
    stops = acts_at(
        TranslationModule, "training_step", lambda: os.kill(os.getpid(), signal.SIGSTOP), 8
    )
    with within():
        children = start_ranks(config, tmp_path, {stuck: stops})
        end = children[1 - stuck].wait()
        children[stuck].send(signal.SIGKILL)
        children[stuck].wait()
    assert end.code == 6, end.said
    assert f"no answer from rank {stuck} of 2" in end.said
    assert "trainer.timeout=6 seconds" in end.said


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [(0,), (1,), (0, 1)])
def test_a_signal_before_the_ranks_are_connected_ends_all_and_loses_nothing(
    pair, whole, tmp_path, ranks
):
    config = replace(pair, trainer=replace(pair.trainer, timeout=2))
    outcome = ends(
        config, tmp_path, {rank: signals((datamodule, "prepare"), 1, True) for rank in ranks}
    )
    for rank, end in enumerate(outcome):
        assert end.code == (143 if rank in ranks else 6), end.said
        assert "Traceback" not in end.said
    if 0 in ranks:
        assert "stopped  before training; continue with: " in outcome[0].said
    if ranks == (0,):
        assert (
            "error: rank 0 of 2 did not answer within trainer.timeout=2 seconds" in outcome[1].said
        )
    if ranks == (1,):
        assert "error: only 1 of 2 ranks joined within trainer.timeout=2 seconds" in outcome[0].said
    assert codes(pair, tmp_path) == [0, 0]
    assert differences(tmp_path / "run", whole) == []


@pytest.mark.slow
def test_a_signal_while_one_waits_for_the_others_stops_all_before_the_first_step(
    pair, whole, tmp_path
):
    """The first process is inside a call that no handler interrupts until the second one joins."""
    waits, signalled = tmp_path / "waits", tmp_path / "signalled"

    def second_is_late() -> None:
        acts_at(run, "make_trainer", lambda: wait_until(signalled.exists))()

    def first_waits() -> None:
        acts_at(distributed, "init_process_group", waits.touch)()

    with within():
        children = start_ranks(pair, tmp_path, {0: first_waits, 1: second_is_late})
        wait_until(waits.exists)
        children[0].send(TERM)
        signalled.touch()
        first, second = [child.wait() for child in children]
    assert (first.code, second.code) == (143, 0), first.said + second.said
    assert "stopped  before training; continue with: " in first.said
    assert not saved_steps(tmp_path / "run" / "checkpoints")
    assert codes(pair, tmp_path) == [0, 0]
    assert differences(tmp_path / "run", whole) == []


@pytest.mark.slow
def test_under_slurm_its_signal_to_every_task_saves_one_step_and_the_job_continues(
    pair, whole, tmp_path
):
    def as_task(rank, prelude=lambda: None):
        def set_up() -> None:
            for name in ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE"):
                del os.environ[name]
            os.environ.update(
                SLURM_NTASKS="2", SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank), SLURM_NODEID="0"
            )
            os.environ.update(
                SLURM_JOB_ID="4711",
                SLURM_JOB_NAME="train",
                SLURM_NTASKS_PER_NODE="2",
                SRUN_DEBUG="3",
            )
            prelude()

        return set_up

    usr1 = acts_at(
        TranslationModule, "training_step", lambda: os.kill(os.getpid(), signal.SIGUSR1), 5
    )
    first, second = ends(pair, tmp_path, {rank: as_task(rank, usr1) for rank in (0, 1)})
    assert (first.code, second.code) == (143, 0), first.said + second.said
    assert "stopped  saved at step 5; continue with: " in first.said
    assert [end.code for end in ends(pair, tmp_path, {rank: as_task(rank) for rank in (0, 1)})] == [
        0,
        0,
    ]
    assert same_weights(tmp_path / "run", whole)
    assert measured(tmp_path / "run") == measured(whole)


def test_a_loss_of_nan_on_one_of_them_is_seen_by_both(pair, tmp_path):
    def spoils() -> None:
        plain, calls = TranslationModule.training_loss, [0]

        def spoiled(self, *arguments):
            calls[0] += 1
            return plain(self, *arguments) * (math.nan if calls[0] == 5 else 1)

        TranslationModule.training_loss = spoiled

    first, second = ends(pair, tmp_path, {1: spoils})
    assert (first.code, second.code) == (5, 0), first.said + second.said
    assert "NaN or infinite at step 5" in first.said
    assert saved_steps(tmp_path / "run" / "checkpoints") == [3]


@pytest.mark.slow
def test_a_save_between_two_log_lines_leaves_the_logged_loss_as_it_is(text, tmp_path):
    """Saving sums the running loss over the ranks, and must not sum it in place."""
    curves = []
    for devices in (1, 2):
        config = configured(
            text, f"trainer.devices={devices}", "trainer.log_every=4", "trainer.val_every=99"
        )
        outputs = tmp_path / str(devices)
        assert codes(config, outputs) == [0] * devices
        curves.append(
            {r["step"]: r["train/loss"] for r in measured(outputs / "run") if "train/loss" in r}
        )
    assert sorted(curves[0]) == [4, 8, 12]
    assert curves[1] == pytest.approx(curves[0], abs=1e-5)


@pytest.mark.slow
def test_a_rank_whose_shutdown_hangs_after_an_error_ends_all_the_same(pair, whole, tmp_path):
    def fails() -> None:
        raise ValueError("planted")

    def fails_and_hangs() -> None:
        failures.SHUTDOWN = 1.0
        DDPStrategy.teardown = lambda self: time.sleep(1000)
        acts_at(TranslationModule, "training_step", fails, 8)()

    first, second = ends(pair, tmp_path, {1: fails_and_hangs})
    assert (first.code, second.code) == (6, 1), first.said + second.said
    assert "error: no answer from rank 1 of 2 after step 7" in first.said
    assert second.said == "error: planted\n"
    assert codes(pair, tmp_path) == [0, 0]
    assert differences(tmp_path / "run", whole) == []


@pytest.mark.slow
def test_a_lost_process_is_named_though_the_shutdown_of_the_other_waits_for_it_for_ever(
    pair, tmp_path
):
    """As behind a kernel of NCCL, in which copies to the host wait for a rank of another
    machine.
    """

    def hangs() -> None:
        DDPStrategy.teardown = lambda self: time.sleep(1000)

    first, _ = ends(pair, tmp_path, {0: hangs, 1: dies_at(TranslationModule, "training_step", 8)})
    assert first.code == 6, first.said
    assert "error: no answer from rank 1 of 2 after step 7" in first.said
    assert "Traceback" not in first.said


@pytest.mark.slow
def test_one_message_says_which_batch_did_not_fit_on_one_of_them(pair, tmp_path):
    def fails() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    outcome = ends(pair, tmp_path, {1: acts_at(TranslationModule, "training_loss", fails, 8)})
    assert [end.code for end in outcome] == [6, 6], outcome[0].said + outcome[1].said
    said = "".join(end.said for end in outcome)
    assert said.count("error: ") == 1
    batch, tokens = re.search(r"in a batch of (.*) target tokens: .* below (\d+),", said).groups()
    sides = [math.prod(map(int, re.findall(r"\d+", side))) for side in batch.split(" source and ")]
    assert int(tokens) == max(sides)


@pytest.mark.slow
def test_two_processes_train_a_compiled_model(text, tmp_path):
    config = configured(text, "trainer.devices=2", "trainer.compile=true", "trainer.max_steps=2")
    with within(600):
        outcome = [child.wait() for child in start_ranks(config, tmp_path)]
    assert [end.code for end in outcome] == [0, 0], outcome[0].said
