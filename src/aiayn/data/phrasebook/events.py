"""Drawing whole clauses: who does what, in which tense, to whom, where and when."""

from typing import NamedTuple

from aiayn.data.phrasebook.clauses import MODALS, Clause, Forms, copula, forms
from aiayn.data.phrasebook.parts import (
    HABIT,
    NOW,
    OFTEN,
    PEOPLE,
    POSSESSIVE_OF,
    Dice,
    Person,
    accompanied,
    at_clock,
    complement,
    day_and_clock,
    denied,
    described,
    future_time,
    named,
    past_time,
)
from aiayn.data.phrasebook.phrases import NOTHING, PRONOUNS, Pair, Phrase, prepositional, words
from aiayn.data.phrasebook.words import (
    ADJECTIVE,
    DITRANSITIVE,
    INTRANSITIVE,
    TIMETABLE,
    TRANSITIVE,
    VERB,
    Adjective,
    Noun,
    Verb,
)

# English says "I see myself" where subject and object are the same: such pairs are left out.
NOT_BESIDE = {"I": ("I", "we"), "we": ("I", "we")}
DEGREES = (NOTHING, ("very", "sehr"), ("too", "zu"), ("really", "wirklich"))
COLOURS = ("red", "blue", "green", "black", "white", "brown", "yellow")
POSSIBLE = tuple((verb, nouns) for verb, nouns in TRANSITIVE if "m" in verb.aspects)
MEANS = (("no time", "keine Zeit"), ("a lot of time", "viel Zeit"), ("no money", "kein Geld"))
MOODS = ("tired", "sick", "hungry", "happy", "sad")


class Tense(NamedTuple):
    tense: str  # as `clauses.forms` has it
    time: Pair = NOTHING
    often: Pair = NOTHING
    late: Pair = NOTHING
    negated: bool = False


def draw_tense(dice: Dice, aspects: str, timed: bool = True, deniable: bool = True) -> Tense:
    """`timed`: may carry a time or an adverb; `deniable`: may be negated."""
    aspect = dice.pick(aspects)
    negated, with_time = deniable and dice.chance(0.2), timed and dice.chance(0.5)
    if aspect == "g":
        return Tense("progressive", dice.pick(NOW) if with_time else NOTHING, negated=negated)
    if aspect == "h" and timed:
        if dice.chance(0.6):
            return Tense("simple", often=dice.pick(OFTEN))
        return Tense("simple", dice.pick(HABIT))
    if aspect == "s":
        return Tense("simple", negated=negated)
    if aspect == "f" and timed:
        if negated:
            return Tense("perfect", late=("yet", "noch nicht"), negated=True)
        return Tense("perfect", often=("already", ""), late=("", "schon"))
    if aspect == "m":
        modal = dice.pick(tuple(MODALS))
        time = past_time if modal in ("had to", "wanted to") else future_time
        return Tense(modal, time(dice) if with_time else NOTHING, negated=negated)
    return Tense("past", past_time(dice) if with_time else NOTHING, negated=negated)


def start(who: Phrase, verb: Verb, tense: Tense) -> Clause:
    """The clause without objects; "not yet" already holds the German negation."""
    return Clause(
        subject=who,
        forms=forms(verb, tense.tense, who.agreement),
        time=tense.time,
        often=tense.often,
        late=tense.late,
        negated=tense.negated,
        nicht=tense.negated and not tense.late[1],
        combos=who.combos,
    )


def other_pronoun(dice: Dice, who: Person) -> Phrase:
    excluded = NOT_BESIDE.get(who.pronoun, (who.pronoun,))
    return dice.pick([phrase for key, phrase in PRONOUNS.items() if key not in excluded])


def with_object(dice: Dice, who: Person, verb: Verb, noun: Noun, tense: Tense) -> Clause:
    """`who` does it to some `noun`, or to a person called by a pronoun."""
    clause = start(who.phrase, verb, tense)
    preposition, _, case = verb.case.rpartition("+")
    definite = tense.tense == "perfect" or (verb.definite and "free" not in noun.tags)
    human = "person" in noun.tags or "kin" in noun.tags
    if human and verb.particle in ("", "for", "to", "of") and dice.chance(0.25):
        target = other_pronoun(dice, who)
        german = target.acc if case == "acc" else target.dat
        if not preposition:
            return clause._replace(objects=(target.en_object, ""), pronouns=german)
        return clause._replace(objects=(target.en_object, ""), place=("", f"{preposition} {german}"))
    if tense.negated and not definite and not preposition and "kin" not in noun.tags and dice.chance(0.6):
        target = denied(dice, noun)
        clause = clause._replace(nicht=False)
    else:
        target = described(dice, noun, POSSESSIVE_OF.get(who.pronoun, ""), definite or tense.negated)
    clause = clause._replace(combos=(*clause.combos, (verb.lemma, noun.en), *target.combos))
    if preposition:
        return clause._replace(objects=(target.en, ""), place=("", prepositional(preposition, case, target)))
    return clause._replace(objects=(target.en, target.acc if case == "acc" else target.dat))


def transitive(dice: Dice, who: Person, timed: bool = True, deniable: bool = True) -> Clause:
    verb, nouns = dice.pick(TRANSITIVE)
    return with_object(dice, who, verb, dice.pick(nouns), draw_tense(dice, verb.aspects, timed, deniable))


def ditransitive(dice: Dice, who: Person, timed: bool = True, deniable: bool = True) -> Clause:
    verb, nouns = dice.pick(DITRANSITIVE)
    clause = with_object(dice, who, verb, dice.pick(nouns), draw_tense(dice, verb.aspects, timed, deniable))
    en, de = clause.objects
    roll = dice.random()
    if roll < 0.4:
        to = other_pronoun(dice, who)
        return clause._replace(objects=(words(to.en_object, en), de), pronouns=to.dat)
    receiver = dice.pick(PEOPLE)
    to = named(dice).phrase if roll < 0.55 else described(dice, receiver, rate=0.25)
    combos = () if roll < 0.55 else ((verb.lemma, receiver.en), *to.combos)
    return clause._replace(objects=(words(to.en, en), words(to.dat, de)), combos=clause.combos + combos)


def intransitive(dice: Dice, who: Person, timed: bool = True, deniable: bool = True) -> Clause:
    verb, kinds = dice.pick(INTRANSITIVE)
    clause = start(who.phrase, verb, draw_tense(dice, verb.aspects, timed, deniable))
    kind = dice.pick(kinds)
    if kind == "-":
        return clause
    if kind == "clock":
        return clause if not timed or clause.often[0] else clause._replace(time=at_clock(dice))
    (en, de), combos = complement(dice, kind)
    if kind != "with" and "with" in kinds and dice.chance(0.2):
        (en_with, de_with), more = accompanied(dice)
        en, de, combos = words(en, en_with), words(de_with, de), combos + more
    return clause._replace(place=(en, de), combos=clause.combos + combos)


def action(dice: Dice, who: Person, timed: bool = True, deniable: bool = True) -> Clause:
    """Any of the above, in natural proportion."""
    roll = dice.random()
    if roll < 0.65:
        return transitive(dice, who, timed, deniable)
    return (ditransitive if roll < 0.8 else intransitive)(dice, who, timed, deniable)


def timetable(dice: Dice) -> Clause:
    """The train arrives at ten past four."""
    verb, nouns = dice.pick(TIMETABLE)
    noun = dice.pick(nouns)
    who = described(dice, noun, definite=True, plural=False)
    return start(who, verb, Tense("simple"))._replace(time=day_and_clock(dice, HABIT[:1]))


def is_quality(
    dice: Dice, who: Phrase, quality: Adjective, lemma: str = "", past: bool = False, negated: bool = False
) -> Clause:
    """`lemma`: the noun that the quality is said of, where it is said of one."""
    en, de = NOTHING if quality.en in COLOURS else dice.pick(DEGREES[:3] if negated else DEGREES)
    return Clause(
        subject=who,
        forms=copula(who.agreement, past),
        place=(words(en, quality.en), words(de, quality.de)),
        negated=negated,
        nicht=negated,
        combos=(((quality.en, lemma),) if lemma else ()) + who.combos,
    )


def _weather(en: str, de: str) -> Clause:
    it = Phrase("it", "it", "es", "es", "ihm", 1, "n")
    if en == "raining":
        return Clause(it, Forms("is", "raining", "is", "raining", "regnet", "", "regnet"))
    return Clause(it, copula(1), place=(en, de))


WEATHER = tuple(
    _weather(en, de)
    for en, de in (("raining", ""), ("very cold", "sehr kalt"), ("too hot", "zu heiß"), ("already late", "schon spät"))
)


def circumstance(dice: Dice, who: Phrase, pronoun: str) -> Clause:
    """What explains or permits an action: she is tired, she has no time, she has to write a letter, it is raining."""
    roll = dice.random()
    if roll < 0.25:
        return is_quality(dice, who, ADJECTIVE[dice.pick(MOODS)], negated=dice.chance(0.15))
    if roll < 0.4:
        return Clause(who, forms(VERB["have"], "simple", who.agreement), dice.pick(MEANS), combos=who.combos)
    if roll < 0.5:
        return dice.pick(WEATHER)
    verb, nouns = dice.pick(POSSIBLE)
    modal = dice.pick(("want to", "have to", "can"))
    tense = Tense(modal, negated=modal == "can")
    return with_object(dice, Person(who, pronoun), verb, dice.pick(nouns), tense)
