from types import SimpleNamespace

import pytest
from texts import data_config

import aiayn
from aiayn.data import sources
from aiayn.data.sources import raw_pairs, read_split
from aiayn.data.text_files import FileScans
from aiayn.errors import DataError


def test_the_phrasebook_goes_both_ways_and_knows_two_languages(monkeypatch):
    book = SimpleNamespace(VERSION=7, pairs=lambda split: [(f"{split} house", "Häuser"), ("b", "c")])
    monkeypatch.setattr(aiayn, "phrasebook", book, raising=False)  # an attribute once it has been imported
    options = {"source": "phrasebook", "train": "train", "val": "val"}
    assert list(raw_pairs(data_config(**options), "val", FileScans())) == [
        (b"val house", "Häuser".encode()),
        (b"b", b"c"),
    ]
    back = data_config(**options, src_lang="de", tgt_lang="en")
    assert read_split(back, "train") == (["Häuser", "c"], ["train house", "b"])
    assert 7 in sources.text_key(back, "train", FileScans())
    with pytest.raises(DataError, match=r"data\.tgt_lang=fr"):
        list(raw_pairs(data_config(**options, tgt_lang="fr"), "train", FileScans()))
    with pytest.raises(DataError, match=r"data\.test is not set"):
        list(raw_pairs(data_config(**options), "test", FileScans()))
