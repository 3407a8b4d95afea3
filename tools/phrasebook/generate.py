"""Makes the built-in English-German corpus, `src/aiayn/phrasebook.tsv.bz2`: 40,000 pairs from a
small grammar.

    python tools/phrasebook/generate.py

Every English sentence has exactly one German translation. The test split measures composition: each
of its sentences contains a (verb, object) or (adjective, noun) pair of lemmas that occurs in no
training or validation sentence, while every single word of it occurs in training.
"""

import bz2
import hashlib
import re
from collections import Counter
from functools import cache
from pathlib import Path

from sentences import KINDS, Dice, Sentence

FILE = Path(__file__).resolve().parents[2] / "src/aiayn/phrasebook.tsv.bz2"
SEED = 2
SPLIT_SIZES = {"train": 38_000, "val": 1_000, "test": 1_000}
HELD_OUT_PERCENT = 8
LONGEST = 18  # English words
FAMILIAR = 5  # every word of val and test occurs in at least so many training sentences


@cache
def held_out(combo: tuple[str, str]) -> bool:
    """Returns whether this pair of lemmas is reserved for the test split."""
    return (
        int.from_bytes(hashlib.sha256(" ".join(combo).encode()).digest()[:8], "big") % 100
        < HELD_OUT_PERCENT
    )


def _words(sentence: Sentence) -> set[str]:
    return set(re.findall(r"[\w'-]+", f"{sentence.en} {sentence.de}"))


@cache
def splits() -> dict[str, list[Sentence]]:
    """Returns the sentences of "train", "val" and "test", in their fixed order."""
    kinds = [kind for weight, kind in KINDS for _ in range(weight)]
    dice = Dice(SEED)
    translation: dict[str, str] = {}
    german: set[str] = set()
    familiar: list[Sentence] = []
    novel: list[Sentence] = []
    # A few more than needed, since some will contain a word that is too rare in training.
    while (
        len(familiar) < SPLIT_SIZES["train"] + 1.1 * SPLIT_SIZES["val"]
        or len(novel) < 1.1 * SPLIT_SIZES["test"]
    ):
        sentence = dice.pick(kinds)(dice)
        if sentence.en.count(" ") >= LONGEST:
            continue
        if sentence.en in translation:
            assert translation[sentence.en] == sentence.de, f"two translations of {sentence.en}"
        elif sentence.de not in german:
            translation[sentence.en] = sentence.de
            german.add(sentence.de)
            (novel if any(map(held_out, sentence.combos)) else familiar).append(sentence)
    train, rest = familiar[: SPLIT_SIZES["train"]], familiar[SPLIT_SIZES["train"] :]
    counts = Counter(word for sentence in train for word in _words(sentence))
    known = {word for word, count in counts.items() if count >= FAMILIAR}
    val, test = (
        [sentence for sentence in candidates if _words(sentence) <= known]
        for candidates in (rest, novel)
    )
    return {"train": train, "val": val[: SPLIT_SIZES["val"]], "test": test[: SPLIT_SIZES["test"]]}


def text() -> bytes:
    """Returns the corpus as lines of split, English and German, with tabs between them."""
    lines = (
        f"{split}\t{sentence.en}\t{sentence.de}\n"
        for split, sentences in splits().items()
        for sentence in sentences
    )
    return "".join(lines).encode()


if __name__ == "__main__":
    FILE.write_bytes(bz2.compress(text()))
