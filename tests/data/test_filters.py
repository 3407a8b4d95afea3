"""Rules that drop training pairs, each with an option of its own and a count in the report."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from texts import data_config, write_lines

from aiayn.data.preparation import prepare_corpus
from aiayn.errors import ConfigError

PAIRS = [
    ("The house.", "Das Haus."),
    ("a \x00", "b"),
    ("The house.", "Das Haus."),
    ("the HOUSE", "das Haus!"),
    ("The house.", "Das Heim."),
    ("Linux", "LINUX!"),
    ("Chapter 12", "Kapitel 13"),
    ("1,234.5 apples", "1.234,5 Äpfel"),
    ("Open {name} <b>now</b>", "{name} <b>jetzt</b> öffnen"),
    ("Open {name} now", "Jetzt öffnen"),
    ("See https://a.org/b.", "Siehe https://a.org/c."),
    ("12:30", "12.30 Uhr"),
]
EXPECTED = {
    ("drop_duplicates", "exact"): {"duplicate": [3]},
    ("drop_duplicates", "normalised"): {"duplicate": [3, 4]},
    ("drop_equal", True): {"equal_sides": [6]},
    ("drop_without_letters", True): {"without_letters": [12]},
    ("drop_placeholder_mismatch", True): {"placeholders": [10, 11]},
}


@pytest.fixture
def config(tmp_path):
    filler = [(f"house {n} and {n + 1}", f"Haus {n} und {n + 1}") for n in range(40)]
    train = write_lines(
        tmp_path / "train", *([pair[side] for pair in PAIRS + filler] for side in (0, 1))
    )
    val = write_lines(tmp_path / "val", ["same", "a 1", "a 1"], ["same", "b 2", "b 2"])
    return data_config(train=train, val=val, folder=str(tmp_path / "data"), max_length=60)


@pytest.mark.parametrize(("option", "value"), EXPECTED)
def test_a_rule_drops_what_it_names_counts_it_and_leaves_the_rest(config, option, value):
    plain, found = prepare_corpus(config), prepare_corpus(replace(config, **{option: value}))
    dropped = EXPECTED[option, value]
    report = found.report["train"]
    assert report["dropped"] == {"control_characters": 1} | {
        reason: len(where) for reason, where in dropped.items()
    }
    for reason, where in dropped.items():
        assert [int(place.rsplit(" ", 1)[1]) for place in report["first_dropped"][reason]] == where
    assert report["kept"] == len(found.train) == len(plain.train) - sum(map(len, dropped.values()))
    assert found.report["val"] == plain.report["val"]  # validation measures all of its text
    assert found.fingerprint != plain.fingerprint


def test_pairs_that_are_dropped_for_their_length_are_not_counted_as_normalised(config):
    write_lines(Path(config.train), ["a\u00a0b", "c\u00a0d " + "e " * 99, "f"], ["g", "h", "i"])
    report = prepare_corpus(replace(config, vocab_size=261)).report["train"]
    assert (report["kept"], report["dropped"], report["normalised"]) == (2, {"too_long": 1}, 1)


def test_a_pair_that_is_dropped_for_its_length_does_not_hide_its_twin(config):
    write_lines(Path(config.train), ["one" + "!" * 99, "one", "One."], ["eins", "eins", "Eins"])
    prepared = prepare_corpus(replace(config, vocab_size=261, drop_duplicates="normalised"))
    assert prepared.report["train"]["dropped"] == {"length_ratio": 1, "duplicate": 1}
    assert prepared.tokenizer.decode([prepared.train.src[0].tolist()]) == ["one"]


def test_a_text_of_which_most_is_dropped_is_warned_of_as_is_one_in_letters_that_a_vocabulary_lacks(
    config, caplog
):
    tokenizer = prepare_corpus(config).tokenizer
    write_lines(
        Path(config.train), ["house 12", "house 13", "house 14"], ["घर " * 4, "घर " * 5, "Haus 14"]
    )
    for ratio in (100, 4):
        assert "most pairs" not in caplog.text
        prepare_corpus(
            replace(config, vocab_size=tokenizer.vocab_size, max_length_ratio=ratio), tokenizer
        )
    assert (
        f"warning: most pairs of data.train={config.train} are dropped, mainly as length_ratio"
        in caplog.text
    )


def test_all_rules_together_and_a_vocabulary_of_fewer_pairs(config, caplog):
    caplog.set_level("INFO", "aiayn")
    rules = {option: value for option, value in EXPECTED if value != "exact"}
    report = prepare_corpus(replace(config, **rules, tokenizer_pairs=45)).report["train"]
    assert {
        reason: count
        for reason, count in report["dropped"].items()
        if reason != "control_characters"
    } == {
        "duplicate": 2,
        "equal_sides": 1,
        "placeholders": 2,
        "without_letters": 1,
    }
    said = (
        "45 training and 3 validation pairs; 7 training pairs dropped (control_characters: 1, "
        "duplicate: 2, equal_sides: 1, placeholders: 2, without_letters: 1)"
    )
    assert caplog.messages[-1].endswith(said)


def test_every_dropped_pair_is_written_on_demand_also_for_a_corpus_that_is_there(config):
    ruled = replace(config, drop_duplicates="exact", drop_placeholder_mismatch=True)
    prepared = prepare_corpus(ruled)
    path = prepared.folder / "dropped.jsonl"
    assert not path.exists()
    again = prepare_corpus(replace(ruled, write_dropped=True))
    assert again.fingerprint == prepared.fingerprint
    found = [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]]
    found.sort(key=lambda one: int(one["place"].rsplit(" ")[-1]))
    assert [(one["split"], one["reason"], one["source"], one["target"]) for one in found] == [
        ("train", "control_characters", "a \x00", "b"),
        ("train", "duplicate", "The house.", "Das Haus."),
        ("train", "placeholders", "Open {name} now", "Jetzt öffnen"),
        ("train", "placeholders", "See https://a.org/b.", "Siehe https://a.org/c."),
    ]
    assert [one["place"].rsplit(": ")[1] for one in found] == [
        "line 2",
        "line 3",
        "line 10",
        "line 11",
    ]
    assert len(found) == sum(prepared.report["train"]["dropped"].values())
    assert prepare_corpus(ruled).fingerprint == prepared.fingerprint


def test_another_kind_of_duplicates_is_refused():
    with pytest.raises(
        ConfigError, match=r"data\.drop_duplicates=fuzzy: choose one of exact, normalised"
    ):
        data_config(drop_duplicates="fuzzy")
