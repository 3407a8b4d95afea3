"""Preparation that is killed, started several times at once, or meets a disk that is full,
read-only or gone.
"""

import errno
import os
import platform
import random
import shutil
import signal
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import filelock
import pytest
from applications import TEXT, TINY, run_application, write_pairs
from faults.harness import (
    Child,
    content_of_corpus,
    dies_after,
    disk_is_full_beyond,
    prepare_in_child,
    wait_until,
)
from texts import data_config

from aiayn.config.data import DataConfig
from aiayn.data import preparation
from aiayn.data.preparation import prepare_corpus
from aiayn.data.raw_text import RawText
from aiayn.errors import DataError

KILLS = 20
LOG = Path("log")  # of what a child says


@pytest.fixture
def config(tmp_path, monkeypatch) -> DataConfig:
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path / "train", 400, seed=1)
    write_pairs(tmp_path / "dev", 5, seed=2)
    return data_config(
        train="train", val="dev", folder="data", vocab_size=290, max_length=99, max_length_ratio=9.0
    )


def corpora(folder: str) -> list[str]:
    """What stands in a data folder under a name that counts."""
    return [path.name for path in Path(folder).glob("*") if not path.name.startswith(".")]


@pytest.mark.slow
def test_killed_twenty_times_at_random_moments_preparation_still_gives_the_same_bytes(config):
    end = prepare_in_child(replace(config, folder="elsewhere"), LOG).wait()
    [whole] = corpora("elsewhere")
    expected = content_of_corpus(Path("elsewhere", whole))
    draw = random.Random(5)

    killed = 0
    while killed < KILLS:
        ended = prepare_in_child(config, LOG, dies_after(draw.uniform(0, end.seconds))).wait()
        killed += ended.code == -signal.SIGPROF
        for name in corpora("data"):
            assert content_of_corpus(Path("data", name)) == expected, (
                "a folder under its final name is complete"
            )
            shutil.rmtree(Path("data", name))

    assert content_of_corpus(prepare_corpus(config).folder) == expected
    assert corpora("data") == [whole]
    assert not list(Path("data").glob(".*.tmp")), "what the killed ones left is swept"


def test_started_four_times_at_once_while_one_is_killed_it_gives_the_same_bytes(config):
    whole = prepare_in_child(replace(config, folder="elsewhere"), LOG).wait()
    expected = content_of_corpus(Path("elsewhere"))
    draw = random.Random(6)
    for _ in range(3):
        shutil.rmtree("data", ignore_errors=True)
        dies = dies_after(draw.uniform(0, whole.seconds))
        children = [
            prepare_in_child(config, LOG, prelude) for prelude in (dies, *[lambda: None] * 3)
        ]
        assert [child.wait().code for child in children][1:] == [0, 0, 0]
        assert content_of_corpus(Path("data")) == expected


def without_writing(folder: str) -> None:
    """From now on this process finds `folder` on a read-only disk. For forked children: there is no
    way back.
    """

    def refuse(event: str, arguments: tuple) -> None:
        writes = (
            event == "open"
            and isinstance(arguments[2], int)
            and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        )
        if (writes or event in ("os.mkdir", "os.rename")) and folder in str(arguments[0]):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(arguments[0]))

    sys.addaudithook(refuse)


def test_a_complete_corpus_on_a_read_only_disk_is_used_as_it_is(config):
    prepare_corpus(config)

    def work() -> None:
        without_writing("data")
        assert len(prepare_corpus(config).train) == 400

    assert Child(work, LOG).wait().code == 0


def test_a_read_only_folder_without_the_corpus_is_exit_code_3(config):
    Path("data").mkdir()

    assert prepare_in_child(config, LOG, lambda: without_writing("data")).wait().code == 3
    assert list(Path("data").iterdir()) == []


@pytest.mark.parametrize("room", [0, 2000, 6000])
def test_a_disk_that_fills_up_is_exit_code_6_and_the_next_start_completes(config, room):
    nowhere = Path("/dev/null")  # what the child says has to fit as well

    assert prepare_in_child(config, nowhere, disk_is_full_beyond(room)).wait().code == 6
    assert corpora("data") == []
    assert len(prepare_corpus(config).train) == 400


def test_a_data_folder_that_vanishes_while_it_is_filled_is_named_with_the_remedy(config):
    learn = preparation.learn_tokenizer

    def learn_and_lose(config: DataConfig, text: RawText):
        tokenizer = learn(config, text)
        shutil.rmtree(config.folder)
        return tokenizer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparation, "learn_tokenizer", learn_and_lose)
        with pytest.raises(
            DataError, match=r"data\.folder=data: No such file.*another data\.folder"
        ):
            prepare_corpus(config)
    assert len(prepare_corpus(config).train) == 400


@pytest.mark.quick("vanished text")
@pytest.mark.parametrize("harm", ["file", "vanished text"])
def test_from_the_command_line_it_is_one_line_and_exit_code_3(config, harm):
    if harm == "file":
        Path("data").write_text("not a folder")
    else:
        Path("train.de").unlink()

    outcome = run_application("train.py", *TEXT, *TINY)

    [line] = [line for line in outcome.err.split("\n") if line.startswith("error: ")]
    assert outcome.code == 3
    assert ("data.folder=" if harm == "file" else "train.de") in line
    assert not Path("outputs").exists()


def on_machine(name: str) -> None:
    """From now on this process has another machine's name, and its lock of the corpus is seen by no
    other process.
    """
    platform.node = lambda: name
    lock = SimpleNamespace(acquire=lambda timeout=-1: None, release=lambda: None)
    preparation.filelock = SimpleNamespace(FileLock=lambda path: lock, Timeout=filelock.Timeout)


def test_two_machines_that_share_a_disk_without_locks_prepare_the_same_corpus_and_leave_each_others_work_alone(
    config,
):
    prepare_in_child(replace(config, folder="elsewhere"), LOG).wait()
    expected = content_of_corpus(Path("elsewhere"))
    for _ in range(3):
        shutil.rmtree("data", ignore_errors=True)
        children = [
            prepare_in_child(config, Path(f"log.{name}"), partial(on_machine, name))
            for name in ("a1", "b2")
        ]
        for child in children:
            end = child.wait()
            assert end.code == 0, end.said
        assert content_of_corpus(Path("data")) == expected
        assert not list(Path("data").glob(".*.tmp"))


def test_a_machine_that_finishes_just_before_the_corpus_is_put_in_place_keeps_its_own(
    config, monkeypatch
):
    prepare_in_child(replace(config, folder="elsewhere"), LOG).wait()
    rename, others = Path.rename, content_of_corpus(Path("elsewhere"))

    def rename_too_late(corpus: Path, target: Path) -> Path:
        if corpus.name.endswith(".tmp"):
            (theirs,) = (path for path in Path("elsewhere").iterdir() if path.is_dir())
            shutil.copytree(theirs, target)
        return rename(corpus, target)

    monkeypatch.setattr(Path, "rename", rename_too_late)
    assert len(prepare_corpus(config).train) == 400
    assert content_of_corpus(Path("data")) == others
    assert not list(Path("data").glob(".*.tmp"))


@pytest.mark.parametrize("works", [True, False])
def test_where_one_machine_prepares_the_others_wait_as_long_as_it_shows_signs_of_life(
    config, monkeypatch, works
):
    """By a clock that their polling moves on: the folder is there long after the time without any
    sign.
    """
    shared, clock, lock = replace(config, prepare_per_node=False), [0.0], Path("data/.corpus.lock")
    lock.parent.mkdir()

    def sleep(seconds: float) -> None:
        clock[0] += 40
        if works:
            lock.touch()
            os.utime(lock, (clock[0], clock[0]))
        if clock[0] == 400:
            prepare_in_child(shared, LOG, lambda: setattr(preparation, "_build", build)).wait()
        assert clock[0] < 1000

    monkeypatch.setattr(preparation, "_lock_file", lambda target: lock)
    build = preparation._build
    monkeypatch.setattr(preparation, "_build", None)  # never called
    monkeypatch.setattr(
        preparation, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep)
    )
    if works:
        assert len(prepare_corpus(shared, silence=100).train) == 400
    else:
        with pytest.raises(
            DataError,
            match=r"no process has worked on data/en-de-.* for 100 sec",
        ):
            prepare_corpus(shared, silence=100)
        assert clock[0] == 120


def test_who_prepares_touches_its_lock_meanwhile(tmp_path, monkeypatch):
    lock = tmp_path / "lock"
    monkeypatch.setattr(preparation, "HEARTBEAT", 0.001)
    before = threading.active_count()
    with preparation._locked(lock):
        os.utime(lock, (0, 0))
        wait_until(lambda: lock.stat().st_mtime > 0)
    wait_until(lambda: threading.active_count() == before)


def test_a_machine_that_does_not_share_the_disk_ends_its_waiting_with_the_remedy(config):
    with pytest.raises(
        DataError, match=r"data\.folder=data: no process .* set data\.prepare_per_node=true"
    ):
        prepare_corpus(config, silence=0)
    assert not Path("data").exists()
