import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aiayn.data import cached_tokenizer
from aiayn.data.cached_tokenizer import CachedTokenizer
from aiayn.data.tokenizer import Tokenizer

TEXT = ["The dog's house isn't small.", "Das Haus ist klein, sehr klein.", "Straßen  und Häuser 12", "<s> a </s>"] * 3
PIECES = ["a", "klein", "Haus,", "isn't", "'s", "12b", "ß", "文", "</s>", "\u00ad", "_"]
WHITE = [" ", " ", " ", "  ", "\t", "\u00a0", "\u2028", "\x1f", "\u3000", "\r", "\n"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([TEXT], 312)


def split(ids: np.ndarray, counts: np.ndarray) -> list[list[int]]:
    return [row.tolist() for row in np.split(ids, np.cumsum(counts)[:-1])]


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
def test_every_line_gets_the_ids_that_the_tokenizer_gives_it_whatever_came_before(tokenizer, batches, limit):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cached_tokenizer, "MAX_WORDS", limit)
        encode = CachedTokenizer(tokenizer)
        for lines in batches:
            ids, counts = encode(lines)
            assert split(ids, counts) == tokenizer.encode(lines)
            assert (ids.dtype, counts.sum()) == (np.int32, len(ids))


def test_a_word_is_cut_once_and_forgotten_when_there_are_too_many(tokenizer, monkeypatch):
    seen = []
    cut = tokenizer.encode
    monkeypatch.setattr(tokenizer, "encode", lambda lines: seen.extend(lines) or cut(lines))
    monkeypatch.setattr(cached_tokenizer, "MAX_WORDS", 3)
    encode = CachedTokenizer(tokenizer)
    encode(["ein Haus", "ein Haus ist"])
    encode(["ist ein"])
    assert seen == ["ein", "Haus", "ist"]
    encode(["kein  Haus"])
    encode(["Haus"])
    assert seen == ["ein", "Haus", "ist", "kein  Haus", "Haus"]
