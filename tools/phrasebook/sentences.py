"""Draws sentences in both languages: every function listed in KINDS draws one kind."""

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from grammar import (
    ARTICLE,
    IT,
    MODALS,
    NOTHING,
    PRONOUNS,
    Clause,
    Combo,
    Forms,
    Pair,
    Phrase,
    copula,
    forms,
    inflected,
    noun_phrase,
    prepositional,
    words,
)
from lexicon import (
    ADJECTIVE,
    ADJECTIVES_OF,
    ADVERBS,
    NOUNS,
    VERB,
    VERBS,
    Adjective,
    Noun,
    Verb,
    members,
)

T = TypeVar("T")

NAMES = {"Anna": "f", "Peter": "m", "Maria": "f", "Paul": "m", "Julia": "f", "Martin": "m"}
POSSESSIVE = {"I": "my", "you": "your", "he": "his", "she": "her", "we": "our", "they": "their"}
PEOPLE, PLACES, HOMES = (
    members("person kin"),
    members("place"),
    members("house room hotel city village"),
)
MOODS = tuple(adjective for adjective in ADJECTIVE.values() if "mood" in adjective.kinds)
BY_KIND = {v.kind: tuple(verb for verb in VERBS if verb.kind == v.kind) for v in VERBS}
POSSIBLE = tuple(verb for verb in BY_KIND["transitive"] if "m" in verb.tenses)
REQUESTED = tuple(verb for verb in BY_KIND["transitive"] if "g" in verb.tenses)
# What one did to things, and may be asked when and where.
EVENTS = tuple(
    verb
    for verb in BY_KIND["transitive"]
    if "p" in verb.tenses and "s" not in verb.tenses and not set(verb.objects) & set(PEOPLE)
)
# Verbs whose object may be "it": particles would have to move behind it (turn it off).
WITH_IT = {
    n.en: tuple(v for v in POSSIBLE if n in v.objects and v.case == "acc" and not v.particle)
    for n in NOUNS
}
FAULTS = {n.en: tuple(a for a in ADJECTIVES_OF[n.en] if "fault" in a.kinds) for n in NOUNS}
MERITS = {n.en: tuple(a for a in ADJECTIVES_OF[n.en] if "-" in a.kinds) for n in NOUNS}
HANDLED = tuple(n for n in NOUNS if n not in PEOPLE and len(WITH_IT[n.en]) > 1 and FAULTS[n.en])
PAST, FUTURE = ADVERBS["past"] + ADVERBS["day"], ADVERBS["future"] + ADVERBS["day"]
RAIN = Clause(IT["n"], Forms("is", "raining", "is", "raining", "regnet", "", "regnet"))


class Dice:
    """The only source of randomness.

    Python promises the sequence of `Random(seed).random()` across versions, but not that of
    `choice` or `shuffle`.
    """

    def __init__(self, seed: int):
        self.random = random.Random(seed).random

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self.random() * len(options))]

    def chance(self, probability: float) -> bool:
        return self.random() < probability


class Sentence(NamedTuple):
    en: str
    de: str
    combos: tuple[Combo, ...]  # the (adjective, noun) and (verb, object) pairs in it


def finished(texts: Pair, combos: tuple[Combo, ...], mark: str = ".") -> Sentence:
    en, de = (f"{text[0].upper()}{text[1:]}{mark}" for text in texts)
    return Sentence(en, de, combos)


def joined(
    first: Pair, link: Pair, second: Pair, combos: tuple[Combo, ...], mark: str = "."
) -> Sentence:
    return finished(
        (f"{first[0]}{link[0]} {second[0]}", f"{first[1]}{link[1]} {second[1]}"), combos, mark
    )


# Parts of clauses.


def adjective(dice: Dice, noun: Noun, rate: float) -> Adjective | None:
    return dice.pick(ADJECTIVES_OF[noun.en]) if dice.chance(rate) else None


def described(
    dice: Dice, noun: Noun, mine: str = "", definite: bool = False, rate: float = 0.45
) -> Phrase:
    """The noun with a fitting determiner and perhaps an adjective; `mine` is the possessive to
    prefer.
    """
    plural = noun.en_plural != "-" and dice.chance(0.25)
    kin = "kin" in noun.groups
    indefinite = 0.0 if definite or kin else 0.15 if noun.groups & {"place", "person"} else 0.35
    if dice.chance(indefinite):
        determiner = "a"
    elif kin or ("own" in noun.groups and dice.chance(0.45)):
        roll = dice.random()
        determiner = mine if mine and roll < 0.6 else dice.pick(tuple(POSSESSIVE.values()))
        if roll > 0.85:
            determiner = f"{dice.pick(tuple(NAMES))}'s"
    else:
        determiner = "this" if dice.chance(0.2) else "the"
    return noun_phrase(determiner, noun, adjective(dice, noun, rate), plural)


def subject(dice: Dice) -> Phrase:
    roll = dice.random()
    if roll < 0.4:
        return PRONOUNS[dice.pick(tuple(PRONOUNS))]
    if roll < 0.55:
        name = dice.pick(tuple(NAMES))
        return Phrase(name, name, name, name, name, 1, NAMES[name])
    return described(dice, dice.pick(PEOPLE), rate=0.25)


def pronoun_of(who: Phrase) -> str:
    """The key of PRONOUNS that refers back to a person; "" if the languages differ (the girl, das
    Mädchen).
    """
    return (
        who.en if who.en in PRONOUNS else {"m": "he", "f": "she", "n": "", "p": "they"}[who.gender]
    )


def referable(dice: Dice) -> Phrase:
    while not pronoun_of(who := subject(dice)):
        pass
    return who


def complement(dice: Dice, kind: str) -> tuple[Pair, tuple[Combo, ...]]:
    """What follows an intransitive verb: a companion, a city, a place."""
    if kind in ("in_city", "to_city"):
        (en_preposition, de_preposition) = ("in", "in") if kind == "in_city" else ("to", "nach")
        en, de = dice.pick(ADVERBS["city"])
        return (f"{en_preposition} {en}", f"{de_preposition} {de}"), ()
    if kind == "with":
        other = described(dice, dice.pick(PEOPLE), definite=True, rate=0.2)
        return (f"with {other.en}", prepositional("mit", "dat", other)), other.combos
    noun = dice.pick(HOMES if kind == "home" else PLACES)
    owner = (
        dice.pick(tuple(POSSESSIVE.values()))
        if "own" in noun.groups and dice.chance(0.4)
        else "the"
    )
    place = noun_phrase(owner, noun, adjective(dice, noun, 0.4))
    en, de, case = ("at", "an", "dat") if "an" in noun.groups else ("in", "in", "dat")
    if kind == "to":
        en, de, case = ("to", "zu", "dat") if "zu" in noun.groups else ("to", "in", "acc")
    return (f"{en} {place.en}", prepositional(de, case, place)), place.combos


def start(
    who: Phrase, verb: Verb, tense: str, time: Pair = NOTHING, negated: bool = False
) -> Clause:
    """The clause without objects; `tense` as in `grammar.forms`."""
    verb_forms = forms(verb, tense, who.person)
    return Clause(who, verb_forms, time=time, negated=negated, nicht=negated, combos=who.combos)


def drawn_start(dice: Dice, who: Phrase, verb: Verb, timed: bool, deniable: bool) -> Clause:
    """The same in any tense; `timed`: may have a time or an adverb; `deniable`: may be negated."""
    use, negated, with_time = (
        dice.pick(verb.tenses),
        deniable and dice.chance(0.2),
        timed and dice.chance(0.5),
    )
    if use == "h" and timed:
        if dice.chance(0.6):
            return start(who, verb, "simple")._replace(often=dice.pick(ADVERBS["often"]))
        return start(who, verb, "simple", dice.pick(ADVERBS["habit"]))
    if use == "s":
        return start(who, verb, "simple", negated=negated)
    tense, times = "past", PAST
    if use != "p":
        tense, times = (
            ("progressive", ADVERBS["now"]) if use == "g" else (dice.pick(tuple(MODALS)), FUTURE)
        )
    return start(who, verb, tense, dice.pick(times) if with_time else NOTHING, negated)


def other_pronoun(dice: Dice, who: Phrase) -> Phrase:
    """Not "I see me" or "we see me", which English says with "myself"."""
    excluded = ("I", "we") if who.en in ("I", "we") else (pronoun_of(who),)
    return dice.pick([phrase for key, phrase in PRONOUNS.items() if key not in excluded])


def with_object(dice: Dice, verb: Verb, clause: Clause) -> Clause:
    """Somebody does it to some noun, or to a person called by a pronoun."""
    who, noun = clause.subject, dice.pick(verb.objects)
    preposition, _, case = verb.case.rpartition("+")
    definite = verb.definite and "free" not in noun.groups
    if noun in PEOPLE and verb.particle in ("", "for", "of") and dice.chance(0.25):
        target = other_pronoun(dice, who)
        german = target.acc if case == "acc" else target.dat
        if preposition:
            return clause._replace(
                objects=(target.en_object, ""), place=("", f"{preposition} {german}")
            )
        return clause._replace(objects=(target.en_object, ""), pronouns=german)
    if (
        clause.negated
        and not definite
        and not preposition
        and "kin" not in noun.groups
        and dice.chance(0.6)
    ):
        target = noun_phrase(
            "not a", noun, adjective(dice, noun, 0.4), noun.en_plural != "-" and dice.chance(0.4)
        )
        clause = clause._replace(nicht=False)
    else:
        target = described(
            dice, noun, POSSESSIVE.get(pronoun_of(who), ""), definite or clause.negated
        )
    clause = clause._replace(combos=(*clause.combos, (verb.lemma, noun.en), *target.combos))
    if preposition:
        return clause._replace(
            objects=(target.en, ""), place=("", prepositional(preposition, case, target))
        )
    return clause._replace(objects=(target.en, target.acc if case == "acc" else target.dat))


def with_receiver(dice: Dice, verb: Verb, clause: Clause) -> Clause:
    """Somebody receives the object: in German the dative is before the accusative, a pronoun before
    both.
    """
    en, de = clause.objects
    if dice.chance(0.4):
        to = other_pronoun(dice, clause.subject)
        return clause._replace(objects=(words(to.en_object, en), de), pronouns=to.dat)
    noun = dice.pick(PEOPLE)
    to = described(dice, noun, definite=True, rate=0.25)
    combos = (*clause.combos, (verb.lemma, noun.en), *to.combos)
    return clause._replace(objects=(words(to.en, en), words(to.dat, de)), combos=combos)


def action(dice: Dice, who: Phrase, timed: bool = True, deniable: bool = True) -> Clause:
    """Somebody does something."""
    roll = dice.random()
    verb = dice.pick(
        BY_KIND["transitive" if roll < 0.65 else "ditransitive" if roll < 0.8 else "intransitive"]
    )
    clause = drawn_start(dice, who, verb, timed, deniable)
    if verb.kind == "intransitive":
        kind = dice.pick(verb.complements)
        place, combos = (NOTHING, ()) if kind == "-" else complement(dice, kind)
        return clause._replace(place=place, combos=clause.combos + combos)
    clause = with_object(dice, verb, clause)
    return with_receiver(dice, verb, clause) if verb.kind == "ditransitive" else clause


def is_quality(
    dice: Dice,
    who: Phrase,
    quality: Adjective,
    noun: str = "",
    past: bool = False,
    negated: bool = False,
) -> Clause:
    """Somebody or something is (not) old; `noun` is the noun of `who`."""
    plain = "colour" in quality.kinds or dice.chance(0.3)
    # Never "not really"
    en, de = NOTHING if plain else dice.pick(ADVERBS["degree"][: 2 if negated else 3])
    place = words(en, quality.en), words(de, quality.de)
    combos = (((quality.en, noun),) if noun else ()) + who.combos
    return Clause(
        who, copula(who.person, past), place=place, negated=negated, nicht=negated, combos=combos
    )


def circumstance(dice: Dice, who: Phrase) -> Clause:
    """A reason or condition: she is tired, she has no time, it is raining, she has to write a
    letter.
    """
    roll = dice.random()
    if roll < 0.3:
        return is_quality(dice, who, dice.pick(MOODS), negated=dice.chance(0.15))
    if roll < 0.45:
        return start(who, VERB["have"], "simple")._replace(objects=dice.pick(ADVERBS["means"]))
    if roll < 0.5:
        return RAIN
    verb, modal = dice.pick(POSSIBLE), dice.pick(("want to", "have to", "can"))
    return with_object(dice, verb, start(who, verb, modal, negated=modal == "can"))


# Kinds of sentences.


def statement(dice: Dice) -> Sentence:
    clause = action(dice, subject(dice))
    return finished(
        clause.statement(front=bool(clause.time[0]) and dice.chance(0.4)), clause.combos
    )


def yes_no_question(dice: Dice) -> Sentence:
    clause = action(dice, subject(dice), deniable=False)
    return finished(clause.question(), clause.combos, "?")


def adverb_question(dice: Dice) -> Sentence:
    """Where did your brother buy the bicycle? Wo hat Ihr Bruder das Fahrrad gekauft?"""
    who, (en, de) = subject(dice), dice.pick((("why", "warum"), ("when", "wann"), ("where", "wo")))
    if en == "why":
        clause = action(dice, who, timed=False, deniable=False)
    else:
        verb = dice.pick(EVENTS)
        clause = with_object(dice, verb, start(who, verb, "past"))
    return joined((en, de), NOTHING, clause.question(), clause.combos, "?")


def quality(dice: Dice) -> Sentence:
    noun = dice.pick(NOUNS)
    described_noun, negated = described(dice, noun, definite=True, rate=0.0), dice.chance(0.2)
    clause = is_quality(
        dice, described_noun, dice.pick(ADJECTIVES_OF[noun.en]), noun.en, dice.chance(0.2), negated
    )
    if not negated and dice.chance(0.25):
        return finished(clause.question(), clause.combos, "?")
    return finished(clause.statement(), clause.combos)


def request(dice: Dice) -> Sentence:
    """Please turn on the lamp: Bitte schalten Sie die Lampe ein."""
    verb, time = dice.pick(REQUESTED), dice.pick(FUTURE) if dice.chance(0.4) else NOTHING
    clause = with_object(
        dice, verb, start(PRONOUNS["you"], verb, "simple", time, dice.chance(0.15))
    )
    en = words("please", "do not" if clause.negated else "", clause.forms.rest, clause.tail())
    return finished((en, f"bitte {clause.question()[1]}"), clause.combos)


def because_although(dice: Dice) -> Sentence:
    who = referable(dice)
    main, reason = action(dice, who, timed=False), circumstance(dice, PRONOUNS[pronoun_of(who)])
    link = dice.pick(((" because", ", weil"), (" because", ", weil"), (" although", ", obwohl")))
    return joined(main.statement(), link, reason.subordinate(), main.combos + reason.combos)


def conditional(dice: Dice) -> Sentence:
    """If it is raining, Peter will stay: the German main clause begins with its verb."""
    who = referable(dice)
    condition = circumstance(dice, who)
    actor = who if condition is RAIN else PRONOUNS[pronoun_of(who)]
    verb, modal = dice.pick(POSSIBLE), dice.pick(("will", "can", "should"))
    main = with_object(dice, verb, start(actor, verb, modal, negated=dice.chance(0.2)))
    first = joined(("if", "wenn"), NOTHING, condition.subordinate(), (), "")
    return joined(
        first[:2],
        (",", ","),
        (main.statement()[0], main.question()[1]),
        condition.combos + main.combos,
    )


def reported(dice: Dice) -> Sentence:
    """I think that ...; do you know whether ...?"""
    clause = action(dice, subject(dice))
    if dice.chance(0.6):
        main = start(subject(dice), dice.pick(BY_KIND["clausal"]), "simple")
        return joined(
            main.statement(), (" that", ", dass"), clause.subordinate(), main.combos + clause.combos
        )
    main = start(PRONOUNS["you"], BY_KIND["clausal"][0], "simple")
    link = dice.pick(((" whether", ", ob"), (" why", ", warum")))
    return joined(main.question(), link, clause.subordinate(), clause.combos, "?")


def relative(dice: Dice) -> Sentence:
    """The coat that Anna bought is too expensive: Der Mantel, den Anna gekauft hat, ist zu
    teuer.
    """
    verb = dice.pick(EVENTS)
    noun = dice.pick(verb.objects)
    head = noun_phrase("the", noun, plural=noun.en_plural != "-" and dice.chance(0.25))
    clause = start(subject(dice), verb, "past", dice.pick(PAST) if dice.chance(0.4) else NOTHING)
    (en, de), pronoun = clause.subordinate(), inflected("", ARTICLE["acc"], head.gender)
    whole = head._replace(
        en=f"{head.en} that {en}",
        nom=f"{head.nom}, {pronoun} {de},",
        combos=((verb.lemma, noun.en), *clause.combos),
    )
    main = is_quality(dice, whole, dice.pick(ADJECTIVES_OF[noun.en]), noun.en)
    return finished(main.statement(), main.combos)


def looking_back(dice: Dice) -> Sentence:
    """Anna wants to buy the coat, but it is too expensive: ..., aber er ist zu teuer."""
    who, noun = referable(dice), dice.pick(HANDLED)
    verb, past, negated = dice.pick(WITH_IT[noun.en]), dice.chance(0.3), dice.chance(0.4)
    described_noun = described(dice, noun, definite=True, rate=0.25)
    main = start(who, verb, "past" if past else dice.pick(tuple(MODALS)), negated=negated)
    main = main._replace(objects=(described_noun.en, described_noun.acc))
    it = IT[described_noun.gender]
    if dice.chance(0.6):
        good = not negated and dice.chance(0.4)
        then = is_quality(dice, it, dice.pick((MERITS if good else FAULTS)[noun.en]), noun.en, past)
        link = (" because", ", weil") if good or negated else (", but", ", aber")
    else:
        other = dice.pick([candidate for candidate in WITH_IT[noun.en] if candidate != verb])
        then = start(PRONOUNS[pronoun_of(who)], other, dice.pick(tuple(MODALS)))
        then = then._replace(
            objects=(it.en_object, ""), pronouns=it.acc, combos=((other.lemma, noun.en),)
        )
        link = (", but", ", aber") if negated else (" and", " und")
    second = then.subordinate() if link[1] == ", weil" else then.statement()
    return joined(
        main.statement(),
        link,
        second,
        (*main.combos, (verb.lemma, noun.en), *described_noun.combos, *then.combos),
    )


KINDS: tuple[tuple[int, Callable[[Dice], Sentence]], ...] = (
    (32, statement),
    (10, yes_no_question),
    (8, adverb_question),
    (9, quality),
    (6, request),
    (9, because_although),
    (6, conditional),
    (7, reported),
    (5, relative),
    (8, looking_back),
)
