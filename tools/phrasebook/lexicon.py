"""The words of the corpus, read from the tables beside this file.

Every entry is one English lemma with exactly one German translation, so that the corpus is a
function of its English side. The last column of adjectives and verbs lists the nouns that go with
them, as groups or single nouns; "-noun" excludes one. In `nouns.tsv`, "weak" marks German nouns
that take -n in all cases but the nominative, "own" what may be "mine", "free" mass nouns, which
need no article, "zu" and "an" the prepositions that replace "in".

In English the verb form says what German leaves to adverbs, so `verbs.tsv` lists the tenses that
suit a verb:
g "is eating now", h "often eats", s "knows", p "ate yesterday", m "can eat". Repeated letters are
drawn more often; "definite" verbs take no indefinite object; "*" behind the German participle marks
the perfect tense with "sein".
"""

from pathlib import Path
from typing import NamedTuple


class Noun(NamedTuple):
    en: str
    en_plural: str  # "-" if there is none
    gender: str  # m f n
    de: str
    de_plural: str
    groups: frozenset[str]


class Adjective(NamedTuple):
    en: str
    de: str
    stem: str  # takes the endings
    kinds: frozenset[str]  # colour; mood of people; fault: a reason not to have or use a thing


class Verb(NamedTuple):
    kind: str
    en: tuple[str, ...]  # write writes writing wrote
    particle: str  # look "for", pick "up"
    prefix: str  # separable
    de: str  # infinitive without the prefix
    he: str  # third person singular of the present tense
    participle: str
    auxiliary: str  # auxiliary of the perfect tense: haben or sein
    case: str  # case of the object: acc, dat, or a preposition with its case: auf+acc
    tenses: str
    definite: bool  # takes no indefinite object
    objects: tuple[Noun, ...]
    complements: tuple[str, ...]  # what may follow if there is no object

    @property
    def lemma(self) -> str:
        return f"{self.en[0]} {self.particle}".rstrip()


def _rows(table: str) -> list[list[str]]:
    lines = Path(__file__).with_name(f"{table}.tsv").read_text("utf-8").split("\n")
    return [line.split("\t") for line in lines[1:] if line]


def _pair(entry: str) -> tuple[str, str]:
    en, de = entry.split(" = ")
    return en, de


def _noun(en: str, en_plural: str, article: str, de: str, de_plural: str, groups: str) -> Noun:
    return Noun(
        en,
        en_plural,
        {"der": "m", "die": "f", "das": "n"}[article],
        de,
        de_plural,
        frozenset(groups.split()),
    )


NOUNS = tuple(_noun(*row) for row in _rows("nouns"))


def members(groups: str) -> tuple[Noun, ...]:
    """Returns the nouns that are named or belong to a group, without those behind a minus: "food
    -soup".
    """
    names = groups.split()
    return tuple(
        n for n in NOUNS if (n.en in names or n.groups & set(names)) and f"-{n.en}" not in names
    )


def _verb(kind: str, english: str, german: str, case: str, tenses: str, objects: str) -> Verb:
    forms, (infinitive, he, participle) = english.split(), german.split()
    prefix, _, base = infinitive.rpartition("|")
    use, *definite = tenses.split()
    return Verb(
        kind=kind,
        en=tuple(forms[:4]),
        particle=" ".join(forms[4:]),
        prefix=prefix,
        de=base,
        he=he,
        participle=participle.rstrip("*"),
        auxiliary="sein" if participle.endswith("*") else "haben",
        case=case,
        tenses=use,
        definite=bool(definite),
        objects=members(objects),
        complements=tuple(objects.split()),
    )


ADJECTIVE: dict[str, Adjective] = {}
ADJECTIVES_OF: dict[str, tuple[Adjective, ...]] = {noun.en: () for noun in NOUNS}
for _en, _de, _stem, _kinds, _nouns in _rows("adjectives"):
    ADJECTIVE[_en] = Adjective(_en, _de, _stem, frozenset(_kinds.split()))
    for _each in members(_nouns):
        ADJECTIVES_OF[_each.en] += (ADJECTIVE[_en],)
VERBS = tuple(_verb(*row) for row in _rows("verbs"))
VERB = {verb.lemma: verb for verb in VERBS if verb.kind != "clausal"}
# Adverbs, cities and the like by kind, as (English, German).
ADVERBS = {kind: tuple(_pair(entry) for entry in entries) for kind, *entries in _rows("adverbs")}
