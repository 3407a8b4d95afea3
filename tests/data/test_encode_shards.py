"""Text encoded in shards by several processes: the same bytes as by one, and what is done is not done again."""

import gzip
import hashlib
import itertools
import logging
import os
import random
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from texts import data_config, write_lines

from aiayn.config.data import DataConfig
from aiayn.data import encode_shards, merge_shards, text_files
from aiayn.data.encode_shards import Encoder, Progress, Shard
from aiayn.data.filters import Filters
from aiayn.data.prepare import prepare
from aiayn.data.sources import text_of, texts_of
from aiayn.data.text_files import FileScans
from aiayn.errors import DataError, ResourceError

WORDS = ["ein", "zwei", "haus", "hund", "katze", "läuft", "grün", "und", "oder", "nicht", "heute"]


def sentences(seed: int, count: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 9))) for _ in range(count)]


@pytest.fixture
def config(tmp_path) -> DataConfig:
    src, tgt = sentences(1, 403), sentences(2, 403)
    src[100], tgt[201], src[399] = "", "haus " * 50, "\x00"
    return data_config(
        train=write_lines(tmp_path / "train", src, tgt),
        val=write_lines(tmp_path / "val", [*sentences(3, 30), src[8]], [*sentences(4, 30), tgt[8]]),
        folder=str(tmp_path / "data"),
        max_length=30,
        max_length_ratio=9.0,
    )


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(encode_shards, "SHARD_PAIRS", 50)
    monkeypatch.setattr("aiayn.data.build_corpus.SHARD_PAIRS", 50)


def content(config: DataConfig) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in prepare(config).folder.iterdir()}


@pytest.mark.parametrize("source", ["plain", "gz", "tsv", "two prefixes"])
def test_many_shards_of_several_processes_give_the_bytes_of_one(config, tmp_path, monkeypatch, caplog, source):
    caplog.set_level(logging.INFO, "aiayn")
    if source == "two prefixes":
        config = replace(config, train=[config.train, write_lines(tmp_path / "b", sentences(5, 60), sentences(6, 60))])
    elif source == "tsv":
        columns = zip(*(Path(f"{config.train}.{lang}").read_bytes().split(b"\n") for lang in ("en", "de")), strict=True)
        Path(tmp_path, "t.tsv").write_bytes(b"".join(b"\t".join(pair) + b"\n" for pair in columns if any(pair)))
        config = replace(config, train=f"{tmp_path}/t.tsv")
    elif source == "gz":
        for path in (Path(f"{config.train}.{lang}") for lang in ("en", "de")):
            Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    whole = content(replace(config, folder=config.folder + "1"))
    overlap = [record.getMessage() for record in caplog.records if "leakage" in record.getMessage()]
    monkeypatch.setattr(merge_shards, "MERGED_PAIRS", 64)
    monkeypatch.setattr(merge_shards, "SAMPLED", 2)
    monkeypatch.setattr(text_files, "MARK_LINES", 50)
    monkeypatch.setattr("aiayn.data.parallel_files.MARK_LINES", 50)
    for shard, processes in ((50, 1), (50, 3), (7, 2), (403, 2)):
        monkeypatch.setattr(encode_shards, "SHARD_PAIRS", shard)
        monkeypatch.setattr("aiayn.data.build_corpus.SHARD_PAIRS", shard)
        caplog.clear()
        found = content(replace(config, folder=f"{config.folder}-{shard}-{processes}", prepare_processes=processes))
        assert found == whole
        assert [r.getMessage() for r in caplog.records if "leakage" in r.getMessage()] == overlap != []


def test_text_is_read_from_any_pair_on(config, tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "MARK_LINES", 16)
    monkeypatch.setattr("aiayn.data.parallel_files.MARK_LINES", 16)
    config = replace(config, train=[config.train, config.val, config.train])
    whole = list(text_of(config, "train").pairs())
    assert len(whole) == 403 + 31 + 403
    for first in (0, 1, 15, 16, 17, 402, 403, 404, 433, 434, 450, 836, 837, 900):
        assert list(text_of(config, "train").pairs(first)) == whole[first:]


@pytest.mark.parametrize("done", [1, 2, 5])
def test_what_an_earlier_start_has_done_is_not_done_again(config, monkeypatch, small_shards, done):
    whole = content(replace(config, folder=config.folder + "1"))
    encode, encoded = Encoder.__call__, []

    def encode_some(self, shard, *rest):
        if len(encoded) == done:
            raise KeyboardInterrupt
        encoded.append(shard)
        encode(self, shard, *rest)

    monkeypatch.setattr(Encoder, "__call__", encode_some)
    config = replace(config, prepare_processes=1)
    with pytest.raises(KeyboardInterrupt):
        prepare(config)
    first, done = list(encoded), -1
    encoded.clear()
    monkeypatch.setattr("aiayn.data.build_corpus._learn_tokenizer", None)
    assert content(config) == whole
    assert set(first).isdisjoint(encoded)
    assert [*first, *encoded] == [Shard("train", number) for number in range(9)] + [Shard("val", 0)]


def test_a_killed_process_is_a_lack_of_resources_and_the_next_start_goes_on(config, monkeypatch, small_shards):
    encode, parent = Encoder.__call__, os.getpid()

    def killed(self, shard, *rest):
        if shard.number == 4 and os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        encode(self, shard, *rest)

    monkeypatch.setattr(Encoder, "__call__", killed)
    config = replace(config, prepare_processes=3)
    with pytest.raises(
        ResourceError, match=r"ended with code -9; .*lower data.prepare_processes; run the same command"
    ):
        prepare(config)
    monkeypatch.undo()
    monkeypatch.setattr(encode_shards, "SHARD_PAIRS", 50)
    monkeypatch.setattr("aiayn.data.build_corpus.SHARD_PAIRS", 50)
    assert content(config) == content(replace(config, folder=config.folder + "1"))


def test_what_a_process_finds_wrong_with_the_text_is_said_as_if_there_were_one(config, monkeypatch, small_shards):
    encode = Encoder.__call__

    def unreadable(self, shard, *rest):
        if shard.number == 5:
            raise DataError("train.en: cannot be read")
        encode(self, shard, *rest)

    monkeypatch.setattr(Encoder, "__call__", unreadable)
    with pytest.raises(DataError, match=r"train\.en: cannot be read"):
        prepare(replace(config, prepare_processes=2))
    assert [path.name for path in Path(config.folder).iterdir() if path.name.endswith(".tmp")] == []


def test_an_error_is_noticed_when_all_processes_have_ended_at_once(config, monkeypatch, small_shards):
    def unreadable(self, shard, *rest):
        if shard.number:
            raise DataError("train.en: cannot be read")
        encode(self, shard, *rest)

    def ended(process) -> bool:
        process.join()
        return False

    encode = Encoder.__call__
    monkeypatch.setattr(Encoder, "__call__", unreadable)
    monkeypatch.setattr("multiprocessing.process.BaseProcess.is_alive", ended)
    with pytest.raises(DataError, match=r"train\.en: cannot be read"):
        prepare(replace(config, prepare_processes=2))


def test_processes_end_with_the_one_that_started_them(config, small_shards, monkeypatch):
    """A process whose parent is gone stops at its next chunk."""
    encoder = Encoder(
        config,
        (texts := texts_of(config, FileScans())),
        {"train": None},
        Path(config.folder),
        prepare(config).tokenizer,
        Filters(config, texts["train"]),
    )
    child = os.fork()
    if child == 0:
        encode_shards._encode_share(encoder, [Shard("train", 0)], parent=1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert not Shard("train", 0).is_done(Path(config.folder))


def test_progress_tells_rate_and_time_left(caplog, monkeypatch):
    caplog.set_level(logging.INFO, "aiayn")
    monkeypatch.setattr(encode_shards, "SHARD_PAIRS", 1000)
    clock = itertools.count(0, 10)
    monkeypatch.setattr(encode_shards.time, "monotonic", lambda: next(clock))
    progress = Progress(40)
    for done in (0, 1, 1, 30):
        progress.report(done)
    assert [record.getMessage() for record in caplog.records] == [
        "encoding: 1 of 40 shards (of 1,000 pairs), 100 pairs a second, 6 min left",
        "encoding: 30 of 40 shards (of 1,000 pairs), 1,500 pairs a second, 7 s left",
    ]


def test_ids_are_put_in_order_in_parts(monkeypatch):
    monkeypatch.setattr(encode_shards, "GATHERED", 3)
    lengths = np.array([2, 1, 3, 1, 2])
    ids = np.array([10, 11, 20, 30, 31, 32, 40, 50, 51], np.uint16)
    parts = [bytes(part) for part in encode_shards.in_order(ids, lengths, np.array([4, 0, 3, 2, 1]))]
    assert np.frombuffer(b"".join(parts), np.uint16).tolist() == [50, 51, 10, 11, 40, 30, 31, 32, 20]
    assert len(parts) == 2
