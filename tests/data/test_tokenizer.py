import hashlib
import json
import os
import pickle
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from aiayn.data.cleaning import canonical, normalise
from aiayn.data.encode import CachedTokenizer
from aiayn.data.tokenizer import SPECIAL_IDS, Tokenizer
from aiayn.errors import ConfigError, DataError

TEXT = [
    "The house is small.",
    "Das Haus ist klein, sehr klein.",
    "Straßen und Häuser",
    "<s> is a mark </s>",
] * 3


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([TEXT[:5], TEXT[5:]], 312)


@pytest.fixture(scope="module")
def lower_casing() -> Tokenizer:
    return Tokenizer.train([TEXT], 310, lowercase=True)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        st.one_of(
            st.text(), st.text(" a\t\r\n\x85\u2028\u3000</s>"), st.sampled_from(list(SPECIAL_IDS))
        )
    )
)
def test_any_unicode_survives_encoding_and_decoding(tokenizer, lines):
    ids = tokenizer.encode(lines)
    assert tokenizer.decode(ids) == [canonical(line) for line in lines]
    assert all(i not in SPECIAL_IDS.values() for row in ids for i in row)


@pytest.mark.parametrize(
    "line", ["", " ", "  ", " a", "  a", "a ", "</s>", " <unk>", "a<pad>b", "\x00", "𝄞 文"]
)
def test_hard_strings_survive_too(tokenizer, line):
    assert tokenizer.decode(tokenizer.encode([line])) == [line]


def test_special_ids_are_fixed_and_leave_no_trace_in_text(tokenizer):
    ids = tokenizer.encode(["The house"])[0]
    assert tokenizer.decode([[1, *ids, 2, 0, 0], [3, *ids]]) == ["The house", "The house"]
    assert tokenizer.tokens([0, 1, 2, 3]) == ["<pad>", "<s>", "</s>", "<unk>"]
    [unseen] = tokenizer.encode(["猫"])
    assert "".join(tokenizer.tokens(unseen)).lstrip("▁") == r"\xe7\x8c\xab"


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.one_of(st.text(" aBÄßé.</S>"), st.sampled_from(["Das HAUS", "ÉTÉ", "<S>", "Straßen"]))
    )
)
def test_a_lower_casing_tokenizer_returns_every_text_in_lower_case(lower_casing, lines):
    assert lower_casing.decode(lower_casing.encode(lines)) == [line.lower() for line in lines]


def test_a_lower_casing_tokenizer_learns_no_capital_and_is_stored_and_read_whole(
    lower_casing, tokenizer
):
    again = Tokenizer.from_json(lower_casing.to_json())
    assert again.encode(["Das HAUS"]) == lower_casing.encode(["das haus"])
    assert lower_casing.fingerprint not in (
        tokenizer.fingerprint,
        Tokenizer.train([TEXT], 310).fingerprint,
    )
    [first, second] = lower_casing.encode(["das haus", "das  haus"])
    assert CachedTokenizer(lower_casing)(["Das HAUS", "Das  Haus"]).flat.tolist() == first + second
    learned = [lower_casing.tokens([number])[0] for number in range(260, 310)]
    assert learned == [subword.lower() for subword in learned]


@pytest.mark.parametrize("lines", [["a"], ["!"], ["ü"], ["hallo hallo"], TEXT])
def test_a_vocabulary_beyond_the_text_is_refused_with_one_that_works(lines):
    with pytest.raises(
        DataError, match=r"data\.vocab_size=8000: this text supports at most (\d+); set .*"
    ) as refusal:
        Tokenizer.train([lines], 8000)
    supported = int(str(refusal.value).split("at most ")[1].split(";")[0])
    assert supported >= 261  # the least that the configuration allows
    assert Tokenizer.train([lines], supported).vocab_size == supported
    with pytest.raises(DataError, match=f"at most {supported};"):
        Tokenizer.train([lines], supported + 1)


def test_a_vocabulary_of_260_has_bytes_alone_and_leaves_no_room_for_symbols():
    tokenizer = Tokenizer.train([TEXT], 260)
    for copy in (tokenizer, Tokenizer.from_json(tokenizer.to_json())):
        [ids] = copy.encode(["größer 😀"])
        assert copy.byte_lengths(ids) == [1] * len(" größer 😀".encode())
        assert copy.decode([ids]) == ["größer 😀"]
    with pytest.raises(DataError, match=r"bytes and symbols alone need 262; set .*=262 or more"):
        Tokenizer.train([TEXT], 260, symbols=["<2de>", "<2fr>"])


def test_an_unknown_algorithm_is_refused_with_the_choices():
    with pytest.raises(ConfigError, match=r"algorithm=wordpiece: .* bpe, characters, unigram"):
        Tokenizer.train([TEXT], 300, algorithm="wordpiece")


def test_characters_are_one_id_each_at_most_as_many_as_asked_for_and_others_are_bytes():
    lines = ["größer 鲸鱼", "grün 鲸"] * 3
    whole = Tokenizer.train([lines], 5000, algorithm="characters")
    few = Tokenizer.train([lines], 261, algorithm="characters")

    assert few.vocab_size == 261 < whole.vocab_size < 300
    for tokenizer in (whole, Tokenizer.from_json(whole.to_json())):
        [ids] = tokenizer.encode(["größer 鲸"])
        assert tokenizer.tokens(ids) == ["▁", *"größer", "▁", "鲸"]
        assert CachedTokenizer(tokenizer)(["größer 鲸"]).flat.tolist() == ids
    [rare] = whole.encode(["é"])
    assert whole.byte_lengths(rare) == [1, 1, 1]
    for line in ("größer 鲸", "é", ""):
        assert few.decode(few.encode([line])) == whole.decode(whole.encode([line])) == [line]


def test_json_gives_the_same_tokenizer_back(tokenizer):
    text = tokenizer.to_json()
    for copy in (Tokenizer.from_json(text), pickle.loads(pickle.dumps(tokenizer))):
        assert copy.to_json() == text
        assert (
            copy.fingerprint == tokenizer.fingerprint == hashlib.sha256(text.encode()).hexdigest()
        )
        assert copy.encode([*TEXT, "</s>"]) == tokenizer.encode([*TEXT, "</s>"])
        assert copy.decode(copy.encode(["</s>"])) == ["</s>"]


def test_a_tokenizer_of_targets_brings_that_of_their_sources(tokenizer):
    sources = Tokenizer.train([["другие слова, другие буквы"] * 3], 270)
    both = tokenizer.with_source(sources)
    assert tokenizer.source is tokenizer, "one vocabulary"
    for copy in (both, Tokenizer.from_json(both.to_json()), pickle.loads(pickle.dumps(both))):
        assert copy.source.to_json() == sources.to_json()
        assert (copy.encode(TEXT), copy.vocab_size) == (tokenizer.encode(TEXT), 312)
        assert copy.source.decode(copy.source.encode(["другие"])) == ["другие"]
        assert copy.fingerprint == both.fingerprint != tokenizer.fingerprint
    for forged in ({}, None, json.loads(sources.to_json()) | {"truncation": {}}):
        with pytest.raises(DataError, match="not a tokenizer of this program"):
            Tokenizer.from_json(json.dumps(json.loads(tokenizer.to_json()) | {"source": forged}))


def exchanged(vocab):
    """Two subwords with each other's ids."""
    vocab["e"], vocab["i"] = vocab["i"], vocab["e"]


# What a settings file of the library may also say: other ids and other text, a panic, an abort, or
# minutes of work.
FORGERIES = {
    "dropout": lambda t: t["model"].update(dropout=0.5),
    "another model": lambda t: t["model"].update(type="WordPiece"),
    "truncation": lambda t: t.update(
        truncation={"direction": "Right", "max_length": 2, "strategy": "LongestFirst"}
    ),
    "exchanged ids": lambda t: exchanged(t["model"]["vocab"]),
    "an id too many": lambda t: t["model"]["vocab"].update(zz=10**9),
    "merges in another order": lambda t: t["model"]["merges"].reverse(),
    "merges that double": lambda t: t["model"].update(merges=[["e" * 2**n] * 2 for n in range(9)]),
    "a regex": lambda t: t.update(pre_tokenizer={"type": "Split", "pattern": {"Regex": "(a+)+$"}}),
    "another normalizer": lambda t: t.update(normalizer={"type": "Lowercase"}),
    "another decoder": lambda t: t.update(decoder=None),
    "a further special token": lambda t: t["added_tokens"].append(
        t["added_tokens"][0] | {"id": 4, "content": "e"}
    ),
    "an unknown part": lambda t: t.update(version="2.0", code="x"),
}


@pytest.mark.parametrize("forged", FORGERIES.values(), ids=FORGERIES)
def test_json_that_differs_in_any_piece_from_what_is_written_is_refused(tokenizer, forged):
    content = json.loads(tokenizer.to_json())
    forged(content)
    with pytest.raises(DataError, match="not a tokenizer of this program"):
        Tokenizer.from_json(json.dumps(content))


def test_json_of_other_kinds_is_refused(tokenizer):
    kinds = [
        "",
        "{}",
        "[]",
        "null",
        "7",
        "{",
        "[" * 100_000,
        '{"model": 1}',
        '{"model": {}}',
        '"' + "a" * 99,
    ]
    content = json.loads(tokenizer.to_json())
    for value in (None, True, 7, 1e400, "x", [], {}, [[]], {"a": []}):
        kinds += [
            json.dumps(content | {part: value})
            for part in ("model", "pre_tokenizer", "added_tokens", "decoder")
        ]
        kinds += [
            json.dumps(content | {"model": content["model"] | {part: value}})
            for part in ("vocab", "merges")
        ]
    for text in kinds:
        with pytest.raises(DataError, match="not a tokenizer of this program"):
            Tokenizer.from_json(text)


def test_separate_processes_learn_the_same_bytes_whatever_their_hash_seed_and_threads():
    program = (
        "import random; from aiayn.data.tokenizer import Tokenizer; random.seed(3)\nwords = "
        "[''.join(random.choices('abcdeäß', k=random.randint(1, 9))) for _ in range(3000)]\n"
        "print(Tokenizer.train([[' '.join(words[i:i + 9])] for i in range(0, 3000, 9)], "
        "900).fingerprint)"
    )
    found = set()
    for seed, threads in (("1", "1"), ("2", "2"), ("3", "4")):
        environment = os.environ | {"PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads}
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(done.stdout)
    assert len(found) == 1


def test_a_forked_child_encodes_and_says_nothing():
    program = (
        "import os, signal; from aiayn.data.tokenizer import Tokenizer\n"
        "tokenizer = Tokenizer.train([['a b c'] * 100], 262); tokenizer.encode(['a'] * 1000)\n"
        "if os.fork() == 0:\n"
        "    signal.alarm(20); tokenizer.encode(['a'] * 1000); os._exit(0)\n"
        "print(os.wait()[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.parametrize(
    "change", ["\u00a0", "\u202f", "\t", "\ufeff ", " \u200b", "\u00ad ", "\u2028"]
)
def test_a_blank_or_invisible_character_of_another_kind_changes_no_id(tokenizer, change):
    plain, changed = "The house is small", f"The house{change}is small"
    assert normalise(changed) == plain
    assert tokenizer.encode([changed]) == tokenizer.encode([plain])


ACCENTS = ["Žluťoučký kůň", "한국어 문장입니다", "Tiếng Việt có dấu", "Ångström, größer", "ﬁ ² ½"]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "characters"])
@pytest.mark.parametrize("lowercase", [False, True])
def test_a_letter_has_the_same_subwords_however_unicode_stores_it(kind, lowercase):
    composed, decomposed = (
        [unicodedata.normalize(form, line) for line in ACCENTS * 20] for form in ("NFC", "NFD")
    )
    assert composed != decomposed
    learned = [
        Tokenizer.train([text], 264, algorithm=kind, lowercase=lowercase)
        for text in (composed, decomposed)
    ]
    for tokenizer in learned:
        for copy in (tokenizer, Tokenizer.from_json(tokenizer.to_json())):
            assert copy.encode(composed) == copy.encode(decomposed)
            assert np.array_equal(
                CachedTokenizer(copy)(composed).flat, CachedTokenizer(copy)(decomposed).flat
            )
            lower = [line.lower() if lowercase else line for line in composed]
            assert copy.decode(copy.encode(decomposed)) == lower, (
                "compatibility forms such as ligatures are kept"
            )
    assert kind == "unigram" or learned[0].fingerprint == learned[1].fingerprint


@settings(deadline=None, max_examples=200)
@given(
    st.text(
        st.one_of(
            st.characters(codec="utf-8"),
            st.sampled_from("aeoAO \u0308\u0301\u0338\u1100\u1161\u00ad"),
        )
    )
)
def test_the_library_reads_the_same_text_from_the_stored_file(tokenizer, line):
    core = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    core.encode_special_tokens = True
    assert core.encode(line, add_special_tokens=False).ids == tokenizer.encode([line])[0]
    assert CachedTokenizer(tokenizer)([line]).flat.tolist() == tokenizer.encode([line])[0]
