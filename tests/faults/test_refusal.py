"""A run continues as it began or not at all; what differs is named with its old and its new
value.
"""

from pathlib import Path

import pytest
from faults.harness import bytes_of, configured, same_weights, train

from aiayn.config.rules import options_of
from aiayn.config.schema import Config
from aiayn.config.stored import flatten, mutable_on_resume, to_dict
from aiayn.runs import checkpoints

# Every harmless option with another value than the harness has. Options of devices are tested with
# two processes.
OTHERWISE = {
    "sweep": "elsewhere",
    "debug": "true",
    "logger.kind": "csv",
    "logger.project": "other",
    "logger.entity": "someone",
    "logger.group": "some",
    "logger.mode": "offline",
    "logger.upload": "true",
    "logger.samples": "true",
    "search.beam_size": "2",
    "search.length_penalty": "0.1",
    "search.penalty": "power",
    "search.max_extra_tokens": "1",
    "search.batch_tokens": "300",
    "search.patience": "0.5",
    "data.test": "null",
    "data.num_workers": "1",
    "data.check_sides": "false",
    "data.write_dropped": "true",
    "data.prepare_per_node": "false",
    "data.prepare_processes": "3",
    "data.max_tokens_per_device": "300",
    "trainer.graphs": "false",
    "trainer.val_every": "5",
    "trainer.val_bleu_sentences": "2",
    "trainer.checkpoint_every": "4",
    "trainer.average_last": "2",
    "trainer.optimizer_state_minutes": "0.5",
    "trainer.log_every": "5",
    "trainer.max_skipped_steps": "3",
    "trainer.timeout": "99",
    "trainer.patience": "9",
    "trainer.best_metric": "val/bleu",
    "trainer.max_epochs": "99",
    "trainer.max_time": "00:09:00:00",
    "trainer.limit_val_batches": "2",
    "trainer.num_sanity_val_steps": "1",
    "trainer.profiler": "simple",
    "trainer.detect_anomaly": "true",
    "trainer.enable_progress_bar": "false",
}
OF_DEVICES = {"trainer.accelerator", "trainer.devices", "trainer.num_nodes", "trainer.strategy"}
OF_PLACE_AND_LENGTH = {
    "optimized_metric",
    "name",
    "outputs",
    "extensions",
    "data.folder",
    "trainer.max_steps",
    "trainer.fast_dev_run",
}  # continued elsewhere, and to other ends


@pytest.mark.slow
def test_the_harmless_options_may_change_all_at_once_and_leave_every_bit(
    text, config, killed_at, unbroken, tmp_path
):
    harmless = {key for key in options_of(Config) if mutable_on_resume(key)}
    assert harmless == set(OTHERWISE) | OF_DEVICES | OF_PLACE_AND_LENGTH
    other = configured(
        text,
        *(f"{key}={value}" for key, value in OTHERWISE.items()),
        f"data.folder={tmp_path}/data",
    )
    now, before = flatten(to_dict(other)), flatten(to_dict(config))
    assert {key for key in now if now[key] != before[key]} == {*OTHERWISE, "data.folder"}
    killed_at(9)
    end = train(other, tmp_path)
    assert end.code == 0, end.said
    assert same_weights(tmp_path / "run", unbroken)


@pytest.fixture
def begun(killed_at) -> Path:
    """The folder of a run that has saved steps 3 and 6."""
    return killed_at(13)


def assert_refused(config, folder, *said):
    (folder / ".lock").unlink(missing_ok=True)  # of the process that was killed
    before = bytes_of(folder)
    end = train(config, folder.parent)
    assert end.code == 4, end.said
    last = end.said.rstrip("\n").split("\n")[-1]
    assert last.startswith("error: ")
    for part in said:
        assert part in last
    assert bytes_of(folder) == before, "a refusal changes nothing"


def test_weights_of_3_heads_are_not_continued_with_2_although_they_fit(text, begun):
    """Neither by the run's config.yaml nor, where it is gone, by the checkpoint's own
    configuration.
    """
    other = configured(text, "model.n_heads=4")
    assert_refused(other, begun, "(model.n_heads: 2 -> 4)")
    (begun / "config.yaml").unlink()
    assert_refused(other, begun, "(model.n_heads: 2 -> 4)")


@pytest.mark.quick("model")
@pytest.mark.parametrize(
    "content", ["", "- 1\n", "model: {", "!!python/object/apply:os.getcwd []\n"]
)
def test_a_run_whose_options_cannot_be_read_is_refused_and_its_checkpoints_know_them(
    config, begun, unbroken, content
):
    (begun / "config.yaml").write_text(content)
    assert_refused(config, begun, "config.yaml: cannot be read as the run's options; remove it")
    (begun / "config.yaml").unlink()
    assert train(config, begun.parent).code == 0
    assert same_weights(begun, unbroken)


@pytest.mark.slow
def test_a_lower_end_than_was_reached_averages_what_there_is_and_then_is_finished(text, begun):
    shorter = configured(text, "trainer.max_steps=4", "trainer.limit_val_batches=1")
    end = train(shorter, begun.parent)
    assert end.code == 0, end.said
    assert "warning  trainer.limit_val_batches: 1.0 -> 1: validations now use other" in end.said
    assert checkpoints.load(begun / "checkpoints" / "averaged.ckpt").averaged == [3, 6]
    assert "already finished at step 6" in train(shorter, begun.parent).said
