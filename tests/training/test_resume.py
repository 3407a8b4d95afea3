"""What a run refuses to continue with, option by option, without training anything."""

from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace
from typing import get_args

import pytest

from aiayn.config.rules import options_of
from aiayn.config.schema import Config
from aiayn.config.stored import as_option, flatten, mutable_on_resume, to_dict
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import RefusedError
from aiayn.model.transformer import Transformer
from aiayn.runs import checkpoint_folder, checkpoints
from aiayn.runs.checkpoints import Checkpoint
from aiayn.runs.continuation import check_unchanged, read_options
from aiayn.runs.run_folder import RunFolder
from aiayn.training.resume import load_resume_state


def with_option(config: Config, key: str, value: object) -> Config:
    """The configuration with another value, unchecked: it need not be possible, only different."""
    changed = deepcopy(config)
    section, _, name = key.rpartition(".")
    object.__setattr__(getattr(changed, section) if section else changed, name, value)
    return changed


NULLABLE = [
    key
    for key, option in options_of(Config).items()
    if "." in key and type(None) in get_args(option.type)
]


@pytest.mark.quick("null")
@pytest.mark.parametrize("before", ["null", "as configured"])
def test_a_change_of_any_option_that_defines_the_training_is_refused_with_both_values(
    config, tmp_path, before
):
    started = config
    for key in NULLABLE if before == "null" else ():
        started = with_option(started, key, None)
    folder = RunFolder(tmp_path)
    folder.write_config(started)
    stored = read_options(folder)
    check_unchanged(folder, started, stored)
    for key, old in flatten(to_dict(started)).items():
        now = with_option(
            started, key, "something else" if key != "extension" else {"x": "something else"}
        )
        key, old = ("extension.x", None) if key == "extension" else (key, old)
        if mutable_on_resume(key):
            check_unchanged(folder, now, stored)
        else:
            with pytest.raises(RefusedError) as refused:
                check_unchanged(folder, now, stored)
            assert (
                f"({key}: {as_option(old)} -> something else); give a new run another name="
                in str(refused.value)
            )


def test_a_row_with_other_options_is_told_to_take_another_sweep_as_rows_have_no_name_of_their_own(
    config, tmp_path
):
    stored = replace(config, sweep="rows")
    with pytest.raises(RefusedError, match=r"; give a new sweep another sweep=, or remove that"):
        check_unchanged(RunFolder(tmp_path), replace(stored, seed=5), stored)


def vocabulary(text: str) -> Tokenizer:
    return Tokenizer.train([[text]], 262)


@pytest.fixture
def prepared(config, tmp_path):
    """What the run in `tmp_path` was trained on; its steps have six micro-batches."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    weights = dict(Transformer(config.model, 3).state_dict())
    found = SimpleNamespace(fingerprint="c0ffee" * 4, tokenizer=vocabulary("aba"))
    path = checkpoint_folder.step_path(folder, 4)
    lightning = {"loops": {"fit_loop": {}}, "optimizer_states": [{}], "lr_schedulers": []}
    states = {"format": checkpoints.FORMAT, "module": {}, "lightning": lightning}
    checkpoints.write_tensors(checkpoint_folder.optimizer_path(path), states)
    checkpoints.save(
        path, Checkpoint(4, config, weights, found.tokenizer.to_json(), found.fingerprint, 6, [])
    )
    return found


def test_a_run_continues_on_its_own_corpus_and_vocabulary_and_is_refused_on_others(
    config, tmp_path, prepared
):
    assert load_resume_state(RunFolder(tmp_path), prepared, config).checkpoint.step == 4
    other = SimpleNamespace(fingerprint="decade" * 4, tokenizer=prepared.tokenizer)
    with pytest.raises(
        RefusedError, match=r"started on another text .* now decade.*; give a new run another name="
    ):
        load_resume_state(RunFolder(tmp_path), other, config)
    other = SimpleNamespace(fingerprint=prepared.fingerprint, tokenizer=vocabulary("cdc"))
    assert other.tokenizer.vocab_size == prepared.tokenizer.vocab_size
    with pytest.raises(
        RefusedError, match=r"started with another vocabulary .*; give a new run another name="
    ):
        load_resume_state(RunFolder(tmp_path), other, config)
