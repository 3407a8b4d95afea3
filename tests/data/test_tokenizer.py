import hashlib
import json
import os
import pickle
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiayn.data.tokenizer import SPECIAL_IDS, Tokenizer
from aiayn.errors import DataError

TEXT = ["The house is small.", "Das Haus ist klein, sehr klein.", "Straßen und Häuser", "<s> is a mark </s>"] * 3


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([TEXT[:5], TEXT[5:]], 312)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.one_of(st.text(), st.text(" a\t\r\n\x85\u2028\u3000</s>"), st.sampled_from(list(SPECIAL_IDS)))))
def test_any_unicode_survives_encoding_and_decoding(tokenizer, lines):
    ids = tokenizer.encode(lines)
    assert tokenizer.decode(ids) == lines
    assert all(i not in SPECIAL_IDS.values() for row in ids for i in row)


@pytest.mark.parametrize(
    "line", ["", " ", "  ", " a", "  a", "a ", "</s>", " <unk>", "a<pad>b", "\x00", "\ufeff", "𝄞 文"]
)
def test_hard_strings_survive_too(tokenizer, line):
    assert tokenizer.decode(tokenizer.encode([line])) == [line]


def test_special_ids_are_fixed_and_leave_no_trace_in_text(tokenizer):
    ids = tokenizer.encode(["The house"])[0]
    assert tokenizer.decode([[1, *ids, 2, 0, 0], [3, *ids]]) == ["The house", "The house"]
    assert tokenizer.tokens([0, 1, 2, 3]) == ["<pad>", "<s>", "</s>", "<unk>"]


def test_the_first_word_is_the_same_subword_as_in_the_middle(tokenizer):
    assert tokenizer.encode(["klein"])[0] == tokenizer.encode(["klein klein"])[0][: len(tokenizer.encode(["klein"])[0])]
    assert tokenizer.tokens(tokenizer.encode(["ist ist"])[0]) == ["▁ist", "▁ist"]


def test_ids_number_exactly_the_vocabulary_that_was_asked_for(tokenizer):
    assert tokenizer.vocab_size == 312
    assert max(i for row in tokenizer.encode(TEXT) for i in row) < 312


@pytest.mark.parametrize("lines", [["a"], ["!"], ["ü"], ["hallo hallo"], TEXT])
def test_a_vocabulary_beyond_the_text_is_refused_with_one_that_works(lines):
    with pytest.raises(DataError, match=r"data\.vocab_size=8000: this text supports at most (\d+); set .*") as refusal:
        Tokenizer.train([lines], 8000)
    supported = int(str(refusal.value).split("at most ")[1].split(";")[0])
    assert supported >= 261  # the least that the configuration allows
    assert Tokenizer.train([lines], supported).vocab_size == supported
    with pytest.raises(DataError, match=f"at most {supported};"):
        Tokenizer.train([lines], supported + 1)


def test_json_gives_the_same_tokenizer_back(tokenizer):
    text = tokenizer.to_json()
    for copy in (Tokenizer.from_json(text), pickle.loads(pickle.dumps(tokenizer))):
        assert copy.to_json() == text
        assert copy.fingerprint == tokenizer.fingerprint == hashlib.sha256(text.encode()).hexdigest()
        assert copy.encode([*TEXT, "</s>"]) == tokenizer.encode([*TEXT, "</s>"])
        assert copy.decode(copy.encode(["</s>"])) == ["</s>"]


def test_json_of_another_program_is_refused(tokenizer):
    with pytest.raises(DataError, match="not a tokenizer"):
        Tokenizer.from_json("{}")
    foreign = json.loads(tokenizer.to_json())
    foreign["added_tokens"][0]["content"] = "[PAD]"
    with pytest.raises(DataError, match="special tokens"):
        Tokenizer.from_json(json.dumps(foreign))


def test_separate_processes_learn_the_same_bytes_whatever_their_hash_seed_and_threads():
    program = (
        "import random; from aiayn.data.tokenizer import Tokenizer; random.seed(3)\n"
        "words = [''.join(random.choices('abcdeäß', k=random.randint(1, 9))) for _ in range(3000)]\n"
        "print(Tokenizer.train([[' '.join(words[i:i + 9])] for i in range(0, 3000, 9)], 900).fingerprint)"
    )
    found = set()
    for seed, threads in (("1", "1"), ("2", "2"), ("3", "4")):
        environment = os.environ | {"PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
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
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_pieces_for_pictures_spell_the_line(tokenizer):
    ids = tokenizer.encode(["Straßen und Häuser"])[0]
    assert "".join(tokenizer.tokens(ids)) == "▁Straßen▁und▁Häuser"
    assert "\ufffd" in "".join(tokenizer.tokens(tokenizer.encode(["文"])[0]))
