"""The built-in corpus: its promises as a data set, and its German, checked by hand."""

import bz2
import hashlib
import re

import generate
import pytest
from generate import held_out, splits
from lexicon import ADJECTIVE, NOUNS, VERB

from aiayn import phrasebook
from aiayn.phrasebook import pairs

SPLITS = ("train", "val", "test")
HASHES = {
    "train": "66fd21ecdca75f32e95a8f9342aea107ac3d95fd4a0a4216b3a8dde9daf997b5",
    "val": "a3800228d89cc675a1e33a99ee974b16fdcd07a06aed14a4faad55fcd16a9da8",
    "test": "d3ac080785e75cb627be0d42494e3539ce29d85b120bfb41b495be50b2d26561",
}


def words(text: str) -> list[str]:
    return re.findall(r"[^\s.,?]+", text)


def digest(split: str) -> str:
    return hashlib.sha256("".join(f"{en}\t{de}\n" for en, de in pairs(split)).encode()).hexdigest()


# The corpus


def test_the_splits_have_their_sizes():
    assert {split: len(pairs(split)) for split in SPLITS} == {
        "train": 38_000,
        "val": 1_000,
        "test": 1_000,
    }


def test_no_sentence_occurs_twice_in_any_split_on_either_side():
    every = [pair for split in SPLITS for pair in pairs(split)]
    assert len({en for en, _ in every}) == len({de for _, de in every}) == len(every)


@pytest.mark.slow
def test_the_generator_makes_the_same_bytes_again():
    assert generate.text() == bz2.decompress(generate.FILE.read_bytes())


def test_the_bytes_belong_to_the_version():
    """If this fails on purpose, raise phrasebook.VERSION and pin the new digests."""
    assert (phrasebook.VERSION, {split: digest(split) for split in SPLITS}) == (2, HASHES)


@pytest.mark.slow
def test_every_test_sentence_has_a_combination_that_training_and_validation_do_not():
    known = {
        combo
        for split in ("train", "val")
        for sentence in splits()[split]
        for combo in sentence.combos
    }
    for sentence in splits()["test"]:
        assert set(sentence.combos) - known, sentence.en
    assert not any(map(held_out, known))


def test_no_held_out_combination_can_be_read_in_the_english_text_of_training():
    """The same promise without the records: adjective and noun side by side, verb and object a
    determiner apart.
    """
    determiners = ["the", "a", "an", "this", "these", "my", "your", "his", "her", "our", "their"]
    forbidden = set()
    for noun in NOUNS:
        for form in {noun.en, noun.en_plural} - {"-"}:
            forbidden |= {
                f"{adjective} {form}" for adjective in ADJECTIVE if held_out((adjective, noun.en))
            }
            for verb in VERB.values():
                # Not "would like to"
                if verb.lemma not in ("have", "like") and held_out((verb.lemma, noun.en)):
                    said = {f"{verb_form} {verb.particle}".rstrip() for verb_form in verb.en}
                    forbidden |= {
                        f"{verb_form} {the} {form}" for verb_form in said for the in determiners
                    }
    for en, _ in pairs("train"):
        said = words(en.lower())
        runs = {" ".join(said[i : i + n]) for n in (2, 3, 4) for i in range(len(said) - n + 1)}
        assert not (forbidden & runs), en


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("split", ["val", "test"])
def test_every_word_is_known_from_at_least_five_training_sentences(split, side):
    counts: dict[str, int] = {}
    for pair in pairs("train"):
        for word in set(words(pair[side])):
            counts[word] = counts.get(word, 0) + 1
    assert not {
        word for pair in pairs(split) for word in words(pair[side]) if counts.get(word, 0) < 5
    }
