"""Clauses in both languages: verb forms, and the word orders of statement, question and subordinate clause.

German order: the finite verb second, first or last; what belongs to the verb but is not finite (prefix, infinitive,
participle) closes the clause; between them pronouns, time, frequency, objects, negation, place.
"""

from functools import cache
from typing import NamedTuple

from aiayn.data.phrasebook.phrases import NOTHING, Combo, Pair, Phrase, words
from aiayn.data.phrasebook.words import Verb

DO = ("do", "does", "do")
BE = ("am", "is", "are")
WAS = ("was", "was", "were")
HAVE = ("have", "has", "have")
DE_HAVE = ("habe", "hat", "haben")
DE_HAD = ("hatte", "hatte", "hatten")
DE_BE = ("bin", "ist", "sind")
DE_WAS = ("war", "war", "waren")


class Modal(NamedTuple):
    support: tuple[str, str, str]  # the auxiliary of questions and negation
    plain: tuple[str, str, str] | None  # a finite verb of its own, where statements do without that auxiliary
    rest: str  # what follows the auxiliary
    de: tuple[str, str, str]


MODALS = {
    "can": Modal(("can", "can", "can"), None, "", ("kann", "kann", "können")),
    "will": Modal(("will", "will", "will"), None, "", ("werde", "wird", "werden")),
    "should": Modal(("should", "should", "should"), None, "", ("sollte", "sollte", "sollten")),
    "would like to": Modal(("would", "would", "would"), None, "like to", ("möchte", "möchte", "möchten")),
    "be allowed to": Modal(BE, None, "allowed to", ("darf", "darf", "dürfen")),
    "want to": Modal(DO, ("want to", "wants to", "want to"), "want to", ("will", "will", "wollen")),
    "have to": Modal(DO, ("have to", "has to", "have to"), "have to", ("muss", "muss", "müssen")),
    "had to": Modal(("did",) * 3, ("had to",) * 3, "have to", ("musste", "musste", "mussten")),
    "wanted to": Modal(("did",) * 3, ("wanted to",) * 3, "want to", ("wollte", "wollte", "wollten")),
}


class Forms(NamedTuple):
    """One verb in one tense for one subject.

    English: statement "aux plain", negation "support not rest", question "support subject rest".
    German: "finite ... right" in main clauses, "... final" in subordinate ones.
    """

    aux: str
    plain: str
    support: str
    rest: str
    finite: str
    right: str
    final: str


def german_present(verb: Verb) -> tuple[str, str, str]:
    regular = verb.de[:-1] if verb.de.endswith("en") else f"{verb.de[:-1]}e"
    return (regular if verb.he.endswith("t") else verb.he, verb.he, verb.de)  # mag and weiß serve both


@cache
def forms(verb: Verb, tense: str, agreement: int) -> Forms:
    """`tense`: progressive, simple, past, perfect or a key of MODALS."""
    base, *english = (words(form, verb.particle) for form in verb.en)
    if tense in MODALS:
        support, plain, rest, german = MODALS[tense]
        infinitive = verb.prefix + verb.de
        finite, rest = german[agreement], words(rest, base)
        aux, said = ("", words(plain[agreement], base)) if plain else (support[agreement], rest)
        return Forms(aux, said, support[agreement], rest, finite, infinitive, f"{infinitive} {finite}")
    third, progressive, past, participle = english
    if tense in ("progressive", "simple"):
        finite = german_present(verb)[agreement]
        right, final = verb.prefix, verb.prefix + finite
    elif tense == "past" and verb.de == "haben":
        finite = final = DE_HAD[agreement]
        right = ""
    else:
        finite, right = (DE_BE if verb.auxiliary == "sein" else DE_HAVE)[agreement], verb.participle
        final = f"{right} {finite}"
    if tense == "progressive":
        return Forms(BE[agreement], progressive, BE[agreement], progressive, finite, right, final)
    if tense == "perfect":
        return Forms(HAVE[agreement], participle, HAVE[agreement], participle, finite, right, final)
    if tense == "past":
        return Forms("", past, "did", base, finite, right, final)
    return Forms("", third if agreement == 1 else base, DO[agreement], base, finite, right, final)


def copula(agreement: int, past: bool = False) -> Forms:
    en, de = (WAS if past else BE)[agreement], (DE_WAS if past else DE_BE)[agreement]
    return Forms(en, "", en, "", de, "", de)


class Clause(NamedTuple):
    """What is said, before any word order is chosen."""

    subject: Phrase
    forms: Forms
    objects: Pair = NOTHING  # English objects; German ones that are no pronouns
    pronouns: str = ""  # German objects that are pronouns
    place: Pair = NOTHING  # also directions, companions, objects with a preposition, predicates
    time: Pair = NOTHING
    often: Pair = NOTHING  # adverbs that stand before the English verb
    late: Pair = NOTHING  # adverbs around German "nicht": already, not yet
    negated: bool = False
    nicht: bool = False  # a negated clause without it has "kein" in its object
    combos: tuple[Combo, ...] = ()


def english_tail(c: Clause, front: bool = False) -> str:
    return words(c.objects[0], c.place[0], c.late[0], "" if front else c.time[0])


def english_statement(c: Clause, front: bool = False) -> str:
    """`front` puts the time first."""
    first, tail = c.time[0] if front else "", english_tail(c, front)
    if not c.negated:
        return words(first, c.subject.en, c.forms.aux, c.often[0], c.forms.plain, tail)
    support = "cannot" if c.forms.support == "can" else f"{c.forms.support} not"
    return words(first, c.subject.en, support, c.often[0], c.forms.rest, tail)


def english_question(c: Clause) -> str:
    return words(c.forms.support, c.subject.en, c.often[0], c.forms.rest, english_tail(c))


def _german_middle(c: Clause, front: bool) -> str:
    time, nicht = "" if front else c.time[1], "nicht" if c.nicht else ""
    return words(c.pronouns, time, c.often[1], c.objects[1], c.late[1], nicht, c.place[1])


def german_statement(c: Clause, front: bool = False) -> str:
    """The finite verb second: a time in front pushes the subject behind it."""
    if front:
        return words(c.time[1], c.forms.finite, c.subject.nom, _german_middle(c, True), c.forms.right)
    return words(c.subject.nom, c.forms.finite, _german_middle(c, False), c.forms.right)


def german_question(c: Clause) -> str:
    """The finite verb first; also what follows a fronted clause or question word."""
    return words(c.forms.finite, c.subject.nom, _german_middle(c, False), c.forms.right)


def german_subordinate(c: Clause) -> str:
    """The finite verb last, joined again with its prefix."""
    return words(c.subject.nom, _german_middle(c, False), c.forms.final)
