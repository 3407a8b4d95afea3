"""The built-in corpus: its promises as a data set, and its German, checked by hand."""

import hashlib
import os
import re
import subprocess
import sys
from functools import cache

import pytest

from aiayn import phrasebook
from aiayn.phrasebook import held_out, lexicon, pairs, splits
from aiayn.phrasebook.grammar import IT, PRONOUNS, Clause, Phrase, copula, forms, noun_phrase, prepositional
from aiayn.phrasebook.lexicon import ADJECTIVE, ADJECTIVES_OF, NOUNS, VERB, members
from aiayn.phrasebook.sentences import KINDS, Dice, start

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


def test_the_bytes_are_the_same_whatever_the_hash_seed():
    code = (
        "import hashlib; from aiayn.phrasebook import pairs\n"
        "for split in ('train', 'val', 'test'):\n"
        "    print(hashlib.sha256(''.join(f'{en}\\t{de}\\n' for en, de in pairs(split)).encode()).hexdigest())"
    )
    environment = os.environ | {"PYTHONHASHSEED": "4242"}  # here it is another one
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.split() == [digest(split) for split in SPLITS]


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


def test_the_tables_name_only_words_and_groups_that_exist():
    known = {noun.en for noun in NOUNS} | {group for noun in NOUNS for group in noun.groups}
    rows = lexicon._rows("adjectives") + [row for row in lexicon._rows("verbs") if row[0].endswith("transitive")]
    for row in rows:
        if row[0] != "intransitive":
            assert {word.removeprefix("-") for word in row[-1].split()} <= known, row
    assert all(ADJECTIVES_OF.values())
    assert members("food -soup") == tuple(noun for noun in NOUNS if "food" in noun.groups and noun.en != "soup")


# The grammar, checked by hand


def phrase(text: str, adjective: str = "", plural: bool = False) -> Phrase:
    """phrase("the coat", "old")"""
    determiner, _, noun = text.rpartition(" ")
    return noun_phrase(determiner, NOUN[noun], ADJECTIVE.get(adjective), plural)


@pytest.mark.parametrize(
    ("built", "en", "nom", "acc", "dat"),
    [
        (phrase("the coat", "old"), "the old coat", "der alte Mantel", "den alten Mantel", "dem alten Mantel"),
        (phrase("the bag", "red"), "the red bag", "die rote Tasche", "die rote Tasche", "der roten Tasche"),
        (phrase("the house", "big"), "the big house", "das große Haus", "das große Haus", "dem großen Haus"),
        (phrase("the child", "", True), "the children", "die Kinder", "die Kinder", "den Kindern"),
        (phrase("the car", "new", True), "the new cars", "die neuen Autos", "die neuen Autos", "den neuen Autos"),
        (phrase("a coat", "old"), "an old coat", "ein alter Mantel", "einen alten Mantel", "einem alten Mantel"),
        (phrase("a bag", "red"), "a red bag", "eine rote Tasche", "eine rote Tasche", "einer roten Tasche"),
        (phrase("a house", "big"), "a big house", "ein großes Haus", "ein großes Haus", "einem großen Haus"),
        (phrase("not a dog", "sick"), "a sick dog", "kein kranker Hund", "keinen kranken Hund", "keinem kranken Hund"),
        (phrase("not a egg", "hot", True), "hot eggs", "keine heißen Eier", "keine heißen Eier", "keinen heißen Eiern"),
        (phrase("a wine", "good"), "good wine", "guter Wein", "guten Wein", "gutem Wein"),
        (phrase("a milk", "cold"), "cold milk", "kalte Milch", "kalte Milch", "kalter Milch"),
        (phrase("a water", "fresh"), "fresh water", "frisches Wasser", "frisches Wasser", "frischem Wasser"),
        (phrase("a shoe", "black", True), "black shoes", "schwarze Schuhe", "schwarze Schuhe", "schwarzen Schuhen"),
        (phrase("this boy"), "this boy", "dieser Junge", "diesen Jungen", "diesem Jungen"),
        (phrase("this cat", "", True), "these cats", "diese Katzen", "diese Katzen", "diesen Katzen"),
        (phrase("my student"), "my student", "mein Student", "meinen Studenten", "meinem Studenten"),
        (phrase("your garden"), "your garden", "Ihr Garten", "Ihren Garten", "Ihrem Garten"),
        (
            phrase("the hotel", "cheap"),
            "the cheap hotel",
            "das billige Hotel",
            "das billige Hotel",
            "dem billigen Hotel",
        ),
        (phrase("a room", "dark"), "a dark room", "ein dunkles Zimmer", "ein dunkles Zimmer", "einem dunklen Zimmer"),
        (
            phrase("Anna's coat", "blue"),
            "Anna's blue coat",
            "Annas blauer Mantel",
            "Annas blauen Mantel",
            "Annas blauem Mantel",
        ),
    ],
)
def test_determiners_adjectives_and_nouns_agree_in_gender_number_and_case(built, en, nom, acc, dat):
    assert (built.en, built.nom, built.acc, built.dat) == (en, nom, acc, dat)


@pytest.mark.parametrize(
    ("preposition", "case", "place", "expected"),
    [
        ("in", "dat", phrase("the garden"), "im Garten"),
        ("in", "dat", phrase("the city", "old"), "in der alten Stadt"),
        ("in", "acc", phrase("the garden"), "in den Garten"),
        ("in", "acc", phrase("the museum"), "ins Museum"),
        ("an", "dat", phrase("the station"), "am Bahnhof"),
        ("zu", "dat", phrase("the station"), "zum Bahnhof"),
        ("auf", "acc", phrase("the train"), "auf den Zug"),
        ("mit", "dat", phrase("my brother", "", True), "mit meinen Brüdern"),
    ],
)
def test_prepositions_govern_their_case_and_join_the_article(preposition, case, place, expected):
    assert prepositional(preposition, case, place) == expected


def clause(who: str, verb: str, tense: str = "simple", negated: bool = False, **more) -> Clause:
    subject = PRONOUNS.get(who) or phrase(who)
    return start(subject, VERB[verb], tense, negated=negated)._replace(**more)


def object_of(text: str, case: str = "acc", **kwargs) -> tuple[str, str]:
    built = phrase(text, **kwargs)
    return built.en, getattr(built, case)


LETTER, COAT, BROTHER = object_of("a letter"), object_of("the coat"), object_of("my brother")
YESTERDAY, TOMORROW, NOW = ("yesterday", "gestern"), ("tomorrow", "morgen"), ("now", "jetzt")


@pytest.mark.parametrize(
    ("built", "en", "de"),
    [
        (clause("I", "read", objects=LETTER), "I read a letter", "ich lese einen Brief"),
        (clause("she", "read", objects=LETTER), "she reads a letter", "sie liest einen Brief"),
        (clause("the boy", "sleep", "progressive"), "the boy is sleeping", "der Junge schläft"),
        (clause("I", "like", objects=COAT), "I like the coat", "ich mag den Mantel"),
        (clause("we", "feed", objects=object_of("the dog")), "we feed the dog", "wir füttern den Hund"),
        # Separable verbs are parted.
        (
            clause("my sister", "call", "progressive", objects=BROTHER, time=NOW),
            "my sister is calling my brother now",
            "meine Schwester ruft jetzt meinen Bruder an",
        ),
        (clause("he", "watch television"), "he watches television", "er sieht fern"),
        # Dative and prepositional objects; dative before accusative; pronouns before both.
        (
            clause("the man", "help", "past", objects=object_of("the woman", "dat")),
            "the man helped the woman",
            "der Mann hat der Frau geholfen",
        ),
        (
            clause("we", "wait for", "progressive", True, objects=("the train", ""), place=("", "auf den Zug")),
            "we are not waiting for the train",
            "wir warten nicht auf den Zug",
        ),
        (
            clause("I", "give", "past", objects=("the child an apple", "dem Kind einen Apfel")),
            "I gave the child an apple",
            "ich habe dem Kind einen Apfel gegeben",
        ),
        (
            clause("he", "show", "past", objects=("us the garden", "den Garten"), pronouns="uns", time=YESTERDAY),
            "he showed us the garden yesterday",
            "er hat uns gestern den Garten gezeigt",
        ),
        # The perfect with haben and sein; the imperfect of haben and sein.
        (clause("I", "get up", "past"), "I got up", "ich bin aufgestanden"),
        (clause("we", "have", "past", objects=object_of("a dog")), "we had a dog", "wir hatten einen Hund"),
        (Clause(PRONOUNS["they"], copula(2, past=True), place=("old", "alt")), "they were old", "sie waren alt"),
        # Modals: the infinitive is last.
        (clause("you", "buy", "can", objects=COAT), "you can buy the coat", "Sie können den Mantel kaufen"),
        (clause("he", "get up", "have to"), "he has to get up", "er muss aufstehen"),
        (
            clause("I", "write", "would like to", objects=LETTER),
            "I would like to write a letter",
            "ich möchte einen Brief schreiben",
        ),
        (
            clause("she", "sell", "will", objects=COAT, time=TOMORROW),
            "she will sell the coat tomorrow",
            "sie wird morgen den Mantel verkaufen",
        ),
        # Negation: nicht and kein.
        (clause("I", "buy", "can", True, objects=COAT), "I cannot buy the coat", "ich kann den Mantel nicht kaufen"),
        (
            clause("he", "need", "simple", True, objects=object_of("not a key"), nicht=False),
            "he does not need a key",
            "er braucht keinen Schlüssel",
        ),
        (
            clause("they", "find", "can", True, objects=("it", ""), pronouns=IT["m"].acc),
            "they cannot find it",
            "sie können ihn nicht finden",
        ),
        # Adverbs.
        (
            clause("we", "eat", objects=object_of("a egg", plural=True), often=("often", "oft")),
            "we often eat eggs",
            "wir essen oft Eier",
        ),
    ],
)
def test_statements_have_the_finite_verb_second(built, en, de):
    assert built.statement() == (en, de)


def test_a_time_in_front_keeps_the_german_verb_second():
    bought = clause("my sister", "buy", "past", objects=COAT, time=YESTERDAY)
    expected = "yesterday my sister bought the coat", "gestern hat meine Schwester den Mantel gekauft"
    assert bought.statement(front=True) == expected


@pytest.mark.parametrize(
    ("built", "en", "de"),
    [
        (clause("you", "need", objects=COAT), "do you need the coat", "brauchen Sie den Mantel"),
        (clause("the man", "know", objects=BROTHER), "does the man know my brother", "kennt der Mann meinen Bruder"),
        (
            clause("she", "call", "progressive", objects=BROTHER),
            "is she calling my brother",
            "ruft sie meinen Bruder an",
        ),
        (clause("they", "arrive", "past"), "did they arrive", "sind sie angekommen"),
    ],
)
def test_questions_begin_with_the_verb(built, en, de):
    assert built.question() == (en, de)


@pytest.mark.parametrize(
    ("built", "de"),
    [
        (clause("she", "read", objects=LETTER), "sie einen Brief liest"),
        (clause("the man", "call", "progressive", objects=BROTHER), "der Mann meinen Bruder anruft"),
        (clause("he", "get up", "have to"), "er aufstehen muss"),
        (clause("we", "arrive", "past", time=YESTERDAY), "wir gestern angekommen sind"),
        (clause("I", "buy", "can", True, objects=COAT), "ich den Mantel nicht kaufen kann"),
        (clause("they", "watch television"), "sie fernsehen"),
    ],
)
def test_subordinate_clauses_end_with_the_verb(built, de):
    assert built.subordinate()[1] == de


@pytest.mark.parametrize("verb", ["call", "turn on", "open", "arrive", "watch television"])
def test_separable_prefixes_join_in_every_non_finite_form(verb):
    prefix = VERB[verb].prefix
    assert forms(VERB[verb], "can", 1).right.startswith(prefix)
    assert forms(VERB[verb], "past", 1).right.startswith(f"{prefix}ge")
    assert forms(VERB[verb], "simple", 1).right == prefix
    assert forms(VERB[verb], "simple", 1).final == prefix + forms(VERB[verb], "simple", 1).finite


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
