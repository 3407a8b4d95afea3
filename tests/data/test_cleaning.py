import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from texts import SEPARATORS

from aiayn.data.cleaning import CleaningReport, clean


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
    report = CleaningReport()
    pairs = [(b"a", b"b"), (bad, b"c"), (b"d", bad), (b"e", b"f")]
    assert list(clean(pairs, report)) == [("a", "b"), ("e", "f")]
    assert report == CleaningReport(read=4, kept=2, dropped={reason: 2}, first_dropped={reason: [2, 3]}, separators=0)


def test_separators_inside_a_line_become_spaces_and_the_rest_stays():
    report = CleaningReport()
    line = "\u2028a" + "b".join(SEPARATORS) + "c\td\u00a0e\u200bf \r"
    assert list(clean([(line.encode(), b" x ")], report)) == [("a" + "b".join(" " * 11) + "c\td\u00a0e\u200bf", "x")]
    assert report.separators == 11


@settings(deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=6), st.one_of(st.binary(max_size=4), st.text().map(str.encode)))))
def test_every_pair_read_is_kept_or_dropped_and_what_is_kept_is_one_line_of_text(pairs):
    report = CleaningReport()
    kept = list(clean(pairs, report))
    assert report.read == len(pairs) == report.kept + sum(report.dropped.values())
    assert report.kept == len(kept)
    assert all(text.strip() and len(text.splitlines()) == 1 for pair in kept for text in pair)


def test_only_the_first_five_pairs_of_a_reason_are_listed():
    report = CleaningReport()
    assert list(clean([(b"", b"")] * 9, report)) == []
    assert (report.dropped, report.first_dropped) == ({"empty": 9}, {"empty": [1, 2, 3, 4, 5]})
