"""Files that are whole or refused, that never run code, and means of weights."""

import errno
import fcntl
import hashlib
import json
import logging
import math
import os
import pickle
import random
import re
import resource
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from applications import composed, composed_options

from aiayn.config.stored import to_dict
from aiayn.errors import ConfigError, RefusedError, ResourceError, one_line_errors, writing
from aiayn.files import atomic_write, host
from aiayn.model.transformer import Transformer
from aiayn.runs import checkpoint_folder, checkpoints
from aiayn.runs.checkpoints import Checkpoint
from aiayn.runs.run_folder import RunFolder, find_checkpoint, folder_of, saved_steps
from aiayn.search.build import load_model


@pytest.fixture(scope="session")
def original(tiny_config) -> Checkpoint:
    config = replace(composed("experiment=quickstart"), model=tiny_config)
    return Checkpoint(
        step=1500,
        config=config,
        weights=dict(Transformer(tiny_config, 17).state_dict()),
        tokenizer=json.dumps(
            {"model": {"vocab": {f"Grüße{number}": number for number in range(17)}}},
            ensure_ascii=False,
        ),
        corpus="c0ffee",
        micro_batches=3,
        averaged=[],
    )


def with_weights(checkpoint: Checkpoint, step: int, seed: int) -> Checkpoint:
    generator = torch.Generator().manual_seed(seed)
    weights = {
        name: torch.randn(w.shape, generator=generator) for name, w in checkpoint.weights.items()
    }
    return replace(checkpoint, step=step, weights=weights)


def assert_equal(found: Checkpoint, expected: Checkpoint) -> None:
    apart = {"weights": None, "path": None}
    assert vars(found) | apart == vars(expected) | apart
    assert found.weights.keys() == expected.weights.keys()
    for name, weight in found.weights.items():
        assert torch.equal(weight, expected.weights[name])
        assert weight.dtype == expected.weights[name].dtype


def states(**more) -> dict:
    lightning = {"loops": {}, "optimizer_states": [{}]}
    return {"format": checkpoints.FORMAT, "module": {}, "lightning": lightning} | more


def fill(folder: Path, original: Checkpoint, *steps: int) -> None:
    for step in steps:
        path = checkpoint_folder.step_path(folder, step)
        checkpoints.write_tensors(
            checkpoint_folder.optimizer_path(path),
            states(moments=torch.full((3,), step)),
        )
        checkpoints.save(path, with_weights(original, step, seed=step))


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(content)


# One file.

OPEN = (
    "data=files",
    "data.train=x",
    "data.val=x",
    "data.vocab_size=null",
    "trainer.max_steps=null",
)


def test_what_is_saved_is_what_is_loaded_and_saving_that_gives_the_same_bytes(original, tmp_path):
    checkpoints.save(tmp_path / "a.ckpt", original)
    loaded = checkpoints.load(tmp_path / "a.ckpt")
    assert_equal(loaded, original)
    assert loaded.vocab_size == 17
    checkpoints.save(tmp_path / "b.ckpt", loaded)
    assert (tmp_path / "a.ckpt").read_bytes() == (tmp_path / "b.ckpt").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.ckpt", "b.ckpt"]


def test_an_outline_has_keys_types_and_shapes_and_takes_no_room(tmp_path):
    state = {"step": 7, "moments": {0: torch.ones(500, 600), 1: torch.ones(3, dtype=torch.int64)}}
    checkpoints.write_outline(tmp_path / "a.optim", state)
    outline = checkpoints.read_tensors(tmp_path / "a.optim", just_written=True)
    assert outline["step"] == 7
    assert [(moment.shape, moment.dtype) for moment in outline["moments"].values()] == [
        ((500, 600), torch.float32),
        ((3,), torch.int64),
    ]
    assert 512 * (tmp_path / "a.optim").stat().st_blocks < 4 * 500 * 600


def test_a_file_for_this_process_alone_has_no_checksum_and_is_read_by_it(original, tmp_path):
    checkpoints.save(tmp_path / "a.ckpt", original, kept=False)
    assert_equal(checkpoints.load(tmp_path / "a.ckpt", just_written=True), original)
    with pytest.raises(RefusedError, match="no checksum"):
        checkpoints.load(tmp_path / "a.ckpt")


def test_options_that_were_never_resolved_are_refused(original, tmp_path):
    checkpoints.save(
        tmp_path / "a.ckpt", replace(original, config=composed_options(*OPEN, "name=x"))
    )

    with pytest.raises(
        RefusedError,
        match=r"unset options: .*data\.vocab_size.*trainer\.val_every; it was written by",
    ):
        checkpoints.load(tmp_path / "a.ckpt")


def test_plain_torch_reads_the_file_without_running_or_trusting_anything(original, tmp_path):
    checkpoints.save(tmp_path / "a.ckpt", original)
    stored = torch.load(tmp_path / "a.ckpt", weights_only=True)
    assert torch.equal(stored["weights"]["embedding.weight"], original.weights["embedding.weight"])
    assert stored["config"] == to_dict(original.config)
    assert zipfile.ZipFile(tmp_path / "a.ckpt").testzip() is None


def test_every_flipped_bit_is_noticed(original, tmp_path):
    path = tmp_path / "a.ckpt"
    checkpoints.save(path, original)
    content = path.read_bytes()
    draw = random.Random(0)
    anywhere = [draw.randrange(len(content)) for _ in range(60)]
    checksum = range(len(content) - 100, len(content))
    for place in [*anywhere, *checksum]:
        bit = draw.randrange(8)
        path.write_bytes(
            content[:place] + bytes([content[place] ^ (1 << bit)]) + content[place + 1 :]
        )
        with pytest.raises(RefusedError, match=r"a\.ckpt: (damaged|written in format)"):
            checkpoints.load(path)


def test_every_truncated_emptied_overwritten_or_missing_file_is_refused(original, tmp_path):
    path = tmp_path / "a.ckpt"
    checkpoints.save(path, original)
    content = path.read_bytes()
    draw = random.Random(0)
    cuts = [0, 1, 21, 22, 71, 93, len(content) - 1, len(content) - 71, len(content) - 93]
    broken = [content[:cut] for cut in cuts + [draw.randrange(len(content)) for _ in range(50)]]
    broken += [
        content[:-4096] + bytes(4096),
        content + b"\n",
        content * 2,
        b"<html>not found</html>" * 99,
    ]
    for stump in broken:
        path.write_bytes(stump)
        with pytest.raises(RefusedError, match=r"a\.ckpt: damaged"):
            checkpoints.load(path)
    path.unlink()
    with pytest.raises(RefusedError, match=r"a\.ckpt: cannot be read \(No such file"):
        checkpoints.load(path)


def test_other_formats_and_files_that_hold_no_model_are_refused_by_name(tmp_path):
    checkpoints.write_tensors(tmp_path / "a.ckpt", {"format": 99})
    with pytest.raises(
        RefusedError, match=r"a\.ckpt: written in format 99, this program reads format 1"
    ):
        checkpoints.read_tensors(tmp_path / "a.ckpt")
    checkpoints.write_tensors(tmp_path / "a.optim", {"format": checkpoints.FORMAT, "step": 3})
    with pytest.raises(RefusedError, match=r"a\.optim: not a model \(it lacks averaged, config"):
        checkpoints.load(tmp_path / "a.optim")


def test_a_checkpoint_with_other_options_than_this_program_has_is_refused_by_name(
    original, tmp_path
):
    payload = {"format": checkpoints.FORMAT, **vars(original), "config": to_dict(original.config)}
    payload["config"]["model"]["norm"] = "pre"
    checkpoints.write_tensors(tmp_path / "a.ckpt", payload)
    with pytest.raises(RefusedError, match=r"a\.ckpt: .*norm"):
        checkpoints.load(tmp_path / "a.ckpt")


def test_a_file_that_another_replaces_while_it_is_read_is_read_whole(tmp_path, monkeypatch):
    for name, step in (("old", 3), ("new", 44)):
        payload = {"format": checkpoints.FORMAT, "step": step, "weight": torch.arange(step)}
        checkpoints.write_tensors(tmp_path / name, payload)

    def open_and_replace(path, mode):
        try:
            return open(path, mode)
        finally:
            os.replace(tmp_path / "new", path)

    monkeypatch.setattr(checkpoints, "open", open_and_replace, raising=False)
    assert checkpoints.read_tensors(tmp_path / "old")["step"] == 3


# Files made to run code.


class Evil:
    """Unpickling this writes a file."""

    def __init__(self, sentinel: Path):
        self.sentinel = sentinel

    def __reduce__(self):
        return exec, (f"open({str(self.sentinel)!r}, 'w').close()",)


class FromHub:
    def __reduce__(self):
        return torch.hub.load, ("nobody/nothing", "model")


def sealed(archive: bytes) -> bytes:
    """The archive with the checksum that the program itself would give it."""
    if archive[-22:-18] != b"PK\x05\x06":
        archive += b"PK\x05\x06" + bytes(18)
    comment = b"sha256:" + hashlib.sha256(archive).hexdigest().encode()
    return archive[:-2] + struct.pack("<H", len(comment)) + comment


def torch_archive(content: object, **options) -> bytes:
    buffer = BytesIO()
    torch.save(content, buffer, **options)
    return buffer.getvalue()


def with_pickle_swapped(archive: bytes, evil: object) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(BytesIO(archive)) as old, zipfile.ZipFile(buffer, "w") as new:
        for name in old.namelist():
            new.writestr(
                name, pickle.dumps(evil, 2) if name.endswith("data.pkl") else old.read(name)
            )
    return buffer.getvalue()


def tar(evil: object) -> bytes:
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in ("sys_info", "pickle", "storages", "tensors"):
            content = pickle.dumps(evil, 2)
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, BytesIO(content))
    return buffer.getvalue()


ATTACKS: dict[str, Callable[[Evil], bytes]] = {
    "pickle": lambda evil: pickle.dumps(evil, 2),
    "archive": lambda evil: torch_archive({"format": 1, "step": evil}),
    "nested": lambda evil: torch_archive(
        {"format": 1, "weights": {"a": [{"b": (torch.ones(2), evil)}]}}
    ),
    "legacy": lambda evil: torch_archive(
        {"format": 1, "step": evil}, _use_new_zipfile_serialization=False
    ),
    "swapped": lambda evil: with_pickle_swapped(torch_archive({"format": 1}), evil),
    "tar": tar,
    "hub": lambda evil: torch_archive({"format": 1, "step": FromHub()}),
    "not a mapping": lambda evil: torch_archive([1, 2]),
    "not an archive": lambda evil: b"nothing",
}


@pytest.mark.parametrize("seal", [False, True])
@pytest.mark.parametrize("attack", ATTACKS)
def test_files_made_to_run_code_are_refused_and_run_none_not_even_with_the_right_checksum(
    attack, seal, tmp_path
):
    content = ATTACKS[attack](Evil(tmp_path / "sentinel"))
    path = tmp_path / "a.ckpt"
    path.write_bytes(sealed(content) if seal else content)
    with pytest.raises(RefusedError, match=r"a\.ckpt: ") as refusal:
        checkpoints.load(path)
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "sentinel").exists()


def test_the_attacks_above_are_real(tmp_path):
    torch.load(BytesIO(ATTACKS["nested"](Evil(tmp_path / "sentinel"))), weights_only=False)
    assert (tmp_path / "sentinel").exists()


# A right checksum says that a file is whole, not what it holds.


def changed(original: Checkpoint, **fields) -> dict:
    payload = {"format": checkpoints.FORMAT, **vars(original), "config": to_dict(original.config)}
    return payload | fields


def a_list_that_contains_itself() -> list:
    values: list = [torch.ones(3)]
    values.append(values)
    return values


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"weights": [torch.ones(3)]}, "weights are not a table of tensors by name"),
        ({"weights": {7: torch.ones(3)}}, "weights are not a table of tensors by name"),
        ({"weights": {"w": [1.0]}}, "the weight w is not a plain tensor"),
        ({"weights": {"w": torch.ones(3).to_sparse()}}, "the weight w is not a plain tensor"),
        ({"weights": {"w": torch.ones(3, device="meta")}}, "the weight w is not a plain tensor"),
        ({"tokenizer": "{"}, "tokenizer is not tokenizer JSON"),
        ({"tokenizer": "[" * 100_000}, "tokenizer is not tokenizer JSON"),
        ({"tokenizer": '{"model": {"vocab": 3}}'}, "tokenizer is not tokenizer JSON"),
        ({"tokenizer": ["a"]}, "tokenizer is not tokenizer JSON"),
        ({"corpus": 3}, "corpus is not a fingerprint"),
        ({"step": "1500"}, "step is not a count"),
        ({"step": -1}, "step is not a count"),
        ({"micro_batches": 2**31}, "micro_batches is not a count"),
        ({"averaged": ["10"]}, "averaged is not a list of steps"),
        ({"averaged": [-1]}, "averaged is not a list of steps"),
        ({"averaged": [10**400]}, "averaged is not a list of steps"),
        ({"averaged": a_list_that_contains_itself()}, "averaged is not a list of steps"),
    ],
)
def test_a_whole_file_with_other_content_than_a_model_is_refused_in_a_line(
    fields, fault, original, tmp_path
):
    checkpoints.write_tensors(tmp_path / "a.ckpt", changed(original, **fields))

    with pytest.raises(RefusedError, match=rf"a\.ckpt: not a model of this program \({fault}\)"):
        checkpoints.load(tmp_path / "a.ckpt")


def test_a_file_that_would_take_many_times_its_size_is_refused_before_it_does(original, tmp_path):
    path, huge = tmp_path / "a.ckpt", torch.ones(1, dtype=torch.bfloat16).expand(2**33)
    checkpoints.write_tensors(path, changed(original, weights={"w": huge}))
    with pytest.raises(RefusedError, match=r"a\.ckpt: .* would take 17,179\.\d MB of memory"):
        checkpoints.load(path)

    compressed = BytesIO()
    archive = torch_archive(changed(original, weights={"w": torch.zeros(2**22)}))
    with (
        zipfile.ZipFile(BytesIO(archive)) as stored,
        zipfile.ZipFile(compressed, "w", zipfile.ZIP_DEFLATED) as smaller,
    ):
        for name in stored.namelist():
            smaller.writestr(name, stored.read(name))
    path.write_bytes(sealed(compressed.getvalue()))
    with pytest.raises(RefusedError, match=r"a\.ckpt: .* would take 16\.\d MB of memory"):
        checkpoints.load(path)


def test_a_weight_of_up_to_four_names_is_stored_once_and_read_under_each(original, tmp_path):
    shared = torch.arange(30_000.0)
    tied = replace(original, weights=dict.fromkeys("abcd", shared))
    checkpoints.save(tmp_path / "a.ckpt", tied)

    assert (tmp_path / "a.ckpt").stat().st_size < 2 * shared.nbytes
    assert_equal(checkpoints.load(tmp_path / "a.ckpt"), tied)

    checkpoints.save(tmp_path / "a.ckpt", replace(original, weights=dict.fromkeys("abcde", shared)))
    with pytest.raises(RefusedError, match=r"would take 0\.6 MB of memory"):
        checkpoints.load(tmp_path / "a.ckpt")


def test_a_model_much_larger_than_its_weights_is_refused_before_it_is_built(original):
    sizes = replace(original.config.model, d_model=2**20, d_ff=2**20)
    larger = replace(original, config=replace(original.config, model=sizes))

    with pytest.raises(
        RefusedError, match=r"step 1500 has [\d,]+ parameters, but its configuration"
    ):
        load_model(larger)


def test_control_characters_of_a_file_do_not_reach_the_terminal(original, tmp_path, capsys):
    payload = changed(original, weights={"\x1b[2J\nw\x9b": [1.0]})
    checkpoints.write_tensors(tmp_path / "a.ckpt", payload)

    with pytest.raises(SystemExit) as end, one_line_errors():
        checkpoints.load(tmp_path / "a.ckpt")
    assert end.value.code == RefusedError.exit_code
    assert r"the weight \x1b[2J\nw\x9b is not a plain tensor" in capsys.readouterr().err


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_weights_that_would_be_rounded_to_other_numbers_are_refused(dtype, original):
    name = "embedding.weight"
    other = replace(original, weights=original.weights | {name: original.weights[name].to(dtype)})

    with pytest.raises(RefusedError, match=rf"{name} has the type {dtype} instead of torch"):
        load_model(other)


def test_weights_of_another_precision_are_loaded(original):
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        weights = {name: weight.to(dtype) for name, weight in original.weights.items()}
        loaded = load_model(replace(original, weights=weights))
        assert torch.equal(
            loaded.embedding.weight, original.weights["embedding.weight"].to(dtype).float()
        )


def test_a_checkpoint_of_another_step_than_its_name_says_is_not_continued(
    original, tmp_path, caplog
):
    fill(tmp_path, original, 100, 200)
    checkpoints.save(tmp_path / "step_200.ckpt", with_weights(original, 300, seed=1))

    checkpoint, _ = checkpoint_folder.load_newest(tmp_path)
    assert checkpoint.step == 100
    assert "step_200.ckpt: holds step 300, not that of its name" in caplog.text


# Writing.


def test_bytes_reach_the_disk_before_they_get_their_name_and_the_name_after(
    original, tmp_path, monkeypatch
):
    events = []
    fsync, rename = os.fsync, os.replace
    monkeypatch.setattr(
        os, "fsync", lambda fd: (events.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd))
    )
    monkeypatch.setattr(os, "replace", lambda a, b: (events.append((str(a), str(b))), rename(a, b)))
    checkpoints.save(tmp_path / "a.ckpt", original)
    part, renamed, folder = events
    assert renamed == (part, str(tmp_path / "a.ckpt"))
    assert Path(part).parent == tmp_path, "a rename is atomic within one file system only"
    assert folder == str(tmp_path)


def test_a_full_disk_leaves_the_old_file_and_nothing_else_and_says_what_is_needed(
    original, tmp_path
):
    path = tmp_path / "a.ckpt"
    checkpoints.save(path, original)
    before = path.read_bytes()
    report = tmp_path / "report"
    child = os.fork()
    if child == 0:
        code = 1
        try:
            report.touch()
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, resource.RLIM_INFINITY))
            checkpoints.save(path, with_weights(original, 9, seed=9))
        except ResourceError as error:
            report.write_text(str(error))
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.ckpt", "report"]
    message = report.read_text()
    assert f"{path}: cannot be written (" in message
    needed = float(re.search(r"; (\S+) MB are needed", message)[1])  # for the tensors
    assert 0 < needed + 0.1 < len(before) / 1e6 + 0.2
    assert "\n" not in message
    assert ResourceError.exit_code == 6


def test_a_folder_that_cannot_be_written_to_is_a_resource_error(original, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ResourceError, match=r"a\.ckpt: cannot be written"):
        checkpoints.save(tmp_path / "file" / "a.ckpt", original)


def test_what_a_killed_writer_of_this_machine_left_is_swept_by_the_next_one_but_not_what_is_being_written(
    tmp_path,
):
    own = [f".a[1].json.{host()}.{number}.part" for number in (4711, 42)]
    others = [f".other.json.{host()}.4711.part", ".a[1].json.elsewhere.4711.part"]
    for name in (*own, *others):
        (tmp_path / name).write_bytes(b"half")
    with open(tmp_path / own[1], "rb") as busy:
        fcntl.flock(busy, fcntl.LOCK_EX)
        atomic_write(tmp_path / "a[1].json", b"whole")
    assert {path.name for path in tmp_path.iterdir()} == {own[1], *others, "a[1].json"}


def test_the_newest_whole_checkpoint_is_found_with_its_optimizer(original, tmp_path):
    assert checkpoint_folder.load_newest(tmp_path) is None
    fill(tmp_path, original, 10, 9, 100)
    found, optimizer = checkpoint_folder.load_newest(tmp_path)
    assert_equal(found, with_weights(original, 100, seed=100))
    assert optimizer["moments"].tolist() == [100] * 3


@pytest.mark.parametrize("spoil", [damage, lambda path: path.write_bytes(b""), Path.unlink])
@pytest.mark.parametrize("suffix", [".ckpt", ".optim"])
def test_damaged_ones_are_passed_over_with_a_warning_each(
    original, tmp_path, caplog, spoil, suffix
):
    fill(tmp_path, original, 9, 10, 11)
    spoil((tmp_path / "step_11.ckpt").with_suffix(suffix))
    damage(tmp_path / "step_10.optim")
    with caplog.at_level(logging.WARNING, logger="aiayn.runs.checkpoint_folder"):
        found, optimizer = checkpoint_folder.load_newest(tmp_path)
    assert (found.step, optimizer["moments"][0]) == (9, 9)
    warned = [record.getMessage() for record in caplog.records]
    gone = spoil is Path.unlink  # then there is no step 11, or none that can be continued
    assert ["step_11" in message for message in warned] == ([False] if gone else [True, False])
    assert "step_10.optim: damaged" in warned[-1]


@pytest.mark.parametrize(
    "more",
    [
        {"module": [torch.ones(3)]},
        {"lightning": None},
        {"lightning": {"loops": {}, "optimizer_states": []}},
        {"lightning": {"loops": {}, "optimizer_states": ["Adam"]}},
        {"lightning": {"loops": 3, "optimizer_states": [{}]}},
    ],
)
def test_a_whole_file_that_holds_no_optimizer_state_is_passed_over_like_a_damaged_one(
    more, original, tmp_path, caplog
):
    fill(tmp_path, original, 9, 10)
    checkpoints.write_tensors(tmp_path / "step_10.optim", states(**more))
    found, _ = checkpoint_folder.load_newest(tmp_path)

    assert found.step == 9
    assert (
        "step_10.optim: not the state of an optimizer; trying the previous checkpoint"
        in caplog.text
    )


def adam(**changed) -> dict:
    values = {"step": torch.tensor(3.0), "exp_avg": torch.tensor([-1.0, 2.0])}
    return {"state": {7: {**values, "exp_avg_sq": torch.ones(2), **changed}}, "param_groups": []}


@pytest.mark.parametrize(
    ("state", "fault"),
    [
        (adam(exp_avg=torch.tensor([1.0, math.nan])), "exp_avg of weight 7 is not finite"),
        (adam(exp_avg=torch.ones(2).long()), r"exp_avg of weight 7 has the type torch\.int64"),
        (adam(exp_avg_sq=torch.tensor([1.0, math.inf])), "exp_avg_sq of weight 7 is not finite"),
        (adam(exp_avg_sq=torch.tensor([1.0, -1e-9])), "exp_avg_sq of weight 7 is negative"),
        (adam(step=torch.tensor(math.nan)), "step of weight 7 is not finite"),
        (adam(step=-1), "step of weight 7 is negative"),
        (adam(momentum_buffer=torch.full((2,), math.inf)), "momentum_buffer of weight 7 is not"),
        ({"param_groups": [{"lr": math.nan}]}, "lr is NaN"),
        ({"state": [1]}, "not laid out as torch does it"),
    ],
)
def test_an_optimizer_state_that_would_spoil_the_weights_is_passed_over_with_its_file_and_fault(
    state, fault, original, tmp_path, caplog
):
    fill(tmp_path, original, 9, 10)
    lightning = {"loops": {}, "optimizer_states": [state]}
    checkpoints.write_tensors(tmp_path / "step_10.optim", states(lightning=lightning))
    found, _ = checkpoint_folder.load_newest(tmp_path)

    assert found.step == 9
    assert re.search(rf"step_10\.optim: not the state of an optimizer \({fault}", caplog.text)


def test_states_of_other_optimizers_may_hold_any_names_and_infinite_numbers_outside_of_weights():
    others = {
        "quantised": adam(exp_avg=torch.ones(2, dtype=torch.int8)),
        "best": adam(best=torch.tensor(math.inf), sum=torch.tensor([-1.0])),
        "growth": {"param_groups": [{"growth_rate": math.inf}], "state": {"all": 3}},
    }
    assert {name: checkpoints.fault_of_optimizer(state) for name, state in others.items()} == (
        dict.fromkeys(others, "")
    )


def test_where_none_is_whole_the_run_is_refused_rather_than_begun_anew(original, tmp_path):
    fill(tmp_path, original, 9, 10)
    damage(tmp_path / "step_9.ckpt")
    damage(tmp_path / "step_10.optim")
    with pytest.raises(RefusedError, match="all checkpoints are damaged; remove the folder"):
        checkpoint_folder.load_newest(tmp_path)
    for state in tmp_path.glob("*.optim"):
        state.unlink()
    with pytest.raises(
        RefusedError,
        match=r"no checkpoint has its optimizer state, such as step_10\.optim",
    ):
        checkpoint_folder.load_newest(tmp_path)


def test_training_goes_on_from_the_newest_checkpoint_with_an_optimizer_state_and_removes_the_later_ones(
    original, tmp_path, caplog
):
    fill(tmp_path, original, 9, 10, 11, 12, 13, 100)
    for step in (10, 12, 13, 100):
        checkpoint_folder.optimizer_path(checkpoint_folder.step_path(tmp_path, step)).unlink()
    checkpoint_folder.update_last(tmp_path, 100)
    assert checkpoint_folder.load_newest(tmp_path)[0].step == 11
    assert caplog.records == []
    checkpoint_folder.optimizer_path(tmp_path / "step_12.ckpt").touch()  # as of a damaged one
    checkpoint_folder.remove_after(tmp_path, 11)
    assert saved_steps(tmp_path) == [9, 10, 11]
    assert sorted(tmp_path.glob("*.optim")) == [
        tmp_path / "step_11.optim",
        tmp_path / "step_9.optim",
    ]
    assert_equal(checkpoints.load(tmp_path / "last.ckpt"), with_weights(original, 11, seed=11))


def test_pruning_keeps_the_newest_two_that_can_be_continued_beside_the_newest_two(
    original, tmp_path
):
    fill(tmp_path, original, 10, 20, 30, 40, 50, 60, 70)
    for step in (40, 60, 70):
        checkpoint_folder.optimizer_path(checkpoint_folder.step_path(tmp_path, step)).unlink()
    checkpoint_folder.prune(tmp_path, [10])
    assert saved_steps(tmp_path) == [10, 30, 50, 60, 70]
    assert sorted(path.name for path in tmp_path.glob("*.optim")) == [
        "step_30.optim",
        "step_50.optim",
    ]


@pytest.mark.parametrize("links", [True, False])
def test_last_is_the_checkpoint_that_it_was_pointed_to_and_outlives_it(
    original, tmp_path, monkeypatch, links
):
    if not links:

        def refuse(*arguments):
            raise OSError("no hard links here")

        monkeypatch.setattr(os, "link", refuse)
    fill(tmp_path, original, 9, 10)
    for step in (9, 10, 10):
        checkpoint_folder.update_last(tmp_path, step)
        assert checkpoints.load(tmp_path / "last.ckpt").step == step
    checkpoint_folder.step_path(tmp_path, 10).unlink()
    assert_equal(checkpoints.load(tmp_path / "last.ckpt"), with_weights(original, 10, seed=10))
    assert not list(tmp_path.glob(".*")), "nothing is left behind"


@pytest.mark.parametrize(
    ("keep", "left"), [([20, 30], [20, 30, 40, 50]), ([], [40, 50]), ([50, 10], [10, 40, 50])]
)
def test_pruning_keeps_the_newest_two_whatever_else_and_the_optimizers_of_the_newest_two(
    original, tmp_path, keep, left
):
    fill(tmp_path, original, 10, 20, 30, 40, 50)
    for name in ("averaged.ckpt", "last.ckpt"):
        (tmp_path / name).touch()
    checkpoint_folder.prune(tmp_path, keep)
    assert saved_steps(tmp_path) == left
    assert sorted(path.name for path in tmp_path.glob("*.optim")) == [
        "step_40.optim",
        "step_50.optim",
    ]
    assert {"averaged.ckpt", "last.ckpt"} < {path.name for path in tmp_path.iterdir()}
    assert checkpoint_folder.load_newest(tmp_path)[0].step == 50


def test_sweeping_removes_orphans_only(original, tmp_path):
    fill(tmp_path, original, 9)
    checkpoint_folder.update_last(tmp_path, 9)
    (tmp_path / "score.part").touch()
    kept = sorted(tmp_path.iterdir())
    for orphan in (".step_9.ckpt.4711.part", ".step_12.optim.1.part", ".last.ckpt.7.part"):
        (tmp_path / orphan).write_bytes(b"half")
    checkpoint_folder.remove_leftovers(tmp_path)
    assert sorted(tmp_path.iterdir()) == kept


# Averages.


def test_an_average_is_the_arithmetic_mean_in_double_precision(original):
    saved = [with_weights(original, step, seed=step) for step in (10, 20, 30)]
    merged = checkpoints.average(saved)
    for name, weight in merged.weights.items():
        mean = np.mean([c.weights[name].numpy().astype(np.float64) for c in saved], axis=0)
        assert np.array_equal(weight.numpy(), mean.astype(np.float32))
    assert (merged.step, merged.averaged, merged.tokenizer) == (
        30,
        [10, 20, 30],
        original.tokenizer,
    )


def test_another_model_or_another_tokenizer_is_not_averaged_in(original, tiny_config):
    other_heads = replace(original.config, model=replace(tiny_config, n_heads=4))
    for other in (
        replace(original, step=3, config=other_heads),
        replace(original, step=3, tokenizer="{}"),
    ):
        with pytest.raises(RefusedError, match="steps 3 and 1500 have different models"):
            checkpoints.average([other, original])


# Which file is meant.

ARCHIVE = torch_archive({"step": 1})


def test_a_checkpoint_file_is_a_run_by_itself_and_another_file_is_refused_unread(tmp_path):
    (tmp_path / "model.ckpt").write_bytes(ARCHIVE)
    (tmp_path / "text.en").write_text("a sentence\n")

    assert find_checkpoint(tmp_path / "model.ckpt", None) == tmp_path / "model.ckpt"
    with pytest.raises(
        RefusedError, match=r"text\.en: damaged or not a checkpoint of this program"
    ):
        find_checkpoint(tmp_path / "text.en", None)
    with pytest.raises(
        RefusedError, match=r"model\.ckpt: is one checkpoint; leave out checkpoint=last"
    ):
        find_checkpoint(tmp_path / "model.ckpt", "last")


def test_what_is_measured_of_a_checkpoint_file_goes_to_its_run_or_beside_it(tmp_path):
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    for place in ("run/checkpoints", "."):
        (tmp_path / place / "x.ckpt").touch()

    assert folder_of(tmp_path / "run/checkpoints/x.ckpt") == tmp_path / "run"
    assert folder_of(tmp_path / "x.ckpt") == tmp_path
    assert folder_of(tmp_path / "run") == tmp_path / "run"


def test_a_checkpoint_is_chosen_by_role_or_by_file_and_averaged_comes_first(tmp_path):
    folder = tmp_path / "run" / "checkpoints"
    with pytest.raises(ConfigError, match="neither a run"):
        find_checkpoint(tmp_path / "run", None)
    (tmp_path / "run").mkdir()
    RunFolder(tmp_path / "run").config.touch()
    for _ in range(2):
        with pytest.raises(RefusedError, match=r"run: this run has no checkpoint yet; repeat the"):
            find_checkpoint(tmp_path / "run", None)
        folder.mkdir(exist_ok=True)
    (folder / "last.ckpt").write_bytes(ARCHIVE)
    assert find_checkpoint(tmp_path / "run", None) == folder / "last.ckpt"
    with pytest.raises(
        RefusedError,
        match=rf"averaged\.ckpt: no such checkpoint; choose last or a file in {folder}$",
    ):
        find_checkpoint(tmp_path / "run", "averaged")
    (folder / "averaged.ckpt").write_bytes(ARCHIVE)
    assert find_checkpoint(tmp_path / "run", None) == folder / "averaged.ckpt"
    assert find_checkpoint(tmp_path / "run", "last") == folder / "last.ckpt"
    for file in ("last.ckpt", str(folder / "last.ckpt")):
        assert find_checkpoint(tmp_path / "run", file) == folder / "last.ckpt"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("outputs/mime", "outputs/mine"),
        ("output/mine", "outputs/mine"),
        ("mine", "outputs/mine"),
        ("outputs/mine/checkpoints/step_90.ckpt", "outputs/mine/checkpoints/step_9.ckpt"),
        ("examples/en-de.ayain", "examples/en-de.aiayn"),
    ],
)
def test_the_run_or_model_of_the_nearest_name_is_suggested(typed, meant, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in ("outputs/mine/checkpoints/step_9.ckpt", "examples/en-de.aiayn"):
        Path(file).parent.mkdir(parents=True)
        Path(file).touch()
    with pytest.raises(ConfigError, match=rf"nor a checkpoint; did you mean {meant}\?$"):
        find_checkpoint(Path(typed), None)


@pytest.mark.slow
def test_writing_and_reading_hold_no_second_copy_in_memory(tmp_path):
    """Big's optimizer state takes 1.7 GB, and every rank of a machine reads it."""
    script = """
import resource, sys, torch
from pathlib import Path
from aiayn.runs.checkpoints import read_tensors, write_tensors
path, size = Path(sys.argv[1]), 60_000_000
peak = lambda: 1024 * next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmHWM"))
if sys.argv[2] == "write":
    payload = {"format": 1, "a": torch.ones(size // 4)}
    before = peak()
    write_tensors(path, payload)
else:
    before = peak()
    assert read_tensors(path)["a"].sum() == size // 4
print((peak() - before) / size)
"""

    def taken(what: str) -> float:
        """Peak memory beyond what there was before, as a multiple of the tensor."""
        command = [sys.executable, "-c", script, tmp_path / "a.optim", what]
        return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)

    assert taken("write") < 0.5
    assert taken("read") < 1.5


def test_a_missing_run_is_answered_with_the_run_of_a_similar_name(tmp_path):
    for name in ("captions", "quickstart"):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
    with pytest.raises(
        ConfigError, match=r"quickstrat: neither a run .*; did you mean .*/quickstart\?$"
    ):
        find_checkpoint(tmp_path / "quickstrat", None)
    with pytest.raises(ConfigError, match=r"nor a checkpoint; name a run's folder"):
        find_checkpoint(tmp_path / "unlike", None)


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EROFS, "make it writable"),
        (errno.EACCES, "make it writable"),
        (errno.ENOSPC, "make room"),
        (errno.ENOTDIR, "choose another path"),
    ],
)
def test_only_a_full_disk_is_asked_for_room(number, remedy):
    message = rf"^run: cannot be written \(.*\); {remedy}"
    with pytest.raises(ResourceError, match=message), writing("run"):
        raise OSError(number, os.strerror(number))
