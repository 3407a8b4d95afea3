"""Surveys a text before training: refuses sides in the wrong language, counts likely faults in a
sample, and reports them with the option that drops them.

Exchanged columns, swapped prefixes and files in a third language look like any other text to a
training. Their words do not: two texts in one language share their frequent words, whatever they
are about. If the columns of all texts are exchanged, only their languages show it.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from math import log10, sqrt
from typing import Any, NamedTuple

from aiayn.config.data import DataOptions
from aiayn.data.cleaning import (
    CleaningReport,
    CleanPair,
    Rule,
    clean,
    equal_sides,
    lacks_letters,
    pair_hash,
)
from aiayn.data.languages import (
    SCRIPT_NAMES,
    TARGET_TAG,
    language_judge,
    primary,
    wrong_languages,
)
from aiayn.data.placeholders import CJK
from aiayn.data.raw_text import RawText
from aiayn.data.sources import PhrasebookText
from aiayn.data.text_files import suffix
from aiayn.errors import ConfigError, DataError

log = logging.getLogger(__name__)

Pairs = list[tuple[str, str]]  # sources and targets

FIRST_PAIRS = 1000  # compared of each text
FEWEST_PAIRS = 20  # fewer may share no word by chance
# Measured on 98 pairs of texts about different things in English, German and French, of 20 to 1,000
# pairs each:
# a side's likeness to its own language is 2.3 times that to the other or more, and both sides
# together 2.8 times.
EXCHANGED_SIDE, EXCHANGED_PAIR = 2.0, 1.5
# Of 29 texts in English and German, parts of 10 pairs or more were 3 times as much like their own
# language in the phrasebook as like the other, with 0.05 of their words in common; French taken for
# German is at most 1.2 times as much like English.
LIKE_PHRASEBOOK = 0.03  # share of words in common
FEWEST_SWAPPED = 3  # pairs with both sides clearly in each other's language
JOINED = 400  # characters of pairs that are judged as one until both sides are clear
IDENTIFIED_PAIRS, FEWEST_FOREIGN = 200, 10  # given to the library, and refused from
FOREIGN_PAIRS = 100  # below which words of one language differ as much as those of two
SAME_LETTERS = 0.7  # likeness of trigrams that only texts of one language have
UNSPACED = f"{CJK}\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # each character counts as a word
WORD = re.compile(rf"[{UNSPACED}]|[^\W\d_{UNSPACED}]+")
# Pairs; more than that are thinned out by their hash, so that duplicates stay together
SAMPLE = 3_000
# Fault: its share that is worth a line, and the option that drops it
FAULTS = {
    "duplicates": (0.1, "data.drop_duplicates=exact"),
    "equal_sides": (0.01, "data.drop_equal=true"),
    "without_letters": (0.01, "data.drop_without_letters=true"),
    "wrong_language": (0.002, "data.drop_wrong_language=true"),
}


class SideProfile(NamedTuple):
    """How often words and trigrams occur in one side of a text."""

    words: Counter[str]
    trigrams: Counter[str]

    def likeness(self, other: "SideProfile") -> float:
        # Small texts may share no word; then letters decide.
        return (overlap(self.words, other.words) + 0.02) * overlap(self.trigrams, other.trigrams)


class TextProfile(NamedTuple):
    option: str  # as written on the command line
    pairs: Pairs
    src: SideProfile
    tgt: SideProfile


def overlap(counts: Counter[str], others: Counter[str]) -> float:
    """Returns the Bhattacharyya coefficient of two distributions: 1 for equal ones, 0 if nothing is
    in both.
    """
    total = counts.total() * others.total()
    return (
        sum(sqrt(n * others[key]) for key, n in counts.items() if key in others) / sqrt(total)
        if total
        else 0.0
    )


def profile_of(lines: Iterable[str]) -> SideProfile:
    words = Counter(word for line in lines for word in WORD.findall(line.casefold()))
    trigrams = Counter[str]()
    for word, count in words.items():
        for start in range(len(word)):
            trigrams[f" {word} "[start : start + 3]] += count
    return SideProfile(words, trigrams)


def check_sides(texts: dict[str, RawText], config: DataOptions) -> list[str]:
    """Raises DataError if a side of the training or test text is like the other side of the
    development text, or like neither, if both sides of a text are in each other's language, or if
    most of its pairs are in a third one.

    Reads the first pairs of each; texts with a tag, whose languages differ, are left out. Returns a
    line for each table that is too small to judge, with its first pair, which may be names of
    columns.
    """
    if not config.check_sides or config.task != "translation":
        return []
    lines = []
    dev = _profile(texts["val"])
    is_swapped = _swap_judge((config.src_lang, config.tgt_lang))
    for split in ("val", "train", "test"):
        for text in texts[split].untagged() if split in texts else ():
            profile = _profile(text)
            is_small = min(len(profile.pairs), len(dev.pairs)) < FEWEST_PAIRS
            is_judged = split != "val" and not is_small
            fault = next(_faults(profile, dev, config), None) if is_judged else None
            pairs = _without_symbols(profile.pairs, config)
            if fault is None and is_swapped(pairs):
                fault = (
                    f"its source side is in {config.tgt_lang} and its target side in "
                    f"{config.src_lang}"
                )
            if fault is None and not config.drop_wrong_language:
                fault = _foreign(pairs, config)
            if fault:
                raise DataError(
                    f"{text.option}: {fault}; correct the names of the files or of the columns, or "
                    "set data.check_sides=false"
                )
            is_table = suffix(text.names[0]) in ("csv", "tsv") and profile.pairs
            if split != "val" and is_small and is_table:
                src, tgt = profile.pairs[0]
                lines.append(
                    f"{text.option}: too few pairs ({len(profile.pairs)}, and {len(dev.pairs)} of "
                    f"{dev.option}) to tell whether its sides are swapped; its first pair is "
                    f"{src!r} and {tgt!r}"
                )
    return lines


def _profile(text: RawText) -> TextProfile:
    pairs = [
        (pair.src, pair.tgt) for pair in clean(islice(text.pairs(), FIRST_PAIRS), CleaningReport())
    ]
    src, tgt = (profile_of(pair[side] for pair in pairs) for side in (0, 1))
    return TextProfile(text.option, pairs, src, tgt)


def _without_symbols(pairs: Pairs, config: DataOptions) -> Pairs:
    """Returns the pairs whose source begins with no tag or symbol, which may name a language."""
    return [
        (src, tgt)
        for src, tgt in pairs
        if not TARGET_TAG.match(src) and src.partition(" ")[0] not in config.symbols
    ]


def _foreign(pairs: Pairs, config: DataOptions) -> str | None:
    """Returns what is wrong if the library, where it is installed, is sure that more than half of
    the pairs have a side in a third language.
    """
    try:
        languages = wrong_languages((config.src_lang, config.tgt_lang))
    except ConfigError:
        return None
    # The library takes words that nobody speaks for rare languages.
    third = {*SCRIPT_NAMES} - {primary(config.src_lang), primary(config.tgt_lang)}
    sample = pairs[:IDENTIFIED_PAIRS]
    names = Counter(languages(*pair) for pair in sample)
    foreign = {name: names[name] for name in names if not third.isdisjoint(name.split("-"))}
    if sum(foreign.values()) <= max(FEWEST_FOREIGN, len(sample) / 2):
        return None
    likeliest = max(foreign, key=foreign.__getitem__)
    return (
        f"{sum(foreign.values())} of {len(sample)} pairs are in languages other than "
        f"{config.src_lang}-{config.tgt_lang}, mainly {likeliest}"
    )


def _swap_judge(langs: tuple[str, str]) -> Callable[[Pairs], bool]:
    """Returns a function that tells whether both sides of pairs are clearly in each other's
    language.

    English and German are judged by the words of the phrasebook, languages of different scripts by
    letters, others by the library for languages, where it is installed.
    """
    codes = primary(langs[0]), primary(langs[1])
    if set(codes) == {"en", "de"}:
        book = _profile(PhrasebookText("phrasebook", ["val"], codes))

        def by_words(pairs: Pairs) -> bool:
            if len(pairs) < FEWEST_SWAPPED:
                return False
            src, tgt = map(profile_of, zip(*pairs, strict=True))
            return all(
                side.likeness(other) > EXCHANGED_SIDE * side.likeness(same)
                and overlap(side.words, other.words) > LIKE_PHRASEBOOK
                for side, same, other in ((src, book.src, book.tgt), (tgt, book.tgt, book.src))
            )

        return by_words
    judge = language_judge(langs)
    if judge is None:
        return lambda pairs: False

    def by_lines(pairs: Pairs) -> bool:
        swapped = right = 0
        src = tgt = ""
        for number, pair in enumerate(pairs, 1):
            # Short lines are in no language clearly; with the next ones they are.
            src, tgt = f"{src} {pair[0]}", f"{tgt} {pair[1]}"
            judged = judge(src), judge(tgt)
            if all(judged) or len(src) + len(tgt) > JOINED:
                swapped += judged == codes[::-1]
                right += judged == codes
                src = tgt = ""
            # Too many are right: the rest cannot make ten times as many swapped.
            if swapped + len(pairs) - number < 10 * right:
                return False
        return swapped >= FEWEST_SWAPPED

    return by_lines


def _faults(text: TextProfile, dev: TextProfile, config: DataOptions) -> Iterator[str]:
    """Yields what is wrong unless each side of a text is more like its side of the development text
    than like the other.
    """
    src_ratio = text.src.likeness(dev.tgt) / max(text.src.likeness(dev.src), 1e-6)
    tgt_ratio = text.tgt.likeness(dev.src) / max(text.tgt.likeness(dev.tgt), 1e-6)
    if src_ratio * tgt_ratio > EXCHANGED_PAIR and min(src_ratio, tgt_ratio) > 1:
        yield f"source and target are swapped compared with {dev.option}"
    # Words in common grow with both texts: those of one language had 0.05 to 0.24 or more, those of
    # two 0.08 to 0.15 or less, of 100 and of 1,000 pairs each.
    is_large = min(len(text.pairs), len(dev.pairs)) >= FOREIGN_PAIRS
    least = 0.05 * log10(len(text.pairs) * len(dev.pairs)) - 0.16 if is_large else 0.0
    for name, opposite, side, ratio, lang in (
        ("source", "target", text.src, src_ratio, config.src_lang),
        ("target", "source", text.tgt, tgt_ratio, config.tgt_lang),
    ):
        words = max(overlap(side.words, other.words) for other in (dev.src, dev.tgt))
        letters = max(overlap(side.trigrams, other.trigrams) for other in (dev.src, dev.tgt))
        if words < least and letters < SAME_LETTERS:
            yield f"its {name} side should be {lang}, but is in neither language of {dev.option}"
        if ratio > EXCHANGED_SIDE:
            yield f"its {name} side is in the language of the {opposite} side of {dev.option}"


@dataclass
class Survey:
    """A sample of a text's distinct pairs, and how often each comes."""

    langs: tuple[str, str]
    stride: int = 1  # only pairs whose hash is a multiple of it are sampled
    pairs: dict[int, tuple[str, str]] = field(default_factory=dict)  # by hash
    counts: Counter[int] = field(default_factory=Counter)

    def add(self, pairs: Iterable[CleanPair]) -> None:
        for pair in pairs:
            key = pair_hash(pair.src, pair.tgt)
            if key % self.stride == 0:
                self.pairs.setdefault(key, (pair.src, pair.tgt))
                self.counts[key] += 1
        while len(self.pairs) > SAMPLE:
            self.stride *= 2
            self.pairs = {key: pair for key, pair in self.pairs.items() if key % self.stride == 0}
            self.counts = Counter({key: self.counts[key] for key in self.pairs})

    def as_dict(self) -> dict[str, Any]:
        """Returns counts among the pairs that were looked at; wrong languages are None without the
        library.
        """
        sizes = {
            "pairs": self.counts.total(),
            "duplicates": self.counts.total() - len(self.pairs),
            "equal_sides": self._count(equal_sides),
            "without_letters": self._count(lacks_letters),
        }
        try:
            languages = wrong_languages(self.langs)
        except ConfigError:
            return sizes | {"wrong_language": None}
        names = Counter[str]()
        for key, pair in self.pairs.items():
            if name := languages(*pair):
                names[name] += self.counts[key]
        return sizes | {"wrong_language": names.total(), "languages": dict(names.most_common(5))}

    def _count(self, is_faulty: Rule) -> int:
        return sum(self.counts[key] for key, pair in self.pairs.items() if is_faulty(*pair))


def remarks(survey: dict[str, Any]) -> list[str]:
    """Returns a line for each count that is large enough to say."""
    lines, total = [], survey["pairs"]
    if survey["wrong_language"] is None:
        lines.append(
            "pairs in other languages are not looked for: pip install 'aiayn[text]' adds this"
        )
    for fault, (least, option) in FAULTS.items():
        count = survey[fault] or 0
        if count >= 2 and count > least * total:
            languages = f" ({', '.join(survey['languages'])})" if fault == "wrong_language" else ""
            lines.append(
                f"{fault.replace('_', ' ')}{languages}: {count:,} of {total:,} sampled training "
                f"pairs; {option} drops them"
            )
    return lines
