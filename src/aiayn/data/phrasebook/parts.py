"""Drawing the parts of a sentence: people, things, places and times."""

import random
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from aiayn.data.phrasebook.phrases import (
    NOTHING,
    PRONOUNS,
    Combo,
    Pair,
    Phrase,
    both,
    clock,
    name,
    noun_phrase,
    number,
    prepositional,
    words,
)
from aiayn.data.phrasebook.words import ADJECTIVES_OF, Adjective, Noun, members

T = TypeVar("T")
Where = tuple[Pair, tuple[Combo, ...]]

NAMES = (("Anna", "she"), ("Peter", "he"), ("Maria", "she"), ("Paul", "he"), ("Julia", "she"), ("Martin", "he"))
POSSESSIVE_OF = {"I": "my", "you": "your", "he": "his", "she": "her", "we": "our", "they": "their"}
POSSESSIVES = tuple(POSSESSIVE_OF.values())
PEOPLE, PLACES = members("person kin"), members("place")
HOMES = members("house room hotel city village")
OWNERS = members("person -tourist -waiter -customer")
DIRECTED_BY_ZU = ("station", "house")
CITIES = (
    ("Berlin", "Berlin"),
    ("Hamburg", "Hamburg"),
    ("Munich", "München"),
    ("Cologne", "Köln"),
    ("Vienna", "Wien"),
    ("Germany", "Deutschland"),
    ("Austria", "Österreich"),
    ("Italy", "Italien"),
)
DAYS = (
    ("on Monday", "am Montag"),
    ("on Tuesday", "am Dienstag"),
    ("on Wednesday", "am Mittwoch"),
    ("on Thursday", "am Donnerstag"),
    ("on Friday", "am Freitag"),
    ("on Saturday", "am Samstag"),
    ("on Sunday", "am Sonntag"),
)
NOW = (("now", "jetzt"), ("today", "heute"), ("at the moment", "im Moment"))
PAST = (
    ("yesterday", "gestern"),
    ("yesterday evening", "gestern Abend"),
    ("last week", "letzte Woche"),
    ("last month", "letzten Monat"),
    ("last year", "letztes Jahr"),
    ("last summer", "letzten Sommer"),
)
FUTURE = (
    ("today", "heute"),
    ("tomorrow", "morgen"),
    ("this evening", "heute Abend"),
    ("next week", "nächste Woche"),
    ("next month", "nächsten Monat"),
    ("next year", "nächstes Jahr"),
)
HABIT = (
    ("every day", "jeden Tag"),
    ("every week", "jede Woche"),
    ("every evening", "jeden Abend"),
    ("in the morning", "am Morgen"),
    ("at the weekend", "am Wochenende"),
    ("in summer", "im Sommer"),
    ("in winter", "im Winter"),
)
OFTEN = (
    ("always", "immer"),
    ("often", "oft"),
    ("sometimes", "manchmal"),
    ("never", "nie"),
    ("usually", "normalerweise"),
    ("rarely", "selten"),
)
PERIODS = (("days", "Tagen"), ("weeks", "Wochen"), ("months", "Monaten"), ("years", "Jahren"))
CLOCK_MINUTES = (0, 0, 5, 10, 15, 15, 20, 30, 30, 40, 45, 45, 50, 55)


class Dice:
    """The only source of chance.

    Python promises the sequence of `Random(seed).random()` across versions, but not that of `choice` or `shuffle`.
    """

    def __init__(self, seed: int):
        self.random = random.Random(seed).random

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self.random() * len(options))]

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def between(self, least: int, most: int) -> int:
        return least + int(self.random() * (most - least + 1))


class Person(NamedTuple):
    phrase: Phrase
    pronoun: (
        str  # key of PRONOUNS that refers back to the person; "" where the languages differ (the girl, das Mädchen)
    )


def someone(pronoun: str) -> Person:
    return Person(PRONOUNS[pronoun], pronoun)


def named(dice: Dice) -> Person:
    who, pronoun = dice.pick(NAMES)
    return Person(name(who), pronoun)


def person(dice: Dice) -> Person:
    phrase = described(dice, dice.pick(PEOPLE), rate=0.25)
    return Person(phrase, {"m": "he", "f": "she", "n": "", "p": "they"}[phrase.gender])


def subject(dice: Dice, asked: bool = False) -> Person:
    """`asked`: of a question, which one rarely asks about oneself."""
    roll = dice.random()
    if roll < 0.4:
        return someone(dice.pick(("you", "you", "he", "she", "they") if asked else tuple(PRONOUNS)))
    if roll < 0.55:
        return named(dice)
    if roll < 0.6:
        first, second = named(dice), named(dice)
        return first if first == second else Person(both(first.phrase, second.phrase), "they")
    return person(dice)


def referable(dice: Dice) -> Person:
    """A subject that a pronoun may take up again."""
    while True:
        found = subject(dice)
        if found.pronoun:
            return found


def adjective(dice: Dice, noun: Noun, rate: float) -> Adjective | None:
    return dice.pick(ADJECTIVES_OF[noun.en]) if dice.chance(rate) else None


def small_number(dice: Dice, most: int = 12) -> Pair:
    return number(dice.between(2, most))


def described(
    dice: Dice, noun: Noun, mine: str = "", definite: bool = False, rate: float = 0.45, plural: bool | None = None
) -> Phrase:
    """The noun with a determiner that suits it and perhaps an adjective; `mine` is the possessive to be preferred."""
    attribute = adjective(dice, noun, rate)
    if plural is None:
        plural = noun.en_plural != "-" and dice.chance(0.25)
    indefinite = 0.0 if definite or "kin" in noun.tags else 0.15 if noun.tags & {"place", "person"} else 0.35
    if dice.chance(indefinite):
        if plural and dice.chance(0.3):
            return noun_phrase("", noun, attribute, True, small_number(dice, 20))
        return noun_phrase("" if plural or "free" in noun.tags else "a", noun, attribute, plural)
    if "kin" in noun.tags or ("own" in noun.tags and dice.chance(0.45)):
        roll = dice.random()
        if roll < 0.15 and "person" not in noun.tags:
            return noun_phrase("", noun, attribute, plural, dice.pick(OWNERS))
        if roll < 0.3:
            owner, _ = dice.pick(NAMES)
            return noun_phrase("", noun, attribute, plural, (f"{owner}'s", f"{owner}s"))
        return noun_phrase(mine if mine and roll < 0.7 else dice.pick(POSSESSIVES), noun, attribute, plural)
    return noun_phrase("this" if dice.chance(0.2) else "the", noun, attribute, plural)


def denied(dice: Dice, noun: Noun) -> Phrase:
    """The indefinite object of a negated verb: kein."""
    plural = noun.en_plural != "-" and dice.chance(0.4)
    determiner = "not" if plural or "free" in noun.tags else "not a"
    return noun_phrase(determiner, noun, adjective(dice, noun, 0.4), plural)


def place_phrase(dice: Dice, noun: Noun) -> Phrase:
    owned = "own" in noun.tags and dice.chance(0.4)
    determiner = dice.pick(POSSESSIVES) if owned else dice.pick(("the", "the", "the", "this", "a"))
    return noun_phrase(determiner, noun, adjective(dice, noun, 0.4))


def located(dice: Dice, noun: Noun) -> Where:
    place = place_phrase(dice, noun)
    en, de = ("at", "an") if noun.en == "station" else ("in", "in")
    return (f"{en} {place.en}", prepositional(de, "dat", place)), place.combos


def directed(dice: Dice, noun: Noun) -> Where:
    place = place_phrase(dice, noun)
    preposition, case = ("zu", "dat") if noun.en in DIRECTED_BY_ZU else ("in", "acc")
    return (f"to {place.en}", prepositional(preposition, case, place)), place.combos


def accompanied(dice: Dice) -> Where:
    other = named(dice).phrase if dice.chance(0.3) else described(dice, dice.pick(PEOPLE), definite=True, rate=0.2)
    return (f"with {other.en}", prepositional("mit", "dat", other)), other.combos


def complement(dice: Dice, kind: str) -> Where:
    """What follows an intransitive verb; the kinds are the last column of its table."""
    if kind == "in":
        return located(dice, dice.pick(PLACES))
    if kind == "home":
        return located(dice, dice.pick(HOMES))
    if kind == "to":
        return directed(dice, dice.pick(PLACES))
    if kind == "with":
        return accompanied(dice)
    en_preposition, de_preposition = {"city": ("in", "in"), "nach": ("to", "nach"), "from": ("from", "aus")}[kind]
    en, de = dice.pick(CITIES)
    return (f"{en_preposition} {en}", f"{de_preposition} {de}"), ()


def at_clock(dice: Dice) -> Pair:
    en, de = clock(dice.between(1, 12), dice.pick(CLOCK_MINUTES))
    return f"at {en}", f"um {de}"


def day_and_clock(dice: Dice, days: Sequence[Pair]) -> Pair:
    (en_day, de_day), (en, de) = dice.pick((*days, NOTHING)), at_clock(dice)
    return words(en, en_day), words(de_day, de)


def past_time(dice: Dice) -> Pair:
    roll = dice.random()
    if roll < 0.2:
        return dice.pick(DAYS)
    if roll < 0.4:
        (en, de), (en_unit, de_unit) = small_number(dice), dice.pick(PERIODS)
        return f"{en} {en_unit} ago", f"vor {de} {de_unit}"
    return dice.pick(PAST)


def future_time(dice: Dice) -> Pair:
    roll = dice.random()
    if roll < 0.2:
        return dice.pick(DAYS)
    if roll < 0.3:
        (en, de), (en_unit, de_unit) = small_number(dice), dice.pick(PERIODS)
        return f"in {en} {en_unit}", f"in {de} {de_unit}"
    if roll < 0.45:
        return day_and_clock(dice, (*DAYS, ("tomorrow", "morgen")))
    return dice.pick(FUTURE)
