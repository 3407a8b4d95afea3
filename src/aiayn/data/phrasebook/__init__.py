"""A generated English-German corpus: some 40,000 pairs from a small grammar, with no file and no network.

Every English sentence has exactly one German translation. The test split asks for composition: each of its sentences
holds a (verb, object) or (adjective, noun) pair of lemmas that occurs in no training or validation sentence, while
every single word of it occurs in training.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable
from functools import cache

from aiayn.data.phrasebook import compound, sentences
from aiayn.data.phrasebook.parts import Dice
from aiayn.data.phrasebook.phrases import Combo
from aiayn.data.phrasebook.sentences import Sentence

# Raise it when any sentence of any split changes: prepared corpora of another version are then not reused.
VERSION = 1
SIZES = {"train": 38_000, "val": 1_000, "test": 1_000}
HELD_OUT_PERCENT = 8
LONGEST = 18  # English words
FAMILIAR = 5  # a word form of val or test occurs in at least so many training sentences

KINDS: tuple[tuple[int, Callable[[Dice], Sentence]], ...] = (
    (26, sentences.statement),
    (8, sentences.yes_no_question),
    (5, sentences.adverb_question),
    (3, sentences.who_question),
    (3, sentences.which_question),
    (6, sentences.quality),
    (3, sentences.comparison),
    (3, sentences.price),
    (2, sentences.age),
    (2, sentences.possession),
    (2, sentences.time_of_day),
    (4, sentences.location),
    (3, sentences.existence),
    (3, sentences.identity),
    (4, sentences.request),
    (2, sentences.menu_order),
    (1, sentences.way),
    (5, compound.because_although),
    (3, compound.conditional),
    (4, compound.reported_statement),
    (4, compound.reported_question),
    (3, compound.relative_object),
    (2, compound.relative_subject),
    (3, compound.looking_back),
    (1, compound.lost_and_found),
    (3, compound.coordination),
)


@cache
def held_out(combo: Combo) -> bool:
    """Whether this pair of lemmas is kept for the test split."""
    return int.from_bytes(hashlib.sha256(" ".join(combo).encode()).digest()[:8], "big") % 100 < HELD_OUT_PERCENT


def word_forms(sentence: Sentence) -> set[str]:
    return set(re.findall(r"[\w'-]+", f"{sentence.en} {sentence.de}"))


@cache
def derivations() -> dict[str, list[Sentence]]:
    """The sentences of each split, with the pairs of lemmas that they are made of."""
    kinds = [kind for weight, kind in KINDS for _ in range(weight)]
    dice = Dice(VERSION)
    translation: dict[str, str] = {}
    german: set[str] = set()
    familiar: list[Sentence] = []
    novel: list[Sentence] = []
    # A few more than needed, since some will hold a word form that is too rare in training.
    while len(familiar) < SIZES["train"] + 1.1 * SIZES["val"] or len(novel) < 1.1 * SIZES["test"]:
        sentence = dice.pick(kinds)(dice)
        if sentence.en.count(" ") >= LONGEST:
            continue
        if sentence.en in translation:
            assert translation[sentence.en] == sentence.de, f"two translations of {sentence.en}"
        elif sentence.de not in german:
            translation[sentence.en] = sentence.de
            german.add(sentence.de)
            (novel if any(map(held_out, sentence.combos)) else familiar).append(sentence)
    train = familiar[: SIZES["train"]]
    counts = Counter(word for sentence in train for word in word_forms(sentence))
    known = {word for word, count in counts.items() if count >= FAMILIAR}
    splits = {"train": train}
    for split, candidates in (("val", familiar[len(train) :]), ("test", novel)):
        splits[split] = [sentence for sentence in candidates if word_forms(sentence) <= known][: SIZES[split]]
    return splits


def pairs(split: str) -> list[tuple[str, str]]:
    """The (English, German) sentences of "train", "val" or "test", in their fixed order."""
    return [(sentence.en, sentence.de) for sentence in derivations()[split]]
