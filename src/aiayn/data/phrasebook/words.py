"""The tables of `lexicon` as values."""

from typing import NamedTuple

from aiayn.data.phrasebook import lexicon


class Noun(NamedTuple):
    en: str
    en_plural: str  # "-" where there is none
    gender: str  # m f n
    de: str
    de_plural: str
    tags: frozenset[str]


class Adjective(NamedTuple):
    en: str
    en_comparative: str  # "-" where there is none
    de: str
    stem: str  # what endings are attached to
    de_comparative: str


class Verb(NamedTuple):
    en: tuple[str, ...]  # write writes writing wrote written
    particle: str  # look "for", pick "up"
    de: str  # infinitive without its separable prefix
    prefix: str
    he: str  # third person singular of the present tense
    participle: str
    auxiliary: str  # of the perfect tense: haben or sein
    case: str  # acc, dat, or a preposition with its case: auf+acc
    aspects: str
    definite: bool  # takes no indefinite object

    @property
    def lemma(self) -> str:
        return f"{self.en[0]} {self.particle}".rstrip()


def _noun(tag: str, line: str) -> Noun:
    en, en_plural, article, de, de_plural, *more = line.split()
    return Noun(en, en_plural, {"der": "m", "die": "f", "das": "n"}[article], de, de_plural, frozenset([tag, *more]))


def _adjective(line: str) -> tuple[Adjective, str]:
    english, german, groups = line.split(" | ")
    en, en_comparative = english.split()
    de, de_comparative = german.split()
    base, _, stem = de.partition(",")
    return Adjective(en, en_comparative.replace("_", " "), base, stem or base, de_comparative), groups


def _verb(line: str) -> tuple[Verb, str]:
    english, german, kind, groups = line.split(" : ")
    forms = english.split()
    infinitive, he, participle = german.split()
    prefix, _, base = infinitive.rpartition("|")
    case, aspect, *definite = kind.split()
    verb = Verb(
        en=tuple(forms[:5]),
        particle=" ".join(forms[5:]),
        de=base,
        prefix=prefix,
        he=he,
        participle=participle.rstrip("*"),
        auxiliary="sein" if participle.endswith("*") else "haben",
        case=case,
        aspects=lexicon.ASPECTS[aspect],
        definite=bool(definite),
    )
    return verb, groups


def _lines(table: str) -> list[str]:
    return [line.strip() for line in table.strip().splitlines()]


# Tuples and insertion-ordered dictionaries throughout: what is drawn must not hang on the order of a set.
ALL_NOUNS = tuple(_noun(tag, line) for tag, table in lexicon.NOUNS.items() for line in _lines(table))
GROUPS = tuple(lexicon.NOUNS)
NOUN = {noun.en: noun for noun in ALL_NOUNS}


def members(groups: str) -> tuple[Noun, ...]:
    """The nouns that belong to one of the groups or are named, less those named with a minus: "food -soup"."""
    words = groups.split()
    unwanted = {word[1:] for word in words if word.startswith("-")}
    return tuple(n for n in ALL_NOUNS if (n.en in words or n.tags & set(words)) and n.en not in unwanted)


_ADJECTIVES = [_adjective(line) for line in _lines(lexicon.ADJECTIVES)]
FAULTS = lexicon.FAULTS.split()
ADJECTIVE = {adjective.en: adjective for adjective, _ in _ADJECTIVES}
ADJECTIVES_OF = {
    noun.en: tuple(adjective for adjective, groups in _ADJECTIVES if noun in members(groups)) for noun in ALL_NOUNS
}


def _verbs(table: str) -> list[tuple[Verb, str]]:
    return [_verb(line) for line in _lines(table)]


TRANSITIVE = tuple((verb, members(groups)) for verb, groups in _verbs(lexicon.TRANSITIVE))
DITRANSITIVE = tuple((verb, members(groups)) for verb, groups in _verbs(lexicon.DITRANSITIVE))
TIMETABLE = tuple((verb, members(groups)) for verb, groups in _verbs(lexicon.TIMETABLE))
INTRANSITIVE = tuple((verb, tuple(kinds.split())) for verb, kinds in _verbs(lexicon.INTRANSITIVE))
CLAUSAL = tuple((verb, tuple(kinds.split())) for verb, kinds in _verbs(lexicon.CLAUSAL))
VERB = {verb.lemma: verb for verb, _ in TRANSITIVE + DITRANSITIVE + INTRANSITIVE}
