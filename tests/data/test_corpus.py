import gzip
import json
import socket
import sys
import time
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiayn.config import DataConfig
from aiayn.data import corpus
from aiayn.data.corpus import Report, clean, raw_pairs, read_lines, read_split
from aiayn.errors import DataError

SEPARATORS = ["\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r\n", "\n"]


def config(**changes) -> DataConfig:
    options = {
        "source": "files",
        "hub_path": None,
        "hub_name": None,
        "hub_revision": None,
        "train": None,
        "val": None,
        "test": None,
        "src_lang": "en",
        "tgt_lang": "de",
        "folder": "data",
        "vocab_size": 300,
        "max_length": 20,
        "max_length_ratio": 2.0,
        "tokenizer_pairs": None,
        "tokens_per_step": 100,
        "max_tokens_per_device": 100,
        "micro_batches": None,
        "workers": 0,
    }
    return DataConfig(**(options | changes))


def write(prefix, src: bytes, tgt: bytes) -> str:
    prefix.with_suffix(".en").write_bytes(src)
    prefix.with_suffix(".de").write_bytes(tgt)
    return str(prefix)


# Lines


@settings(deadline=None, max_examples=60)
@given(
    pairs=st.lists(
        st.tuples(st.sampled_from(SEPARATORS[:-2]), st.sampled_from(SEPARATORS[:-2])), min_size=1, max_size=9
    ),
    crlf=st.booleans(),
    last=st.booleans(),
)
def test_no_separator_but_lf_shifts_a_pair(tmp_path_factory, pairs, crlf, last):
    src = [f"s{i} {a} s{i}" for i, (a, _) in enumerate(pairs)]
    tgt = [f"t{i} {b} t{i}" for i, (_, b) in enumerate(pairs)]
    end = "\r\n" if crlf else "\n"
    prefix = write(
        tmp_path_factory.mktemp("lines") / "x",
        (end.join(src) + end * last).encode(),
        ("\n".join(tgt) + "\n").encode(),
    )
    report = Report()
    found = list(clean(raw_pairs(config(train=prefix), "train"), report))
    assert found == [(f"s{i}   s{i}", f"t{i}   t{i}") for i in range(len(pairs))]
    assert report.separators == 2 * len(pairs)
    assert read_split(config(test=prefix), "test") == (src, tgt)


def test_lines_of_a_file_are_cut_at_lf_only_and_lose_one_carriage_return_and_the_mark_at_the_start(tmp_path):
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfone\r\n\n two \x0c\xe2\x80\xa8\r\r\nlast\r")
    assert read_lines(tmp_path / "a") == ["one", "", " two \x0c\u2028\r", "last"]
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"a\nb\n"))
    assert read_lines(tmp_path / "b.gz") == ["a", "b"]
    (tmp_path / "empty").write_bytes(b"")
    assert read_lines(tmp_path / "empty") == []


def test_several_prefixes_plain_and_packed_are_read_one_after_another(tmp_path):
    first = write(tmp_path / "a", b"1\n2", b"eins\nzwei\n")
    for lang, text in (("en", b"3\n"), ("de", b"drei\n")):
        (tmp_path / f"b.{lang}.gz").write_bytes(gzip.compress(text))
    pairs = raw_pairs(config(train=[first, str(tmp_path / "b")]), "train")
    assert list(pairs) == [(b"1", b"eins"), (b"2", b"zwei"), (b"3", b"drei")]


def test_unequal_line_counts_are_refused_before_the_first_pair_with_both_counts(tmp_path):
    prefix = write(tmp_path / "x", b"a\n" * 1000, b"b\n" * 998 + b"b")
    with pytest.raises(DataError, match=r"x\.en has 1000 lines and .*x\.de has 999") as refusal:
        raw_pairs(config(train=prefix), "train")
    assert refusal.value.exit_code == 3
    with pytest.raises(DataError, match="999"):
        read_split(config(test=prefix), "test")


def test_missing_empty_and_unset_text_is_refused_by_name(tmp_path):
    with pytest.raises(DataError, match=r"data\.val=.*nowhere: there is neither .*nowhere\.en nor .*nowhere\.en\.gz"):
        raw_pairs(config(val=str(tmp_path / "nowhere")), "val")
    with pytest.raises(DataError, match=r"data\.train: there is no text in .*x\.en and .*x\.de"):
        raw_pairs(config(train=write(tmp_path / "x", b"", b"")), "train")
    with pytest.raises(DataError, match=r"data\.test is not set"):
        read_split(config(), "test")


@pytest.mark.parametrize("content", [gzip.compress(b"a\nb\n" * 500)[:-9], b"not gzip", b""])
def test_a_broken_archive_is_refused_by_name(tmp_path, content):
    for lang in ("en", "de"):
        (tmp_path / f"x.{lang}.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"x\.en\.gz"):
        raw_pairs(config(train=str(tmp_path / "x")), "train")


def test_utf16_is_recognised(tmp_path):
    (tmp_path / "x").write_bytes("Haus\n".encode("utf-16"))
    with pytest.raises(DataError, match="UTF-16"):
        read_lines(tmp_path / "x")


def test_evaluation_text_is_untouched_and_must_be_utf8(tmp_path):
    prefix = write(tmp_path / "x", b" a  \n\nc\x00\n", "ä\u2028b\n \n.\n".encode())
    assert read_split(config(test=prefix), "test") == ([" a  ", "", "c\x00"], ["ä\u2028b", " ", "."])
    prefix = write(tmp_path / "y", b"a\nb\n", b"gut\nH\xe4user\n")
    with pytest.raises(DataError, match=r"y\.de: line 2 is not UTF-8"):
        read_split(config(test=prefix), "test")


def test_a_file_is_read_again_only_when_it_changed(tmp_path, monkeypatch):
    path = tmp_path / "x"
    path.write_bytes(b"a\nb")
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + int(3e9))
    first = corpus.scan(path)
    assert first["lines"] == 2
    monkeypatch.setattr(corpus, "_open", None)
    assert corpus.scan(path) == first
    monkeypatch.undo()
    path.write_bytes(b"c\nd")
    assert corpus.scan(path)["sha256"] != first["sha256"]


def test_a_file_that_changed_just_now_is_not_trusted_yet(tmp_path):
    (tmp_path / "x").write_bytes(b"a")
    corpus.scan(tmp_path / "x")
    assert str(tmp_path / "x") not in corpus.SCANS


# Cleaning


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"", "empty"),
        ("  \t\u00a0\u2028\u3000".encode(), "empty"),
        (b"H\xe4user", "not_utf8"),
        (b"\xed\xa0\x80", "not_utf8"),  # a lone surrogate
        (b"a\x00b", "control_characters"),
        (b"\x07", "control_characters"),
        ("a\x92b".encode(), "control_characters"),
        (b"x" * 1_000_000, "too_many_bytes"),
    ],
)
def test_a_bad_side_drops_the_pair_and_is_counted_with_its_number(bad, reason):
    report = Report()
    pairs = [(b"a", b"b"), (bad, b"c"), (b"d", bad), (b"e", b"f")]
    assert list(clean(pairs, report)) == [("a", "b"), ("e", "f")]
    assert report == Report(read=4, kept=2, dropped={reason: 2}, first_dropped={reason: [2, 3]}, separators=0)


def test_separators_inside_a_line_become_spaces_and_the_rest_stays():
    report = Report()
    line = "\u2028a" + "b".join(SEPARATORS) + "c\td\u00a0e\u200bf \r"
    assert list(clean([(line.encode(), b" x ")], report)) == [("a" + "b".join(" " * 11) + "c\td\u00a0e\u200bf", "x")]
    assert report.separators == 11


@settings(deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=6), st.one_of(st.binary(max_size=4), st.text().map(str.encode)))))
def test_every_pair_read_is_kept_or_dropped_and_what_is_kept_is_one_line_of_text(pairs):
    report = Report()
    kept = list(clean(pairs, report))
    assert report.read == len(pairs) == report.kept + sum(report.dropped.values())
    assert report.kept == len(kept)
    assert all(text.strip() and len(text.splitlines()) == 1 for pair in kept for text in pair)


def test_only_the_first_five_pairs_of_a_reason_are_listed():
    report = Report()
    assert list(clean([(b"", b"")] * 9, report)) == []
    assert (report.dropped, report.first_dropped) == ({"empty": 9}, {"empty": [1, 2, 3, 4, 5]})


# Hub data sets


@pytest.fixture
def offline(monkeypatch):
    """No connection leaves this process; returns the attempts."""
    attempts = []

    def refuse(*address, **_):
        attempts.append(address)
        raise OSError(101, "Network is unreachable")

    datasets = pytest.importorskip("datasets")
    import huggingface_hub.constants

    for library in (datasets.config, huggingface_hub.constants):
        monkeypatch.setattr(library, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return attempts


@pytest.fixture
def wmt(tmp_path):
    """A folder with the layout and the schema of wmt/wmt14: LANGUAGES/SPLIT-SHARD-of-SHARDS.parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path / "wmt14"
    for language, text in (("de-en", "Häuser"), ("fr-en", "maisons")):
        (folder / language).mkdir(parents=True)
        for name, rows in (("train-00000-of-00002", 3), ("train-00001-of-00002", 2), ("test-00000-of-00001", 1)):
            pairs = [{language[:2]: f"{text} {name} {i}", "en": f"houses\n{name} {i}"} for i in range(rows)]
            pq.write_table(pa.table({"translation": pairs}), folder / language / f"{name}.parquet")
    return folder


def hub(folder, **changes) -> DataConfig:
    defaults = {"train": "train", "val": "validation", "test": "test", "hub_path": str(folder)}
    return config(**({"source": "hub"} | defaults | changes))


def test_a_local_folder_laid_out_like_wmt14_is_read_without_network(wmt, offline):
    german = hub(wmt, hub_name="de-en")
    names = [f"train-00000-of-00002 {i}" for i in range(3)] + [f"train-00001-of-00002 {i}" for i in range(2)]
    assert list(raw_pairs(german, "train")) == [(f"houses {n}".encode(), f"Häuser {n}".encode()) for n in names]
    assert read_split(german, "test") == (["houses test-00000-of-00001 0"], ["Häuser test-00000-of-00001 0"])
    french = hub(wmt, hub_name="fr-en", src_lang="fr", tgt_lang="en")
    assert next(raw_pairs(french, "test")) == (b"maisons test-00000-of-00001 0", b"houses test-00000-of-00001 0")
    assert corpus.identity(german, "train") != corpus.identity(french, "train")
    assert offline == []


def test_columns_named_by_language_as_in_multi30k_are_read_and_nulls_are_empty(tmp_path, offline):
    rows = [{"en": "a dog", "de": "ein Hund"}, {"en": "x", "de": None}]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert list(raw_pairs(hub(tmp_path), "train")) == [(b"a dog", b"ein Hund"), (b"x", b"")]
    with pytest.raises(DataError, match="no language fr among its columns en, de"):
        list(raw_pairs(hub(tmp_path, tgt_lang="fr"), "train"))
    with pytest.raises(DataError, match="split dev"):
        raw_pairs(hub(tmp_path, val="dev"), "val")


def test_a_hub_name_without_network_fails_at_once_with_the_remedies(offline, tmp_path, monkeypatch):
    start = time.monotonic()
    with pytest.raises(DataError) as refusal:
        raw_pairs(hub("some-one/no-such-set"), "train")
    assert time.monotonic() - start < 2
    message = str(refusal.value)
    assert "no connection" in message
    assert "data.hub_path=FOLDER" in message
    assert "data=files data.train=PREFIX" in message
    assert "\n" not in message
    assert len(offline) == 1  # the probe; the library never tried


def test_a_hub_folder_that_is_not_there_is_not_looked_for_on_the_hub(offline, tmp_path):
    with pytest.raises(DataError, match="no such folder"):
        raw_pairs(hub(tmp_path / "gone"), "train")
    assert offline == []


def test_without_datasets_installed_the_message_says_so(monkeypatch, wmt):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match="pip install datasets"):
        raw_pairs(hub(wmt, hub_name="de-en"), "train")


# The phrasebook


def test_the_phrasebook_goes_both_ways_and_knows_two_languages(monkeypatch):
    book = SimpleNamespace(VERSION=7, pairs=lambda split: [(f"{split} house", "Häuser"), ("b", "c")])
    monkeypatch.setitem(sys.modules, "aiayn.data.phrasebook", book)
    monkeypatch.setattr("aiayn.data.phrasebook", book, raising=False)
    options = {"source": "phrasebook", "train": "train", "val": "val"}
    assert list(raw_pairs(config(**options), "val")) == [(b"val house", "Häuser".encode()), (b"b", b"c")]
    back = config(**options, src_lang="de", tgt_lang="en")
    assert read_split(back, "train") == (["Häuser", "c"], ["train house", "b"])
    assert 7 in corpus.identity(back, "train")
    with pytest.raises(DataError, match=r"data\.tgt_lang=fr"):
        list(raw_pairs(config(**options, tgt_lang="fr"), "train"))
    with pytest.raises(DataError, match=r"data\.test is not set"):
        list(raw_pairs(config(**options), "test"))
