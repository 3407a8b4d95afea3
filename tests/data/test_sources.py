import pytest
from texts import data_config, read_pairs

from aiayn import phrasebook
from aiayn.data.sources import text_of
from aiayn.errors import DataError


def test_the_phrasebook_goes_both_ways_and_knows_two_languages(monkeypatch):
    monkeypatch.setattr(phrasebook, "VERSION", 7)
    monkeypatch.setattr(
        phrasebook, "pairs", lambda split: [(f"{split} house", "Häuser"), ("b", "c")]
    )
    options = {"source": "phrasebook", "train": "train", "val": "val"}
    assert read_pairs(text_of(data_config(**options), "val")) == [
        (b"val house", "Häuser".encode()),
        (b"b", b"c"),
    ]
    back = data_config(**options, src_lang="de", tgt_lang="en")
    assert text_of(back, "train").read() == (["Häuser", "c"], ["train house", "b"])
    assert 7 in text_of(back, "train").identity()
    with pytest.raises(DataError, match=r"data\.tgt_lang=fr"):
        list(text_of(data_config(**options, tgt_lang="fr"), "train").pairs())
    with pytest.raises(DataError, match=r"data\.test is not set"):
        list(text_of(data_config(**options), "test").pairs())
