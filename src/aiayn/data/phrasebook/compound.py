"""Sentences of two clauses: subordinate and relative clauses, and pronouns that look back."""

from aiayn.data.phrasebook.clauses import (
    Clause,
    english_question,
    english_statement,
    german_question,
    german_statement,
    german_subordinate,
)
from aiayn.data.phrasebook.events import (
    POSSIBLE,
    Tense,
    action,
    circumstance,
    draw_tense,
    is_quality,
    start,
    timetable,
    with_object,
)
from aiayn.data.phrasebook.parts import PEOPLE, Dice, Person, described, referable, someone, subject
from aiayn.data.phrasebook.phrases import ARTICLE, GENDERS, IT, PRONOUNS, Phrase, noun_phrase
from aiayn.data.phrasebook.sentences import (
    DIRECT,
    PORTABLE,
    THINGS,
    Sentence,
    datable,
    finished,
    said_of_something,
    stated,
)
from aiayn.data.phrasebook.words import ADJECTIVES_OF, CLAUSAL, FAULTS, VERB, Noun

KNOW, BE_ACQUAINTED = CLAUSAL[0][0], VERB["know"]  # wissen, kennen
# Verbs whose object may be 'it': those of two words would have to part around it (turn it off).
WITH_IT = {
    noun.en: tuple(verb for verb, nouns in DIRECT if noun in nouns and not verb.particle and "m" in verb.aspects)
    for noun in THINGS
}
FAULTS_OF = {noun.en: tuple(a for a in ADJECTIVES_OF[noun.en] if a.en in FAULTS) for noun in THINGS}
HANDLED = tuple(noun for noun in THINGS if len(WITH_IT[noun.en]) > 1 and FAULTS_OF[noun.en])
SEARCHES = (
    (VERB["find"], Tense("can", negated=True)),
    (VERB["see"], Tense("can", negated=True)),
    (VERB["need"], Tense("simple")),
    (VERB["look for"], Tense("progressive")),
    (VERB["lose"], Tense("past")),
    (VERB["find"], Tense("have to")),
)
PLANS = ("want to", "would like to", "will", "have to", "can", "be allowed to")


def because_although(dice: Dice) -> Sentence:
    somebody = referable(dice)
    main = action(dice, somebody, timed=dice.chance(0.4))
    reason = circumstance(dice, PRONOUNS[somebody.pronoun], somebody.pronoun)
    en, de = dice.pick((("because", "weil"), ("because", "weil"), ("although", "obwohl")))
    return finished(
        f"{english_statement(main)} {en} {english_statement(reason)}",
        f"{german_statement(main)}, {de} {german_subordinate(reason)}",
        main.combos + reason.combos,
    )


def conditional(dice: Dice) -> Sentence:
    """The clause in front takes the first place, so that the finite verb follows it at once."""
    somebody = referable(dice)
    condition = circumstance(dice, somebody.phrase, somebody.pronoun)
    actor = somebody if condition.subject.en == "it" else someone(somebody.pronoun)
    verb, nouns = dice.pick(POSSIBLE)
    tense = Tense(dice.pick(("will", "can", "should")), negated=dice.chance(0.2))
    main = with_object(dice, actor, verb, dice.pick(nouns), tense)
    return finished(
        f"if {english_statement(condition)}, {english_statement(main)}",
        f"wenn {german_subordinate(condition)}, {german_question(main)}",
        condition.combos + main.combos,
    )


def reported(dice: Dice) -> Clause:
    roll = dice.random()
    if roll < 0.65:
        return action(dice, subject(dice))
    return timetable(dice) if roll < 0.75 else said_of_something(dice)


def reported_statement(dice: Dice) -> Sentence:
    verb, _ = dice.pick(CLAUSAL)
    speaker, clause = subject(dice).phrase, reported(dice)
    head = start(speaker, verb, Tense("simple", negated=verb.en[0] in ("think", "say") and dice.chance(0.2)))
    return finished(
        f"{english_statement(head)} that {english_statement(clause)}",
        f"{german_statement(head)}, dass {german_subordinate(clause)}",
        speaker.combos + clause.combos,
    )


def reported_question(dice: Dice) -> Sentence:
    """Do you know whether ...? She does not know why ..."""
    en, de = dice.pick((("whether", "ob"), ("whether", "ob"), ("why", "warum"), ("when", "wann"), ("where", "wo")))
    if en == "whether":
        clause = reported(dice)
    elif en == "why":
        clause = action(dice, subject(dice), timed=False, deniable=False)
    else:
        clause = datable(dice, subject(dice))
    en, de = f"{en} {english_statement(clause)}", f"{de} {german_subordinate(clause)}"
    if dice.chance(0.4):
        head = start(PRONOUNS["you"], KNOW, Tense("simple"))
        return finished(f"{english_question(head)} {en}", f"{german_question(head)}, {de}", clause.combos, "?")
    speaker = subject(dice).phrase
    head = start(speaker, KNOW, Tense("simple", negated=True))
    return finished(
        f"{english_statement(head)} {en}", f"{german_statement(head)}, {de}", speaker.combos + clause.combos
    )


def relative_pronoun(noun: Noun, plural: bool, case: str) -> str:
    return ARTICLE[case][3 if plural else GENDERS.index(noun.gender)]


def relative_object(dice: Dice) -> Sentence:
    """The book that I am reading is interesting: das Buch, das ich lese, ist interessant."""
    verb, nouns = dice.pick(DIRECT)
    noun = dice.pick(nouns)
    if noun not in THINGS:
        return relative_object(dice)
    plural = noun.en_plural != "-" and dice.chance(0.3)
    clause = start(subject(dice).phrase, verb, draw_tense(dice, verb.aspects))
    head = noun_phrase("the", noun, None, plural)
    head = head._replace(
        en=f"{head.en} that {english_statement(clause)}",
        nom=f"{head.nom}, {relative_pronoun(noun, plural, 'acc')} {german_subordinate(clause)},",
        combos=((verb.lemma, noun.en), *clause.subject.combos),
    )
    main = is_quality(dice, head, dice.pick(ADJECTIVES_OF[noun.en]), noun.en, past=dice.chance(0.2))
    return stated(main)


def relative_subject(dice: Dice) -> Sentence:
    """Do you know the woman who is waiting for the bus?"""
    noun = dice.pick(PEOPLE)
    if "person" not in noun.tags:
        return relative_subject(dice)
    plural = dice.chance(0.25)
    head = noun_phrase("the", noun, None, plural)
    nom = relative_pronoun(noun, plural, "nom")
    who = Person(Phrase("who", "who", nom, "", "", head.agreement, head.gender), "")
    clause = action(dice, who, deniable=False)
    en, de = f"{head.en} who {english_statement(clause)[4:]}", german_subordinate(clause)
    if dice.chance(0.5):
        know = start(PRONOUNS["you"], BE_ACQUAINTED, Tense("simple"))
        question = know._replace(objects=(en, head.acc))
        combos = ((BE_ACQUAINTED.lemma, noun.en), *clause.combos)
        return finished(english_question(question), f"{german_question(question)}, {de}", combos, "?")
    head = head._replace(en=en, nom=f"{head.nom}, {de},", combos=clause.combos)
    return stated(is_quality(dice, head, dice.pick(ADJECTIVES_OF[noun.en]), noun.en))


def handled_thing(dice: Dice, who: Person) -> tuple[Noun, Phrase]:
    """Something definite that 'it' may take up."""
    noun = dice.pick(HANDLED)
    return noun, described(dice, noun, definite=True, rate=0.2, plural=False)


def looking_back(dice: Dice) -> Sentence:
    """Anna wants to buy the coat, but it is too expensive: ..., aber er ist zu teuer."""
    somebody = referable(dice)
    noun, thing = handled_thing(dice, somebody)
    first, second = dice.pick(WITH_IT[noun.en]), dice.pick(WITH_IT[noun.en])
    negated, it = dice.chance(0.4), IT[noun.gender]
    if first == second or dice.chance(0.5):
        en, de = (" because", ", weil") if negated else (", but", ", aber")
        then = is_quality(dice, it, dice.pick(FAULTS_OF[noun.en]), noun.en)
    else:
        en, de = (", but", ", aber") if negated else (" and", " und")
        again = PRONOUNS[somebody.pronoun]
        then = start(again, second, Tense(dice.pick(PLANS)))
        then = then._replace(objects=("it", ""), pronouns=it.acc, combos=((second.lemma, noun.en),))
    main = start(somebody.phrase, first, Tense(dice.pick(PLANS), negated=negated))._replace(
        objects=(thing.en, thing.acc), combos=((first.lemma, noun.en), *thing.combos, *somebody.phrase.combos)
    )
    german = german_subordinate(then) if "weil" in de else german_statement(then)
    return finished(
        f"{english_statement(main)}{en} {english_statement(then)}",
        f"{german_statement(main)}{de} {german}",
        main.combos + then.combos,
    )


def lost_and_found(dice: Dice) -> Sentence:
    """Where is my key? I cannot find it: ... Ich kann ihn nicht finden."""
    noun = dice.pick(PORTABLE)
    thing = described(dice, noun, definite=True, rate=0.3, plural=False)
    be = "where is", "wo ist"
    somebody = subject(dice).phrase
    verb, tense = dice.pick(SEARCHES)
    find = start(somebody, verb, tense)._replace(objects=("it", ""), pronouns=IT[noun.gender].acc)
    then = stated(find._replace(combos=((verb.lemma, noun.en), *somebody.combos)))
    return finished(f"{be[0]} {thing.en}? {then.en}", f"{be[1]} {thing.nom}? {then.de}", thing.combos + then.combos, "")


def coordination(dice: Dice) -> Sentence:
    first, second = (action(dice, subject(dice), timed=dice.chance(0.4)) for _ in range(2))
    en, de = dice.pick(((" and", " und"), (", but", ", aber")))
    return finished(
        f"{english_statement(first)}{en} {english_statement(second)}",
        f"{german_statement(first)}{de} {german_statement(second)}",
        first.combos + second.combos,
    )
