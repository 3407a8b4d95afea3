"""Noun phrases and clauses in both languages: agreement, cases, verb forms and word order."""

from functools import cache
from typing import NamedTuple

from lexicon import Adjective, Noun, Verb

Pair = tuple[str, str]  # English, German
Combo = tuple[str, str]  # (adjective, noun) or (verb, object), as English lemmas
NOTHING: Pair = ("", "")

# Endings by case, for masculine, feminine, neuter and plural; "-" is no ending.
GENDERS = "mfnp"
# Also adjectives without an article
DER = {
    "nom": "er e es e",
    "acc": "en e es e",
    "dat": "em er em en",
}
EIN = {"nom": "- e - e", "acc": "en e - e", "dat": "em er em en"}
AFTER_DER = {"nom": "e e e en", "acc": "en e e en", "dat": "en en en en"}
AFTER_EIN = {"nom": "er e es en", "acc": "en e es en", "dat": "en en en en"}
ARTICLE = {"nom": "der die das die", "acc": "den die das die", "dat": "dem der dem den"}
EIN_WORDS = {
    "a": "ein",
    "not a": "kein",
    "my": "mein",
    "your": "Ihr",
    "his": "sein",
    "her": "ihr",
    "our": "unser",
}
EIN_WORDS["their"] = "ihr"
CONTRACTIONS = {
    "in dem": "im",
    "an dem": "am",
    "zu dem": "zum",
    "zu der": "zur",
    "in das": "ins",
    "an das": "ans",
}


class Phrase(NamedTuple):
    """A noun phrase or pronoun; `person` 0: ich, 1: third person singular, 2: plural and polite
    Sie.
    """

    en: str
    en_object: str
    nom: str
    acc: str
    dat: str
    person: int
    gender: str
    combos: tuple[Combo, ...] = ()


# "you" is always the polite form.
PRONOUNS = {
    "I": Phrase("I", "me", "ich", "mich", "mir", 0, "m"),
    "you": Phrase("you", "you", "Sie", "Sie", "Ihnen", 2, "p"),
    "he": Phrase("he", "him", "er", "ihn", "ihm", 1, "m"),
    "she": Phrase("she", "her", "sie", "sie", "ihr", 1, "f"),
    "we": Phrase("we", "us", "wir", "uns", "uns", 2, "p"),
    "they": Phrase("they", "them", "sie", "sie", "ihnen", 2, "p"),
}
# For things, English "it" takes the gender of the German noun.
IT = {
    "m": Phrase("it", "it", "er", "ihn", "ihm", 1, "m"),
    "f": Phrase("it", "it", "sie", "sie", "ihr", 1, "f"),
    "n": Phrase("it", "it", "es", "es", "ihm", 1, "n"),
    "p": PRONOUNS["they"],
}


def words(*parts: str) -> str:
    return " ".join(filter(None, parts))


def inflected(stem: str, endings: str, gender: str) -> str:
    return stem + endings.split(" ")[GENDERS.index(gender)].rstrip("-")


def _noun_form(noun: Noun, case: str, plural: bool) -> str:
    if plural:
        return noun.de_plural + ("n" if case == "dat" and noun.de_plural[-1] not in "ns" else "")
    return noun.de_plural if "weak" in noun.groups and case != "nom" else noun.de


def _german(
    determiner: str, adjective: Adjective | None, noun: Noun, plural: bool, case: str
) -> str:
    gender = "p" if plural else noun.gender
    if determiner in ("the", "this"):
        endings = AFTER_DER[case]
        article = (
            inflected("", ARTICLE[case], gender)
            if determiner == "the"
            else inflected("dies", DER[case], gender)
        )
    elif determiner in EIN_WORDS:
        article, endings = inflected(EIN_WORDS[determiner], EIN[case], gender), AFTER_EIN[case]
    else:
        article, endings = determiner.replace("'", ""), DER[case]
    described = inflected(adjective.stem, endings, gender) if adjective else ""
    return words(article, described, _noun_form(noun, case, plural))


@cache
def noun_phrase(
    determiner: str, noun: Noun, adjective: Adjective | None = None, plural: bool = False
) -> Phrase:
    """`determiner`: "the", "this", "Anna's" or a key of EIN_WORDS.

    Plurals and mass nouns drop "a". "not a" is for objects of a negated verb: English negates the
    verb, German the article ("does not need a key", "braucht keinen Schlüssel").
    """
    en = words(adjective.en if adjective else "", noun.en_plural if plural else noun.en)
    bare = plural or "free" in noun.groups
    article = determiner
    if determiner in ("a", "not a"):
        article = "" if bare else "an" if en[0] in "aeiou" else "a"
    elif determiner == "this" and plural:
        article = "these"
    german = "" if determiner == "a" and bare else determiner
    nom, acc, dat = (
        _german(german, adjective, noun, plural, case) for case in ("nom", "acc", "dat")
    )
    combos = ((adjective.en, noun.en),) if adjective else ()
    en = words(article, en)
    return Phrase(en, en, nom, acc, dat, 2 if plural else 1, "p" if plural else noun.gender, combos)


def prepositional(preposition: str, case: str, phrase: Phrase) -> str:
    """The German preposition and the phrase in its case, contracted where usual: in dem -> im."""
    first, article, *rest = f"{preposition} {phrase.acc if case == 'acc' else phrase.dat}".split(
        " ", 2
    )
    return words(CONTRACTIONS.get(f"{first} {article}", f"{first} {article}"), *rest)


DO, BE, WAS, HAVE = (
    ("do", "does", "do"),
    ("am", "is", "are"),
    ("was", "was", "were"),
    ("habe", "hat", "haben"),
)
# Modal: English auxiliary of questions and negations, what follows it, finite verb of statements;
# German finite verb.
MODALS = {
    "can": (("can",) * 3, "", None, ("kann", "kann", "können")),
    "will": (("will",) * 3, "", None, ("werde", "wird", "werden")),
    "should": (("should",) * 3, "", None, ("sollte", "sollte", "sollten")),
    "would like to": (("would",) * 3, "like to", None, ("möchte", "möchte", "möchten")),
    "want to": (DO, "want to", ("want to", "wants to", "want to"), ("will", "will", "wollen")),
    "have to": (DO, "have to", ("have to", "has to", "have to"), ("muss", "muss", "müssen")),
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


@cache
def forms(verb: Verb, tense: str, person: int) -> Forms:
    """`tense`: progressive, simple, past or a key of MODALS. The German past is the perfect, except
    for haben.
    """
    base, third, progressive, past = (words(form, verb.particle) for form in verb.en)
    if tense in MODALS:
        support, rest, plain, german = MODALS[tense]
        infinitive, finite, rest = verb.prefix + verb.de, german[person], words(rest, base)
        aux, following = ("", words(plain[person], base)) if plain else (support[person], rest)
        return Forms(
            aux, following, support[person], rest, finite, infinitive, f"{infinitive} {finite}"
        )
    if tense == "past":
        finite, right = (
            (("bin", "ist", "sind") if verb.auxiliary == "sein" else HAVE)[person],
            verb.participle,
        )
        if verb.de == "haben":
            finite, right = ("hatte", "hatte", "hatten")[person], ""
        return Forms("", past, "did", base, finite, right, words(right, finite))
    regular = verb.de[:-1] if verb.de.endswith("en") else f"{verb.de[:-1]}e"
    # "mag" and "weiß" are first and third person.
    finite = (regular if verb.he.endswith("t") else verb.he, verb.he, verb.de)[person]
    if tense == "progressive":
        return Forms(
            BE[person],
            progressive,
            BE[person],
            progressive,
            finite,
            verb.prefix,
            verb.prefix + finite,
        )
    plain = third if person == 1 else base
    return Forms("", plain, DO[person], base, finite, verb.prefix, verb.prefix + finite)


def copula(person: int, past: bool = False) -> Forms:
    en = (WAS if past else BE)[person]
    de = (("war", "war", "waren") if past else ("bin", "ist", "sind"))[person]
    return Forms(en, "", en, "", de, "", de)


class Clause(NamedTuple):
    """The parts of a clause, before any word order is chosen."""

    subject: Phrase
    forms: Forms
    objects: Pair = NOTHING  # all English objects; German ones except pronouns
    pronouns: str = ""  # German objects that are pronouns
    place: Pair = NOTHING  # also directions, companions, prepositional objects, predicates
    time: Pair = NOTHING
    often: Pair = NOTHING  # adverbs before the English verb
    negated: bool = False
    nicht: bool = False  # a negated clause without it has "kein" in its object
    combos: tuple[Combo, ...] = ()

    def tail(self, front: bool = False) -> str:
        """English: what follows the verb."""
        return words(self.objects[0], self.place[0], "" if front else self.time[0])

    def statement(self, front: bool = False) -> Pair:
        """In German the finite verb is second: a time in front moves the subject behind it."""
        if self.negated:
            verb = words(
                "cannot" if self.forms.support == "can" else f"{self.forms.support} not",
                self.forms.rest,
            )
        else:
            verb = words(self.forms.aux, self.often[0], self.forms.plain)
        english = words(self.time[0] if front else "", self.subject.en, verb, self.tail(front))
        order = (
            (self.time[1], self.forms.finite, self.subject.nom)
            if front
            else (self.subject.nom, self.forms.finite)
        )
        return english, words(*order, self._middle(front), self.forms.right)

    def question(self) -> Pair:
        """The finite verb is first; German uses this order also behind question words and
        subordinate clauses.
        """
        english = words(
            self.forms.support, self.subject.en, self.often[0], self.forms.rest, self.tail()
        )
        return english, words(self.forms.finite, self.subject.nom, self._middle(), self.forms.right)

    def subordinate(self) -> Pair:
        """In German the finite verb is last, joined with its prefix."""
        return self.statement()[0], words(self.subject.nom, self._middle(), self.forms.final)

    def _middle(self, front: bool = False) -> str:
        """German: what stands between the finite verb and the end of a main clause, without the
        subject.
        """
        time, nicht = "" if front else self.time[1], "nicht" if self.nicht else ""
        return words(self.pronouns, time, self.often[1], self.objects[1], nicht, self.place[1])
