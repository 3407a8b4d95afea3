"""Noun phrases in both languages: articles, adjective endings, cases, prepositions, numbers, clock times."""

from functools import cache
from typing import NamedTuple

from aiayn.data.phrasebook.words import Adjective, Noun

Pair = tuple[str, str]  # English, German
Combo = tuple[str, str]  # (adjective, noun) or (verb, object), as English lemmas
NOTHING: Pair = ("", "")

GENDERS = "mfnp"  # p: plural, where gender makes no difference

# Endings by case, in the order of GENDERS. The article is also the relative pronoun (here in nom and acc).
ARTICLE = {
    "nom": ("der", "die", "das", "die"),
    "acc": ("den", "die", "das", "die"),
    "dat": ("dem", "der", "dem", "den"),
}
DER_WORD = {"nom": ("er", "e", "es", "e"), "acc": ("en", "e", "es", "e"), "dat": ("em", "er", "em", "en")}
EIN_WORD = {"nom": ("", "e", "", "e"), "acc": ("en", "e", "", "e"), "dat": ("em", "er", "em", "en")}
WEAK = {"nom": ("e", "e", "e", "en"), "acc": ("en", "e", "e", "en"), "dat": ("en", "en", "en", "en")}
MIXED = {"nom": ("er", "e", "es", "en"), "acc": ("en", "e", "es", "en"), "dat": ("en", "en", "en", "en")}
STRONG = DER_WORD

DER_WORDS = {"this": "dies", "which": "welch"}
POSSESSIVES = {"my": "mein", "your": "Ihr", "his": "sein", "her": "ihr", "our": "unser", "their": "ihr"}
# "not a" and "not": objects of a negated verb. English negates the verb ("do not need a key", "do not drink tea"),
# German the article ("brauche keinen Schlüssel", "trinke keinen Tee").
EIN_WORDS = {"a": "ein", "no": "kein", "not a": "kein", "not": "kein", **POSSESSIVES}
CONTRACTIONS = {
    "in dem": "im",
    "an dem": "am",
    "von dem": "vom",
    "zu dem": "zum",
    "zu der": "zur",
    "in das": "ins",
    "an das": "ans",
}


class Phrase(NamedTuple):
    """A noun phrase or pronoun; `agreement` 0: ich, 1: third person singular, 2: plural and polite Sie."""

    en: str
    en_object: str
    nom: str
    acc: str
    dat: str
    agreement: int
    gender: str
    combos: tuple[Combo, ...] = ()


# 'you' is always the polite form.
PRONOUNS = {
    "I": Phrase("I", "me", "ich", "mich", "mir", 0, "m"),
    "you": Phrase("you", "you", "Sie", "Sie", "Ihnen", 2, "p"),
    "he": Phrase("he", "him", "er", "ihn", "ihm", 1, "m"),
    "she": Phrase("she", "her", "sie", "sie", "ihr", 1, "f"),
    "we": Phrase("we", "us", "wir", "uns", "uns", 2, "p"),
    "they": Phrase("they", "them", "sie", "sie", "ihnen", 2, "p"),
}
# English 'it' takes the gender of the German noun that it stands for.
IT = {
    "m": Phrase("it", "it", "er", "ihn", "ihm", 1, "m"),
    "f": Phrase("it", "it", "sie", "sie", "ihr", 1, "f"),
    "n": Phrase("it", "it", "es", "es", "ihm", 1, "n"),
}


def words(*parts: str) -> str:
    return " ".join(filter(None, parts))


def a_or_an(following: str) -> str:
    return "an" if following[0] in "aeiou" else "a"


@cache
def name(who: str) -> Phrase:
    return Phrase(who, who, who, who, who, 1, "")


@cache
def both(first: Phrase, second: Phrase) -> Phrase:
    """Two names as one plural subject."""
    en, de = f"{first.en} and {second.en}", f"{first.nom} und {second.nom}"
    return Phrase(en, en, de, de, de, 2, "p")


def noun_form(noun: Noun, case: str, plural: bool) -> str:
    if plural:
        return noun.de_plural + ("n" if case == "dat" and noun.de_plural[-1] not in "ns" else "")
    return noun.de_plural if "weak" in noun.tags and case != "nom" else noun.de


def genitive(noun: Noun) -> str:
    """With the definite article: des Lehrers, des Mannes, des Jungen, der Frau."""
    if noun.gender == "f":
        return f"der {noun.de}"
    if "weak" in noun.tags:
        return f"des {noun.de_plural}"
    return f"des {noun.de}{'s' if noun.de.endswith(('er', 'el', 'en')) else 'es'}"


@cache
def german(determiner: str, adjective: Adjective | None, noun: Noun, plural: bool, case: str) -> str:
    gender = 3 if plural else GENDERS.index(noun.gender)
    if determiner in ("the", "of"):
        article, endings = ARTICLE[case][gender], WEAK
    elif determiner in DER_WORDS:
        article, endings = DER_WORDS[determiner] + DER_WORD[case][gender], WEAK
    elif determiner in EIN_WORDS:
        article, endings = EIN_WORDS[determiner] + EIN_WORD[case][gender], MIXED
    else:
        article, endings = determiner, STRONG
    described = adjective.stem + endings[case][gender] if adjective else ""
    return words(article, described, noun_form(noun, case, plural))


@cache
def noun_phrase(
    determiner: str,
    noun: Noun,
    adjective: Adjective | None = None,
    plural: bool = False,
    owner: Pair | Noun | None = None,
) -> Phrase:
    """`determiner` is a key of the tables above or "".

    `owner` stands in its place: a noun ("the teacher's") or any pair without endings ("Anna's" or "seven").
    """
    described = words(adjective.en if adjective else "", noun.en_plural if plural else noun.en)
    suffix = ""
    if isinstance(owner, Noun):
        en_determiner, de_determiner, suffix = f"the {owner.en}'s", "the", genitive(owner)
    elif owner:
        en_determiner, de_determiner = owner
    else:
        de_determiner = determiner
        if determiner in ("a", "not a"):
            en_determiner = a_or_an(described)
        elif determiner == "this" and plural:
            en_determiner = "these"
        else:
            en_determiner = "" if determiner == "not" else determiner
    en = words(en_determiner, described)
    cases = (words(german(de_determiner, adjective, noun, plural, case), suffix) for case in ("nom", "acc", "dat"))
    combos = ((adjective.en, noun.en),) if adjective else ()
    return Phrase(en, en, *cases, 2 if plural else 1, "p" if plural else noun.gender, combos)


def prepositional(preposition: str, case: str, phrase: Phrase) -> str:
    """German: the preposition with the phrase in its case, drawn together where usual: in dem -> im."""
    text = f"{preposition} {phrase.acc if case == 'acc' else phrase.dat}"
    first, article, *rest = text.split(" ", 2)
    return words(CONTRACTIONS.get(f"{first} {article}", f"{first} {article}"), *rest)


ONES: tuple[Pair, ...] = (
    ("zero", "null"),
    ("one", "eins"),
    ("two", "zwei"),
    ("three", "drei"),
    ("four", "vier"),
    ("five", "fünf"),
    ("six", "sechs"),
    ("seven", "sieben"),
    ("eight", "acht"),
    ("nine", "neun"),
    ("ten", "zehn"),
    ("eleven", "elf"),
    ("twelve", "zwölf"),
    ("thirteen", "dreizehn"),
    ("fourteen", "vierzehn"),
    ("fifteen", "fünfzehn"),
    ("sixteen", "sechzehn"),
    ("seventeen", "siebzehn"),
    ("eighteen", "achtzehn"),
    ("nineteen", "neunzehn"),
)
TENS: tuple[Pair, ...] = (
    ("twenty", "zwanzig"),
    ("thirty", "dreißig"),
    ("forty", "vierzig"),
    ("fifty", "fünfzig"),
    ("sixty", "sechzig"),
    ("seventy", "siebzig"),
    ("eighty", "achtzig"),
    ("ninety", "neunzig"),
)


def number(n: int) -> Pair:
    """0 to 99: (twenty-one, einundzwanzig)."""
    if n < 20:
        return ONES[n]
    (en_tens, de_tens), (en, de) = TENS[n // 10 - 2], ONES[n % 10]
    if n % 10 == 0:
        return en_tens, de_tens
    return f"{en_tens}-{en}", f"{'ein' if n % 10 == 1 else de}und{de_tens}"


def clock(hour: int, minutes: int) -> Pair:
    """Hour 1 to 12; minutes past it, 0 to 55 by fives, but not 25 and 35: (half past three, halb vier)."""
    after = hour % 12 + 1
    if minutes == 0:
        return f"{number(hour)[0]} o'clock", f"{'ein' if hour == 1 else number(hour)[1]} Uhr"
    if minutes == 30:
        return f"half past {number(hour)[0]}", f"halb {number(after)[1]}"
    late = minutes > 30
    distance, nearest = (60 - minutes, after) if late else (minutes, hour)
    en, de = ("quarter", "Viertel") if distance == 15 else number(distance)
    en_side, de_side = ("to", "vor") if late else ("past", "nach")
    return f"{en} {en_side} {number(nearest)[0]}", f"{de} {de_side} {number(nearest)[1]}"
