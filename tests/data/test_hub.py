import json
import socket
import time

import pytest
from texts import data_config, read_pairs

from aiayn.config.data import DataConfig
from aiayn.data.preparation import prepare_corpus
from aiayn.data.sources import HubText, text_of
from aiayn.errors import DataError


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
    """A folder with the layout and the schema of wmt/wmt14:
    LANGUAGES/SPLIT-SHARD-of-SHARDS.parquet.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path / "wmt14"
    for language, text in (("de-en", "Häuser"), ("fr-en", "maisons")):
        (folder / language).mkdir(parents=True)
        for name, rows in (
            ("train-00000-of-00002", 3),
            ("train-00001-of-00002", 2),
            ("test-00000-of-00001", 1),
        ):
            pairs = [
                {language[:2]: f"{text} {name} {i}", "en": f"houses\n{name} {i}"}
                for i in range(rows)
            ]
            pq.write_table(pa.table({"translation": pairs}), folder / language / f"{name}.parquet")
    return folder


def hub(path, **changes) -> DataConfig:
    defaults = {"train": "train", "val": "validation", "test": "test", "hub_path": str(path)}
    return data_config(**({"source": "hub"} | defaults | changes))


def test_a_local_folder_laid_out_like_wmt14_is_read_without_network(wmt, offline):
    german = hub(wmt, hub_name="de-en")
    names = [f"train-00000-of-00002 {i}" for i in range(3)] + [
        f"train-00001-of-00002 {i}" for i in range(2)
    ]
    assert read_pairs(text_of(german, "train")) == [
        (f"houses {n}".encode(), f"Häuser {n}".encode()) for n in names
    ]
    assert text_of(german, "test").read() == (
        ["houses test-00000-of-00001 0"],
        ["Häuser test-00000-of-00001 0"],
    )
    french = hub(wmt, hub_name="fr-en", src_lang="fr", tgt_lang="en")
    assert next(text_of(french, "test").pairs())[2:4] == (
        b"maisons test-00000-of-00001 0",
        b"houses test-00000-of-00001 0",
    )
    assert text_of(german, "train").identity() != text_of(french, "train").identity()
    assert offline == []


def test_two_configurations_of_one_folder_are_two_texts(tmp_path, offline):
    entries = ""
    for name in ("news", "talks"):
        (tmp_path / f"{name}.jsonl").write_text(
            json.dumps({"en": f"{name} dog", "de": f"{name} Hund"}) + "\n"
        )
        entries += f"- config_name: {name}_de_en\n  data_files: {name}.jsonl\n"
    (tmp_path / "README.md").write_text(f"---\nconfigs:\n{entries}---\n")
    news, talks = (
        text_of(hub(tmp_path, hub_name=f"{name}_de_en"), "train") for name in ("news", "talks")
    )
    assert read_pairs(news) == [(b"news dog", b"news Hund")]
    assert read_pairs(talks) == [(b"talks dog", b"talks Hund")]
    assert news.identity() != talks.identity()


def test_an_archive_beside_the_files_of_a_folder_is_part_of_what_identifies_it(tmp_path, offline):
    (tmp_path / "train.jsonl").write_text(json.dumps({"en": "a dog", "de": "ein Hund"}) + "\n")
    (tmp_path / "original.zip").write_bytes(b"PK\3\4 first")
    text = text_of(hub(tmp_path, hub_name=None), "train")
    before = text.identity()
    assert read_pairs(text) == [(b"a dog", b"ein Hund")]
    (tmp_path / "original.zip").write_bytes(b"PK\3\4 other")
    assert text.identity() != before


def test_columns_named_by_language_as_in_multi30k_are_read_and_nulls_are_empty(tmp_path, offline):
    rows = [{"en": "a dog", "de": "ein Hund"}, {"en": "x", "de": None}]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_pairs(text_of(hub(tmp_path), "train")) == [(b"a dog", b"ein Hund"), (b"x", b"")]
    with pytest.raises(DataError, match="no column fr among en, de"):
        list(text_of(hub(tmp_path, tgt_lang="fr"), "train").pairs())
    with pytest.raises(DataError, match="split dev"):
        text_of(hub(tmp_path, val="dev"), "val").pairs()


def test_a_prepared_corpus_is_opened_without_its_text(tmp_path, offline, monkeypatch):
    (tmp_path / "set").mkdir()
    for split in ("train", "validation", "test"):
        rows = [
            {"en": f"{split} dog {number}", "de": f"{split} Hund {number}"} for number in range(40)
        ]
        (tmp_path / f"set/{split}.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in rows)
        )
    config = hub(tmp_path / "set", hub_name=None, vocab_size=270, folder=str(tmp_path / "data"))
    built = prepare_corpus(config)
    monkeypatch.setattr(HubText, "_load", lambda self, name: pytest.fail(f"it loads {name}"))
    assert prepare_corpus(config).fingerprint == built.fingerprint
    assert offline == []


def test_a_hub_name_without_network_fails_at_once_with_the_remedies(offline, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail(f"it waits {seconds} seconds"))
    with pytest.raises(DataError) as refusal:
        text_of(hub("some-one/no-such-set"), "train").pairs()
    message = str(refusal.value)
    assert "the hub is offline" in message
    assert "data.hub_path=FOLDER" in message
    assert "data=files data.train=PREFIX" in message
    assert "\n" not in message
    assert len(offline) <= 2  # one request, which its client may repeat; the library never tried
