"""Which pairs are usable, and as what text."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from texts import SEPARATORS, data_config, raw_pairs

from aiayn.data.cleaning import (
    CleaningReport,
    clean,
    folded,
    normalise,
    pair_hash,
    training_rules,
)


def texts(pairs, report=None, rules=()) -> list[tuple[str, str]]:
    return [
        (pair.src, pair.tgt) for pair in clean(raw_pairs(pairs), report or CleaningReport(), rules)
    ]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"", "empty"),
        ("  \t\u00a0\u2028\u3000".encode(), "empty"),
        ("\u200b\u200e\u200f \ufeff".encode(), "empty"),
        ("\u3164".encode(), "empty"),
        ("\u2800\u180e".encode(), "empty"),
        (b"H\xe4user", "not_utf8"),
        (b"\xed\xa0\x80", "not_utf8"),  # a lone surrogate
        (b"a\x00b", "control_characters"),
        (b"\x07", "control_characters"),
        ("a\x92b".encode(), "control_characters"),
        (b"x" * 32_769, "too_many_bytes"),
    ],
)
def test_a_bad_side_drops_the_pair_and_is_counted_with_its_place(bad, reason):
    report = CleaningReport()
    longest = "x" * 32_768
    pairs = [(b"a", longest.encode()), (bad, b"c"), (b"d", bad), (b"e", b"f")]
    assert texts(pairs, report) == [("a", longest), ("e", "f")]
    assert report == CleaningReport(
        read=4,
        kept=2,
        dropped={reason: 2},
        first_dropped={reason: ["text: line 2", "text: line 3"]},
    )


@pytest.mark.parametrize(
    "blank", ["\u00a0", "\u202f", "\t", "\u2009", "\u3000", "\u205f", *SEPARATORS]
)
def test_an_unusual_blank_or_line_end_is_a_space(blank):
    report = CleaningReport()
    assert texts([(f"a{blank}b".encode(), f" x{blank}".encode())], report) == [("a b", "x")]
    assert report.normalised == 1


@pytest.mark.parametrize(
    "invisible", ["\ufeff", "\u200b", "\u00ad", "\u200e", "\u2060", "\u202b", "\u2067"]
)
def test_an_invisible_character_goes_wherever_it_is(invisible):
    assert texts([(f"{invisible}ab{invisible}c {invisible}".encode(), b"x")]) == [("abc", "x")]


def test_text_is_composed_and_counted_where_it_was_not():
    report = CleaningReport()
    assert (
        texts([("gro\u0308\u00dfer".encode(), b"x"), ("größer".encode(), b"x")], report)
        == [("größer", "x")] * 2
    )
    assert report.normalised == 1


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.binary(max_size=6), st.one_of(st.binary(max_size=4), st.text().map(str.encode))
        )
    )
)
def test_every_pair_read_is_kept_or_dropped_and_what_is_kept_is_one_line_of_visible_text(pairs):
    report = CleaningReport()
    kept = texts(pairs, report)
    assert report.read == len(pairs) == report.kept + sum(report.dropped.values())
    assert report.kept == len(kept)
    for text in (text for pair in kept for text in pair):
        assert text == text.strip() == normalise(text) != ""
        assert len(text.splitlines()) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The HOUSE!", "the house"),
        ("Café", "Cafe\u0301"),
        ("a - b", "a b"),
        ("ﬁne…", "fine"),
        ("_x_", "x"),
    ],
)
def test_case_punctuation_and_form_do_not_make_texts_differ(one, other):
    assert folded(one) == folded(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("वह काला है", "वह काली है"),  # "is black", masculine and feminine
        ("ก่า", "กา"),
        ("كتَبَ", "كُتُب"),
        ("வா", "வி"),
        ("2 + 2", "2 - 2"),
        ("x < y", "x > y"),
        ("C++", "C"),
        ("12", "13"),
        ("!", "?"),
    ],
)
def test_letters_with_their_marks_numbers_and_symbols_make_texts_differ(one, other):
    assert folded(one) != folded(other)


@given(st.text())
def test_no_letter_mark_or_number_of_a_text_is_lost_when_it_is_compared(text):
    def kept(line: str) -> list[str]:
        folded = unicodedata.normalize("NFKC", line).casefold()
        return [c for c in folded if unicodedata.category(c)[0] in "LMN"]

    assert kept(folded(text)) == kept(folded(folded(text)))
    assert len(kept(folded(text))) == len(kept(text))


def test_a_pair_that_another_rule_drops_does_not_hide_its_twin():
    rules = training_rules(
        data_config(drop_placeholder_mismatch=True, drop_duplicates="normalised")
    )
    pairs = [(b"Open {name}", b"Oeffne"), (b"open name", b"oeffne"), (b"OPEN NAME", b"oeffne!")]
    report = CleaningReport()
    assert texts(pairs, report, rules) == [("open name", "oeffne")]
    assert report.dropped == {"placeholders": 1, "duplicate": 1}


@pytest.mark.parametrize("kind", ["exact", "normalised"])
def test_of_100_000_pairs_every_repetition_is_a_duplicate_and_no_other_pair(kind):
    [(reason, is_faulty)] = training_rules(data_config(drop_duplicates=kind))
    pairs = [(f"house {number}", f"Haus {number}") for number in range(100_000)]

    assert reason == "duplicate"
    assert max(pair_hash(*pair) for pair in pairs[:100]).bit_length() == 64
    assert not any(is_faulty(*pair) for pair in pairs)
    for _ in range(3):
        assert all(is_faulty(*pair) for pair in pairs[::1000])
