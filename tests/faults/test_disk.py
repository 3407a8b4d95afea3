"""Full disks, damaged files, folders in use: nothing good is lost, nothing damaged is loaded."""

import errno
import os
import shutil
import subprocess
import sys

import pytest
from faults.harness import (
    acts_at,
    bytes_of,
    configured,
    differences,
    disk_is_full_beyond,
    start,
    train,
    wait_until,
)

from aiayn.runs import checkpoint_folder, checkpoints
from aiayn.training.module import TranslationModule

DAMAGE = {
    "emptied": lambda content: b"",
    "truncated": lambda content: content[: len(content) // 3],
    "flipped": lambda content: content[:5000] + bytes([content[5000] ^ 4]) + content[5001:],
}


@pytest.mark.quick("ckpt-flipped")
@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("suffix", [".ckpt", ".optim"])
def test_a_run_continues_from_the_newest_good_checkpoint_with_a_warning(
    config, killed_at, unbroken, tmp_path, kind, suffix
):
    path = killed_at(20) / "checkpoints" / f"step_9{suffix}"
    path.write_bytes(DAMAGE[kind](path.read_bytes()))
    end = train(config, tmp_path)
    assert end.code == 0, end.said
    assert f"warning: {path}: " in end.said
    assert "continued at step 6" in end.said
    assert differences(tmp_path / "run", unbroken) == []


def of_other_sizes(lightning):
    state = lightning["optimizer_states"][0]["state"]
    state[0]["exp_avg"] = state[0]["exp_avg"][:1].clone()


def of_fewer_weights(lightning):
    lightning["optimizer_states"][0]["param_groups"][0]["params"].pop()


def without_moments(lightning):
    del lightning["optimizer_states"][0]["state"][0]["exp_avg_sq"]


def of_another_schedule(lightning):
    lightning["lr_schedulers"] = [{"last_epoch": "nine"}]


def of_another_step(lightning):
    progress = lightning["loops"]["fit_loop"]["epoch_loop.automatic_optimization.optim_progress"]
    progress["optimizer"]["step"]["total"]["completed"] = -7


@pytest.mark.quick("of_other_sizes")
@pytest.mark.parametrize(
    "change",
    [of_other_sizes, of_fewer_weights, without_moments, of_another_schedule, of_another_step],
)
def test_a_whole_optimizer_state_of_another_training_is_refused_in_a_line(
    config, killed_at, unbroken, tmp_path, change
):
    path = killed_at(20) / "checkpoints" / "step_9.optim"
    states = checkpoints.read_tensors(path)
    change(states["lightning"])
    checkpoints.write_tensors(path, states)
    end = train(config, tmp_path)
    last = end.said.rstrip("\n").split("\n")[-1]

    assert (end.code, end.said.count("Traceback")) == (4, 0), end.said
    assert "error: step_9.optim does not hold the state of this training (" in last
    path.unlink()
    assert train(config, tmp_path).code == 0
    assert differences(tmp_path / "run", unbroken) == []


def test_a_disk_that_fills_up_leaves_the_old_checkpoints_and_says_what_is_needed(
    config, killed_at, unbroken, tmp_path
):
    killed_at(9)
    before = {path: path.read_bytes() for path in (tmp_path / "run" / "checkpoints").iterdir()}
    size = (tmp_path / "run" / "checkpoints" / "step_3.ckpt").stat().st_size
    end = train(config, tmp_path, disk_is_full_beyond(size // 2))
    assert end.code == 6, end.said
    last = end.said.rstrip("\n").split("\n")[-1]
    assert "MB are needed" in last
    assert "MB are free" in last
    assert {
        path: path.read_bytes() for path in (tmp_path / "run" / "checkpoints").iterdir()
    } == before
    assert train(config, tmp_path).code == 0
    assert differences(tmp_path / "run", unbroken) == []


def test_measurements_that_do_not_fit_on_the_disk_end_the_run_in_one_line(config, tmp_path):
    def prelude() -> None:
        def full(self, metrics, step=None):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "metrics.jsonl")

        from aiayn.training.loggers import MetricsFile

        MetricsFile.log_metrics = full

    end = train(config, tmp_path, prelude)
    assert end.code == 6, end.said
    assert (
        end.said.rstrip("\n")
        .split("\n")[-1]
        .startswith("error: metrics.jsonl: cannot be written (No space left")
    )


@pytest.mark.slow
def test_a_run_folder_that_vanishes_ends_the_run_in_one_line(config, unbroken, tmp_path):
    end = train(
        config,
        tmp_path,
        acts_at(TranslationModule, "training_step", lambda: shutil.rmtree(tmp_path / "run"), 9),
    )
    assert end.code == 4, end.said
    last = end.said.rstrip("\n").split("\n")[-1]
    assert last.startswith(f"error: {tmp_path}/run: moved or removed while this run wrote to it")
    assert train(config, tmp_path).code == 0
    assert differences(tmp_path / "run", unbroken) == []


@pytest.mark.slow
def test_there_is_never_more_than_one_checkpoint_beyond_those_that_are_kept(text, tmp_path):
    counts = tmp_path / "counts"

    def prelude() -> None:
        def count() -> None:
            files = list((tmp_path / "run" / "checkpoints").glob("step_*"))
            with open(counts, "a") as file:
                file.write(
                    f"{sum(p.suffix == '.ckpt' for p in files)} "
                    f"{sum(p.suffix == '.optim' for p in files)}\n"
                )

        plain = checkpoint_folder.prune
        checkpoint_folder.prune = lambda *arguments: (count(), plain(*arguments))

    settings = ("trainer.max_steps=40", "trainer.val_every=99", "trainer.val_bleu_sentences=0")
    assert (
        train(configured(text, *settings, "trainer.checkpoint_every=1"), tmp_path, prelude).code
        == 0
    )
    found = [tuple(map(int, line.split())) for line in counts.read_text().split("\n")[:-1]]
    assert len(found) == 41
    assert max(checkpoints for checkpoints, _ in found) == 3 + 1
    assert max(states for _, states in found) == 2 + 1


def test_a_second_process_on_the_folder_is_refused_and_told_of_the_first(
    config, unbroken, tmp_path
):
    def waits() -> None:
        plain = TranslationModule.training_step

        def slow(self, *arguments):
            while not (tmp_path / "go").exists():
                pass
            return plain(self, *arguments)

        TranslationModule.training_step = slow

    first = start(config, tmp_path, waits)
    wait_until(lambda: (tmp_path / "run" / "config.yaml").exists())
    second = start(config, tmp_path, log="second").wait()
    (tmp_path / "go").touch()
    assert second.code == 2
    assert (
        f"error: {tmp_path}/run is in use by process {first.pid} on {os.uname().nodename}; wait"
        in second.said
    )
    assert first.wait().code == 0
    assert differences(tmp_path / "run", unbroken) == []


def test_a_lock_that_its_owner_removes_while_another_opens_it_is_not_taken_for_a_lock(tmp_path):
    """Two processes must not both hold the lock of a folder, one of them through an unlinked
    file.
    """
    from aiayn.errors import ConfigError
    from aiayn.runs.run_folder import RunFolder
    from aiayn.training import resume

    plain, opened = resume.lock_descriptor, []

    def removed_meanwhile(descriptor, **how):
        if not opened:
            opened.append(descriptor)
            (tmp_path / ".lock").unlink()
        return plain(descriptor, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resume, "lock_descriptor", removed_meanwhile)
        with (
            resume.run_lock(RunFolder(tmp_path)),
            pytest.raises(ConfigError, match="in use by process"),
            resume.run_lock(RunFolder(tmp_path)),
        ):
            pass
    assert opened


@pytest.mark.quick("moved-9")
@pytest.mark.parametrize("call", [9, 24])  # in the middle, and in the last step
@pytest.mark.parametrize("how", ["moved", "removed", "only its lock removed"])
def test_a_run_whose_folder_was_begun_anew_stops_and_writes_nothing_there(
    config, tmp_path, how, call
):
    folder, seen = tmp_path / "run", tmp_path / "seen"

    def begin_anew() -> None:
        if how == "moved":
            folder.rename(tmp_path / "elsewhere")
        elif how == "removed":
            shutil.rmtree(folder)
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        (folder / ".lock").unlink(missing_ok=True)
        for name in (".lock", "config.yaml", "metrics.jsonl", "checkpoints/last.ckpt"):
            (folder / name).write_text("of another run")
        seen.write_text(repr(bytes_of(folder)))

    end = train(config, tmp_path, acts_at(TranslationModule, "training_step", begin_anew, call))
    assert end.code == 4, end.said
    assert end.said.rstrip("\n").split("\n")[-1].startswith(f"error: {folder}: moved or removed")
    assert repr(bytes_of(folder)) == seen.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("links", [True, False])
def test_a_real_file_system_without_space_ends_the_run_and_more_space_continues_it(
    config, unbroken, tmp_path, links
):
    """In a namespace of its own the child mounts a small memory file system; skipped where that is
    not allowed.
    """
    allowed = ["unshare", "--user", "--map-root-user", "--mount"]
    if (
        not shutil.which("unshare")
        or subprocess.run([*allowed, "true"], capture_output=True).returncode
    ):
        pytest.skip("namespaces are not allowed here")
    size = sum(path.stat().st_size for path in (unbroken / "checkpoints").iterdir())
    code = f"""
import os, subprocess, sys
sys.path.insert(0, {str(os.path.dirname(os.path.dirname(__file__)))!r})
from faults.harness import configured, differences, train
from pathlib import Path
disk = Path({str(tmp_path)!r}) / "disk"
disk.mkdir()
def mount(options):
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(disk)], check=True)
mount("size={size * 2 // 5}")
def prelude():
    if not {links}:
        def refuse(*arguments): raise OSError("no hard links here")
        os.link = refuse
config = configured(Path({config.data.folder!r}).parent)
end = train(config, disk, prelude)
assert end.code == 6, end
assert "No space left on device" in end.said and "MB are needed" in end.said, end.said
assert not list(disk.rglob("*.part"))
mount("remount,size={size * 9}")
end = train(config, disk)
assert end.code == 0, end.said
assert differences(disk / "run", Path({str(unbroken)!r})) == []
"""
    ended = subprocess.run(
        [*allowed, sys.executable, "-c", code], capture_output=True, text=True, timeout=600
    )
    assert ended.returncode == 0, ended.stderr
