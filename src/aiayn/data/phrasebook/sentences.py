"""Sentences of one clause: each function draws one sentence in both languages."""

from typing import NamedTuple

from aiayn.data.phrasebook.clauses import (
    Clause,
    copula,
    english_question,
    english_statement,
    english_tail,
    forms,
    german_question,
    german_statement,
)
from aiayn.data.phrasebook.events import (
    MOODS,
    Tense,
    action,
    draw_tense,
    is_quality,
    start,
    timetable,
    transitive,
    with_object,
)
from aiayn.data.phrasebook.parts import (
    CITIES,
    CLOCK_MINUTES,
    NAMES,
    PEOPLE,
    Dice,
    Person,
    adjective,
    described,
    future_time,
    located,
    named,
    place_phrase,
    small_number,
    someone,
    subject,
)
from aiayn.data.phrasebook.phrases import NOTHING, Combo, Phrase, clock, noun_phrase, number, prepositional, words
from aiayn.data.phrasebook.words import ADJECTIVE, ADJECTIVES_OF, GROUPS, TRANSITIVE, VERB, members

THINGS = members("text clothes vehicle thing furniture place food drink animal")
PORTABLE = members("text clothes thing")
COUNTED = members("text clothes thing animal furniture -door -window")
PRICED = members("clothes thing furniture car bicycle book newspaper fruit cake soup -door -window")
INHABITANTS = members("furniture dog cat bird person -door -window")
ROOMS, SIGHTS, SETTLEMENTS = members("indoors garden"), members("building park -house"), members("city village")
SURFACES, LANDMARKS = members("surface"), members("building")
MENU = members("food drink")
DIRECT = tuple((verb, nouns) for verb, nouns in TRANSITIVE if verb.case == "acc")
DATABLE = tuple((verb, nouns) for verb, nouns in DIRECT if "p" in verb.aspects)
REQUESTED = tuple((verb, nouns) for verb, nouns in TRANSITIVE if "g" in verb.aspects)
COMPARED = tuple(
    (degree, nouns)
    for degree in ADJECTIVE.values()
    if degree.en_comparative != "-"
    for nouns in (tuple(noun for noun in members(group) if degree in ADJECTIVES_OF[noun.en]) for group in GROUPS)
    if len(nouns) > 1
)
NEAR = (("behind", "hinter"), ("in front of", "vor"), ("next to", "neben"))
WHO = Person(Phrase("who", "whom", "wer", "wen", "wem", 1, "m"), "he")


class Sentence(NamedTuple):
    en: str
    de: str
    combos: tuple[Combo, ...]  # the (adjective, noun) and (verb, object) pairs in it


def finished(en: str, de: str, combos: tuple[Combo, ...] = (), mark: str = ".") -> Sentence:
    return Sentence(f"{en[0].upper()}{en[1:]}{mark}", f"{de[0].upper()}{de[1:]}{mark}", combos)


def stated(clause: Clause, front: bool = False) -> Sentence:
    return finished(english_statement(clause, front), german_statement(clause, front), clause.combos)


def asked(clause: Clause, en: str = "", de: str = "", combos: tuple[Combo, ...] = ()) -> Sentence:
    """A question, behind question words if there are any."""
    return finished(
        words(en, english_question(clause)), words(de, german_question(clause)), combos + clause.combos, "?"
    )


def statement(dice: Dice) -> Sentence:
    clause = action(dice, subject(dice))
    return stated(clause, front=bool(clause.time[0]) and dice.chance(0.4))


def yes_no_question(dice: Dice) -> Sentence:
    return asked(action(dice, subject(dice, asked=True), deniable=False))


def datable(dice: Dice, who: Person) -> Clause:
    """An event whose time and place one may ask for."""
    verb, nouns = dice.pick(DATABLE)
    tense = draw_tense(dice, "ppm" if "m" in verb.aspects else "p", timed=False, deniable=False)
    return with_object(dice, who, verb, dice.pick(nouns), tense)


def adverb_question(dice: Dice) -> Sentence:
    (en, de), who = dice.pick((("why", "warum"), ("when", "wann"), ("where", "wo"))), subject(dice, asked=True)
    clause = action(dice, who, timed=False, deniable=False) if en == "why" else datable(dice, who)
    return asked(clause, en, de)


def who_question(dice: Dice) -> Sentence:
    clause = transitive(dice, WHO)
    return finished(english_statement(clause), german_statement(clause), clause.combos, "?")


def which_question(dice: Dice) -> Sentence:
    verb, nouns = dice.pick(DIRECT)
    noun = dice.pick(nouns)
    if "kin" in noun.tags:
        return which_question(dice)
    plural = noun.en_plural != "-" and dice.chance(0.3)
    phrase = noun_phrase("which", noun, adjective(dice, noun, 0.4), plural)
    clause = start(subject(dice, asked=True).phrase, verb, draw_tense(dice, verb.aspects, timed=False, deniable=False))
    return asked(clause, phrase.en, phrase.acc, ((verb.lemma, noun.en), *phrase.combos))


def said_of_something(dice: Dice) -> Clause:
    noun = dice.pick(THINGS + PEOPLE)
    phrase = described(dice, noun, definite=True, rate=0.0)
    return is_quality(dice, phrase, dice.pick(ADJECTIVES_OF[noun.en]), noun.en, dice.chance(0.2), dice.chance(0.2))


def quality(dice: Dice) -> Sentence:
    if dice.chance(0.15):
        clause = is_quality(dice, subject(dice).phrase, ADJECTIVE[dice.pick(MOODS)], negated=dice.chance(0.2))
    else:
        clause = said_of_something(dice)
    return asked(clause) if not clause.negated and dice.chance(0.25) else stated(clause)


def comparison(dice: Dice) -> Sentence:
    degree, nouns = dice.pick(COMPARED)
    first, second = dice.pick(nouns), dice.pick(nouns)
    if first == second:
        return comparison(dice)
    plural = dice.chance(0.3) and "-" not in (first.en_plural, second.en_plural)
    one, other = (described(dice, noun, definite=True, rate=0.0, plural=plural) for noun in (first, second))
    clause = Clause(
        one,
        copula(one.agreement),
        place=(f"{degree.en_comparative} than {other.en}", f"{degree.de_comparative} als {other.nom}"),
        combos=((degree.en, first.en), (degree.en, second.en)),
    )
    return asked(clause) if dice.chance(0.25) else stated(clause)


def price(dice: Dice) -> Sentence:
    thing = described(dice, dice.pick(PRICED), definite=True)
    if dice.chance(0.25):
        de = f"wie viel {'kosten' if thing.agreement == 2 else 'kostet'} {thing.nom}"
        return finished(f"how much {'do' if thing.agreement == 2 else 'does'} {thing.en} cost", de, thing.combos, "?")
    en_number, de_number = number(dice.between(2, 99))
    en, de = ("cost", "kosten") if thing.agreement == 2 else ("costs", "kostet")
    return finished(f"{thing.en} {en} {en_number} euros", f"{thing.nom} {de} {de_number} Euro", thing.combos)


def age(dice: Dice) -> Sentence:
    noun = dice.pick(PEOPLE)
    who = named(dice).phrase if dice.chance(0.3) else described(dice, noun, rate=0.25)
    combos = () if who.en in dict(NAMES) else (("old", noun.en), *who.combos)
    if dice.chance(0.2):
        return asked(Clause(who, copula(who.agreement), combos=combos), "how old", "wie alt")
    en, de = number(dice.between(2, 99))
    return stated(Clause(who, copula(who.agreement), place=(f"{en} years old", f"{de} Jahre alt"), combos=combos))


def possession(dice: Dice) -> Sentence:
    """My sister has forty-two books; how many books does she have?"""
    noun, who, have = dice.pick(COUNTED), subject(dice).phrase, VERB["have"]
    many = ("how many", "wie viele") if dice.chance(0.3) else number(dice.between(2, 99))
    things = noun_phrase("", noun, adjective(dice, noun, 0.4), True, many)
    clause = Clause(who, forms(have, "simple", who.agreement), combos=(("have", noun.en), *things.combos, *who.combos))
    if many[0] == "how many":
        return asked(clause, things.en, things.acc)
    return stated(clause._replace(objects=(things.en, things.acc)))


def time_of_day(dice: Dice) -> Sentence:
    if dice.chance(0.5):
        return stated(timetable(dice))
    if dice.chance(0.5):
        clause = timetable(dice)._replace(time=NOTHING)
        return asked(clause, "when", "wann")
    en, de = clock(dice.between(1, 12), dice.pick(CLOCK_MINUTES))
    already_en, already_de = ("already ", "schon ") if dice.chance(0.5) else ("", "")
    return finished(f"it is {already_en}{en}", f"es ist {already_de}{de}")


def location(dice: Dice) -> Sentence:
    """The key is under the old table."""
    thing = described(dice, dice.pick(PORTABLE), definite=True)
    if dice.chance(0.6):
        (en, de), at = dice.pick((("on", "auf"), ("under", "unter"))), dice.pick(SURFACES)
    else:
        (en, de), at = dice.pick(NEAR), dice.pick(LANDMARKS)
    place = place_phrase(dice, at)
    negated = dice.chance(0.2)
    clause = Clause(
        thing,
        copula(thing.agreement, past=dice.chance(0.3)),
        place=(f"{en} {place.en}", prepositional(de, "dat", place)),
        negated=negated,
        nicht=negated,
        combos=thing.combos + place.combos,
    )
    if not negated and dice.chance(0.2):
        return asked(clause._replace(place=NOTHING, combos=thing.combos), "where", "wo")
    return asked(clause) if not negated and dice.chance(0.2) else stated(clause)


def existence(dice: Dice) -> Sentence:
    """There is a dog in the garden: im Garten ist ein Hund; of buildings in towns: es gibt."""
    in_town = dice.chance(0.4)
    noun = dice.pick(SIGHTS if in_town else INHABITANTS)
    plural = dice.chance(0.4)
    count = small_number(dice, 20) if plural and dice.chance(0.5) else None
    determiner = "no" if dice.chance(0.25) and not count else "" if plural else "a"
    thing = noun_phrase("" if count else determiner, noun, adjective(dice, noun, 0.4), plural, count)
    if in_town and dice.chance(0.4):
        city_en, city_de = dice.pick(CITIES)
        (en, de), combos = (f"in {city_en}", f"in {city_de}"), ()
    else:
        (en, de), combos = located(dice, dice.pick(SETTLEMENTS if in_town else ROOMS))
    exists, be = ("are", "sind") if plural else ("is", "ist")
    if in_town:
        be = "gibt es"
    what = thing.acc if in_town else thing.nom
    if in_town and determiner != "no" and dice.chance(0.3):
        return finished(f"{exists} there {thing.en} {en}", f"gibt es {de} {what}", thing.combos + combos, "?")
    return finished(f"there {exists} {thing.en} {en}", f"{de} {be} {what}", thing.combos + combos)


def identity(dice: Dice) -> Sentence:
    """This is my new coat: das ist mein neuer Mantel."""
    thing = described(dice, dice.pick(PORTABLE + PEOPLE), definite=True, rate=0.6)
    if thing.en.startswith("this ") or thing.en.startswith("these "):
        return identity(dice)
    many = thing.agreement == 2
    this = Phrase("these" if many else "this", "", "das", "", "", thing.agreement, "n")
    negated = dice.chance(0.2)
    clause = Clause(
        this, copula(this.agreement), place=(thing.en, thing.nom), negated=negated, nicht=negated, combos=thing.combos
    )
    return asked(clause) if not negated and dice.chance(0.3) else stated(clause)


def request(dice: Dice) -> Sentence:
    """Please turn off the lamp: bitte schalten Sie die Lampe aus."""
    verb, nouns = dice.pick(REQUESTED)
    negated = dice.chance(0.15)
    tense = Tense("simple", future_time(dice) if dice.chance(0.4) else NOTHING, negated=negated)
    clause = with_object(dice, someone("you"), verb, dice.pick(nouns), tense)
    en = words("please", "do not" if negated else "", clause.forms.rest, english_tail(clause))
    return finished(en, f"bitte {german_question(clause)}", clause.combos)


def menu_order(dice: Dice) -> Sentence:
    noun = dice.pick(MENU)
    plural = noun.en_plural != "-" and dice.chance(0.4)
    determiner = "" if plural or "free" in noun.tags else "a"
    what = noun_phrase(determiner, noun, adjective(dice, noun, 0.6), plural, small_number(dice) if plural else None)
    en, de = dice.pick((("I", "ich möchte"), ("we", "wir möchten")))
    return finished(
        f"{en} would like {what.en}, please", f"{de} {what.acc}, bitte", (("would like", noun.en), *what.combos)
    )


def way(dice: Dice) -> Sentence:
    noun = dice.pick(SIGHTS)
    place = noun_phrase("the", noun, adjective(dice, noun, 0.7))
    return finished(f"excuse me, where is {place.en}", f"Entschuldigung, wo ist {place.nom}", place.combos, "?")
