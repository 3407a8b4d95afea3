"""Encoding a corpus, against the tokenizer itself."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aiayn.data import encode as encoding
from aiayn.data.cleaning import CleanPair
from aiayn.data.encode import CachedTokenizer, Sentences, encode
from aiayn.data.raw_text import RawPair
from aiayn.data.tokenizer import Tokenizer

TEXT = [
    "The dog's house isn't small.",
    "Das Haus ist klein, sehr klein.",
    "Straßen  und Häuser 12",
    "<s> a </s>",
] * 3
PIECES = ["a", "klein", "Haus,", "isn't", "'s", "12b", "ß", "文", "</s>", "\u00ad", "_"]
WHITE = ["\u2800", " ", " ", " ", "  ", "\t", "\u00a0", "\u2028", "\x1f", "\u3000", "\r", "\n"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([TEXT], 312)


def rows(ids: Sentences) -> list[list[int]]:
    return [ids[number].tolist() for number in range(len(ids))]


@given(
    batches=st.lists(
        st.lists(
            st.text()
            | st.lists(st.sampled_from([*PIECES, " ", " ", "  "]), max_size=12).map("".join)
            | st.lists(st.sampled_from(PIECES + WHITE), max_size=12).map("".join),
            min_size=1,
            max_size=6,
        ),
        min_size=1,
        max_size=4,
    ),
    limit=st.sampled_from([0, 3, 10**6]),
)
@example(batches=[["a  klein", " a", "a ", "", " ", "a \t\u00a0 a"]], limit=10**6)
def test_every_line_gets_the_ids_that_the_tokenizer_gives_it_whatever_came_before(
    tokenizer, batches, limit
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "MAX_WORDS", limit)
        cached = CachedTokenizer(tokenizer)
        for lines in batches:
            ids = cached(lines)
            assert rows(ids) == tokenizer.encode(lines)
            assert (ids.flat.dtype, ids.lengths.sum()) == (np.uint16, len(ids.flat) + len(lines))


def pairs_of(count: int) -> list[CleanPair]:
    raw = RawPair("file", 1, b"", b"")
    return [
        CleanPair(raw, f"house {number} small", f"Haus {number * 7} klein", False)
        for number in range(count)
    ]


def test_text_is_encoded_in_order_by_several_processes_in_any_chunks(tokenizer, monkeypatch):
    monkeypatch.setattr(encoding, "CHUNK_PAIRS", 7)
    monkeypatch.setattr(encoding, "SEVERAL", 2)
    pairs, sources = pairs_of(95), Tokenizer.train([["house and housing"] * 3], 270)
    for processes, own in ((1, tokenizer), (3, tokenizer), (3, sources)):
        both = tokenizer if own is tokenizer else tokenizer.with_source(own)
        chunks = list(encode(iter(pairs), both, processes))
        assert [pair for chunk, _, _ in chunks for pair in chunk] == pairs
        assert [ids for _, src, _ in chunks for ids in rows(src)] == own.encode(
            [pair.src for pair in pairs]
        )
        assert [ids for _, _, tgt in chunks for ids in rows(tgt)] == tokenizer.encode(
            [pair.tgt for pair in pairs]
        )
    monkeypatch.setattr(encoding, "CHUNK_CHARACTERS", 60)
    assert [len(chunk) for chunk, _, _ in encode(iter(pairs[:9]), tokenizer, 1)] == [3, 3, 3]


def test_sentences_are_left_out_with_their_ids():
    kept = Sentences.of([[5, 6], [7], [8, 9, 10]]).take(np.array([0, 2]))
    assert (rows(kept), kept.lengths.tolist()) == ([[5, 6], [8, 9, 10]], [3, 4])
