import gzip
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from texts import SEPARATORS, data_config, read_pairs, write_bytes

from aiayn.cli.texts import file_chunks
from aiayn.data import text_files
from aiayn.data.cleaning import CleaningReport, clean
from aiayn.data.sources import text_of
from aiayn.data.text_files import read_lines, read_parallel, scan
from aiayn.errors import DataError


@settings(deadline=None, max_examples=60)
@given(
    pairs=st.lists(
        st.tuples(st.sampled_from(SEPARATORS[:-2]), st.sampled_from(SEPARATORS[:-2])),
        min_size=1,
        max_size=9,
    ),
    crlf=st.booleans(),
    last=st.booleans(),
)
def test_no_separator_but_lf_shifts_a_pair(tmp_path_factory, pairs, crlf, last):
    src = [f"s{i} {a} s{i}" for i, (a, _) in enumerate(pairs)]
    tgt = [f"t{i} {b} t{i}" for i, (_, b) in enumerate(pairs)]
    end = "\r\n" if crlf else "\n"
    prefix = write_bytes(
        tmp_path_factory.mktemp("lines") / "x",
        (end.join(src) + end * last).encode(),
        ("\n".join(tgt) + "\n").encode(),
    )
    report = CleaningReport()
    cleaned = clean(text_of(data_config(train=prefix), "train").pairs(), report)
    found = [(pair.src, pair.tgt) for pair in cleaned]
    assert found == [(f"s{i}   s{i}", f"t{i}   t{i}") for i in range(len(pairs))]
    assert report.normalised == len(pairs)
    assert text_of(data_config(test=prefix), "test").read() == (src, tgt)


def test_lines_are_cut_at_lf_only_and_lose_one_carriage_return_and_the_byte_order_mark(tmp_path):
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfone\r\n\n two \x0c\xe2\x80\xa8\r\r\nlast\r")
    assert read_lines(tmp_path / "a") == ["one", "", " two \x0c\u2028\r", "last"]
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"a\nb\n"))
    assert read_lines(tmp_path / "b.gz") == ["a", "b"]
    (tmp_path / "empty").write_bytes(b"")
    assert read_lines(tmp_path / "empty") == []


def test_a_blank_line_keeps_its_place_on_either_side(tmp_path):
    prefix = write_bytes(tmp_path / "x", b"1\n\n3\n\n \n6", b"eins\nzwei\n\n\nvier\nsechs\n")
    assert read_pairs(text_of(data_config(train=prefix), "train")) == [
        (b"1", b"eins"),
        (b"", b"zwei"),
        (b"3", b""),
        (b"", b""),
        (b" ", b"vier"),
        (b"6", b"sechs"),
    ]


def test_unequal_line_counts_are_refused_before_the_first_pair_with_both_counts(tmp_path):
    prefix = write_bytes(tmp_path / "x", b"a\n" * 1000, b"b\n" * 998 + b"b")
    with pytest.raises(DataError, match=r"x\.en has 1,000 lines and .*x\.de has 999") as refusal:
        text_of(data_config(train=prefix), "train").pairs()
    assert refusal.value.exit_code == 3
    with pytest.raises(DataError, match="999"):
        text_of(data_config(test=prefix), "test").read()


def test_missing_empty_and_unset_text_is_refused_by_name(tmp_path):
    with pytest.raises(
        DataError,
        match=r"data\.val=.*nowhere: no file .*nowhere\.en or .*nowhere\.en\.gz",
    ):
        text_of(data_config(val=str(tmp_path / "nowhere")), "val").pairs()
    with pytest.raises(DataError, match=rf"; there is no folder {tmp_path}/clone$"):
        text_of(data_config(val=str(tmp_path / "clone/raw/val")), "val").pairs()
    with pytest.raises(DataError, match=r"data\.train: no text in .*x\.en, .*x\.de"):
        text_of(data_config(train=write_bytes(tmp_path / "x", b"", b"")), "train").pairs()
    with pytest.raises(DataError, match=r"data\.test is not set"):
        text_of(data_config(), "test").read()


@pytest.mark.parametrize(
    "content",
    [gzip.compress(b"a\nb\n" * 500)[:-9], b"not gzip", b""],
    ids=["cut", "other", "empty"],
)
def test_a_broken_archive_is_refused_by_name(tmp_path, content):
    for lang in ("en", "de"):
        (tmp_path / f"x.{lang}.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"x\.en\.gz"):
        text_of(data_config(train=str(tmp_path / "x")), "train").pairs()


def test_evaluation_text_is_untouched_and_must_be_utf8(tmp_path):
    prefix = write_bytes(tmp_path / "x", b" a  \n\nc\x00\n", "ä\u2028b\n \n.\n".encode())
    assert text_of(data_config(test=prefix), "test").read() == (
        [" a  ", "", "c\x00"],
        ["ä\u2028b", " ", "."],
    )
    prefix = write_bytes(tmp_path / "y", b"a\nb\n", b"gut\nH\xe4user\n")
    with pytest.raises(DataError, match=r"y\.de \(target\): line 2 is not UTF-8"):
        text_of(data_config(test=prefix), "test").read()


def test_a_file_is_read_again_only_when_it_changed_and_not_trusted_right_after(
    tmp_path, monkeypatch
):
    path = tmp_path / "x"
    path.write_bytes(b"a\nb")
    reads = []
    opened = text_files.opened
    monkeypatch.setattr(
        text_files, "opened", lambda path, is_text: reads.append(path) or opened(path, is_text)
    )
    assert scan(path)[0] == scan(path)[0] == 2
    assert len(reads) == 2
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + int(3e9))
    first = scan(path)
    assert scan(path) == first
    assert len(reads) == 3
    path.write_bytes(b"c\nd")
    assert scan(path)[1] != first[1]


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_a_compressed_file_that_holds_too_much_is_refused_before_it_is_read(
    tmp_path, monkeypatch, suffix
):
    """A file may hold 200 times its size, or as `data.max_expansion` says, and a small file more."""
    for lang in ("en", "de"):
        with text_files.OPENERS[suffix](tmp_path / f"x.{lang}{suffix}", "wb") as file:
            file.write(b"the old house\n" * 100_000)
    path = tmp_path / f"x.en{suffix}"
    ratio = 1_400_000 / path.stat().st_size
    config = data_config(train=f"{tmp_path}/x")
    assert text_of(config, "train").count() == file_chunks(path)[0] == 100_000
    monkeypatch.setattr(text_files, "FREE_EXPANSION", 1000)
    allowed, refused = (replace(config, max_expansion=int(ratio) + n) for n in (1, 0))
    assert text_of(allowed, "train").count() == 100_000
    message = r"x\.en\.\w+: expands to more than {} times its size"
    message += r".* or raise data\.max_expansion$"
    with pytest.raises(DataError, match=message.format(refused.max_expansion)):
        text_of(refused, "train").count()
    monkeypatch.setattr(text_files, "decode", None)  # lines take ten times as long as their bytes
    anew = shutil.copy(path, tmp_path / f"anew{suffix}")  # what was read once is not read again
    with pytest.raises(DataError, match=r"anew\.\w+: .* than 200 times its size.* decompress it$"):
        file_chunks(Path(anew))
    again = shutil.copy(path, tmp_path / f"again{suffix}")
    with pytest.raises(DataError, match=r"again\.\w+: expands to more than 200 times its size"):
        read_parallel("hypotheses", again, 100_000)


def test_a_link_is_read_by_its_own_suffix_as_files_of_hugging_faces_cache_are(tmp_path):
    blob = tmp_path / "blobs/5f2c"
    blob.parent.mkdir()
    blob.write_bytes(gzip.compress(b"ein Haus\nzwei\n"))
    link = tmp_path / "train.de.gz"
    link.symlink_to(blob)

    assert scan(link)[0] == 2
    assert read_lines(link) == ["ein Haus", "zwei"]
    with pytest.raises(DataError, match=r"compressed with gzip; name it \.gz"):
        scan(blob)


def test_a_line_too_long_is_dropped_or_named_and_never_held_in_memory(tmp_path, monkeypatch):
    """The pairs after it stay aligned; a device, or a compressed bomb, without line ends is
    refused.
    """
    long = b"x" * (3 << 20)
    prefix = write_bytes(tmp_path / "x", b"a\n" + long + b"\r\nc\n" + long, b"A\nB\nC\nD\n")
    report = CleaningReport()
    pairs = list(text_of(data_config(train=prefix), "train").pairs())
    assert max(len(pair.src) for pair in pairs) < 40_000
    assert [(pair.src, pair.tgt) for pair in clean(pairs, report)] == [("a", "A"), ("c", "C")]
    assert sum(report.dropped.values()) == 2
    with pytest.raises(DataError, match=r"x\.en: line 2 is longer than 32,768 bytes; split it"):
        read_lines(f"{prefix}.en")
    monkeypatch.setattr(text_files, "ENDLESS", 2 << 20)
    bomb = tmp_path / "bomb.gz"
    bomb.write_bytes(gzip.compress(bytes(5 << 20)))
    for path in (bomb, "/dev/zero"):
        with pytest.raises(DataError, match="a line exceeds 2 MB, so this is not a text file"):
            read_lines(path)
        with pytest.raises(DataError, match="a line exceeds 2 MB"):
            scan(type(tmp_path)(path))
