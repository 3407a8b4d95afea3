"""Preparation that is killed, started several times at once, or meets a disk that is full, read-only or gone."""

import errno
import hashlib
import os
import random
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from applications import TEXT, TINY, run_application, write_pairs
from texts import data_config

from aiayn.config import DataConfig
from aiayn.data import preparation
from aiayn.data.prepared import prepare
from aiayn.errors import DataError

KILLS = 20


@pytest.fixture
def config(tmp_path, monkeypatch) -> DataConfig:
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path / "train", 400, seed=1)
    write_pairs(tmp_path / "dev", 5, seed=2)
    return data_config(train="train", val="dev", folder="data", vocab_size=290, max_length=99, max_length_ratio=9.0)


def contents(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def corpora(folder: str) -> list[str]:
    """What stands in a data folder under a name that counts."""
    return [path.name for path in Path(folder).glob("*") if not path.name.startswith(".")]


def fork(work: Callable[[], object]) -> int:
    """Runs `work` in a child that has everything imported; its exit code is that of the error, if there is one."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except DataError as error:
        code = error.exit_code
    finally:
        os._exit(code)


def exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_killed_twenty_times_at_random_moments_preparation_still_gives_the_same_bytes(config):
    start = time.monotonic()
    whole = prepare(replace(config, folder="elsewhere")).folder
    duration = time.monotonic() - start
    expected = contents(whole)
    draw = random.Random(5)

    killed = 0
    while killed < KILLS:
        child = fork(lambda: prepare(config))
        time.sleep(draw.uniform(0, duration))
        os.kill(child, signal.SIGKILL)
        killed += exit_code(child) == -signal.SIGKILL
        for name in corpora("data"):
            assert contents(Path("data", name)) == expected, "what bears the name is complete"
            shutil.rmtree(Path("data", name))

    assert contents(prepare(config).folder) == expected
    assert corpora("data") == [whole.name]
    assert not list(Path("data").glob(".*.tmp")), "what the killed ones left is swept"


def test_started_four_times_at_once_while_one_is_killed_it_gives_the_same_bytes(config):
    expected = contents(prepare(replace(config, folder="elsewhere")).folder)
    draw = random.Random(6)
    for _ in range(3):
        shutil.rmtree("data", ignore_errors=True)
        children = [fork(lambda: prepare(config)) for _ in range(4)]
        time.sleep(draw.uniform(0, 0.1))
        os.kill(children[0], signal.SIGKILL)
        assert [exit_code(child) for child in children[1:]] == [0, 0, 0]
        exit_code(children[0])
        [name] = corpora("data")
        assert contents(Path("data", name)) == expected


def without_writing(folder: str) -> None:
    """From now on this process finds `folder` on a read-only disk. For forked children: there is no way back."""

    def refuse(event: str, arguments: tuple) -> None:
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if (writes or event in ("os.mkdir", "os.rename")) and folder in str(arguments[0]):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(arguments[0]))

    sys.addaudithook(refuse)


def test_a_complete_corpus_on_a_read_only_disk_is_used_as_it_is(config):
    prepare(config)

    def work() -> None:
        without_writing("data")
        assert len(prepare(config).train) == 400

    assert exit_code(fork(work)) == 0


def test_a_read_only_folder_without_the_corpus_is_exit_code_3(config):
    Path("data").mkdir()

    def work() -> None:
        without_writing("data")
        prepare(config)

    assert exit_code(fork(work)) == 3
    assert list(Path("data").iterdir()) == []


@pytest.mark.parametrize("room", [0, 2000, 6000])
def test_a_disk_that_fills_up_is_exit_code_3_and_the_next_start_completes(config, room):
    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        prepare(config)

    assert exit_code(fork(work)) == 3
    assert corpora("data") == []
    assert len(prepare(config).train) == 400


def test_a_data_folder_that_vanishes_while_it_is_filled_is_named_with_the_remedy(config):
    learn = preparation._learn_tokenizer

    def learn_and_lose(config: DataConfig):
        tokenizer = learn(config)
        shutil.rmtree(config.folder)
        return tokenizer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparation, "_learn_tokenizer", learn_and_lose)
        with pytest.raises(DataError, match=r"data\.folder=data: No such file.*data\.folder=FOLDER"):
            prepare(config)
    assert len(prepare(config).train) == 400


def test_a_prepared_corpus_that_vanished_is_built_again_to_the_same_bytes(config):
    folder = prepare(config).folder
    expected = contents(folder)
    shutil.rmtree("data")
    assert contents(prepare(config).folder) == expected


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
