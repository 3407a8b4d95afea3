"""The built-in corpus: its promises as a data set, and its German, pinned by hand."""

import hashlib
import os
import re
import subprocess
import sys

import pytest

from aiayn.data import phrasebook
from aiayn.data.phrasebook import derivations, held_out, lexicon, pairs
from aiayn.data.phrasebook.clauses import (
    Clause,
    english_question,
    english_statement,
    forms,
    german_question,
    german_statement,
    german_subordinate,
)
from aiayn.data.phrasebook.events import Tense, start
from aiayn.data.phrasebook.parts import Dice
from aiayn.data.phrasebook.phrases import (
    IT,
    PRONOUNS,
    Phrase,
    clock,
    genitive,
    name,
    noun_phrase,
    number,
    prepositional,
)
from aiayn.data.phrasebook.words import ADJECTIVE, ADJECTIVES_OF, ALL_NOUNS, NOUN, VERB

SPLITS = ("train", "val", "test")
HASHES = {
    "train": "a7a1b0301b4ba063a08c944d3218cb13f9dcdf3a86e1fe9d09e5b79a2374ca28",
    "val": "2cd24ebd17643207e01f4d7b1d7a45227ddc0da0990ea3d674f872e6eb36d604",
    "test": "ad79a5916453383ccd49a05db7fdccf86a97f96a791ae4a3c8fdd78b333d9c63",
}
ALL_PAIRS = {pair for split in SPLITS for pair in pairs(split)}


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
        "import hashlib; from aiayn.data.phrasebook import pairs\n"
        "for split in ('train', 'val', 'test'):\n"
        "    print(hashlib.sha256(''.join(f'{en}\\t{de}\\n' for en, de in pairs(split)).encode()).hexdigest())"
    )
    for seed in ("1", "4242"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert run.stdout.split() == [digest(split) for split in SPLITS]


def test_the_bytes_belong_to_the_version():
    """If this fails on purpose, raise phrasebook.VERSION and pin the new digests."""
    assert (phrasebook.VERSION, {split: digest(split) for split in SPLITS}) == (1, HASHES)


def test_one_english_sentence_has_one_german_translation_beyond_the_corpus_too():
    dice, translation = Dice(271828), {}
    kinds = [kind for _, kind in phrasebook.KINDS]
    for _ in range(1000):
        for kind in kinds:
            sentence = kind(dice)
            assert translation.setdefault(sentence.en, sentence.de) == sentence.de


def test_every_test_sentence_holds_a_combination_that_training_and_validation_do_not():
    known = {combo for split in ("train", "val") for sentence in derivations()[split] for combo in sentence.combos}
    for sentence in derivations()["test"]:
        assert set(sentence.combos) - known, sentence.en
    assert not any(map(held_out, known))


def test_the_novel_combinations_are_many_and_of_both_kinds():
    novel = {combo for sentence in derivations()["test"] for combo in sentence.combos if held_out(combo)}
    assert len({combo for combo in novel if combo[0] in ADJECTIVE}) > 30
    assert len({combo for combo in novel if combo[0] in VERB}) > 30


def test_the_records_name_what_the_sentences_say():
    """An oracle beside the derivation: adjective and noun of a recorded pair stand in the English sentence."""
    for sentence in derivations()["test"]:
        present = set(words(sentence.en.lower().replace("'s", "")))
        for first, noun in sentence.combos:
            assert present & {noun, NOUN[noun].en_plural}, (sentence.en, noun)
            if first in ADJECTIVE and first not in VERB:
                comparative = ADJECTIVE[first].en_comparative.split()[-1]
                assert present & {first, comparative}, (sentence.en, first)


def test_no_held_out_combination_can_be_read_in_the_english_text_of_training():
    """The same promise without the records: adjective and noun side by side, verb and object a determiner apart."""
    determiners = ["the", "a", "an", "this", "these", "my", "your", "his", "her", "our", "their"]
    forbidden = set()
    for noun in ALL_NOUNS:
        for form in {noun.en, noun.en_plural} - {"-"}:
            forbidden |= {f"{adjective} {form}" for adjective in ADJECTIVE if held_out((adjective, noun.en))}
            for verb in VERB.values():
                # "has", and "like" of "would like", are other words than the verbs of these names.
                if verb.lemma not in ("have", "like") and held_out((verb.lemma, noun.en)):
                    said = {f"{verb_form} {verb.particle}".rstrip() for verb_form in verb.en}
                    forbidden |= {f"{verb_form} {the} {form}" for verb_form in said for the in determiners}
    for en, _ in pairs("train"):
        said = words(en.lower())
        runs = {" ".join(said[i : i + n]) for n in (2, 3, 4) for i in range(len(said) - n + 1)}
        assert not (forbidden & runs), en


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("split", ["val", "test"])
def test_every_word_form_is_known_from_at_least_five_training_sentences(split, side):
    counts: dict[str, int] = {}
    for pair in pairs("train"):
        for word in set(words(pair[side])):
            counts[word] = counts.get(word, 0) + 1
    unknown = {word for pair in pairs(split) for word in words(pair[side]) if counts.get(word, 0) < 5}
    assert not unknown


def test_sentences_are_written_as_people_write():
    for split in SPLITS:
        for en, de in pairs(split):
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


def test_the_lexicon_names_only_words_and_groups_that_exist():
    known = {noun.en for noun in ALL_NOUNS} | {tag for noun in ALL_NOUNS for tag in noun.tags}
    tables = (lexicon.ADJECTIVES, lexicon.TRANSITIVE, lexicon.DITRANSITIVE, lexicon.TIMETABLE)
    for line in "\n".join(tables).strip().splitlines():
        for word in re.split(r" [:|] ", line)[-1].split():
            assert word.removeprefix("-") in known, line
    assert set(lexicon.FAULTS.split()) <= set(ADJECTIVE)
    assert all(ADJECTIVES_OF.values())


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
        (phrase("no dog", "sick"), "no sick dog", "kein kranker Hund", "keinen kranken Hund", "keinem kranken Hund"),
        (phrase("no egg", "hot", True), "no hot eggs", "keine heißen Eier", "keine heißen Eier", "keinen heißen Eiern"),
        (phrase("wine", "good"), "good wine", "guter Wein", "guten Wein", "gutem Wein"),
        (phrase("milk", "cold"), "cold milk", "kalte Milch", "kalte Milch", "kalter Milch"),
        (phrase("water", "fresh"), "fresh water", "frisches Wasser", "frisches Wasser", "frischem Wasser"),
        (phrase("shoe", "black", True), "black shoes", "schwarze Schuhe", "schwarze Schuhe", "schwarzen Schuhen"),
        (phrase("this boy"), "this boy", "dieser Junge", "diesen Jungen", "diesem Jungen"),
        (phrase("this cat", "", True), "these cats", "diese Katzen", "diese Katzen", "diesen Katzen"),
        (phrase("my student"), "my student", "mein Student", "meinen Studenten", "meinem Studenten"),
        (phrase("our clock", "new"), "our new clock", "unsere neue Uhr", "unsere neue Uhr", "unserer neuen Uhr"),
        (phrase("your garden"), "your garden", "Ihr Garten", "Ihren Garten", "Ihrem Garten"),
        (
            phrase("the hotel", "expensive"),
            "the expensive hotel",
            "das teure Hotel",
            "das teure Hotel",
            "dem teuren Hotel",
        ),
        (phrase("a room", "dark"), "a dark room", "ein dunkles Zimmer", "ein dunkles Zimmer", "einem dunklen Zimmer"),
        (phrase("which coat"), "which coat", "welcher Mantel", "welchen Mantel", "welchem Mantel"),
        (
            noun_phrase("", NOUN["hat"], ADJECTIVE["blue"], False, ("Anna's", "Annas")),
            "Anna's blue hat",
            "Annas blauer Hut",
            "Annas blauen Hut",
            "Annas blauem Hut",
        ),
        (
            noun_phrase("", NOUN["car"], ADJECTIVE["old"], False, NOUN["teacher"]),
            "the teacher's old car",
            "das alte Auto des Lehrers",
            "das alte Auto des Lehrers",
            "dem alten Auto des Lehrers",
        ),
        (
            noun_phrase("", NOUN["book"], ADJECTIVE["good"], True, number(21)),
            "twenty-one good books",
            "einundzwanzig gute Bücher",
            "einundzwanzig gute Bücher",
            "einundzwanzig guten Büchern",
        ),
    ],
)
def test_determiners_adjectives_and_nouns_agree_in_gender_number_and_case(built, en, nom, acc, dat):
    assert (built.en, built.nom, built.acc, built.dat) == (en, nom, acc, dat)


def test_genitives():
    owners = ("man", "child", "boy", "woman", "brother", "friend", "neighbour", "girl", "uncle", "guest")
    assert [genitive(NOUN[owner]) for owner in owners] == [
        "des Mannes",
        "des Kindes",
        "des Jungen",
        "der Frau",
        "des Bruders",
        "des Freundes",
        "des Nachbarn",
        "des Mädchens",
        "des Onkels",
        "des Gastes",
    ]


@pytest.mark.parametrize(
    ("preposition", "case", "place", "expected"),
    [
        ("in", "dat", phrase("the garden"), "im Garten"),
        ("in", "dat", phrase("the city", "old"), "in der alten Stadt"),
        ("in", "dat", phrase("the house", "old"), "im alten Haus"),
        ("in", "acc", phrase("the park"), "in den Park"),
        ("in", "acc", phrase("the museum"), "ins Museum"),
        ("an", "dat", phrase("the station"), "am Bahnhof"),
        ("zu", "dat", phrase("the station"), "zum Bahnhof"),
        ("von", "dat", phrase("a horse"), "von einem Pferd"),
        ("auf", "acc", phrase("the bus"), "auf den Bus"),
        ("mit", "dat", phrase("my brother", "", True), "mit meinen Brüdern"),
    ],
)
def test_prepositions_govern_their_case_and_join_the_article(preposition, case, place, expected):
    assert prepositional(preposition, case, place) == expected


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (2, ("two", "zwei")),
        (11, ("eleven", "elf")),
        (16, ("sixteen", "sechzehn")),
        (17, ("seventeen", "siebzehn")),
        (30, ("thirty", "dreißig")),
        (21, ("twenty-one", "einundzwanzig")),
        (67, ("sixty-seven", "siebenundsechzig")),
        (99, ("ninety-nine", "neunundneunzig")),
    ],
)
def test_numbers(n, expected):
    assert number(n) == expected


@pytest.mark.parametrize(
    ("hour", "minutes", "expected"),
    [
        (1, 0, ("one o'clock", "ein Uhr")),
        (3, 15, ("quarter past three", "Viertel nach drei")),
        (3, 30, ("half past three", "halb vier")),
        (12, 30, ("half past twelve", "halb eins")),
        (5, 45, ("quarter to six", "Viertel vor sechs")),
        (12, 50, ("ten to one", "zehn vor eins")),
        (1, 20, ("twenty past one", "zwanzig nach eins")),
    ],
)
def test_clock_times(hour, minutes, expected):
    assert clock(hour, minutes) == expected


def clause(who: str, verb: str, tense: str = "simple", negated: bool = False, **more) -> Clause:
    subject = PRONOUNS.get(who) or (name(who) if who[0].isupper() else phrase(who))
    return start(subject, VERB[verb], Tense(tense, negated=negated))._replace(**more)


def object_of(text: str, case: str = "acc", **kwargs) -> tuple[str, str]:
    built = phrase(text, **kwargs)
    return built.en, built.acc if case == "acc" else built.dat


LETTER, COAT = object_of("a letter"), object_of("the coat")
BROTHER, NO_KEY = object_of("my brother"), object_of("not a key")
YESTERDAY, TOMORROW = ("yesterday", "gestern"), ("tomorrow", "morgen")


@pytest.mark.parametrize(
    ("built", "en", "de"),
    [
        # Agreement and stem changes.
        (clause("I", "read", objects=LETTER), "I read a letter", "ich lese einen Brief"),
        (clause("she", "read", objects=LETTER), "she reads a letter", "sie liest einen Brief"),
        (clause("they", "read", objects=LETTER), "they read a letter", "sie lesen einen Brief"),
        (clause("the boy", "sleep", "progressive"), "the boy is sleeping", "der Junge schläft"),
        (clause("you", "drive", "progressive"), "you are driving", "Sie fahren"),
        (clause("I", "like", objects=COAT), "I like the coat", "ich mag den Mantel"),
        (clause("we", "feed", objects=object_of("the dog")), "we feed the dog", "wir füttern den Hund"),
        # Separable verbs: parted in the main clause.
        (
            clause("Anna", "call", "progressive", objects=BROTHER, time=("now", "jetzt")),
            "Anna is calling my brother now",
            "Anna ruft jetzt meinen Bruder an",
        ),
        (clause("he", "watch television"), "he watches television", "er sieht fern"),
        # Dative verbs and prepositional objects.
        (
            clause("Peter", "help", "past", objects=object_of("the woman", "dat")),
            "Peter helped the woman",
            "Peter hat der Frau geholfen",
        ),
        (
            clause("we", "wait for", "progressive", True, objects=("the bus", ""), place=("", "auf den Bus")),
            "we are not waiting for the bus",
            "wir warten nicht auf den Bus",
        ),
        # Dative before accusative; pronouns before both.
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
        # Perfect with haben and sein; the imperfect of haben.
        (
            clause("Anna", "travel", "past", place=("to Vienna", "nach Wien")),
            "Anna travelled to Vienna",
            "Anna ist nach Wien gereist",
        ),
        (clause("I", "get up", "past"), "I got up", "ich bin aufgestanden"),
        (clause("we", "have", "past", objects=object_of("a dog")), "we had a dog", "wir hatten einen Hund"),
        (
            clause("she", "open", "perfect", objects=LETTER, often=("already", ""), late=("", "schon")),
            "she has already opened a letter",
            "sie hat einen Brief schon aufgemacht",
        ),
        # Modals: the infinitive closes the clause.
        (clause("you", "buy", "can", objects=COAT), "you can buy the coat", "Sie können den Mantel kaufen"),
        (clause("he", "get up", "have to"), "he has to get up", "er muss aufstehen"),
        (
            clause("they", "call", "be allowed to", objects=BROTHER),
            "they are allowed to call my brother",
            "sie dürfen meinen Bruder anrufen",
        ),
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
        (clause("we", "work", "had to"), "we had to work", "wir mussten arbeiten"),
        # Negation: nicht and kein.
        (clause("I", "buy", "can", True, objects=COAT), "I cannot buy the coat", "ich kann den Mantel nicht kaufen"),
        (
            clause("he", "need", "simple", True, objects=NO_KEY)._replace(nicht=False),
            "he does not need a key",
            "er braucht keinen Schlüssel",
        ),
        (
            clause("Julia", "drink", "past", True, objects=object_of("not milk"))._replace(nicht=False),
            "Julia did not drink milk",
            "Julia hat keine Milch getrunken",
        ),
        (
            clause("Paul", "work", "progressive", True, place=("in the garden", "im Garten")),
            "Paul is not working in the garden",
            "Paul arbeitet nicht im Garten",
        ),
        (
            clause("they", "find", "can", True, objects=("it", ""), pronouns=IT["m"].acc),
            "they cannot find it",
            "sie können ihn nicht finden",
        ),
        # Adverbs.
        (
            clause("we", "eat", objects=object_of("egg", plural=True), often=("often", "oft")),
            "we often eat eggs",
            "wir essen oft Eier",
        ),
    ],
)
def test_statements(built, en, de):
    assert (english_statement(built), german_statement(built)) == (en, de)


PINNED = """
If it is raining, Peter cannot eat the cheese. | Wenn es regnet, kann Peter den Käse nicht essen.
Do you know whether the train arrives at five o'clock every day? | Wissen Sie, ob der Zug jeden Tag um fünf Uhr ankommt?
He does not know when Paul saw this woman. | Er weiß nicht, wann Paul diese Frau gesehen hat.
We think that Maria and Martin have already got up. | Wir glauben, dass Maria und Martin schon aufgestanden sind.
The gift that Peter forgot last summer is big. | Das Geschenk, das Peter letzten Sommer vergessen hat, ist groß.
My friend will buy the ticket, but it is too expensive. | Mein Freund wird die Fahrkarte kaufen, aber sie ist zu teuer.
They would like to wash this cup, but it is big. | Sie möchten diese Tasse waschen, aber sie ist groß.
Julia would like to buy the dress, but it is too small. | Julia möchte das Kleid kaufen, aber es ist zu klein.
Where is your jacket? Martin cannot find it. | Wo ist Ihre Jacke? Martin kann sie nicht finden.
Where is our book? You cannot find it. | Wo ist unser Buch? Sie können es nicht finden.
Please turn off the telephones. | Bitte schalten Sie die Telefone aus.
Please do not open bottles. | Bitte machen Sie keine Flaschen auf.
Please do not open the window. | Bitte machen Sie das Fenster nicht auf.
There are fourteen schools in the village. | Im Dorf gibt es vierzehn Schulen.
There is a cat in the kitchen. | In der Küche ist eine Katze.
How much does this newspaper cost? | Wie viel kostet diese Zeitung?
The new bed costs thirty-one euros. | Das neue Bett kostet einunddreißig Euro.
At half past three Anna had to get up. | Um halb vier musste Anna aufstehen.
It is already quarter to six. | Es ist schon Viertel vor sechs.
Which colleague is the man looking for? | Welchen Kollegen sucht der Mann?
The hat is more expensive than our shoe. | Der Hut ist teurer als unser Schuh.
We would like six small bananas, please. | Wir möchten sechs kleine Bananen, bitte.
Julia wrote her messages because she is hungry. | Julia hat ihre Nachrichten geschrieben, weil sie hungrig ist.
The child who sees your sick son is too small. | Das Kind, das Ihren kranken Sohn sieht, ist zu klein.
Do you know the man who is allowed to call a colleague? | Kennen Sie den Mann, der einen Kollegen anrufen darf?
Excuse me, where is the quiet museum? | Entschuldigung, wo ist das ruhige Museum?
These are not our guests. | Das sind nicht unsere Gäste.
Who understood the girl's book? | Wer hat das Buch des Mädchens verstanden?
Why did she wake up? | Warum ist sie aufgewacht?
She has not come back from Hamburg yet. | Sie ist noch nicht aus Hamburg zurückgekommen.
Today Peter is driving to the station. | Heute fährt Peter zum Bahnhof.
"""


@pytest.mark.parametrize("line", PINNED.strip().splitlines())
def test_sentences_of_the_corpus_checked_by_hand(line):
    assert tuple(line.split(" | ")) in ALL_PAIRS


def test_a_time_in_front_keeps_the_german_verb_second():
    bought = clause("my sister", "buy", "past", objects=COAT, time=YESTERDAY)
    assert english_statement(bought, front=True) == "yesterday my sister bought the coat"
    assert german_statement(bought, front=True) == "gestern hat meine Schwester den Mantel gekauft"
    opened = clause("the guest", "wake up", time=("at nine o'clock", "um neun Uhr"))
    assert german_statement(opened, front=True) == "um neun Uhr wacht der Gast auf"


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
        (
            clause("you", "open", "can", objects=object_of("the door")),
            "can you open the door",
            "können Sie die Tür aufmachen",
        ),
    ],
)
def test_questions_begin_with_the_verb(built, en, de):
    assert (english_question(built), german_question(built)) == (en, de)


@pytest.mark.parametrize(
    ("built", "de"),
    [
        (clause("she", "read", objects=LETTER), "sie einen Brief liest"),
        (clause("Anna", "call", "progressive", objects=BROTHER), "Anna meinen Bruder anruft"),
        (clause("he", "get up", "have to"), "er aufstehen muss"),
        (clause("we", "arrive", "past", time=YESTERDAY), "wir gestern angekommen sind"),
        (clause("I", "buy", "can", True, objects=COAT), "ich den Mantel nicht kaufen kann"),
        (clause("they", "watch television"), "sie fernsehen"),
        (clause("you", "have", "past", objects=object_of("a cat")), "Sie eine Katze hatten"),
    ],
)
def test_subordinate_clauses_end_with_the_verb(built, de):
    assert german_subordinate(built) == de


@pytest.mark.parametrize("verb", ["call", "turn on", "tidy up", "come back", "watch television"])
def test_separable_prefixes_join_in_every_non_finite_form(verb):
    prefix = VERB[verb].prefix
    assert forms(VERB[verb], "can", 1).right.startswith(prefix)
    assert forms(VERB[verb], "past", 1).right.startswith(f"{prefix}ge")
    assert forms(VERB[verb], "simple", 1).right == prefix
    assert forms(VERB[verb], "simple", 1).final == prefix + forms(VERB[verb], "simple", 1).finite
