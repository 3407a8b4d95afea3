"""The built-in corpus: its promises as a data set, and its German, checked by hand."""

import bz2
import hashlib
import re
from functools import cache

import generate
import pytest
from generate import held_out, splits
from lexicon import ADJECTIVE, NOUNS, VERB
from sentences import KINDS, Dice

from aiayn import phrasebook
from aiayn.phrasebook import pairs

SPLITS = ("train", "val", "test")
HASHES = {
    "train": "66fd21ecdca75f32e95a8f9342aea107ac3d95fd4a0a4216b3a8dde9daf997b5",
    "val": "a3800228d89cc675a1e33a99ee974b16fdcd07a06aed14a4faad55fcd16a9da8",
    "test": "d3ac080785e75cb627be0d42494e3539ce29d85b120bfb41b495be50b2d26561",
}
NOUN = {noun.en: noun for noun in NOUNS}


@cache
def all_pairs() -> set[tuple[str, str]]:
    return {pair for split in SPLITS for pair in pairs(split)}


def words(text: str) -> list[str]:
    return re.findall(r"[^\s.,?]+", text)


def digest(split: str) -> str:
    return hashlib.sha256("".join(f"{en}\t{de}\n" for en, de in pairs(split)).encode()).hexdigest()


# The corpus


def test_the_splits_have_their_sizes():
    assert {split: len(pairs(split)) for split in SPLITS} == {"train": 38_000, "val": 1_000, "test": 1_000}


def test_no_sentence_occurs_twice_in_any_split_on_either_side():
    every = [pair for split in SPLITS for pair in pairs(split)]
    assert len({en for en, _ in every}) == len({de for _, de in every}) == len(every)


def test_the_generator_makes_the_same_bytes_again():
    assert generate.text() == bz2.decompress(generate.FILE.read_bytes())


def test_the_bytes_belong_to_the_version():
    """If this fails on purpose, raise phrasebook.VERSION and pin the new digests."""
    assert (phrasebook.VERSION, {split: digest(split) for split in SPLITS}) == (2, HASHES)


def test_one_english_sentence_has_one_german_translation_beyond_the_corpus_too():
    dice, translation = Dice(271828), {}
    for _ in range(2500):
        for _, kind in KINDS:
            sentence = kind(dice)
            assert translation.setdefault(sentence.en, sentence.de) == sentence.de


def test_every_test_sentence_has_a_combination_that_training_and_validation_do_not():
    known = {combo for split in ("train", "val") for sentence in splits()[split] for combo in sentence.combos}
    for sentence in splits()["test"]:
        assert set(sentence.combos) - known, sentence.en
    assert not any(map(held_out, known))


def test_the_novel_combinations_are_many_and_of_both_kinds():
    novel = {combo for sentence in splits()["test"] for combo in sentence.combos if held_out(combo)}
    assert len({combo for combo in novel if combo[0] in ADJECTIVE}) > 30
    assert len({combo for combo in novel if combo[0] in VERB}) > 30


def test_no_combination_of_a_test_sentence_is_recorded_that_the_sentence_does_not_contain():
    """An oracle beside the derivation: adjective and noun of a recorded pair stand in the English sentence."""
    for sentence in splits()["test"]:
        present = set(words(sentence.en.lower().replace("'s", "")))
        for first, noun in sentence.combos:
            assert present & {noun, NOUN[noun].en_plural, "it", "them", "they"}, (sentence.en, noun)
            if first in ADJECTIVE and first not in VERB:
                assert first in present, (sentence.en, first)


def test_no_held_out_combination_can_be_read_in_the_english_text_of_training():
    """The same promise without the records: adjective and noun side by side, verb and object a determiner apart."""
    determiners = ["the", "a", "an", "this", "these", "my", "your", "his", "her", "our", "their"]
    forbidden = set()
    for noun in NOUNS:
        for form in {noun.en, noun.en_plural} - {"-"}:
            forbidden |= {f"{adjective} {form}" for adjective in ADJECTIVE if held_out((adjective, noun.en))}
            for verb in VERB.values():
                if verb.lemma not in ("have", "like") and held_out((verb.lemma, noun.en)):  # not "would like to"
                    said = {f"{verb_form} {verb.particle}".rstrip() for verb_form in verb.en}
                    forbidden |= {f"{verb_form} {the} {form}" for verb_form in said for the in determiners}
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
    assert not {word for pair in pairs(split) for word in words(pair[side]) if counts.get(word, 0) < 5}


def test_sentences_are_written_as_people_write():
    for en, de in all_pairs():
        assert en[-1] == de[-1]
        assert en[-1] in ".?"
        assert en[0].isupper()
        assert de[0].isupper()
        assert "  " not in en + de
        assert 2 <= len(en.split()) <= 18
        assert not re.search(r"\b(weil|dass|ob|obwohl)\b", de) or re.search(r", (weil|dass|ob|obwohl) ", de)


def test_lengths_vary_and_splits_are_mixed():
    lengths = [len(en.split()) for en, _ in pairs("train")]
    assert len(set(lengths)) > 12
    tenth = len(lengths) // 10
    means = [sum(lengths[i * tenth : (i + 1) * tenth]) / tenth for i in range(10)]
    assert max(means) - min(means) < 0.5


PINNED = """
They are sleeping in the village. | Sie schlafen im Dorf.
The man drank coffee because he cannot eat bread. | Der Mann hat Kaffee getrunken, weil er kein Brot essen kann.
On Tuesday the woman has to bring him the book. | Am Dienstag muss die Frau ihm das Buch bringen.
I sold the house, but it was very old. | Ich habe das Haus verkauft, aber es war sehr alt.
When did Peter sell the table? | Wann hat Peter den Tisch verkauft?
Did they go out with this boy last summer? | Sind sie letzten Sommer mit diesem Jungen ausgegangen?
He usually watches television with the man. | Er sieht normalerweise mit dem Mann fern.
Paul loves them although it is raining. | Paul liebt sie, obwohl es regnet.
Can this good student answer us? | Kann dieser gute Student uns antworten?
Maria is thinking of Anna's sick friend. | Maria denkt an Annas kranken Freund.
Why are you sending her a book? | Warum schicken Sie ihr ein Buch?
You did not show the guest cats on Saturday. | Sie haben am Samstag dem Gast keine Katzen gezeigt.
Next year the students would like to get up. | Nächstes Jahr möchten die Studenten aufstehen.
Please close a bag on Saturday. | Bitte machen Sie am Samstag eine Tasche zu.
Please open our suitcases. | Bitte machen Sie unsere Koffer auf.
We think that our brother worked at the station. | Wir glauben, dass unser Bruder am Bahnhof gearbeitet hat.
I hope that Peter likes her. | Ich hoffe, dass Peter sie mag.
Today he is not calling Peter's sick sisters. | Heute ruft er Peters kranke Schwestern nicht an.
Were Peter's cups dirty? | Waren Peters Tassen schmutzig?
"""


@pytest.mark.parametrize("line", PINNED.strip().split("\n"))
def test_sentences_of_the_corpus_checked_by_hand(line):
    assert tuple(line.split(" | ")) in all_pairs()
